"""The latest events of the broker, kept while clients ask for them; at other times events cost nothing.

Of messages only ids are kept, and of published messages also their headers. Source: management page 15, 16; rulings,
"Events".
"""

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..engine import MS, Binding, Broker, Client, Deadline, Envelope, Event, ParameterEvent, PublishedEvent, Queue

#: Maximum kept events, and maximum octets of headers in them; the oldest events are dropped.
EVENTS_MAX, OCTETS_MAX = 10_000, 4 * 1024 * 1024
#: Maximum messages of an event that are listed, the others are counted; maximum octets of a kept header.
MESSAGES_MAX, HEADER_MAX = 100, 2048
#: Milliseconds without a request after which no event is kept.
IDLE_MS = 60_000
#: Details of events that may hold secrets, or are objects of the engine.
_LEFT_OUT = frozenset({"contents", "envelope", "exchange", "policy", "queue", "session", "user", "value"})
NAMES_MAX = 20


@dataclass(slots=True)
class Entry:
    """One event. `number`: rises by one. `ids`: the first ones of its `count` messages.

    `headers`: header payloads of published messages, one for each id; empty if too long.
    """

    number: int
    wall_ms: int
    kind: str
    vhost: str
    subject: str
    ids: tuple[int, ...]
    count: int
    detail: dict[str, Any]
    headers: tuple[bytes, ...]


class EventLog:
    """The event log of a broker. `next`: the number of the next event.

    `since_ms`: the start of listening (wall time); None: it does not listen.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._entries: deque[Entry] = deque()
        self._octets = 0
        self._idle: Deadline | None = None
        self._listener = self._listen  # one object, so that it can be removed
        self.next = 1
        self.since_ms: int | None = None

    def keep_listening(self) -> None:
        """Listen for events, until there was no request for `IDLE_MS`."""
        broker = self._broker
        if self.since_ms is None:
            self.since_ms = broker.context.clock.wall_ms()
            broker.context.listeners.append(self._listener)
        broker.context.deadlines.cancel(self._idle)
        self._idle = broker.context.deadlines.set(broker.context.clock.monotonic_ns() + IDLE_MS * MS, self.end)

    def attach(self, broker: Broker) -> None:
        """Drop the events, and listen to another broker after the next request."""
        self.end()
        self._broker = broker

    def end(self) -> None:
        """Stop listening, and drop the events."""
        if self.since_ms is not None:
            self._broker.context.listeners.remove(self._listener)
        self._broker.context.deadlines.cancel(self._idle)
        self._idle, self.since_ms, self._octets = None, None, 0
        self._entries.clear()

    @property
    def first(self) -> int:
        """The number of the oldest kept event, or of the next one."""
        return self._entries[0].number if self._entries else self.next

    def after(self, number: int) -> Iterator[Entry]:
        """Events with a higher number, oldest first. No event may be added during the iteration."""
        return islice(self._entries, max(0, number + 1 - self.first), None)

    def newest(self) -> Iterator[Entry]:
        """All events, newest first. No event may be added during the iteration."""
        return reversed(self._entries)

    def _listen(self, event: Event) -> None:
        if isinstance(event, ParameterEvent) and event.is_own:
            return  # the broker's own parameter, e.g. a version of a user, besides the event of the change itself
        ids = tuple(event.messages[:MESSAGES_MAX])
        headers: tuple[bytes, ...] = ()
        if isinstance(event, PublishedEvent):
            headers = tuple(_header_of(event.run, content) for content in event.contents[:MESSAGES_MAX])
            self._octets += sum(map(len, headers))
        self._entries.append(
            Entry(
                self.next,
                self._broker.context.clock.wall_ms(),
                event.kind.value,
                event.vhost,
                event.subject,
                ids,
                len(event.messages),
                shown_detail(event),
                headers,
            )
        )
        self.next += 1
        while len(self._entries) > EVENTS_MAX or self._octets > OCTETS_MAX:
            self._octets -= sum(map(len, self._entries.popleft().headers))


def _header_of(envelope: Envelope, content: bytes) -> bytes:
    """The content header; empty if it is too long or invalid, because a listener must not fail."""
    try:
        header = envelope.framing.split(content)[0]
    except (ValueError, struct.error):
        return b""
    return header if len(header) <= HEADER_MAX else b""


def shown_detail(event: Event) -> dict[str, Any]:
    """The public details of an event: names and numbers."""
    shown: dict[str, Any] = {}
    if isinstance(event.run, Envelope):
        shown["exchange"], shown["routing_key"] = event.run.exchange, event.run.routing_key
    for name, value in (event.detail or {}).items():
        if name == "queues":
            shown[name] = [queue.name for queue in value[:NAMES_MAX]]  # type: ignore[index]
        elif isinstance(value, Binding):
            shown["source"], shown["routing_key"] = value.source.name, value.routing_key
        elif isinstance(value, Client | Queue):
            shown[name] = value.name
        elif name == "due_ns" and value:
            shown["due_first_ns"] = value[0]  # type: ignore[index]
        elif name not in _LEFT_OUT and isinstance(value, str | int | float | bool | None):
            shown[name] = value
    return shown
