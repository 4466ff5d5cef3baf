"""The oracle's books: every message in every queue, by the events of the engine, and what of it must survive.

A listener of the broker. Each turn's changes wait until the journal says that they are durable. After a restart the
queues hold what they held behind some turn, the last durable one or a later one; nothing else, and nothing twice.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple, cast

from leveret.engine import (
    AckedEvent,
    Broker,
    DeliveredEvent,
    EnqueuedEvent,
    Envelope,
    Event,
    EventKind,
    LeftEvent,
    Message,
    PublishedEvent,
    Queue,
    QueueEvent,
    RequeuedEvent,
    ScheduledEvent,
)
from leveret.interop.wire.raw_codec import Content

#: Class, weight and size of the body come before the properties.
HEADER_START = 12
#: The last octets of each body say which message it is.
KEY_SIZE = 12
#: Of a queue that says nothing of attempts, if settings that an operator brings do (address-settings page 3.8).
ATTEMPTS_MAX = 10

QueueName = tuple[str, str]  # virtual host, queue
Place = tuple[QueueName, int]  # and a message's id
Change = tuple[QueueName, int, bytes | None]  # None: the message left


class Broken(Exception):
    """A rule was broken; says which."""


class Turn(NamedTuple):
    """What it changed durably. `lsn`: behind it; `keys`: of what came."""

    lsn: int
    changes: list[Change]
    keys: set[bytes]


class Ledger:
    """`present`: queue -> message id -> key, as it is now. `durable`: what a restart would find behind the last durable
    turn. `counts_deliveries`: a delivery is an attempt that a restart remembers, so what is out for the last time is
    dead after it (address-settings page 5.7).
    """

    takes_mixed = False

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()  # names of event kinds
        self.present: dict[QueueName, dict[int, bytes]] = {}
        self.durable: dict[QueueName, dict[int, bytes]] = {}
        self.expirable: set[int] = set()
        self.features: dict[str, dict[str, Any]] = {}  # of queues, as the plan has them
        self.counts_deliveries = False
        self.spent: set[Place] = set()  # what went out for the last time
        self.died: set[Place] = set()  # of these as this broker started, as far as the journal had them
        self._tried: set[Place] = set()  # of queues of which only the broker knows whether there is a limit
        self.waiting: deque[Turn] = deque()  # not durable yet
        self.unstated: list[Change] = []  # what came while the journal took nothing, until a checkpoint has it
        self._turn: list[Change] = []
        self.committed_lsn: Callable[[], int] = lambda: 0  # answers may speak of what is below, now
        self._keys: dict[int, bytes] = {}  # of what is being published
        self._copies: set[int] = set()  # dead letters, and what came back: no publisher waits for a confirm of it
        self._safe_max = self._floor = 0  # the highest id that ever was safe; and when this life began
        self._broker: Broker | None = None

    # -- events -------------------------------------------------------------------------------------------------------

    def __call__(self, event: Event) -> None:
        self.kinds[event.kind._name_] += 1
        if isinstance(event, PublishedEvent):
            self._published(event)
        elif isinstance(event, EnqueuedEvent):
            self._enqueued(event)
        elif isinstance(event, AckedEvent):
            if not event.kept:
                self._left(event)
        elif isinstance(event, LeftEvent):
            if event.came_in:
                self._left(event)
        elif isinstance(event, DeliveredEvent):
            self._delivered(event)
        elif isinstance(event, (RequeuedEvent, ScheduledEvent)):
            if self.spent:
                self._came_back(event)
        elif (
            isinstance(event, QueueEvent)
            and event.kind is EventKind.UNDECLARED
            and self.present.pop((event.vhost, event.subject), None)
        ):
            raise Broken(f"queue {event.subject} was deleted with messages that nobody accounted for")

    def _published(self, event: PublishedEvent) -> None:
        if event.messages[0] <= self._floor:
            raise Broken(f"the id {event.messages[0]} is given again: up to {self._floor} they were safe")
        if event.cause is not None:
            self._copies.update(event.messages)
        self._keys.update(zip(event.messages, keys_of(event)))

    def _enqueued(self, event: EnqueuedEvent) -> None:
        name = event.vhost, event.subject
        queue = self._queue(name)
        present = self.present.setdefault(name, {})
        keys, of = self._keys, event.run
        for index, id_ in enumerate(event.messages):
            envelope = of if isinstance(of, Envelope) else of[index].envelope
            if id_ in present:
                raise Broken(f"message {id_} is in {name} twice")
            key = present[id_] = keys.get(id_, b"")
            if queue.durable and envelope.summary.persistent:
                self._change(name, id_, key)
            if not isinstance(of, Envelope) and of[index].expires_ns:
                self.expirable.add(id_)

    def _left(self, event: AckedEvent | LeftEvent) -> None:
        name = event.vhost, event.subject
        present = self.present.get(name, {})
        for id_ in event.messages:
            if present.pop(id_, None) is None:
                raise Broken(f"message {id_} left {name} ({event.kind.value}), where it was not")
            self._change(name, id_, None)

    def _delivered(self, event: DeliveredEvent) -> None:
        name = event.vhost, event.subject
        present = self.present.get(name, {})
        for id_ in event.messages:
            if id_ not in present:
                raise Broken(f"message {id_} was delivered from {name}, where it was not")
        if self.counts_deliveries:
            self._count(name, event)

    def _count(self, name: QueueName, event: DeliveredEvent) -> None:
        features = self.features.get(name[1])
        if features is None:
            self._tried.update((name, id_) for id_ in event.messages)
            return
        highest, of = features.get("attempts_max", ATTEMPTS_MAX), event.run
        if not highest or "keeps" in features or not self._queue(name).durable:
            return
        for index, id_ in enumerate(event.messages):
            envelope, tries = (of, 1) if isinstance(of, Envelope) else _tries_of(of[index])
            if not envelope.summary.persistent or tries < highest:
                continue
            if "attempts_max" not in features:
                self._tried.add((name, id_))
            else:
                self.spent.add((name, id_))
                self._change(name, id_, None)

    def _came_back(self, event: RequeuedEvent | ScheduledEvent) -> None:
        """That attempt did not count."""
        name = event.vhost, event.subject
        for id_ in event.messages:
            if (name, id_) in self.spent:
                self.spent.discard((name, id_))
                self._copies.add(id_)
                self._change(name, id_, self.present[name][id_])

    def _queue(self, name: QueueName) -> Queue:
        assert self._broker is not None
        return self._broker.virtual_hosts[name[0]].queues[name[1]]

    # -- durability ---------------------------------------------------------------------------------------------------

    def _change(self, name: QueueName, id_: int, key: bytes | None) -> None:
        """The recorder heard of it before: what it does not take, it states later, or never."""
        assert self._broker is not None
        recorder: Any = self._broker.context.storage.durability
        if not recorder.takes_nothing:
            self._turn.append((name, id_, key))
        elif not recorder.is_lost:
            self.unstated.append((name, id_, key))

    def turn_ended(self, lsn: int, durable_lsn: int, *, is_unfinished: bool = False) -> None:
        """What happened since the last call is safe when all below `lsn` is.

        `is_unfinished`: the broker works on, as at a large commit, of which the journal may have a part already.
        """
        assert self._broker is not None
        if not is_unfinished:
            self._keys.clear()
        if self._turn:
            self.waiting.append(Turn(lsn, self._turn, {key for _, _, key in self._turn if key is not None}))
            self._turn = []
        self._survives(durable_lsn)
        if self.unstated and not cast(Any, self._broker.context.storage.durability).is_behind:
            self._make_durable(self._stated())
            self.unstated = []

    def _stated(self) -> list[Change]:
        """What came while the journal took nothing and left since, durably so before that was stated, stays away."""
        leaving = {(name, id_) for turn in self.waiting for name, id_, key in turn.changes if key is None}
        return [
            (name, id_, key)
            for name, id_, key in self.unstated
            if key is None or self._is_kept(name, id_) or (name, id_) in leaving
        ]

    def _is_kept(self, name: QueueName, id_: int) -> bool:
        return id_ in self.present.get(name, ()) and (name, id_) not in self.spent

    def _survives(self, lsn: int) -> None:
        waiting = self.waiting
        while waiting and waiting[0].lsn <= lsn:
            self._make_durable(waiting.popleft().changes)

    def _make_durable(self, changes: list[Change]) -> None:
        for name, id_, key in changes:
            there = self.durable.setdefault(name, {})
            if key is not None:
                self._safe_max = max(id_, self._safe_max)
                there[id_] = key
            else:
                there.pop(id_, None)

    def is_safe(self, key: bytes) -> bool:
        """Whether a message is as durable as the mode promises wherever it is to be, or was settled there."""
        committed_lsn = self.committed_lsn()
        for turn in reversed(self.waiting):
            if turn.lsn <= committed_lsn:
                break
            if key in turn.keys and self._is_among(key, turn.changes):
                return False
        return not self._is_among(key, self.unstated)

    def _is_among(self, key: bytes, changes: list[Change]) -> bool:
        return any(
            key == one and id_ in self.present.get(name, ()) and id_ not in self._copies for name, id_, one in changes
        )

    def first_left(self, places: Iterable[Place]) -> Place | None:
        """Of messages that left their queues, one that does not stay away wherever the broker may start again."""
        there = {place: place[1] in self.durable.get(place[0], ()) for place in places}
        committed_lsn = self.committed_lsn()
        for lsn, changes, _ in [*self.waiting, Turn(committed_lsn + 1, self.unstated, set())]:
            if lsn > committed_lsn and any(there.values()):  # a power cut may leave it as it was before this turn
                break
            for name, id_, key in changes:
                if (name, id_) in there:
                    there[name, id_] = key is not None
        return next((place for place, is_there in there.items() if is_there), None)

    # -- lives --------------------------------------------------------------------------------------------------------

    def attach(self, broker: Broker, written_lsn: int | None = None) -> None:
        """Keep the books of this broker from now on. Raises: Broken, if what it found is not what there was.

        `written_lsn`: what the one before had written below survived, as only the process was lost.
        """
        if written_lsn is not None:
            self._survives(written_lsn)
        found = {name: dict(_contents(queue)) for name, queue in _queues(broker)}
        if self._broker is not None or self.durable:
            self._compare({name: set(ids) for name, ids in found.items()})
        known = {
            id_: key for there in chain(self.durable.values(), self.present.values()) for id_, key in there.items()
        }
        self.present = {name: {id_: known.get(id_, key) for id_, key in ids.items()} for name, ids in found.items()}
        self.durable = {name: dict(ids) for name, ids in self.present.items()}
        self.spent = {(name, id_) for name, id_ in self.spent if id_ not in self.present.get(name, ())}
        self.died = set()
        self.waiting.clear()
        self.unstated = []
        self._turn = []
        self._keys.clear()
        self._floor = self._safe_max
        self._broker = broker
        broker.context.listeners.append(self)

    def compare_restart(self, broker: Broker, written_lsn: int | None) -> None:
        """What another broker found that started now. See `attach`; the books stay what they are. Raises: Broken."""
        self._compare({name: {id_ for id_, _ in _contents(queue)} for name, queue in _queues(broker)}, written_lsn)

    def _compare(self, found: dict[QueueName, set[int]], written_lsn: int | None = None) -> None:
        """What is there is what there was behind one of the turns since the last durable one.

        `written_lsn`: what was written below is there; None: what is durable.
        """
        names = found.keys() | self.durable.keys()
        wrong = {(name, id_) for name in names for id_ in found.get(name, set()) ^ self.durable.get(name, {}).keys()}
        # What came while the journal took nothing is there, or not, each for itself.
        wrong -= (either := {(name, id_) for name, id_, _ in self.unstated})
        best = set(wrong)
        changed: dict[Place, bool] = {}
        turns = [Turn(0, [], set()), *self.waiting, Turn(0, self._turn, set())]
        for at, (_, changes, _) in enumerate(turns):
            for name, id_, key in changes:
                place = name, id_
                if place in either:
                    continue
                was_there = changed.get(place, id_ in self.durable.get(name, ()))
                if was_there != (key is not None):
                    changed[place] = key is not None
                    wrong ^= {place}
            if at + 1 < len(self.waiting) + 1 and written_lsn is not None and turns[at + 1].lsn <= written_lsn:
                continue  # the next turn is there, too
            if self._is_explained(wrong, found):
                return
            if len(wrong) < len(best):
                best = set(wrong)
        lost = sorted((name[1], id_) for name, id_ in best if id_ not in found.get(name, ()))
        extra = sorted((name[1], id_) for name, id_ in best if id_ in found.get(name, ()))
        raise Broken(f"after a restart: lost {lost[:10]}, restored {extra[:10]} ({len(lost)}, {len(extra)})")

    def _is_explained(self, wrong: set[Place], found: dict[QueueName, set[int]]) -> bool:
        """Whether all that is missing may have expired meanwhile, or had no room or place when all was ready again."""
        return all(
            id_ not in found.get(name, ())
            and (id_ in self.expirable or (name, id_) in self._tried or self._had_no_room(name, id_, found))
            for name, id_ in wrong
        )

    def _had_no_room(self, name: QueueName, id_: int, found: Mapping[QueueName, Collection[int]]) -> bool:
        """What was out is ready again after a restart: a ring keeps the newest, as many as it has room for."""
        features = self.features.get(name[1], {})
        there = found.get(name, ())
        if "last_value_keys" in features:
            return bool(there) and id_ < max(there)
        if "max_octets" in features:
            return not there or id_ < min(there)
        room = features.get("ring_size", features.get("max_length"))
        return room is not None and len(there) >= room and id_ < min(there)

    def compare_audit(self, found: dict[QueueName, set[int]]) -> None:
        """What the journal says is in each queue, right after a start or an end. Raises: Broken.

        What nobody has heard to be safe is there, or not.
        """
        changes = chain(self.unstated, *(turn.changes for turn in self.waiting))
        either = {(name, id_) for name, id_, _ in changes}
        for name in found.keys() | self.durable.keys():
            here, there = self.durable.get(name, {}).keys(), found.get(name, set())
            open_ = {id_ for of, id_ in either if of == name}
            spent = {id_ for of, id_ in self.spent if of == name}
            if lost := here - there - open_:
                raise Broken(f"{name} has messages that are not in the journal: {sorted(lost)[:10]}")
            extra = {
                id_
                for id_ in there - here - self.expirable - open_
                if (name, id_) not in self._tried and not self._had_no_room(name, id_, self.durable)
            }
            self.died |= {(name, id_) for id_ in extra & spent}
            if extra := extra - spent:
                raise Broken(f"the journal has messages in {name} that are not there: {sorted(extra)[:10]}")

    def recorded_count(self) -> int | None:
        """How many messages of queues the journal has that did not leave yet; None: some were never told to it."""
        if self.unstated or self._turn:
            return None
        there = {(name, id_) for name, ids in self.durable.items() for id_ in ids}
        for turn in self.waiting:
            for name, id_, key in turn.changes:
                (there.discard if key is None else there.add)((name, id_))
        there.update((name, id_) for name, id_ in self.spent if id_ in self.present.get(name, ()))
        return len(there)

    # -- quiet --------------------------------------------------------------------------------------------------------

    def check_contents(self) -> None:
        """Each queue holds what the books say. Raises: Broken."""
        assert self._broker is not None
        queues = dict(_queues(self._broker, durable=False))
        for name in queues.keys() | self.present.keys():
            there = {id_ for id_, _ in _contents(queues[name], transient=True)} if name in queues else set()
            known = self.present.get(name, {}).keys()
            if there != known:
                raise Broken(
                    f"{name} holds {sorted(there - known)[:10]} too many, {sorted(known - there)[:10]} too few"
                )


def _tries_of(message: Message) -> tuple[Envelope, int]:
    return message.envelope, message.deliveries - message.uncounted


def keys_of(event: PublishedEvent) -> list[bytes]:
    """Of the messages that were published: the ends of their bodies, however these are framed."""
    split = event.run.framing.split
    return [bytes(split(content)[1][-KEY_SIZE:]) for content in event.contents]


def is_as_published(header: bytes, published: bytes) -> bool:
    """Whether a content header says what it said when it was published, but for a count or the end of a delay."""
    return header == published or _without_count(header) == _without_count(published)


def _without_count(header: bytes) -> tuple[bytes, dict[str, Any]]:
    """Class, weight and size of the body; properties."""
    properties = Content(header[HEADER_START:], b"").properties
    headers = dict(properties.pop("headers", {}))
    headers.pop("x-delivery-count", None)
    if (delay := headers.get("x-delay")) is not None:  # it is negated when it is over
        headers["x-delay"] = delay[0], abs(delay[1])
    return header[:HEADER_START], {**properties, "headers": headers}


def _queues(broker: Broker, *, durable: bool = True) -> Iterator[tuple[QueueName, Queue]]:
    for vhost in broker.virtual_hosts.values():
        for queue in vhost.queues.values():
            if queue.durable or not durable:
                yield (vhost.name, queue.name), queue


def _contents(queue: Queue, *, transient: bool = False) -> Iterator[tuple[int, bytes]]:
    """Message id and key of all that is in a queue, wherever it is. What only the disk has comes without its key."""
    parts = queue.store.paged_parts()
    aside = (part for part in parts if isinstance(part, Message))
    for message in chain(queue.messages(), () if queue.keeps_acked else queue.unacked_messages(), aside):
        if transient or message.envelope.summary.persistent:
            yield message.id, message.body[-KEY_SIZE:]
    for part in parts:
        if not isinstance(part, Message) and (transient or part.location is None):
            for id_ in part.ids:
                yield id_, b""
