"""A delivery that nobody settles ends its channel after the timeout of its queue: at most a quarter of it later, and
not before.

Of queues whose plan has `timeout_ms`. Source: behaviour page 2.16; DEVIATIONS.md, `consumer-timeout`.
"""

from __future__ import annotations

from typing import Any

from leveret.engine import Broker, DeliveredEvent, RequeuedEvent

from ..ledger import Broken, QueueName
from ..loop import SimulatedClock
from .book import Book, Handlers
from .returns import CLOSED, LOST
from .whereabouts import Whereabouts

MS = 1_000_000
#: How late a turn may be beyond that, and how often the book looks.
LATE_NS = 50 * MS


class Timeouts(Book):
    """Since when each session has what it did not settle."""

    def __init__(self, where: Whereabouts, clock: SimulatedClock) -> None:
        self._where = where
        self._clock = clock
        self._since: dict[Any, dict[tuple[QueueName, int], int]] = {}
        self._ages_ms: dict[tuple[str, int], float] = {}  # of channels that ended: of the oldest that came back
        self._looked_ns = 0

    def handlers(self) -> Handlers:
        return {DeliveredEvent: self._delivered, RequeuedEvent: self._requeued}

    def attach(self, broker: Broker) -> None:
        self._since.clear()
        self._ages_ms.clear()
        self._looked_ns = self._clock.monotonic_ns()

    def _delivered(self, event: DeliveredEvent) -> None:
        name = event.vhost, event.subject
        if "timeout_ms" not in self._where.features_of(event.subject):
            return
        since, now_ns = self._since.setdefault(event.session, {}), self._clock.monotonic_ns()
        for id_ in event.messages:
            since[name, id_] = now_ns

    def _requeued(self, event: RequeuedEvent) -> None:
        name, now_ns = (event.vhost, event.subject), self._clock.monotonic_ns()
        if "timeout_ms" not in self._where.features_of(event.subject):
            return
        for session, since in self._since.items():
            began = [at for id_ in event.messages if (at := since.pop((name, id_), None)) is not None]
            if began and event.why in (CLOSED, LOST):
                channel = session.client.properties["product"].text, session.number
                self._ages_ms[channel] = max(self._ages_ms.get(channel, 0), (now_ns - min(began)) / MS)

    def turn_ended(self) -> None:
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._looked_ns < LATE_NS:
            return
        at_ns, self._looked_ns = self._looked_ns, now_ns  # what was to end before some turns ended has
        for session, since in list(self._since.items()):
            for key, began_ns in list(since.items()):
                place = self._where.places.get(key[0])
                if place is None or key[1] not in place.out:
                    del since[key]
                elif began_ns + place.features["timeout_ms"] * 5 // 4 * MS + LATE_NS < at_ns:
                    raise Broken(f"{key[0]}: {key[1]} is out for {(at_ns - began_ns) / MS} ms, and its channel goes on")
            if not since:
                del self._since[session]

    def closed(self, product: str, channel: int, timeout_ms: int) -> None:
        """A channel was told that it ends by a timeout. Raises: Broken."""
        age_ms = self._ages_ms.pop((product, channel), 0.0)
        if age_ms < timeout_ms:
            raise Broken(f"{product}, channel {channel} timed out after {age_ms} ms of {timeout_ms}")
