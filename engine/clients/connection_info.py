"""Facts of a client's connection that its frontend reports, for operators. The engine does not use them."""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class PeerCertificate:
    """What a client's certificate says, as text for people."""

    subject: str
    issuer: str
    validity: str


class ConnectionInfo:
    """`octets_in`, `octets_out`, `reads`, `writes` are counters; all other fields are set once.

    `node`: of a cluster, to which the client is connected. `tls_protocol` empty: the connection is not encrypted.
    `peer_certificate`: None: the client showed none, or none was asked for.
    """

    __slots__ = (
        "channel_max",
        "frame_max",
        "heartbeat_s",
        "mechanism",
        "node",
        "octets_in",
        "octets_out",
        "peer_certificate",
        "protocol",
        "reads",
        "tls_cipher",
        "tls_protocol",
        "writes",
    )

    def __init__(self, protocol: str = "") -> None:
        self.protocol = protocol
        self.node = self.mechanism = self.tls_protocol = self.tls_cipher = ""
        self.peer_certificate: PeerCertificate | None = None
        self.channel_max = self.frame_max = self.heartbeat_s = 0
        self.octets_in = self.octets_out = self.reads = self.writes = 0
