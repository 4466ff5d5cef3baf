"""No consumer is served while one of higher priority has room. Where one consumer is active only that one is served,
and the next one is the earliest of the highest priority.

Whether a consumer has room the engine is asked. Source: behaviour page 2.12, 4.
"""

from __future__ import annotations

from typing import Any

from leveret.engine import Broker, ConsumerEvent, DeliveredEvent, EventKind

from ..ledger import Broken, QueueName
from .book import Book, Handlers
from .whereabouts import Place, Whereabouts


class Precedence(Book):
    """Consumers are those of the broker."""

    def __init__(self, where: Whereabouts) -> None:
        self._where = where
        self._arrived: dict[QueueName, list[Any]] = {}  # consumers of queues with a single active one, as they came
        self._active: dict[QueueName, Any] = {}
        self._out: dict[QueueName, dict[int, Any]] = {}  # message id -> the consumer that got it last

    def handlers(self) -> Handlers:
        return {DeliveredEvent: self._delivered, ConsumerEvent: self._consumers}

    def attach(self, broker: Broker) -> None:
        self._arrived.clear()
        self._active.clear()
        self._out.clear()

    def _consumers(self, event: ConsumerEvent) -> None:
        name = event.vhost, event.subject
        place = self._where.places.get(name)
        if place is None or "single_active" not in place.features:
            return
        there = list(_consumers_of(place))
        before = [one for one in self._arrived.get(name, ()) if one in there]
        arrived = self._arrived[name] = before + [one for one in there if one not in before]
        is_open = event.kind is EventKind.CONSUMER_REMOVED or len(arrived) == 1
        if is_open and self._active.get(name) not in arrived:
            self._active[name] = max(arrived, key=_priority, default=None)

    def _delivered(self, event: DeliveredEvent) -> None:
        place = self._where.places[event.vhost, event.subject]
        if event.consumer is None or place.keeps or place.features.keys() & {"leased", "groups", "foreign"}:
            return
        there = _consumers_of(place)
        own = next((one for one in there if one.session is event.session and one.tag == event.consumer), None)
        if own is None:
            return
        if "single_active" in place.features:
            self._check_active(place, own, event)
            return
        for other in there:
            if other.priority > own.priority and other.filter is None and other.credit() > 0:
                raise Broken(f"{place.name}: {own.tag} was served, and {other.tag} of higher priority has room")

    def _check_active(self, place: Place, own: Any, event: DeliveredEvent) -> None:
        """In a quorum queue the active one gives way to one of higher priority, once it has settled what it has."""
        name, active = place.name, self._active.get(place.name)
        out = {id_: one for id_, one in self._out.get(name, {}).items() if id_ in place.out}
        if own is not active:
            if not place.features.get("quorum"):
                raise Broken(f"{name}: {own.tag} was served, and {active and active.tag} is the active one")
            if active in out.values():
                raise Broken(f"{name}: {own.tag} was served while {active.tag} has not settled what it had")
            if own is not max(self._arrived[name], key=_priority):
                raise Broken(f"{name}: {own.tag} was served, and is not the first of the highest priority")
            self._active[name] = own
        out.update(dict.fromkeys(event.messages, own))
        self._out[name] = out


def _consumers_of(place: Place) -> list[Any]:
    consumers: list[Any] = place.queue.consumer_list.consumers
    return consumers


def _priority(consumer: Any) -> int:
    priority: int = consumer.priority
    return priority
