"""A connection that was accepted elsewhere and is served here: by the gate of a cluster's node, or by another node."""

import socket

from ...settings.frozen import frozen
from .tls import Certificate, TlsTransport


@frozen
class EndedTls:
    """A client's TLS that has ended where the client is connected to.

    `certificate`: the client's, verified, as `ssl` decodes it; None: it showed none. `transport`: what the socket is
    read and written through, when that is in this process. `first`: octets that were read of it.
    """

    protocol: str
    cipher: str
    certificate: Certificate | None = None
    transport: TlsTransport | None = None
    first: bytes = b""


@frozen
class Arrival:
    """`address`: the client's, as `accept` gives it. `local`: where it connected to; None: the socket's own address.
    `is_tls`: TLS comes. `node`: the node of a cluster to which it is connected, as tools know it; empty: this one.
    `tls`: that has ended. `site`: the client's, for the broker; None: the broker's own.
    """

    socket: socket.socket
    address: object
    is_tls: bool = False
    node: str = ""
    local: object = None
    tls: EndedTls | None = None
    site: str | None = None
