"""Where each message of each queue is: ready, out, or waiting. Nothing goes from one to another but by its event."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from leveret.engine import (
    AckedEvent,
    Broker,
    DeliveredEvent,
    DueEvent,
    EnqueuedEvent,
    EventKind,
    LeaseEndedEvent,
    LeftEvent,
    Message,
    Queue,
    QueueEvent,
    RequeuedEvent,
    ScheduledEvent,
)

from ..explored import EXPLORED, LEASED
from ..ledger import Broken, QueueName
from ..plan import Plan
from .book import Book, Handlers

#: Why a message waits that did so before: an operator changed when it is due.
RESCHEDULED = "rescheduled"
#: Of queues that the plan does not know: somebody made them, and an operator may have changed their rules.
FOREIGN: dict[str, Any] = {"foreign": True}
#: Of those of explorers: they have any order.
EXPLORED_BY: dict[str, Any] = {"foreign": True, "explored": True, "apart": True, "unordered": True}
#: Of their leased queue: a message may be acknowledged by those that had it before.
LENT: dict[str, Any] = {**EXPLORED_BY, "lent": True}


class Place:
    """A queue. `ready`, `out` and `waiting`: message ids, the oldest first as far as they came in order.

    `keeps`: what is out are copies, of which events do not tell all; `has_slots`: what is out is gone already;
    `features`: what the plan says of it.
    """

    __slots__ = ("features", "has_slots", "is_leased", "keeps", "name", "out", "queue", "ready", "waiting")

    def __init__(self, queue: Queue, features: dict[str, Any]) -> None:
        self.name: QueueName = (queue.vhost_name, queue.name)
        self.queue = queue
        self.features = features
        self.keeps = bool(features.get("keeps"))
        self.is_leased = bool({"leased", "lent"} & features.keys())
        self.has_slots = features.get("leased", {}).get("semantics") == "at-most-once"
        self.ready: dict[int, None] = {}
        self.out: dict[int, None] = {}
        self.waiting: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self.ready) + len(self.out) + len(self.waiting)

    def first_ready(self) -> int:
        """The oldest that is ready."""
        return min(self.ready)


class Whereabouts(Book):
    """`places`: of each queue that there is."""

    def __init__(self, plan: Plan) -> None:
        self._features = {queue.name: queue.features for queue in plan.queues}
        self.places: dict[QueueName, Place] = {}

    def handlers(self) -> Handlers:
        return {
            QueueEvent: self._queue,
            EnqueuedEvent: self._enqueued,
            DeliveredEvent: self._delivered,
            AckedEvent: self._acked,
            LeftEvent: self._left,
            RequeuedEvent: self._requeued,
            LeaseEndedEvent: self._lease_ended,
            ScheduledEvent: self._scheduled,
            DueEvent: self._due,
        }

    def attach(self, broker: Broker) -> None:
        self.places = {}
        for vhost in broker.virtual_hosts.values():
            for queue in vhost.queues.values():
                place = self._add(queue)
                place.waiting = dict.fromkeys(message.id for message in queue.scheduled)
                place.ready = dict.fromkeys(sorted(id_ for id_ in ids_of(queue) if id_ not in place.waiting))

    def features_of(self, queue: str) -> dict[str, Any]:
        """What the plan says of a queue by this name."""
        known = LENT if queue == LEASED else EXPLORED_BY if queue.startswith(EXPLORED) else FOREIGN
        return self._features.get(queue, known)

    def _add(self, queue: Queue) -> Place:
        place = Place(queue, self.features_of(queue.name))
        self.places[place.name] = place
        return place

    def _queue(self, event: QueueEvent) -> None:
        if event.kind is EventKind.DECLARED:
            self._add(event.queue)
        elif event.kind is EventKind.UNDECLARED:
            self.places.pop((event.vhost, event.subject), None)

    def _enqueued(self, event: EnqueuedEvent) -> None:
        ready = self.places[event.vhost, event.subject].ready
        for id_ in event.messages:
            ready[id_] = None

    def _delivered(self, event: DeliveredEvent) -> None:
        place = self.places[event.vhost, event.subject]
        ready, out = place.ready, place.out
        if place.keeps:
            for id_ in event.messages:
                if id_ not in ready:
                    raise Broken(f"{place.name}: {id_} was delivered and is not there")
            return
        for id_ in event.messages:
            if id_ not in ready:
                where = "out already" if id_ in out else "still waiting" if id_ in place.waiting else "not there"
                raise Broken(f"{place.name}: {id_} was delivered and was {where}")
            del ready[id_]
            out[id_] = None

    def _acked(self, event: AckedEvent) -> None:
        place = self.places[event.vhost, event.subject]
        if place.keeps:
            if not event.kept:
                raise Broken(f"{place.name} keeps its messages, but for {event.messages}, which were acknowledged")
            return
        if place.is_leased:  # also by somebody who does not have it
            for id_ in event.messages:
                place.ready.pop(id_, None) if id_ in place.ready else self._take_out(place, (id_,), "acknowledged")
            return
        self._take_out(place, event.messages, "acknowledged")

    def _take_out(self, place: Place, ids: Any, what: str) -> None:
        out = place.out
        for id_ in ids:
            if id_ not in out:
                raise Broken(f"{place.name}: {id_} was {what} and was not out")
            del out[id_]

    def _left(self, event: LeftEvent) -> None:
        if not event.came_in:
            return
        place = self.places[event.vhost, event.subject]
        parts = place.ready, place.out, place.waiting
        for id_ in event.messages:
            for part in parts:
                if id_ in part:
                    del part[id_]
                    break
            else:
                raise Broken(f"{place.name}: {id_} left ({event.kind.value}) and was not there")

    def _requeued(self, event: RequeuedEvent) -> None:
        place = self.places[event.vhost, event.subject]
        if not place.keeps:
            self._take_out(place, event.messages, "requeued")
            place.ready |= dict.fromkeys(event.messages)

    def _lease_ended(self, event: LeaseEndedEvent) -> None:
        place = self.places[event.vhost, event.subject]
        self._take_out(place, event.messages, "not leased any more")
        place.ready |= dict.fromkeys(event.messages)

    def _scheduled(self, event: ScheduledEvent) -> None:
        place = self.places[event.vhost, event.subject]
        if event.counted is not None:
            self._take_out(place, event.messages, "sent to wait")
        elif event.why != RESCHEDULED:
            for id_ in event.messages:
                del place.ready[id_]
        place.waiting |= dict.fromkeys(event.messages)

    def _due(self, event: DueEvent) -> None:
        place = self.places[event.vhost, event.subject]
        for id_ in event.messages:
            if id_ not in place.waiting:
                raise Broken(f"{place.name}: {id_} is due and did not wait")
            del place.waiting[id_]
            place.ready[id_] = None

    def check(self) -> None:
        for place in self.places.values():
            queue = place.queue
            if len(place.ready) != queue.ready_count:
                raise Broken(f"{place.name} has {queue.ready_count} ready, by the books {len(place.ready)}")
            if len(place.waiting) != len(queue.scheduled):
                raise Broken(f"{place.name} has {len(queue.scheduled)} waiting, by the books {len(place.waiting)}")
            if not place.keeps and not place.has_slots and len(place.out) != queue.unacked:
                raise Broken(f"{place.name} has {queue.unacked} out, by the books {len(place.out)}")


def ids_of(queue: Queue) -> Iterator[int]:
    """Of all messages of a queue that are not out, wherever they are."""
    parts = queue.store.paged_parts()
    aside = (part for part in parts if isinstance(part, Message))
    for message in chain(queue.messages(), aside):
        yield message.id
    for part in parts:
        if not isinstance(part, Message):
            yield from part.ids
