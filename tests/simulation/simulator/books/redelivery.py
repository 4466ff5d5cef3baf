"""What comes back waits as long as the formula says, dies when it was tried too often, and is due on time."""

from __future__ import annotations

from functools import lru_cache

from leveret.engine import (
    Broker,
    DeliveredEvent,
    DueEvent,
    EnqueuedEvent,
    EventKind,
    LeftEvent,
    RequeuedEvent,
    ScheduledEvent,
)
from leveret.interop.wire.raw_codec import Content

from ..ledger import HEADER_START, Broken, QueueName
from ..loop import SECOND, SimulatedClock
from .book import Book, Handlers
from .whereabouts import RESCHEDULED, Place, Whereabouts

MS = 1_000_000
#: What is written of a time is in ms.
ROUNDED_NS = 2 * MS
#: What is due is ready again within so long.
LATE_NS = SECOND


class Redelivery(Book):
    """Counts deliveries and failed attempts for itself. Of what was there when a life began it asks the engine once.

    `rescheduled`: what operators are about to make due, and when; `cancelled`: what they are about to delete.
    """

    def __init__(self, where: Whereabouts, clock: SimulatedClock) -> None:
        self._where = where
        self._clock = clock
        self._tries: dict[tuple[QueueName, int], int] = {}  # that count
        self._due: dict[tuple[QueueName, int], int] = {}
        self.rescheduled: dict[tuple[QueueName, int], int] = {}
        self.cancelled: set[tuple[QueueName, int]] = set()

    def handlers(self) -> Handlers:
        return {
            EnqueuedEvent: self._enqueued,
            DeliveredEvent: self._delivered,
            RequeuedEvent: self._requeued,
            ScheduledEvent: self._scheduled,
            DueEvent: self._on_due,
            LeftEvent: self._left,
        }

    def attach(self, broker: Broker) -> None:
        before, self._tries = self._tries, {}
        self._due = {}
        for name, place in self._where.places.items():
            for due_ns, message in () if "foreign" in place.features else place.queue.scheduled.entries():
                self._due[name, message.id] = due_ns
            if not self._concerns(place):
                continue
            for message in place.queue.messages():
                key = name, message.id
                tries = self._tries[key] = message.deliveries - message.uncounted
                known = before.get(key)  # None: it was only on the disk when the life before began
                if (highest := place.features.get("attempts_max")) and tries >= highest:
                    raise Broken(f"{name}: {message.id} was tried {tries} times of {highest} and is there")
                if known is not None and tries > known:
                    raise Broken(f"{name}: {message.id} was tried {tries} times, and {known} before")

    def _concerns(self, place: Place) -> bool:
        return not place.keeps and ("delay_ms" in place.features or "attempts_max" in place.features)

    def _enqueued(self, event: EnqueuedEvent) -> None:
        name = event.vhost, event.subject
        if self._concerns(self._where.places[name]):
            for id_ in event.messages:
                self._tries[name, id_] = 0

    def _delivered(self, event: DeliveredEvent) -> None:
        name = event.vhost, event.subject
        if self._concerns(self._where.places[name]):
            tries = self._tries
            for id_ in event.messages:
                if (name, id_) in tries:
                    tries[name, id_] += 1

    def _requeued(self, event: RequeuedEvent) -> None:
        name = event.vhost, event.subject
        place = self._where.places[name]
        if not self._concerns(place):
            return
        for id_ in event.messages:
            self._came_back(place, id_, counted=event.counted)
            if place.features.get("delay_ms") and event.why in ("nacked", "rejected", "recovered"):
                raise Broken(f"{name}: {id_} came back ({event.why}) and did not wait")

    def _came_back(self, place: Place, id_: int, *, counted: bool) -> int | None:
        """Attempts so far, None: nobody knows. Raises: Broken."""
        tries = self._tries.get((place.name, id_))
        if tries is None:
            return None
        if not counted:
            tries -= 1
            self._tries[place.name, id_] = tries
        highest = place.features.get("attempts_max")
        if highest and tries >= highest:
            raise Broken(f"{place.name}: {id_} was tried {tries} times of {highest} and comes back")
        return tries

    def _scheduled(self, event: ScheduledEvent) -> None:
        name, now_ns = (event.vhost, event.subject), self._clock.monotonic_ns()
        place = self._where.places[name]
        if place.features.get("foreign"):
            return
        for id_, due_ns, message in zip(event.messages, event.due_ns, event.run):
            if event.why == RESCHEDULED:
                asked_ns = self.rescheduled.pop((name, id_), None)
                if asked_ns is None or due_ns != self._until(asked_ns, message.expires_ns):
                    raise Broken(f"{name}: {id_} waits until {due_ns}, and operators asked for {asked_ns}")
                self._due[name, id_] = due_ns
                continue
            if event.counted is None and (delay_ms := _delay_of(message.header)):
                if due_ns != self._until(now_ns + delay_ms * MS, message.expires_ns):
                    raise Broken(f"{name}: {id_} waits {(due_ns - now_ns) / MS} ms, and says {delay_ms}")
                self._due[name, id_] = due_ns
                continue
            if event.counted is None or not place.features.get("delay_ms"):
                raise Broken(f"{name}: {id_} is to wait, and nothing says so")
            tries = self._came_back(place, id_, counted=event.counted)
            wait_ms = None if tries is None else wait_of(place, tries)
            if wait_ms is not None and due_ns != self._until(now_ns + wait_ms * MS, message.expires_ns):
                raise Broken(f"{name}: {id_} waits {(due_ns - now_ns) / MS} ms, and not {wait_ms} (attempt {tries})")
            self._due[name, id_] = due_ns

    @staticmethod
    def _until(due_ns: int, expires_ns: int) -> int:
        """It expires on time also while it waits."""
        return min(due_ns, expires_ns) if expires_ns else due_ns

    def _on_due(self, event: DueEvent) -> None:
        name, now_ns = (event.vhost, event.subject), self._clock.monotonic_ns()
        for id_ in event.messages:
            due_ns = self._due.pop((name, id_), None)
            if due_ns is not None and now_ns < due_ns:
                raise Broken(f"{name}: {id_} is ready {(due_ns - now_ns) / MS} ms too early")

    def _left(self, event: LeftEvent) -> None:
        name = event.vhost, event.subject
        place = self._where.places[name]
        for id_ in event.messages:
            was_due_ns = self._due.pop((name, id_), None)
            if event.kind is EventKind.CANCELLED and (was_due_ns is None or (name, id_) not in self.cancelled):
                raise Broken(f"{name}: {id_} was cancelled, and did not wait, or nobody asked for it")
            if event.reason == "delivery_limit" and "attempts_max" in place.features:
                tries, highest = self._tries.get((name, id_)), place.features["attempts_max"]
                if not highest or (tries is not None and tries < highest):
                    raise Broken(f"{name}: {id_} died of {tries} attempts of {highest}")

    def check(self) -> None:
        now_ns = self._clock.monotonic_ns()
        for (name, id_), due_ns in self._due.items():
            if now_ns > due_ns + LATE_NS and name in self._where.places:
                raise Broken(f"{name}: {id_} still waits {(now_ns - due_ns) / MS} ms after it was due")


def wait_of(place: Place, tries: int) -> int:
    """delay x multiplier^(attempts - 1), at most its highest value, in ms (address-settings page 5.1)."""
    features = place.features
    wait: float = features["delay_ms"]
    for _ in range(max(tries, 1) - 1):
        wait = min(wait * features["delay_multiplier"], features["delay_max_ms"])
    return int(min(wait, features["delay_max_ms"]))


@lru_cache(maxsize=1000)
def _delay_of(header: bytes) -> int:
    """What the publisher asked for, in ms, which is negated by then; 0: nothing."""
    delay = Content(header[HEADER_START:], b"").headers.get("x-delay")
    return 0 if delay is None else abs(delay[1])
