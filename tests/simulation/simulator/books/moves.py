"""What an operator moves is in one place at a time: it leaves its queue in the turn in which a copy comes elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from leveret.engine import Broker, EventKind, LeftEvent, PublishedEvent

from ..ledger import Broken, QueueName, keys_of
from .book import Book, Handlers
from .routing import Routing

MOVED, DISCARDED = "moved", "discarded"


class Moves(Book):
    """Copies and what left, by the keys of the messages, within one turn. `requested`: by queue, how many at most;
    `purges`: queues that an operator has purged.
    """

    def __init__(self, routing: Routing, planned: Collection[str] = ()) -> None:
        """`planned`: queues that no client purges."""
        self._routing = routing
        self._planned = planned
        self.purges: set[QueueName] = set()
        self.requested: Counter[QueueName] = Counter()
        self._copied: Counter[bytes] = Counter()
        self._left: Counter[bytes] = Counter()

    def handlers(self) -> Handlers:
        return {PublishedEvent: self._on_published, LeftEvent: self._on_left}

    def attach(self, broker: Broker) -> None:
        self._copied.clear()
        self._left.clear()

    def _on_published(self, event: PublishedEvent) -> None:
        if event.cause == MOVED:
            self._copied.update(keys_of(event))

    def _on_left(self, event: LeftEvent) -> None:
        if event.kind is not EventKind.PURGED:
            return
        name = event.vhost, event.subject
        if event.reason not in (MOVED, DISCARDED):
            if event.subject in self._planned and name not in self.purges:
                raise Broken(f"{name}: {event.messages} were purged, and nobody asked for it")
            return
        self.requested[name] -= len(event.messages)
        if self.requested[name] < 0:
            raise Broken(f"{name}: {-self.requested[name]} more were {event.reason} than an operator asked for")
        if event.reason == DISCARDED:
            return
        if event.to is None:
            raise Broken(f"{event.messages} were moved, and nothing says where to")
        self._left.update(self._routing.keys[id_] for id_ in event.messages if id_ in self._routing.keys)

    def turn_ended(self) -> None:
        if self._copied != self._left:
            lost, doubled = self._left - self._copied, self._copied - self._left
            raise Broken(f"moved without a copy: {list(lost)[:5]}, copied and still there: {list(doubled)[:5]}")
        self._copied.clear()
        self._left.clear()
