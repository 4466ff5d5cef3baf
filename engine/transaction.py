"""What a transactional session has gathered. Source: behaviour page 2.15."""

from collections.abc import Sequence

from .message import Envelope, Message


class Transaction:
    """What a transactional session has gathered since the last commit or rollback."""

    __slots__ = ("acked", "publishes", "rejected", "tags")

    def __init__(self) -> None:
        self.publishes: list[tuple[Envelope, Sequence[bytes], bool]] = []
        self.acked: list[Message] = []
        self.rejected: list[tuple[list[Message], bool, str]] = []  # (messages, requeue, why)
        self.tags: dict[int, Message] = {}
