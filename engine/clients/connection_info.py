"""Facts of a client's connection that its frontend reports, for operators. The engine does not use them."""


class ConnectionInfo:
    """`octets_in`, `octets_out`, `reads`, `writes` are counters; all other fields are set once.

    `node`: of a cluster, to which the client is connected. `tls_protocol` empty: the connection is not encrypted.
    """

    __slots__ = (
        "channel_max",
        "frame_max",
        "heartbeat_s",
        "mechanism",
        "node",
        "octets_in",
        "octets_out",
        "protocol",
        "reads",
        "tls_cipher",
        "tls_protocol",
        "writes",
    )

    def __init__(self, protocol: str = "") -> None:
        self.protocol = protocol
        self.node = self.mechanism = self.tls_protocol = self.tls_cipher = ""
        self.channel_max = self.frame_max = self.heartbeat_s = 0
        self.octets_in = self.octets_out = self.reads = self.writes = 0
