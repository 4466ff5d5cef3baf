"""Of what is ready the highest priority goes first, and of one priority the oldest."""

from __future__ import annotations

from leveret.engine import Broker, DeliveredEvent, EnqueuedEvent, Envelope

from ..ledger import Broken, QueueName
from .book import Book, Handlers
from .whereabouts import Whereabouts


class Priorities(Book):
    """What goes at once to several consumers is announced for each of them: so it is looked at behind the turn."""

    def __init__(self, where: Whereabouts) -> None:
        self._where = where
        self._levels: dict[tuple[QueueName, int], int] = {}
        self._passed: dict[QueueName, set[int]] = {}  # higher ones that were ready when a lower one went

    def handlers(self) -> Handlers:
        return {EnqueuedEvent: self._enqueued, DeliveredEvent: self._delivered}

    def attach(self, broker: Broker) -> None:
        self._passed.clear()

    def _enqueued(self, event: EnqueuedEvent) -> None:
        name = event.vhost, event.subject
        highest = self._where.places[name].features.get("priority_max")
        if highest is None:
            return
        of = event.of
        for index, id_ in enumerate(event.messages):
            facts = of.facts if isinstance(of, Envelope) else of[index].envelope.facts
            self._levels[name, id_] = min(facts.priority or 0, highest)

    def _delivered(self, event: DeliveredEvent) -> None:
        name = event.vhost, event.subject
        place = self._where.places[name]
        if "priority_max" not in place.features:
            return
        levels = self._levels
        passed = self._passed.setdefault(name, set())
        passed.difference_update(event.messages)
        going = set(event.messages)
        lowest = min(levels[name, id_] for id_ in event.messages)
        newest = max(id_ for id_ in event.messages if levels[name, id_] == lowest)
        for id_ in place.ready:
            level = levels[name, id_]
            if id_ not in going and (level > lowest or (level == lowest and id_ < newest)):
                passed.add(id_)

    def turn_ended(self) -> None:
        if not self._passed:
            return
        for name, passed in self._passed.items():
            place = self._where.places.get(name)
            left = [] if place is None else [id_ for id_ in sorted(passed) if id_ in place.ready]
            if left:
                raise Broken(f"{name}: lower or newer ones went before {left[:5]}")
        self._passed.clear()
