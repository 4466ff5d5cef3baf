"""What a restart has to remember of messages beside that they are there: until when they live or wait, how often they
were tried, their priority, where they were published; and the order in which they stand.

Of what was not durable yet the state before or behind any turn will do, as in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from leveret.engine import (
    Broker,
    DueEvent,
    EnqueuedEvent,
    Envelope,
    Message,
    PublishedEvent,
    Queue,
    RequeuedEvent,
    ScheduledEvent,
)

from ..ledger import Broken, QueueName, is_as_published
from ..loop import SimulatedClock
from .book import Book, Handlers
from .whereabouts import Place, Whereabouts

MS = 1_000_000
#: What is written of a time is in ms, and so is what is read of one.
ROUNDED_NS = 3 * MS
#: Of a message that was tried more often the journal has no later count (max-redelivery-records, address-settings page
#: 5.7).
COUNTS_MAX = 10

Key = tuple[QueueName, int]
#: LSN behind the turn in which it came about (None: in this one); when it is due (0: ready); failed attempts.
State = tuple[int | None, int, int]


class Memories(Book):
    """`states`: of messages that came back: the newest durable state, and those since."""

    def __init__(self, where: Whereabouts, clock: SimulatedClock) -> None:
        self._where = where
        self._clock = clock
        self._wall_began_ms = clock.wall_ms() - clock.monotonic_ns() // MS
        self._states: dict[Key, list[State]] = {}
        self._changed: list[Key] = []  # in this turn
        self._open: list[tuple[int, list[Key]]] = []  # LSN behind a turn that is not durable yet, what changed in it
        self._envelopes: dict[int, tuple[str, str, int | None, bytes]] = {}
        self._lives: dict[Key, int | None] = {}  # until when, by the monotonic clock; None: for ever

    def handlers(self) -> Handlers:
        return {
            PublishedEvent: self._published,
            EnqueuedEvent: self._enqueued,
            RequeuedEvent: self._requeued,
            ScheduledEvent: self._scheduled,
            DueEvent: self._due,
        }

    # -- what happens -------------------------------------------------------------------------------------------------

    def _published(self, event: PublishedEvent) -> None:
        split = event.run.framing.split
        of = event.run
        for id_, content in zip(event.messages, event.contents):
            self._envelopes[id_] = of.exchange, of.routing_key, of.summary.priority, bytes(split(content)[0])

    def _enqueued(self, event: EnqueuedEvent) -> None:
        name = event.vhost, event.subject
        features = self._where.places[name].features
        is_known = not features.keys() & {"foreign", "stream", "leased"}
        of, ttl_ms, now_ns = event.run, features.get("ttl_ms"), self._clock.monotonic_ns()
        for index, id_ in enumerate(event.messages):
            key = name, id_
            self._states.pop(key, None)
            if not is_known:
                self._lives.pop(key, None)
                continue
            expiration = (of if isinstance(of, Envelope) else of[index].envelope).summary.expiration
            lives_ms = [ms for ms in (ttl_ms, None if expiration is None else int(expiration)) if ms is not None]
            self._lives[key] = now_ns + min(lives_ms) * MS if lives_ms else None

    def _note(self, key: Key, due_ns: int, tries: int) -> None:
        self._states.setdefault(key, []).append((None, due_ns, tries))
        self._changed.append(key)

    def _requeued(self, event: RequeuedEvent) -> None:
        name = event.vhost, event.subject
        if not self._where.places[name].keeps:
            for id_, message in zip(event.messages, event.run):
                self._note((name, id_), 0, message.deliveries - message.uncounted)

    def _scheduled(self, event: ScheduledEvent) -> None:
        name = event.vhost, event.subject
        for id_, due_ns, message in zip(event.messages, event.due_ns, event.run):
            self._note((name, id_), due_ns, message.deliveries - message.uncounted)

    def _due(self, event: DueEvent) -> None:
        name = event.vhost, event.subject
        for id_, message in zip(event.messages, event.run):
            self._note((name, id_), 0, message.deliveries - message.uncounted)

    # -- durability ---------------------------------------------------------------------------------------------------

    def recorded(self, lsn: int, durable_lsn: int, *, takes_nothing: bool) -> None:
        """A turn has ended; what it did is safe when all below `lsn` is, unless the journal takes nothing."""
        if takes_nothing:
            self._states.clear()
            self._changed.clear()
            self._open.clear()
            return
        if self._changed:
            for key in self._changed:
                states = self._states.get(key, [])
                states[:] = [(lsn if at is None else at, due_ns, tries) for at, due_ns, tries in states]
            self._open.append((lsn, self._changed))
            self._changed = []
        self._survives(durable_lsn)

    def survived(self, written_lsn: int) -> None:
        """Only the process was lost: all that was written is there."""
        self._survives(written_lsn)

    def _survives(self, durable_lsn: int) -> None:
        """States before the newest durable one cannot come back."""
        while self._open and self._open[0][0] <= durable_lsn:
            for key in self._open.pop(0)[1]:
                states = self._states.get(key, [])
                safe = [at for at, state in enumerate(states) if state[0] is not None and state[0] <= durable_lsn]
                if safe:
                    del states[: safe[-1]]

    # -- a new life ---------------------------------------------------------------------------------------------------

    def attach(self, broker: Broker) -> None:
        self.compare(self._where.places.values())
        if self._was_set:
            self._lives.clear()
        self._wall_began_ms = self._clock.wall_ms() - self._clock.monotonic_ns() // MS
        self._states.clear()
        self._changed.clear()
        self._open.clear()

    @property
    def _was_set(self) -> bool:
        """Whether the wall clock was set since this life began: then times move at a restart."""
        return self._clock.wall_ms() - self._clock.monotonic_ns() // MS != self._wall_began_ms

    def compare(self, places: Iterable[Place]) -> None:
        """What a broker found that has just started. Raises: Broken."""
        was_set = self._was_set
        durable_from = self._open[0][0] if self._open else None
        for place in places:
            if place.features.keys() & {"foreign", "stream", "leased"} or not place.queue.durable:
                continue
            self._check_envelopes(place)
            self._check_states(place, durable_from, was_set=was_set)
            if not was_set and not place.keeps:
                self._check_lives(place)
            if not place.features.keys() & {"priority_max", "last_value_keys", "keeps"}:
                self._check_order(place)

    def _check_envelopes(self, place: Place) -> None:
        for message in place.queue.messages():
            known = self._envelopes.get(message.id)
            of = message.envelope
            if known is None:
                continue
            found = of.exchange, of.routing_key, of.summary.priority, bytes(message.header)
            if found[:3] != known[:3] or not is_as_published(found[3], known[3]):
                raise Broken(f"{place.name}: {message.id} is {found} after a restart, it was published as {known}")
        highest = place.features.get("priority_max")
        for part in place.queue.store.paged_parts() if highest is not None else ():
            for id_ in () if isinstance(part, Message) else part.ids:
                if id_ in self._envelopes and part.level != min(self._envelopes[id_][2] or 0, highest):
                    raise Broken(f"{place.name}: {id_} has the level {part.level} after a restart")

    def _check_states(self, place: Place, durable_from: int | None, *, was_set: bool) -> None:
        waiting = {message.id: due_ns for due_ns, message in place.queue.scheduled.entries()}
        tried = {message.id: message.deliveries - message.uncounted for message in place.queue.messages()}
        tried |= {message.id: message.deliveries - message.uncounted for message in place.queue.scheduled}
        for part in place.queue.store.paged_parts():
            if isinstance(part, Message):
                tried[part.id] = part.deliveries - part.uncounted
            else:
                tried |= dict.fromkeys(part.ids, part.attempts)
        for id_ in tried:
            states = self._states.get((place.name, id_))
            if not states or states[0][0] is None or (durable_from is not None and states[0][0] >= durable_from):
                continue  # the first of them may not be durable: before it was something else
            tries = [state[2] for state in states]
            if tried[id_] < min(*tries, COUNTS_MAX):
                raise Broken(f"{place.name}: {id_} was tried {tried[id_]} times after a restart, before it was {tries}")
            dues = [state[1] for state in states]
            now_ns = self._clock.monotonic_ns()
            found = waiting.get(id_, 0)
            if was_set or any(self._is_like(found, due_ns, now_ns) for due_ns in dues):
                continue
            raise Broken(
                f"{place.name}: {id_} waits until {found} after a restart (now: {now_ns}), before it was {dues}"
            )

    @staticmethod
    def _is_like(found_ns: int, due_ns: int, now_ns: int) -> bool:
        if not found_ns or not due_ns:
            return (not found_ns and due_ns <= now_ns + ROUNDED_NS) or found_ns <= now_ns + ROUNDED_NS and not due_ns
        return abs(found_ns - due_ns) <= ROUNDED_NS or max(found_ns, due_ns) <= now_ns + ROUNDED_NS

    def _check_lives(self, place: Place) -> None:
        for id_, expires_ns in lives_of(place.queue):
            key = place.name, id_
            if key not in self._lives:
                continue
            known = self._lives[key]
            if (known is None) != (not expires_ns) or (known is not None and abs(known - expires_ns) > ROUNDED_NS):
                raise Broken(f"{place.name}: {id_} lives until {expires_ns} after a restart, before it was {known}")
            self._lives[key] = expires_ns or None

    def _check_order(self, place: Place) -> None:
        """Whatever was out or waited is at its place again: the oldest first."""
        ids = list(_ids_in_order(place.queue))
        if any(one >= other for one, other in zip(ids, ids[1:])):
            raise Broken(f"{place.name} is out of order after a restart: {ids[:50]}")


def lives_of(queue: Queue) -> Iterator[tuple[int, int]]:
    """Id and end of each message, as far as memory knows it; 0: it lives for ever."""
    for message in queue.messages():
        yield message.id, message.expires_ns
    for part in queue.store.paged_parts():
        if isinstance(part, Message):
            yield part.id, part.expires_ns
            continue
        yield from zip(part.ids, part.expires or [0] * len(part.ids))


def _ids_in_order(queue: Queue) -> Iterator[int]:
    for message in queue.store:
        yield message.id
    for part in queue.store.paged_parts():
        if isinstance(part, Message):
            yield part.id
        else:
            yield from part.ids
