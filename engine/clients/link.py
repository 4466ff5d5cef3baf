"""What a frontend says of the connection under a client, for people who look. The engine asks nothing of it."""


class Link:
    """`octets_in`, `octets_out`, `reads`, `writes` rise, a few additions a read or write; all else is settled once.

    `tls_protocol` empty: the connection is not encrypted.
    """

    __slots__ = (
        "channel_max",
        "frame_max",
        "heartbeat_s",
        "mechanism",
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
        self.mechanism = self.tls_protocol = self.tls_cipher = ""
        self.channel_max = self.frame_max = self.heartbeat_s = 0
        self.octets_in = self.octets_out = self.reads = self.writes = 0
