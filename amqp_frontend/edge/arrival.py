"""A connection that was accepted elsewhere and is served here: by the gate of a cluster's node, or by another node."""

import socket
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Arrival:
    """`address`: the client's, as `accept` gives it. `local`: where it connected to; None: the socket's own address.
    `is_tls`: TLS comes. `node`: the node of a cluster to which it is connected; empty: this one.
    """

    socket: socket.socket
    address: object
    is_tls: bool = False
    node: str = ""
    local: object = None
