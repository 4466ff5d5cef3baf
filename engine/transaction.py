"""What a transactional session has gathered. Source: behaviour page 2.15."""

from collections.abc import Sequence

from .errors import TransactionTooLarge
from .message import Envelope, Message

#: What a message costs beside its content.
_OVERHEAD = 256


class Transaction:
    """What a transactional session has gathered since the last commit or rollback."""

    __slots__ = ("acked", "publishes", "rejected", "size", "tags")

    def __init__(self) -> None:
        self.publishes: list[tuple[Envelope, Sequence[bytes], bool]] = []
        self.size = 0  # octets of the publishes
        self.acked: list[Message] = []
        self.rejected: list[tuple[list[Message], bool, str]] = []  # (messages, requeue, why)
        self.tags: dict[int, Message] = {}

    def add(self, envelope: Envelope, blobs: Sequence[bytes], *, mandatory: bool, limit: int) -> None:
        """Keep a run of publishes till the commit. Raises: TransactionTooLarge; `limit` is in octets."""
        self.size += sum(map(len, blobs)) + len(blobs) * _OVERHEAD
        if self.size > limit:
            raise TransactionTooLarge(limit=limit)
        self.publishes.append((envelope, blobs, mandatory))
