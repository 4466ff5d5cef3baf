"""A message lives as long as its queue and its publisher let it, no longer and no shorter."""

from __future__ import annotations

from leveret.engine import Broker, DeliveredEvent, EnqueuedEvent, Envelope, EventKind, LeftEvent

from ..ledger import Broken, QueueName
from ..loop import SECOND, SimulatedClock
from .book import Book, Handlers
from .moves import MOVED
from .whereabouts import Whereabouts

MS = 1_000_000
#: What is written of a time is in ms.
ROUNDED_NS = 2 * MS
#: Heads of queues whose time is over go within so long, also where nobody asks for them.
LATE_NS = SECOND


class Expiries(Book):
    """`until`: queue and message id -> when its time is over, by the monotonic clock, and in which life that was said.

    A life that comes later knows it by the wall clock, rounded; where somebody set that one meanwhile, nobody knows.
    """

    def __init__(self, where: Whereabouts, clock: SimulatedClock) -> None:
        self._where = where
        self._clock = clock
        self._until: dict[tuple[QueueName, int], tuple[int, int]] = {}
        self._life = 0
        self._wall_began_ms = clock.wall_ms() - clock.monotonic_ns() // MS

    def handlers(self) -> Handlers:
        return {EnqueuedEvent: self._enqueued, DeliveredEvent: self._delivered, LeftEvent: self._left}

    def attach(self, broker: Broker) -> None:
        self._life += 1
        if self._clock.wall_ms() - self._clock.monotonic_ns() // MS != self._wall_began_ms:
            self._wall_began_ms = self._clock.wall_ms() - self._clock.monotonic_ns() // MS
            self._until.clear()

    def _enqueued(self, event: EnqueuedEvent) -> None:
        name = event.vhost, event.subject
        features = self._where.places[name].features
        if features.get("stream") or features.get("foreign"):
            return
        of, ttl_ms, now_ns = event.run, features.get("ttl_ms"), self._clock.monotonic_ns()
        for index, id_ in enumerate(event.messages):
            expiration = (of if isinstance(of, Envelope) else of[index].envelope).summary.expiration
            lives_ms = [ms for ms in (ttl_ms, None if expiration is None else int(expiration)) if ms is not None]
            self._until.pop((name, id_), None)
            if lives_ms:
                self._until[name, id_] = now_ns + min(lives_ms) * MS, self._life

    def _delivered(self, event: DeliveredEvent) -> None:
        self._goes_on(event, "delivered")

    def _goes_on(self, event: DeliveredEvent | LeftEvent, how: str) -> None:
        if not self._until or self._where.places[event.vhost, event.subject].keeps:
            return  # where messages stay they expire at the head only, and consumers are past it
        name, now_ns = (event.vhost, event.subject), self._clock.monotonic_ns()
        for id_ in event.messages:
            known = self._until.get((name, id_))
            if known is None:
                continue
            until_ns, life = known
            rounded_ns = 0 if life == self._life else ROUNDED_NS
            is_new = until_ns == now_ns and life == self._life  # what may not wait at all may go at once
            if now_ns >= until_ns + rounded_ns and not is_new:
                raise Broken(f"{name}: {id_} was {how} {(now_ns - until_ns) / MS} ms after its time")

    def _left(self, event: LeftEvent) -> None:
        if event.reason == MOVED:  # in its new place its time would begin anew
            self._goes_on(event, "moved")
        if event.kind is not EventKind.EXPIRED:
            return
        name, now_ns = (event.vhost, event.subject), self._clock.monotonic_ns()
        if self._where.places[name].features.get("stream"):
            return
        for id_ in event.messages:
            known = self._until.get((name, id_))
            if known is None:
                continue
            until_ns, life = known
            if now_ns < until_ns - (0 if life == self._life else ROUNDED_NS):
                raise Broken(f"{name}: {id_} expired {(until_ns - now_ns) / MS} ms before its time")

    def check(self) -> None:
        now_ns = self._clock.monotonic_ns()
        for name, place in self._where.places.items():
            if not place.ready or "priority_max" in place.features:
                continue
            id_ = place.first_ready()
            known = self._until.get((name, id_))
            if known is not None and now_ns > known[0] + LATE_NS:
                raise Broken(f"{name}: {id_} is still there {(now_ns - known[0]) / MS} ms after its time")
