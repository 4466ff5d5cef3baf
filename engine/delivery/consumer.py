"""Who holds deliveries: consumers, and one-off gets.

Queues stand above this room and sessions above them, so a holder knows both only by what deliveries need of them.
Code that needs more of the queue asks `queue_of` (queues).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ..messages.field_table import FieldTable, integer_of
from ..messages.message import Message
from ..messages.mixed import Envelopes

if TYPE_CHECKING:
    from ...expressions.language import Expression  # 20 ms, and 2 MiB, that a broker without filters need not have
    from .effects import Delivered

UNLIMITED = 1 << 62
#: Who has a message that is out. To the message itself it is opaque.
holder_of: "Callable[[Message], Holder]" = attrgetter("holder")


class Origin(Protocol):
    """The queue that deliveries come from."""

    name: str


class Recipient(Protocol):
    """The client that deliveries go to. `unsent`, `unsent_max`: octets on their way to it, and how many may be.

    `liveness()`: whether it was heard from lately; None: it is not bound to let anybody hear (no heartbeats).
    """

    name: str
    paused: bool
    unsent: int
    unsent_max: int
    liveness: Callable[[], bool] | None

    def room(self) -> int:
        """Octets that may still be sent before the client is paused."""

    def send_after(self, sync_lsn: int) -> None:
        """What is on its way must not be sent before the journal is safe up to there (LSN)."""

    def affordable(self, blobs: Sequence[bytes]) -> int:
        """How many of these to send until the room is used up; at least one."""


class Receiver(Protocol):
    """The session that numbers deliveries and counts what is unacknowledged. Hashable."""

    acked: int
    flowing: bool
    prefetch_total: int
    prefetch_wanted: int | None
    unacked_by_consumers: int

    @property
    def client(self) -> Recipient:
        """Whose session it is."""

    def room(self) -> int:
        """How many more deliveries may be unacknowledged."""

    def has_shared_room(self, consumer: "Consumer") -> bool:
        """Whether a consumer that does not acknowledge may have a message under a shared prefetch limit."""

    def portion(self) -> int:
        """How much of a shared prefetch limit one queue gets in this round of turns."""

    def deliver_new(
        self,
        consumer: "Consumer",
        ids: Sequence[int],
        envelopes: Envelopes,
        blobs: Sequence[bytes],
        octets: int,
    ) -> None:
        """Hand over a run of messages that were never in a store, `octets` in all."""

    def deliver_ready(self, consumer: "Consumer", messages: Sequence[Message]) -> None:
        """Hand over messages that were ready."""

    def deliver(self, consumer: "Consumer", messages: Sequence[Message], effects: "Sequence[Delivered]") -> None:
        """Hand over messages by these effects; where nothing is acknowledged, the caller settles them."""

    def deliver_beside(self, consumer: "Consumer", messages: Sequence[Message], past: "Holder") -> None:
        """Hand over messages that count nowhere: an acknowledgement of them does nothing. `past` has them."""

    def release(self, holder: "Holder", queue: Any, count: int) -> None:
        """So many deliveries of a holder are no longer out: credit is free, queues may go on."""

    def unacked_of(self, queue: Any) -> list[Message]:
        """Deliveries of a queue that are unacknowledged, or whose settling waits for a commit; in no order."""

    def forget_queue(self, queue: Any) -> None:
        """The queue is deleted: what is unacknowledged of it is settled into nothing."""

    def forget_consumer(self, consumer: "Consumer") -> None:
        """The broker ended a subscription."""

    def notify_cancelled(self, consumer: "Consumer") -> None:
        """Let the client know that the broker ended a subscription."""


class Holder:
    """What a message that is out remembers: the queue it came from and the session that has it."""

    #: Whether what it had counts nowhere any more: only tags of it are left with the session.
    is_past: ClassVar[bool] = False

    __slots__ = ("counts_against_prefetch", "queue", "session", "unacked")

    def __init__(self, queue: Origin, session: Receiver, *, counts_against_prefetch: bool) -> None:
        self.queue = queue
        self.session = session
        self.unacked = 0
        self.counts_against_prefetch = counts_against_prefetch

    def settled(self, count: int) -> None:
        """So many deliveries of one that `is_past` are no longer out."""


class Consumer(Holder):
    """A subscription of one session to one queue.

    `prefetch` limits this consumer's unacknowledged deliveries, 0 = unlimited; without acknowledgements (`no_ack`)
    no limit applies. `priority`: of those that have room the highest goes first. `opaque` belongs to the frontend.
    `filter`: it gets the messages that this takes; None: all. `is_paused`: its queue hands nothing out now.
    """

    __slots__ = (
        "arguments",
        "client",
        "exclusive",
        "filter",
        "is_paused",
        "no_ack",
        "opaque",
        "prefetch",
        "priority",
        "tag",
    )

    def __init__(
        self,
        queue: Origin,
        session: Receiver,
        tag: str,
        *,
        no_ack: bool,
        exclusive: bool,
        prefetch: int,
        arguments: FieldTable,
        filter_: "Expression | None" = None,
    ) -> None:
        super().__init__(queue, session, counts_against_prefetch=True)
        self.client = session.client
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch = prefetch
        self.arguments = arguments
        self.priority = integer_of(arguments, "x-priority") or 0
        self.filter = filter_
        self.opaque: object = None
        self.is_paused = False

    def change(self, arguments: FieldTable, filter_: "Expression | None") -> None:
        """It subscribed again, under its tag."""
        self.arguments = arguments
        self.priority = integer_of(arguments, "x-priority") or 0
        self.filter = filter_

    def credit(self) -> int:
        """How many messages it may be handed now; 0 or less means none."""
        session = self.session
        if self.is_paused or self.client.paused or not session.flowing:
            return 0
        if self.no_ack:
            return UNLIMITED if session.has_shared_room(self) else 0
        credit = session.room()
        prefetch = self.prefetch
        if prefetch and prefetch - self.unacked < credit:
            credit = prefetch - self.unacked
        if session.prefetch_total:
            credit = min(credit, session.prefetch_total - session.unacked_by_consumers)
        return credit


def by_holder(messages: list[Message]) -> Sequence[tuple[Holder, list[Message]]]:
    """Consecutive messages of one holder, as runs."""
    if len(messages) == 1:
        return ((holder_of(messages[0]), messages),)
    holders = set(map(holder_of, messages))
    if len(holders) == 1:
        return ((holders.pop(), messages),)
    runs: list[tuple[Holder, list[Message]]] = []
    last: object = None
    for message in messages:
        if message.holder is not last:
            last = message.holder
            runs.append((holder_of(message), []))
        runs[-1][1].append(message)
    return runs


def runs_by_holder(messages: list[Message]) -> Iterable[tuple[Holder, list[Message]]]:
    """The same, each run when it is asked for: what happens to one may give the next another holder (`PastHolder`)."""
    if len(messages) == 1 or len(set(map(holder_of, messages))) == 1:
        return ((holder_of(messages[0]), messages),)
    return _each_run(messages)


def _each_run(messages: list[Message]) -> Iterator[tuple[Holder, list[Message]]]:
    start, count = 0, len(messages)
    while start < count:
        holder, stop = messages[start].holder, start + 1
        while stop < count and messages[stop].holder is holder:
            stop += 1
        yield holder_of(messages[start]), messages[start:stop]
        start = stop


def by_consumer(messages: list[Message]) -> list[list[Message]]:
    """The messages of each consumer: those of one queue after the other's; what was got first, then by consumer tag.

    The order in which RabbitMQ's channels settle several deliveries at once (`foreach_per_queue`).
    """
    runs = by_holder(messages)
    if len(runs) < 2:
        return [run for _, run in runs]
    groups: dict[tuple[str, str, int], list[Message]] = {}
    for number, (holder, run) in enumerate(runs):
        name = holder.queue.name
        key = (name, holder.tag, 0) if isinstance(holder, Consumer) else (name, "", number)
        groups.setdefault(key, []).extend(run)
    return [groups[key] for key in sorted(groups)]
