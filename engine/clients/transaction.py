"""The collected work of a transactional session. Source: behaviour page 2.15."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import TransactionTooLarge
from ..messages.message import Envelope, Message
from ..publishing.route import Route

#: Octets of memory for a message beside its content.
_OVERHEAD = 256
#: Cost of publishing a run beside its messages, in messages times queues.
RUN_COST = 8


class Publication(NamedTuple):
    """A run of publishes. `names`: its queues, chosen at the publish and not at the commit, as in RabbitMQ."""

    route: Route
    names: list[str]
    envelope: Envelope
    contents: Sequence[bytes]
    mandatory: bool


class Transaction:
    """Publishes and acknowledgements of a session since the last commit or rollback. `tags`: the settled deliveries."""

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
        """The number of messages that wait for the commit."""
        return sum(len(publication.contents) for publication in self.publishes)

    def add(self, publication: "Publication", *, limit: int) -> None:
        """Keep a run of publishes until the commit. `limit`: octets of the transaction. Raises: TransactionTooLarge."""
        contents = publication.contents
        self.size += sum(map(len, contents)) + len(contents) * _OVERHEAD
        if self.size > limit:
            raise TransactionTooLarge(limit=limit)
        self.cost += RUN_COST + len(contents) * len(publication.names)
        self.publishes.append(publication)
