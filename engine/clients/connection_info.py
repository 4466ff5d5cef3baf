"""Data of a client's connection for operators, set by its frontend. The engine does not use them."""

from ...settings.frozen import frozen
from ...settings.slotted import slotted


@frozen
class PeerCertificate:
    """Fields of a client's certificate, as text."""

    subject: str
    issuer: str
    validity: str


@slotted
class ConnectionInfo:
    """Data of one connection. `octets_in`, `octets_out`, `reads`, `writes` are counters; all others are set once."""

    protocol: str = ""
    node: str = ""  # the node of a cluster that the client is connected to
    mechanism: str = ""
    tls_protocol: str = ""  # empty: the connection is not encrypted
    tls_cipher: str = ""
    peer_certificate: PeerCertificate | None = None  # None: the client sent none
    channel_max: int = 0
    frame_max: int = 0
    heartbeat_s: int = 0
    octets_in: int = 0
    octets_out: int = 0
    reads: int = 0
    writes: int = 0
