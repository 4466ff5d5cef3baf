"""Who holds deliveries: consumers, and one-off gets."""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from ..messages.field_table import FieldTable, integer_of

if TYPE_CHECKING:
    from ..messages.message import Message
    from ..peers.client import Client
    from ..peers.session import Session
    from ..queues.queue import Queue

UNLIMITED = 1 << 62
#: Who has a message that is out. To the message itself it is opaque.
holder_of: "Callable[[Message], Holder]" = attrgetter("holder")


class Holder:
    """What a message that is out remembers: the queue it came from and the session that has it."""

    __slots__ = ("counts_against_prefetch", "queue", "session", "unacked")

    def __init__(self, queue: "Queue", session: "Session", *, counts_against_prefetch: bool) -> None:
        self.queue = queue
        self.session = session
        self.unacked = 0
        self.counts_against_prefetch = counts_against_prefetch


class Consumer(Holder):
    """A subscription of one session to one queue.

    `prefetch` limits this consumer's unacknowledged deliveries, 0 = unlimited; without acknowledgements (`no_ack`)
    no limit applies. `priority`: of those that have room the highest goes first. `opaque` belongs to the frontend.
    """

    __slots__ = ("arguments", "client", "exclusive", "no_ack", "opaque", "prefetch", "priority", "tag")

    def __init__(
        self,
        queue: "Queue",
        session: "Session",
        tag: str,
        *,
        no_ack: bool,
        exclusive: bool,
        prefetch: int,
        arguments: FieldTable,
    ) -> None:
        super().__init__(queue, session, counts_against_prefetch=True)
        self.client: Client = session.client
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch = prefetch
        self.arguments = arguments
        self.priority = integer_of(arguments, "x-priority") or 0
        self.opaque: object = None

    def credit(self) -> int:
        """How many messages it may be handed now; 0 or less means none."""
        session = self.session
        if self.client.paused or not session.flowing:
            return 0
        if self.no_ack:
            return UNLIMITED if session.has_shared_room(self) else 0
        credit = session.room()
        if self.prefetch:
            credit = min(credit, self.prefetch - self.unacked)
        if session.prefetch_total:
            credit = min(credit, session.prefetch_total - session.unacked_by_consumers)
        return credit


def by_holder(messages: list["Message"]) -> Iterable[tuple[Holder, list["Message"]]]:
    """Consecutive messages of one holder, as runs."""
    holders = set(map(holder_of, messages))
    if len(holders) == 1:
        yield holders.pop(), messages
        return
    run: list[Message] = []
    last: object = None
    for message in messages:
        holder = message.holder
        if holder is not last:
            if run:
                yield holder_of(run[0]), run
            run = []
            last = holder
        run.append(message)
    if run:
        yield holder_of(run[0]), run


def by_consumer(messages: list["Message"]) -> list[list["Message"]]:
    """The messages of each consumer: those of one queue after the other's; what was got first, then by consumer tag.

    The order in which RabbitMQ's channels settle several deliveries at once (`foreach_per_queue`).
    """
    runs = list(by_holder(messages))
    if len(runs) < 2:
        return [run for _, run in runs]
    groups: dict[tuple[str, str, int], list[Message]] = {}
    for number, (holder, run) in enumerate(runs):
        name = holder.queue.name
        key = (name, holder.tag, 0) if isinstance(holder, Consumer) else (name, "", number)
        groups.setdefault(key, []).extend(run)
    return [groups[key] for key in sorted(groups)]
