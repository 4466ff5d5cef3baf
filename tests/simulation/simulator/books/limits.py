"""Rings and limits: what goes for want of room is the oldest that is ready, and no more is there than may be."""

from __future__ import annotations

from leveret.engine import EnqueuedEvent, EventKind, LeftEvent

from ..ledger import Broken
from .book import Book, Handlers
from .whereabouts import Place, Whereabouts


class Limits(Book):
    """Of queues whose plan has a limit."""

    def __init__(self, where: Whereabouts) -> None:
        self._where = where
        self._came: dict[int, None] = {}

    def handlers(self) -> Handlers:
        return {LeftEvent: self._left, EnqueuedEvent: self._enqueued}

    def _enqueued(self, event: EnqueuedEvent) -> None:
        place = self._where.places[event.vhost, event.subject]
        limit = place.features.get("refuses_at")
        if limit is not None and len(place.ready) >= limit:
            raise Broken(f"{place.name} took {event.messages}, with {len(place.ready)} ready of {limit}")

    def _left(self, event: LeftEvent) -> None:
        place = self._where.places[event.vhost, event.subject]
        if not event.came_in:
            limit = place.features.get("refuses_at")
            if limit is not None and event.reason == "maxlen" and len(place.ready) < limit:
                raise Broken(f"{place.name} refused {event.messages}, with {len(place.ready)} ready of {limit}")
            return
        if event.kind is EventKind.EVICTED:
            self._check(place, event, place.features.get("ring_size"))
        elif event.reason == "maxlen":
            self._check(place, event, place.features.get("max_length"))

    def _check(self, place: Place, event: LeftEvent, limit: int | None) -> None:
        if place.features.get("stream") or place.features.get("foreign"):
            return
        if limit is None:
            raise Broken(f"{place.name} has no limit, and {event.messages} went for want of room")
        returned = [id_ for id_ in event.messages if id_ in place.out]  # a full ring lets them not wait
        gone = [id_ for id_ in event.messages if id_ not in place.out]
        if returned and not place.features.get("delay_ms"):
            raise Broken(f"{place.name}: {returned} went for want of room, and were out")
        for id_ in gone:
            if len(place.ready) <= limit:
                raise Broken(f"{place.name}: {id_} went for want of room, with {len(place.ready)} ready of {limit}")
            if not place.keeps and id_ != place.first_ready():
                raise Broken(f"{place.name}: {id_} went for want of room, the oldest is {place.first_ready()}")
            break  # of a run that goes at once the first is the oldest; the others are checked by the next line
        if gone and sorted(place.ready)[: len(gone)] != sorted(gone) and not place.keeps:
            raise Broken(f"{place.name}: {gone} went for want of room, and are not the oldest")

    def check(self) -> None:
        for place in self._where.places.values():
            for feature in ("ring_size", "max_length"):
                limit = place.features.get(feature)
                if limit is not None and len(place.ready) > limit:
                    raise Broken(f"{place.name} has {len(place.ready)} ready of {limit}")
