"""Of what is ready the highest priority goes first, and of one priority the oldest."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable

from leveret.engine import Broker, DeliveredEvent, DueEvent, EnqueuedEvent, Envelope, RequeuedEvent

from ..ledger import Broken, QueueName
from .book import Book, Handlers
from .whereabouts import Whereabouts


class Priorities(Book):
    """What goes at once to several consumers is announced for each of them: so it is looked at behind the turn."""

    def __init__(self, where: Whereabouts) -> None:
        self._where = where
        self._levels: dict[tuple[QueueName, int], int] = {}
        self._lines: dict[QueueName, dict[int, list[int]]] = {}  # by level, rising: all that is ready, and some more
        self._passed: dict[QueueName, set[int]] = {}  # higher ones that were ready when a lower one went

    def handlers(self) -> Handlers:
        return {
            EnqueuedEvent: self._enqueued,
            RequeuedEvent: self._is_ready,
            DueEvent: self._is_ready,
            DeliveredEvent: self._delivered,
        }

    def attach(self, broker: Broker) -> None:
        self._passed.clear()
        self._lines.clear()
        for name, place in self._where.places.items():
            if "priority_max" in place.features:
                self._add(name, place.ready)

    def _enqueued(self, event: EnqueuedEvent) -> None:
        name = event.vhost, event.subject
        highest = self._where.places[name].features.get("priority_max")
        if highest is None:
            return
        of = event.run
        for index, id_ in enumerate(event.messages):
            summary = of.summary if isinstance(of, Envelope) else of[index].envelope.summary
            self._levels[name, id_] = min(summary.priority or 0, highest)
        self._add(name, event.messages)

    def _is_ready(self, event: RequeuedEvent | DueEvent) -> None:
        name = event.vhost, event.subject
        if "priority_max" in self._where.places[name].features:
            self._add(name, event.messages)

    def _add(self, name: QueueName, ids: Iterable[int]) -> None:
        lines, levels = self._lines.setdefault(name, {}), self._levels
        for id_ in ids:
            line = lines.setdefault(levels[name, id_], [])
            if not line or id_ > line[-1]:
                line.append(id_)
            else:
                insort(line, id_)

    def _delivered(self, event: DeliveredEvent) -> None:
        name = event.vhost, event.subject
        place = self._where.places[name]
        if "priority_max" not in place.features:
            return
        levels = self._levels
        going = set(event.messages)
        lowest = min(levels[name, id_] for id_ in going)
        newest = max(id_ for id_ in going if levels[name, id_] == lowest)
        passed = self._passed.setdefault(name, set())
        passed -= going
        for level, line in self._lines[name].items():
            if level < lowest:
                continue
            end = len(line) if level > lowest else bisect_right(line, newest)
            left = [id_ for id_ in line[:end] if id_ in place.ready and id_ not in going]
            line[:end] = left
            passed.update(left)

    def turn_ended(self) -> None:
        if not self._passed:
            return
        for name, passed in self._passed.items():
            place = self._where.places.get(name)
            left = [] if place is None else sorted(id_ for id_ in passed if id_ in place.ready)
            if left:
                raise Broken(f"{name}: lower or newer ones went before {left[:5]}")
        self._passed.clear()

    def check(self) -> None:
        for name, lines in self._lines.items():
            place = self._where.places.get(name)
            if place is not None and not place.ready.keys() <= {id_ for line in lines.values() for id_ in line}:
                raise Broken(f"{name} has messages ready that nobody announced to be so")
