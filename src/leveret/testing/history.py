"""The history of a test broker: the engine's events in order, up to a maximum, and the published messages."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from ..engine import Binding, Broker, DeliveredEvent, Envelope, Event, ParameterEvent, PublishedEvent
from .engine_clock import EngineClock
from .nearest_names import nearest_names
from .plain_form import plain_message
from .snapshots import Content, Properties, content_of, shown_body

Entry = TypeVar("Entry")


@nearest_names
@dataclass(slots=True, frozen=True)
class HistoryEvent:
    """One event of one message, or of an object.

    `kind`: the value of an `EventKind` ("enqueued", "delivered", "acked", ...). `at`: seconds of the broker's clock
    since its start; `wall`: the same as wall time. `subject`: the queue, exchange or connection. `message`: its id,
    None for events of objects.
    """

    at: float
    wall: datetime
    kind: str
    vhost: str
    subject: str
    message: int | None
    detail: Mapping[str, Any]

    def __str__(self) -> str:
        about = f" message {self.message}" if self.message is not None else ""
        detail = "".join(f" {key}={value!r}" for key, value in self.detail.items())
        return f"{self.at:12.3f} s  {self.kind:<18} {self.subject!r}{about}{detail}"


@nearest_names
@dataclass(slots=True, frozen=True)
class PublishedMessage(Content):
    """One message as it was published.

    `cause`: why the broker itself published it (a dead letter); None: a client published it. `queues`: names of the
    queues that took it.
    """

    id: int
    at: float
    wall: datetime
    vhost: str
    exchange: str
    routing_key: str
    body: bytes
    properties: Properties
    cause: str | None = None
    queues: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"exchange {self.exchange!r}, routing key {self.routing_key!r}: {shown_body(self.body)}"

    def plain(self) -> dict[str, Any]:
        """The message as plain values, without those that differ from run to run: see `plain_form`."""
        return plain_message(self)


@nearest_names
class Record(tuple[Entry, ...], Generic[Entry]):
    """An excerpt of the history, oldest first. `dropped`: number of earlier events that were not kept."""

    dropped: int

    def __new__(cls, entries: Iterable[Entry], dropped: int) -> "Record[Entry]":
        record = super().__new__(cls, entries)
        record.dropped = dropped
        return record

    def __eq__(self, other: object) -> bool:
        return list(self) == other if isinstance(other, list) else super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        lines = [f"(the {self.dropped} oldest events were not kept)"] if self.dropped else []
        return "\n".join([*lines, *map(str, self)]) or "(nothing)"

    def __repr__(self) -> str:
        return f"<{len(self)} entries, {self.dropped} dropped>\n{self}"


class Recorder:
    """Keeps the newest `size_max` events of the brokers it listens to. Called only in the broker's loop."""

    def __init__(self, clock: EngineClock, size_max: int) -> None:
        self._clock = clock
        self._size_max = size_max
        self._events: deque[tuple[int, Event]] = deque()
        self._message_count = 0
        self.dropped = 0

    def listen_to(self, broker: Broker) -> None:
        """Record the events of this broker, too."""
        broker.context.listeners.append(self._listen)

    def _listen(self, event: Event) -> None:
        if isinstance(event, ParameterEvent) and event.is_own:
            return  # the broker's own parameter
        self._events.append((self._clock.monotonic_ns(), event))
        self._message_count += len(event.messages) or 1
        while (excess := self._message_count - self._size_max) > 0:
            now_ns, oldest = self._events.popleft()
            count = len(oldest.messages) or 1
            if count > excess:
                self._events.appendleft((now_ns, _without_first(oldest, excess)))
                count = excess
            self._message_count -= count
            self.dropped += count

    def events(self, wanted: Callable[[Event], bool], message: int | None = None) -> Record[HistoryEvent]:
        """The recorded events, one for each message."""
        found: list[HistoryEvent] = []
        for now_ns, event in self._events:
            if not wanted(event):
                continue
            at, wall = self._times(now_ns)
            detail = _shown_detail(event.detail or {})
            for id_ in event.messages or (None,):
                if message is None or id_ == message:
                    found.append(HistoryEvent(at, wall, event.kind.value, event.vhost, event.subject, id_, detail))
        return Record(found, self.dropped)

    def published(self, vhost: str, *, copies: bool) -> Record[PublishedMessage]:
        """The messages published in a virtual host. `copies`: also those that the broker itself published."""
        found: list[PublishedMessage] = []
        for now_ns, event in self._events:
            if not isinstance(event, PublishedEvent) or event.vhost != vhost:
                continue
            envelope, cause = event.run, event.cause
            if cause is not None and not copies:
                continue
            at, wall = self._times(now_ns)
            for id_, content in zip(event.messages, event.contents):
                properties, body = content_of(envelope, content)
                found.append(
                    PublishedMessage(
                        id_,
                        at,
                        wall,
                        event.vhost,
                        envelope.exchange,
                        envelope.routing_key,
                        body,
                        properties,
                        cause,
                        tuple(queue.name for queue in event.reached),
                    )
                )
        return Record(found, self.dropped)

    def subjects(self, vhost: str) -> set[str]:
        return {event.subject for _, event in self._events if event.vhost == vhost}

    def forget(self, vhost: str) -> None:
        kept = [entry for entry in self._events if entry[1].vhost != vhost]
        self._events = deque(kept)
        self._message_count = sum(len(event.messages) or 1 for _, event in kept)

    def raw_events(self) -> Iterator[Event]:
        """The engine's events, oldest first. Call it in the broker's loop."""
        return (event for _, event in self._events)

    def _times(self, now_ns: int) -> tuple[float, datetime]:
        wall_ms = self._clock.start_ms + now_ns // 1_000_000
        try:
            return now_ns / 1e9, datetime.fromtimestamp(wall_ms / 1000, UTC)
        except (OverflowError, ValueError, OSError):  # beyond the calendar, which a virtual clock can reach
            return now_ns / 1e9, datetime.max.replace(tzinfo=UTC)


def _without_first(event: Event, count: int) -> Event:
    """The event of a run without its oldest messages."""
    messages = event.messages[count:]
    if isinstance(event, PublishedEvent):
        return replace(event, messages=messages, contents=event.contents[count:])
    run = event.run if isinstance(event.run, Envelope) else ()  # the history uses only the ids of messages
    if isinstance(event, DeliveredEvent):
        return replace(event, messages=messages, run=run, contents=event.contents[count:])
    return replace(event, messages=messages, run=run)


#: Names in events' details whose values are objects of the engine.
ENGINE_OBJECTS = frozenset({"contents", "queues", "queue", "exchange", "client", "session"})


def _shown_detail(detail: Mapping[str, object]) -> Mapping[str, Any]:
    """The public part of an event's detail: names and numbers, no objects of the engine."""
    shown: dict[str, Any] = {}
    for key, value in detail.items():
        if key == "envelope":
            assert isinstance(value, Envelope)
            shown["exchange"], shown["routing_key"] = value.exchange, value.routing_key
        elif isinstance(value, Binding):
            shown["source"], shown["routing_key"] = value.source.name, value.routing_key
        elif key not in ENGINE_OBJECTS:
            shown[key] = value
    return MappingProxyType(shown)
