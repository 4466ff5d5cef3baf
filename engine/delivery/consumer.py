"""The holders of deliveries: consumers and gets."""

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from ..messages.field_table import FieldTable, integer_of
from ..messages.message import UNLIMITED, Message

if TYPE_CHECKING:
    from ...expressions.language import Expression  # costs 20 ms and 2 MiB, which a broker without filters is spared
    from ..clients.session import Session
    from ..queues.queue import Queue

#: The holder of an unacknowledged message (`Message.holder` is typed as an object).
holder_of: "Callable[[Message], Holder]" = attrgetter("holder")


class Holder:
    """A holder of unacknowledged messages: a consumer, or a basic.get."""

    #: Whether its messages are settled, and the session has only their tags.
    is_past: ClassVar[bool] = False

    __slots__ = ("counts_against_prefetch", "queue", "session", "unacked")

    def __init__(self, queue: "Queue", session: "Session", *, counts_against_prefetch: bool) -> None:
        self.queue = queue
        self.session = session
        self.unacked = 0
        self.counts_against_prefetch = counts_against_prefetch

    def settled(self, count: int) -> None:
        """Count settled deliveries. Called if `is_past`."""


class Consumer(Holder):
    """A subscription of one session to one queue.

    `prefetch`: maximum of unacknowledged deliveries; 0: unlimited, as with `no_ack`. `priority`: consumers of the
    highest priority with credit are served first. `filter`: the messages that it gets; None: all. `opaque`: data of
    the frontend. `is_paused`: its queue is paused.
    """

    __slots__ = ("arguments", "client", "exclusive", "filter", "is_paused", "no_ack", "opaque", "prefetch", "priority",
                 "tag")  # fmt: skip

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
        self.arguments = arguments
        self.priority = integer_of(arguments, "x-priority") or 0
        self.filter = filter_

    def credit(self) -> int:
        """The number of messages that may be delivered now; none if 0 or below."""
        session = self.session
        if self.is_paused or self.client.paused or not session.flowing:
            return 0
        if self.no_ack:
            return UNLIMITED if session.has_shared_room(self) else 0
        credit = session.unacked_room()
        prefetch = self.prefetch
        if prefetch and prefetch - self.unacked < credit:
            credit = prefetch - self.unacked
        if session.prefetch_total:
            credit = min(credit, session.prefetch_total - session.unacked_by_consumers)
        return credit


def runs_by_holder(messages: list[Message]) -> Iterable[tuple[Holder, list[Message]]]:
    """Consecutive messages of one holder, as runs made on demand: settling a run may change holders of later ones."""
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
    """The messages of each consumer, sorted by queue, and within it first those of gets, then by consumer tag.

    In this order RabbitMQ's channels settle several deliveries at once (`foreach_per_queue`).
    """
    runs = tuple(runs_by_holder(messages))
    if len(runs) < 2:
        return [run for _, run in runs]
    groups: dict[tuple[str, str, int], list[Message]] = {}
    for number, (holder, run) in enumerate(runs):
        name = holder.queue.name
        key = (name, holder.tag, 0) if isinstance(holder, Consumer) else (name, "", number)
        groups.setdefault(key, []).extend(run)
    return [groups[key] for key in sorted(groups)]
