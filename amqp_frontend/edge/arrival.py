"""A connection that this node serves, accepted by a listener (server.py), its gate, or another node of the cluster."""

import socket

from ...settings.frozen import frozen
from .certificates import Certificate
from .tls import TlsTransport


@frozen
class TerminatedTls:
    """A client's TLS that the gate or node to which the client is connected has terminated.

    `certificate`: the client's, verified, as `ssl` decodes it; None: it showed none. `transport`: decrypts and
    encrypts, if it was terminated in this process. `first`: decrypted octets that were already read.
    """

    protocol: str
    cipher: str
    certificate: Certificate | None = None
    transport: TlsTransport | None = None
    first: bytes = b""


@frozen
class Arrival:
    """A socket and what is known of its client. `address`: the client's, as `accept` gives it.

    `local`: the address that the client connected to; None: the socket's own. `is_tls`: the client begins with a TLS
    handshake. `node`: the cluster's node to which the client is connected, by the name that lists of connections show;
    empty: this one. `tls`: the client's TLS, if it is terminated. `site`: the client's; None: the broker's own.
    """

    socket: socket.socket
    address: object
    is_tls: bool = False
    node: str = ""
    local: object = None
    tls: TerminatedTls | None = None
    site: str | None = None
