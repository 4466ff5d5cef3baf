"""A history in a few words, told to one of the oracle's books: see the test_books files.

A history is a list of steps, each the name of a method of `History` and its arguments. Nothing of the broker runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from simulator.books.book import Book
from simulator.books.whereabouts import Whereabouts
from simulator.clients.knowledge import body_of, key_of
from simulator.parts import Plan, QueuePlan

from leveret.engine import (
    AckedEvent,
    DeliveredEvent,
    DueEvent,
    EnqueuedEvent,
    Envelope,
    Event,
    EventKind,
    LeftEvent,
    Message,
    PublishedEvent,
    QueueEvent,
    RequeuedEvent,
    ScheduledEvent,
)
from leveret.engine.events import Counters
from leveret.engine.messages.content import NATIVE, PropertySummary, encode_header

MS = 1_000_000
Step = tuple[Any, ...]
#: Who publishes, where nothing else is said.
PUBLISHER = 7


def key(number: int, publisher: int = PUBLISHER) -> bytes:
    """Of a message; by default its number is its id."""
    return key_of(publisher, number)


def content_of(number: int, headers: dict[str, Any] | None = None, *, publisher: int = PUBLISHER) -> bytes:
    """Its contents."""
    body = body_of(key(number, publisher), 10)
    return NATIVE.join(encode_header(len(body), {"headers": headers} if headers else None), body)


def envelope_of(
    *, persistent: bool = True, priority: int | None = None, expiration: bytes | None = None, routing_key: str = "a"
) -> Envelope:
    """Of a run of messages."""
    return Envelope("", routing_key, PropertySummary(persistent, priority, expiration))


class FakeClock:
    """`simulator.loop.SimulatedClock`, moved by hand."""

    def __init__(self) -> None:
        self.now_ns = 10**9
        self.wall_start_ms = 1_750_000_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return self.wall_start_ms + self.now_ns // MS


class FakeScheduled:
    """The messages of a queue that wait: due time and message each."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Message]] = []

    def __len__(self) -> int:
        return len(self.waiting)

    def __iter__(self) -> Any:
        return (message for _, message in self.waiting)

    def entries(self) -> list[tuple[int, Message]]:
        return self.waiting


class FakeQueue:
    """What the engine would say of a queue; who writes a test says it."""

    def __init__(self, name: str) -> None:
        self.name, self.vhost_name, self.durable, self.keeps_acked = name, "/", True, False
        self.there: list[Message] = []
        self.out: list[Message] = []
        self.paged: list[Any] = []
        self.scheduled = FakeScheduled()
        self.ready_count = self.unacked = 0
        self.counters = Counters()
        self.store = FakeStore(self)

    def messages(self) -> list[Message]:
        return self.there

    def unacked_messages(self) -> list[Message]:
        return self.out


class FakeStore:
    """What of a queue is ready, in memory and paged out."""

    def __init__(self, queue: FakeQueue) -> None:
        self._queue = queue

    def __iter__(self) -> Any:
        return iter(self._queue.there)

    def paged_parts(self) -> list[Any]:
        return self._queue.paged


class FakeBroker:
    """Queues, a journal, and counters."""

    def __init__(self, queues: Iterable[FakeQueue] = ()) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self.virtual_hosts = {"/": SimpleNamespace(name="/", queues=self.queues)}
        durability = SimpleNamespace(takes_nothing=False, is_lost=False, is_behind=False, has_failed=False)
        activity = SimpleNamespace(octets_in=0, octets_out=0, reads=0, writes=0)
        storage = SimpleNamespace(durability=durability)
        self.context = SimpleNamespace(storage=storage, listeners=[], activity=activity, is_stopping=False)
        self.connections: list[Any] = []
        self.counted = SimpleNamespace(
            queues=0, ready=0, scheduled=0, unacked=0, counters={"published": 0, "unroutable": 0}
        )

    def statistics(self) -> Any:
        counted = vars(self.counted)
        return SimpleNamespace(**{**counted, "counters": dict(self.counted.counters)})


