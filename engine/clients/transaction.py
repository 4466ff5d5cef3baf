"""What a transactional session has gathered. Source: behaviour page 2.15."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import TransactionTooLarge
from ..messages.message import Envelope, Message
from ..publishing.route import Route

#: What a message costs beside its content.
_OVERHEAD = 256
#: What publishing a run costs beside its messages, in messages times queues.
RUN_COST = 8


class Publication(NamedTuple):
    """A run of publishes; `names` are those of the queues that were chosen for it, as RabbitMQ does it, at once."""

    route: Route
    names: list[str]
    envelope: Envelope
    blobs: Sequence[bytes]
    mandatory: bool


class Transaction:
    """What a transactional session has gathered since the last commit or rollback."""

    __slots__ = ("acked", "cost", "publishes", "rejected", "size", "tags")

    def __init__(self) -> None:
        self.publishes: list[Publication] = []
        self.size = 0  # octets of the publishes
        self.cost = 0  # of publishing them, in messages times queues
        self.acked: list[Message] = []
        self.rejected: deque[tuple[list[Message], bool, str]] = deque()  # (messages, requeue, why)
        self.tags: dict[int, Message] = {}

    @property
    def count(self) -> int:
        """Messages that wait for the commit."""
        return sum(len(publication.blobs) for publication in self.publishes)

    def add(self, publication: "Publication", *, limit: int) -> None:
        """Keep a run of publishes till the commit. Raises: TransactionTooLarge; `limit` is in octets."""
        blobs = publication.blobs
        self.size += sum(map(len, blobs)) + len(blobs) * _OVERHEAD
        if self.size > limit:
            raise TransactionTooLarge(limit=limit)
        self.cost += RUN_COST + len(blobs) * len(publication.names)
        self.publishes.append(publication)
