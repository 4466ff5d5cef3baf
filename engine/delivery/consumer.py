"""The holders of deliveries: consumers and gets.

Queues and sessions are above this room, so a holder knows only the parts of them that deliveries need. Code that needs
the queue itself calls `queue_of` (queues).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ..messages.field_table import FieldTable, integer_of
from ..messages.message import Message
from ..messages.mixed import Envelopes

if TYPE_CHECKING:
    from ...expressions.language import Expression  # costs 20 ms and 2 MiB, which a broker without filters is spared
    from .effects import Delivered

UNLIMITED = 1 << 62
#: The holder of an unacknowledged message, which is opaque to the message.
holder_of: "Callable[[Message], Holder]" = attrgetter("holder")


class Origin(Protocol):
    """The queue that deliveries come from."""

    name: str


class Recipient(Protocol):
    """The client that deliveries go to. `unsent`: octets not sent yet; `unsent_max`: their limit.

    `liveness()`: whether the client sent something lately; None: it has no heartbeats.
    """

    name: str
    paused: bool
    unsent: int
    unsent_max: int
    liveness: Callable[[], bool] | None

    def room(self) -> int:
        """Octets that fit before the client is paused."""

    def send_after(self, sync_lsn: int) -> None:
        """Send nothing more before the journal is safe up to this LSN."""

    def affordable(self, contents: Sequence[bytes]) -> int:
        """The number of these contents that use up the room; at least one."""


class Receiver(Protocol):
    """The session that numbers deliveries and counts unacknowledged ones. Hashable."""

    acked: int
    flowing: bool
    prefetch_total: int
    prefetch_wanted: int | None
    unacked_by_consumers: int

    @property
    def client(self) -> Recipient:
        """The client of the session."""

    def room(self) -> int:
        """The number of further deliveries that may be unacknowledged."""

    def has_shared_room(self, consumer: "Consumer") -> bool:
        """Whether a consumer without acknowledgements may take a message under a shared prefetch limit."""

    def portion(self) -> int:
        """The part of a shared prefetch limit that one queue gets in this round of turns."""

    def deliver_new(
        self,
        consumer: "Consumer",
        ids: Sequence[int],
        envelopes: Envelopes,
        contents: Sequence[bytes],
        octets: int,
    ) -> None:
        """Deliver a run of new messages that were never in a store. `octets`: their total size."""

    def deliver_ready(self, consumer: "Consumer", messages: Sequence[Message]) -> None:
        """Deliver ready messages."""

    def deliver(self, consumer: "Consumer", messages: Sequence[Message], effects: "Sequence[Delivered]") -> None:
        """Deliver messages by these effects. Without acknowledgements the caller settles them."""

    def deliver_beside(self, consumer: "Consumer", messages: Sequence[Message], past: "Holder") -> None:
        """Deliver copies that need no settlement; acknowledgements of their tags are ignored. `past`: their holder."""

    def release(self, holder: "Holder", queue: Any, count: int) -> None:
        """Deliveries of a holder were settled: its credit is free, and queues may dispatch again."""

    def unacked_of(self, queue: Any) -> list[Message]:
        """Unacknowledged deliveries of a queue, and those whose settlement waits for a commit; unordered."""

    def forget_queue(self, queue: Any) -> None:
        """The queue is deleted: settle its unacknowledged deliveries without effect."""

    def forget_consumer(self, consumer: "Consumer") -> None:
        """Forget a subscription that the broker ended."""

    def notify_cancelled(self, consumer: "Consumer") -> None:
        """Tell the client that the broker ended a subscription."""


class Holder:
    """The queue and the session of an unacknowledged message."""

    #: Whether its deliveries are settled, so that only their tags are left in the session.
    is_past: ClassVar[bool] = False

    __slots__ = ("counts_against_prefetch", "queue", "session", "unacked")

    def __init__(self, queue: Origin, session: Receiver, *, counts_against_prefetch: bool) -> None:
        self.queue = queue
        self.session = session
        self.unacked = 0
        self.counts_against_prefetch = counts_against_prefetch

    def settled(self, count: int) -> None:
        """Deliveries of a holder that `is_past` were settled."""


class Consumer(Holder):
    """A subscription of one session to one queue.

    `prefetch` limits the unacknowledged deliveries; 0 is unlimited, and without acknowledgements (`no_ack`) no limit
    applies. `priority`: consumers of the highest priority with room are served first. `opaque` belongs to the
    frontend. `filter`: the messages that it receives; None: all. `is_paused`: its queue is paused.
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
        """Replace the consumer's arguments and filter."""
        self.arguments = arguments
        self.priority = integer_of(arguments, "x-priority") or 0
        self.filter = filter_

    def credit(self) -> int:
        """The number of messages that may be delivered now; 0 or less means none."""
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
    """Consecutive messages of one holder, each run on demand: handling one may change the holder of the next."""
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
    """The messages of each consumer, queue by queue: first those of gets, then by consumer tag.

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