class History:
    """Tells the steps to a book, and behind it to `where`. `queues`: name -> features."""

    def __init__(self, make: Callable[[History], Book], **queues: dict[str, Any]) -> None:
        self.clock = FakeClock()
        self.broker = FakeBroker(FakeQueue(name) for name in queues)
        self.where = Whereabouts(Plan(1, 1, "", [QueuePlan(name, features=kinds) for name, kinds in queues.items()]))
        self.book = make(self)
        self.books = [self.book] if self.book is self.where else [self.book, self.where]
        self._handlers = [book.handlers() for book in self.books]
        self.restarted()

    def tell(self, steps: Sequence[Step]) -> None:
        """All of them, in order. Raises: Broken."""
        for name, *arguments in steps:
            named = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
            getattr(self, name)(*arguments, **named)

    def event(self, event: Event) -> None:
        for handlers in self._handlers:
            if (handler := handlers.get(type(event))) is not None:
                handler(event)

    # -- steps --------------------------------------------------------------------------------------------------------

    def restarted(self) -> None:
        """Another life; the queues have what `has` says."""
        for book in reversed(self.books):
            book.attach(self.broker)  # type: ignore[arg-type]

    def has(
        self, queue: str, ready: Iterable[int] = (), *, out: int = 0, tries: int = 0, ends_ns: int = 0, **facts: Any
    ) -> None:
        """What the engine says is in a queue. `ends_ns`: until when these live."""
        one = self.broker.queues[queue]
        one.there = [Message(id_, content_of(id_), envelope_of(**facts), deliveries=tries) for id_ in ready]
        for message in one.there:
            message.expires_ns = ends_ns
        one.ready_count, one.unacked = len(one.there), out

    def has_waiting(self, queue: str, *entries: tuple[int, int], tries: int = 0) -> None:
        """Message id, and in how many ms it is due."""
        self.broker.queues[queue].scheduled.waiting = [
            (self.clock.now_ns + due_ms * MS, Message(id_, content_of(id_), envelope_of(), deliveries=tries))
            for id_, due_ms in entries
        ]

    def passed(self, ms: float) -> None:
        self.clock.now_ns += int(ms * MS)

    def clock_was_set(self, by_ms: int) -> None:
        self.clock.wall_start_ms += by_ms

    def declared(self, queue: str) -> None:
        one = self.broker.queues[queue] = FakeQueue(queue)
        self.event(QueueEvent(EventKind.DECLARED, "/", queue, one))  # type: ignore[arg-type]

    def undeclared(self, queue: str) -> None:
        one = self.broker.queues.pop(queue)
        self.event(QueueEvent(EventKind.UNDECLARED, "/", queue, one))  # type: ignore[arg-type]

    def published(
        self, ids: Sequence[int], to: Sequence[str] = ("a",), *, numbers: Sequence[int] = (), exchange: str = ""
    ) -> None:
        contents = [content_of(number) for number in numbers or ids]
        queues: Any = tuple(self.broker.queues[name] for name in to)
        self.event(PublishedEvent("/", exchange, ids, envelope_of(), contents, queues))

    def enqueued(self, queue: str, ids: Sequence[int], **facts: Any) -> None:
        self.event(EnqueuedEvent("/", queue, ids, envelope_of(**facts)))

    def delivered(self, queue: str, ids: Sequence[int], *, session: Any = None, consumer: str | None = "c") -> None:
        self.event(DeliveredEvent("/", queue, ids, envelope_of(), session, consumer))

    def acked(self, queue: str, ids: Sequence[int], *, kept: bool = False) -> None:
        self.event(AckedEvent("/", queue, ids, envelope_of(), kept))

    def left(
        self,
        queue: str,
        ids: Sequence[int],
        kind: str = "dropped",
        *,
        reason: str | None = None,
        to: str | None = None,
        came_in: bool = True,
    ) -> None:
        self.event(LeftEvent(EventKind(kind), "/", queue, ids, envelope_of(), reason, to, came_in))

    def requeued(self, queue: str, ids: Sequence[int], why: str = "nacked", *, counted: bool = True) -> None:
        self.event(RequeuedEvent("/", queue, ids, [], why, counted))

    def scheduled(self, queue: str, ids: Sequence[int], wait_ms: float, *, counted: bool | None = True) -> None:
        due_ns = [self.clock.now_ns + int(wait_ms * MS)] * len(ids)
        messages = [Message(id_, content_of(id_), envelope_of()) for id_ in ids]
        self.event(ScheduledEvent("/", queue, ids, messages, "nacked", due_ns, counted))

    def due(self, queue: str, ids: Sequence[int]) -> None:
        self.event(DueEvent("/", queue, ids, []))

    def turn_ended(self) -> None:
        self.book.turn_ended()

    def check(self) -> None:
        self.book.check()
