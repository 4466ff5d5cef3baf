"""A message goes where bindings say, as they are at the moment: looked up anew whenever something was bound or unbound.

Source: behaviour page 2.3, 2.10.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, NamedTuple

from leveret.engine import BindingEvent, Broker, Event, EventKind, ExchangeEvent, PublishedEvent, QueueEvent
from leveret.interop.wire.raw_codec import Content

from ..explored import EXPLORED
from ..ledger import Broken, keys_of
from .book import Book, Handlers
from .routing import TRACED

HEADER_START = 12  # class, weight and size of the body come before the properties
#: Types of exchanges that are known here; of others nothing is said.
KNOWN = frozenset({"direct", "fanout", "topic", "headers"})


class Way(NamedTuple):
    """A binding, as far as it decides. `of`: which value of the header "of" it takes, if any."""

    source: str
    is_queue: bool
    destination: str
    key: str
    of: bytes | None


class Map:
    """What there is in one virtual host."""

    def __init__(self) -> None:
        self.queues: set[str] = set()
        self.exchanges: dict[str, Any] = {}
        self.ways: dict[str, dict[object, Way]] = {}  # by source

    def reached(self, start: str, key: str, of: bytes | None) -> set[str] | None:
        """Names of queues; None: one of the exchanges is of a type that is not known here."""
        if not start:
            return self.queues & {key}
        found: set[str] = set()
        seen, stack = {start}, [start]
        while stack:
            name = stack.pop()
            exchange = self.exchanges.get(name)
            if exchange is None or exchange.type not in KNOWN:
                return None
            ways = [way for way in self.ways.get(name, {}).values() if _takes(exchange.type, way, key, of)]
            found.update(way.destination for way in ways if way.is_queue)
            after = [way.destination for way in ways if not way.is_queue]
            if not ways and exchange.alternate in self.exchanges:
                after = [exchange.alternate]
            stack += [one for one in after if one not in seen]
            seen.update(after)
        return found


class Routes(Book):
    """Of each virtual host a map, by the events of objects alone, but for a life's begin."""

    def __init__(self, leased: set[str], committing: Set[bytes]) -> None:
        """`leased`: queues that select topics, and may refuse by a filter: they are left out.

        `committing`: begins of keys of those who publish in transactions: a message is routed when it is published.
        """
        self._leased = leased
        self._committing = committing
        self._maps: dict[str, Map] = {}
        self._known: dict[tuple[str, str, str, bytes | None], set[str] | None] = {}
        self._headers: dict[bytes, bytes | None] = {}

    def handlers(self) -> Handlers:
        return {
            QueueEvent: self._queue,
            ExchangeEvent: self._exchange,
            BindingEvent: self._binding,
            PublishedEvent: self._published,
        }

    def attach(self, broker: Broker) -> None:
        self._maps.clear()
        self._known.clear()
        for vhost in broker.virtual_hosts.values():
            there = self._map(vhost.name)
            there.queues.update(vhost.queues)
            for exchange in vhost.exchanges.values():
                there.exchanges[exchange.name] = exchange
                for binding in exchange.bindings.values():
                    there.ways.setdefault(exchange.name, {})[binding.identity] = _way(binding)

    def _map(self, vhost: str) -> Map:
        found = self._maps.get(vhost)
        if found is None:
            found = self._maps[vhost] = Map()
        return found

    def _changed(self, event: Event) -> tuple[Map, bool]:
        """Where, and whether something came."""
        self._known.clear()
        return self._map(event.vhost), event.kind in (EventKind.DECLARED, EventKind.BOUND)

    def _queue(self, event: QueueEvent) -> None:
        there, came = self._changed(event)
        if came:
            there.queues.add(event.subject)
            return
        there.queues.discard(event.subject)
        _forget(there, event.subject, is_queue=True)

    def _exchange(self, event: ExchangeEvent) -> None:
        there, came = self._changed(event)
        if came:
            there.exchanges[event.subject] = event.exchange
            return
        there.exchanges.pop(event.subject, None)
        there.ways.pop(event.subject, None)
        _forget(there, event.subject, is_queue=False)

    def _binding(self, event: BindingEvent) -> None:
        there, came = self._changed(event)
        ways = there.ways.setdefault(event.binding.source.name, {})
        if came:
            ways[event.binding.identity] = _way(event.binding)
        else:
            ways.pop(event.binding.identity, None)

    def _published(self, event: PublishedEvent) -> None:
        if event.cause is not None or event.subject == TRACED or keys_of(event)[0][:4] in self._committing:
            return
        reached = {queue.name for queue in event.reached} - self._leased
        split = event.run.framing.split
        of: bytes | None = None
        is_by_header = any(one.type == "headers" for one in self._map(event.vhost).exchanges.values())
        for content in event.contents if is_by_header and event.subject else event.contents[:1]:
            if event.subject:
                of = self._of(bytes(split(content)[0][HEADER_START:]))
            expected = self._expected(event.vhost, event.subject, event.run.routing_key, of)
            if event.run.routing_key.startswith(EXPLORED) or event.subject.startswith(EXPLORED):
                return  # the engine's invariants know their addresses, filters and diverts
            if expected is not None and reached != expected:
                raise Broken(
                    f"{list(event.messages)[:5]}, published to '{event.subject}' by '{event.run.routing_key}', went to "
                    f"{sorted(reached)}, bindings lead to {sorted(expected)}"
                )

    def _expected(self, vhost: str, exchange: str, key: str, of: bytes | None) -> set[str] | None:
        asked = vhost, exchange, key, of
        if asked not in self._known:
            found = self._map(vhost).reached(exchange, key, of)
            self._known[asked] = None if found is None else found - self._leased
        return self._known[asked]

    def _of(self, properties: bytes) -> bytes | None:
        if properties not in self._headers:
            tagged: Any = Content(properties, b"").headers.get("of")
            self._headers[properties] = None if tagged is None else tagged[1]
        return self._headers[properties]


def _forget(there: Map, destination: str, *, is_queue: bool) -> None:
    """Its bindings go with it."""
    for ways in there.ways.values():
        for identity in [one for one, way in ways.items() if way[1:3] == (is_queue, destination)]:
            del ways[identity]


def _way(binding: Any) -> Way:
    of = binding.arguments.get("of")
    is_queue = hasattr(binding.destination, "ready_count")
    return Way(
        binding.source.name,
        is_queue,
        binding.destination.name,
        binding.routing_key,
        None if of is None else of.value,
    )


def _takes(kind: str, way: Way, key: str, of: bytes | None) -> bool:
    if kind == "fanout":
        return True
    if kind == "headers":
        return way.of is None or way.of == of
    if kind == "direct":
        return way.key == key
    return fits(way.key.split("."), key.split("."))


def fits(pattern: list[str], words: list[str]) -> bool:
    """Topic patterns: `*` is one word, `#` any number of them."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(fits(pattern[1:], words[at:]) for at in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and fits(pattern[1:], words[1:])
