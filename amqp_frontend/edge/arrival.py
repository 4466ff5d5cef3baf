"""A connection that was accepted elsewhere and is served here: by the gate of a cluster's node, or by another node."""

import socket

from ...settings.frozen import frozen
from .certificates import Certificate
from .tls import TlsTransport


@frozen
class EndedTls:
    """A client's TLS that ends at the gate or node to which the client is connected.

    `certificate`: the client's, verified, as `ssl` decodes it; None: it showed none. `transport`: decrypts and
    encrypts, if the TLS ends in this process. `first`: decrypted octets that were already read.
    """

    protocol: str
    cipher: str
    certificate: Certificate | None = None
    transport: TlsTransport | None = None
    first: bytes = b""


@frozen
class Arrival:
    """`address`: the client's, as `accept` gives it. `local`: the address it connected to; None: the socket's own.
    `is_tls`: the client begins with a TLS handshake. `node`: the cluster's node to which it is connected, as tools know
    it; empty: this one. `tls`: the client's TLS, if it ended elsewhere. `site`: the client's; None: the broker's own.
    """

    socket: socket.socket
    address: object
    is_tls: bool = False
    node: str = ""
    local: object = None
    tls: EndedTls | None = None
    site: str | None = None
