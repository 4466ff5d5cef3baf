"""Rings and limits: what goes for want of room is the oldest that is ready, and no more is there than may be."""

from __future__ import annotations

from collections.abc import Sequence

from leveret.engine import Consumer, EnqueuedEvent, EventKind, LeftEvent, PublishedEvent

from ..ledger import Broken
from .book import Book, Handlers
from .whereabouts import Place, Whereabouts

#: Why a message left the queue of a subscriber that is too slow.
PENDING_LIMIT = "pending-message-limit"


class Limits(Book):
    """Of queues whose plan has a limit, and of all together. `whole`: how many messages are too many for one more."""

    def __init__(self, where: Whereabouts, whole: int | None = None) -> None:
        self._where = where
        self._whole = whole
        self._published: Sequence[int] = ()  # by a client, last
        self._octets: dict[int, int] = {}  # of the bodies of messages

    def handlers(self) -> Handlers:
        return {LeftEvent: self._left, EnqueuedEvent: self._enqueued, PublishedEvent: self._on_published}

    def _on_published(self, event: PublishedEvent) -> None:
        self._published = event.messages if event.cause is None else ()
        if any("max_octets" in self._where.features_of(queue.name) for queue in event.queues):
            split = event.run.framing.split
            self._octets.update((id_, len(split(one)[1])) for id_, one in zip(event.messages, event.contents))

    def _sum(self, place: Place) -> int:
        return sum(self._octets[id_] for id_ in place.ready)

    def _enqueued(self, event: EnqueuedEvent) -> None:
        place = self._where.places[event.vhost, event.subject]
        if self._whole is not None and event.messages[0] in self._published and place.queue.rules.size.drops_or_refuses:
            there = sum(len(one) for one in self._where.places.values() if one.queue.rules.size.drops_or_refuses)
            if there >= self._whole:
                raise Broken(f"{place.name} took {event.messages}, {there} are there of {self._whole} in all")
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
        if event.reason == PENDING_LIMIT:
            self._check_pending(place, event)
        elif event.kind is EventKind.EVICTED:
            self._check(place, event, place.features.get("ring_size"))
        elif event.reason == "maxlen" and "max_octets" in place.features:
            self._check_octets(place, event.messages)
        elif event.reason == "maxlen":
            self._check(place, event, place.features.get("max_length"))

    def _check_octets(self, place: Place, gone: Sequence[int]) -> None:
        """The oldest go, and no more of them than have to."""
        limit = place.features["max_octets"]
        left = self._sum(place) - sum(self._octets[id_] for id_ in gone[:-1])
        if left <= limit:
            raise Broken(f"{place.name}: {gone} went for want of room, {left} octets were there of {limit}")
        if sorted(place.ready)[: len(gone)] != sorted(gone):
            raise Broken(f"{place.name}: {gone} went for want of room, and are not the oldest")

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

    def _check_pending(self, place: Place, event: LeftEvent) -> None:
        """Source: queues page E.6. A multiple of the prefetch limits nothing where some consumer has no such limit."""
        rules = place.queue.rules.pending
        limit = None if rules is None else rules.limit
        if rules is not None and limit is None:
            consumers = place.queue.consumer_list.consumers
            prefetches = [_prefetch_of(one) for one in consumers]
            limit = int(sum(prefetches) * rules.prefetch_rate) if prefetches and all(prefetches) else None
        if limit is None or len(place.ready) <= limit:
            raise Broken(f"{place.name}: {event.messages} went, with {len(place.ready)} waiting of {limit}")

    def check(self) -> None:
        for place in self._where.places.values():
            for feature in ("ring_size", "max_length"):
                limit = place.features.get(feature)
                if limit is not None and len(place.ready) > limit:
                    raise Broken(f"{place.name} has {len(place.ready)} ready of {limit}")
            octets = place.features.get("max_octets")
            if octets is not None and (there := self._sum(place)) > octets:
                raise Broken(f"{place.name} has {there} octets ready of {octets}")


def _prefetch_of(consumer: Consumer) -> int:
    """0: there is no limit to it."""
    limits = consumer.prefetch, consumer.session.prefetch_total
    return 0 if consumer.no_ack else min((limit for limit in limits if limit), default=0)
