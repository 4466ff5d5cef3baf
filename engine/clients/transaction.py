"""A transaction: its collected publishes and acknowledgements, and the commit that applies them.

Source: behaviour page 2.15; ruling 5.
"""

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from ..context import BrokerContext
from ..errors import PartialCommit, TransactionTooLarge
from ..messages.message import Envelope, Message
from ..publishing import arrival
from ..publishing.route import Route, chosen_route
from ..turn import part_of
from .settling import return_deliveries, settle

if TYPE_CHECKING:
    from .session import Session

#: Octets of memory for a message in addition to its content.
_OVERHEAD = 256
#: Cost of publishing a run in addition to its messages, in messages times queues.
RUN_COST = 8

#: Mandatory messages that no queue took.
Returned = tuple[Envelope, Sequence[bytes]]


class Publication(NamedTuple):
    """A run of publishes. `names`: its queues, which are chosen before the commit, as in RabbitMQ."""

    route: Route
    names: list[str]
    envelope: Envelope
    contents: Sequence[bytes]
    mandatory: bool


class Transaction:
    """The publishes and acknowledgements since the last commit or rollback. `tags`: the settled deliveries, by tag."""

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


class Commit:
    """Applies a transaction: publishes first, then acknowledgements. A large transaction is applied in slices.

    Other clients see its messages as soon as they are in their queues, as in RabbitMQ. The journal records the commit
    as one unit (`Broker.is_unfinished`). When it `is_done`, `outcome` has the result, which is sent when `sync_lsn` is
    safe. It is applied even if its session or client ends before; in a deleted virtual host it publishes nothing.
    """

    def __init__(self, session: "Session", transaction: Transaction) -> None:
        self.session = session
        self._transaction = transaction
        self.has_begun = self.is_done = False
        self.sync_lsn = 0
        self._returned: list[Returned] = []
        self._error: Exception | None = None
        self._next = self._offset = 0  # the run to publish next, and the message in it
        self._settled = 0  # acknowledged messages that are settled

    @property
    def cost(self) -> int:
        """The approximate cost of the whole commit, in messages times queues."""
        transaction = self._transaction
        return transaction.cost + len(transaction.acked) + sum(len(entry[0]) for entry in transaction.rejected)

    def outcome(self) -> list[Returned]:
        """Mandatory messages that no queue took.

        Raises: PartialCommit: a queue refused some publishes; the rest is applied.
        """
        if self._error is not None:
            raise self._error
        return self._returned

    def work(self, budget: int = sys.maxsize) -> None:
        """Apply a slice of about `budget`, in messages times queues, and at least one step."""
        self.has_begun = True
        broker = self.session.client.broker
        turn = broker.turn
        before = turn.records
        try:
            self.is_done = self._work(budget)
        except Exception as error:  # a fault of the broker: only this client gets it, and the turn continues
            self._error, self.is_done = error, True
        if turn.records != before:
            self.sync_lsn = max(self.sync_lsn, broker.sync_lsn())

    def unsettled(self) -> Iterator[Message]:
        """The messages that this commit has not settled yet."""
        transaction = self._transaction
        rejected = chain.from_iterable(entry[0] for entry in transaction.rejected)
        return chain(islice(transaction.acked, self._settled, None), rejected)

    def _work(self, budget: int) -> bool:
        """Apply a slice. Returns whether all is done."""
        transaction, session = self._transaction, self.session
        publishes, acked, rejected = transaction.publishes, transaction.acked, transaction.rejected
        while self._next < len(publishes):
            if budget <= 0:
                return False
            budget -= self._publish(publishes[self._next], budget)
        while self._settled < len(acked):
            if budget <= 0:
                return False
            settled = acked[self._settled : self._settled + budget]
            self._settled += len(settled)
            settle(settled)
            budget -= len(settled)
        while rejected:
            if budget <= 0:
                return False
            messages, requeue, why = rejected.popleft()
            return_deliveries(messages, requeue=requeue, why=why, broker=session.client.broker)
            budget -= len(messages)
        return True

    def _publish(self, publication: Publication, budget: int) -> int:
        """Publish a run, or a part of it if it goes to many queues. Returns the cost."""
        route, names, envelope, contents, mandatory = publication
        width = max(1, len(names))
        start = self._offset
        stop = start + part_of(budget, width)
        if start or stop < len(contents):
            contents = contents[start:stop]
        if stop < len(publication.contents):
            self._offset = stop
        else:
            self._next, self._offset = self._next + 1, 0
        host = self.session.client.host
        if not host.is_being_deleted:
            session = self.session
            session.published += len(contents)
            if host.broker.sizes is not None:
                host.broker.sizes.add(envelope, contents)
            unroutable, refused = arrival.publish(host, chosen_route(route, names, host), envelope, contents)
            if refused and self._error is None:
                self._error = PartialCommit()
            if unroutable:
                self._returned += session.return_or_drop(envelope, unroutable, mandatory=mandatory)
        return RUN_COST + len(contents) * width


#: Messages times queues that a commit publishes in one slice (2 to 5 ms). A smaller commit is applied at once.
COMMIT_SLICE = 2_000


class Commits:
    """The large commits of one broker. Only the first of those `waiting` may have begun."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.waiting: deque[Commit] = deque()

    @property
    def pending(self) -> bool:
        """Whether a slice is due, perhaps after the dead letters. No commit begins while the journal cannot write."""
        waiting = self.waiting
        if not waiting:
            return False
        durability = self._context.storage.durability
        return waiting[0].has_begun or durability is None or not durability.has_failed

    @property
    def is_under_way(self) -> bool:
        """Whether a commit is partly applied."""
        return bool(self.waiting) and self.waiting[0].has_begun

    def apply(self, commit: "Commit") -> None:
        """Apply a transaction: at once, or in slices if it is large."""
        if commit.cost <= COMMIT_SLICE:
            commit.work()
        else:
            self.waiting.append(commit)

    def work(self) -> None:
        """Do a slice of the first commit. No commit begins while dead letters are waiting."""
        commit = self.waiting[0]
        if not commit.has_begun and (self._context.dead_letters.waiting or not self.pending):
            return
        commit.work(COMMIT_SLICE)
        if commit.is_done:
            self.waiting.popleft()
            commit.session.committed()
            client = commit.session.client
            if not client.closed:
                self._context.touched[client] = None
