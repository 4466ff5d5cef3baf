"""Each death with somewhere to go leaves one dead letter, in the order of the deaths, that tells the truth of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from leveret.engine import Broker, EventKind, LeftEvent, PublishedEvent
from leveret.interop.wire.raw_codec import Content

from ..ledger import Broken, Place, QueueName
from .book import Book, Handlers
from .moves import MOVED
from .whereabouts import Whereabouts

HEADER_START = 12  # class, weight and size of the body come before the properties

Told = dict[tuple[str, str], int]  # queue and reason -> count


class Deaths(Book):
    """`told`: what the newest copy of a message says of its deaths, by message id."""

    def __init__(self, where: Whereabouts) -> None:
        self._where = where
        self._waiting: deque[tuple[QueueName, int, str]] = deque()
        self._told: dict[int, Told] = {}
        self._explored: set[int] = set()  # of queues whose exchange for dead letters may be gone
        self._is_starting = False  # what had no room after a restart died before anybody listened
        self._unburied: set[int] = set()  # died as this broker started, of too many attempts

    def handlers(self) -> Handlers:
        return {LeftEvent: self._left, PublishedEvent: self._published}

    def attach(self, broker: Broker) -> None:
        self._waiting.clear()
        self._is_starting = True
        self._unburied = set()
        there = {id_ for place in self._where.places.values() for id_ in (*place.ready, *place.waiting)}
        self._told = {id_: told for id_, told in self._told.items() if id_ in there}  # ids that were lost come again

    def are_due(self, died: Iterable[Place]) -> None:
        """A start has taken these out of their queues: they were out for the last time when the broker before ended."""
        self._unburied = {id_ for name, id_ in died if self._may_die(name)}

    def _may_die(self, name: QueueName) -> bool:
        features = self._where.places[name].features
        return bool({"dead_letter_address", "dead_letter_exchange", "foreign"} & features.keys())

    def _left(self, event: LeftEvent) -> None:
        if event.to is None or event.kind is EventKind.PURGED:  # moved by an operator
            return
        name = event.vhost, event.subject
        if event.reason in ("rejected", "delivery_limit") and not self._may_die(name):
            raise Broken(f"{name}: {event.messages} became dead letters ({event.reason}), and have nowhere to go")
        if "explored" in self._where.places[name].features:
            self._explored.update(event.messages)
            return
        for id_ in event.messages:
            self._waiting.append((name, id_, str(event.reason)))

    def _published(self, event: PublishedEvent) -> None:
        if event.cause in (None, "retroactive", MOVED):
            return
        self._unburied.discard(event.run.cause_id)
        for id_, content in zip(event.messages, event.contents):
            if event.run.cause_id in self._explored or (not self._waiting and self._is_starting):
                self._told[id_] = deaths_in(event.run.framing.split(content)[0])
                continue
            if not self._waiting:
                raise Broken(f"message {id_} is a dead letter of {event.run.cause_id}, for which nobody waits")
            name, dead, reason = self._waiting.popleft()
            if (dead, reason) != (event.run.cause_id, event.cause):
                raise Broken(f"a dead letter of {event.run.cause_id} ({event.cause}), to come was {dead} ({reason})")
            deaths = deaths_in(event.run.framing.split(content)[0])
            expected = self._expected(dead, name[1], reason)
            if expected is not None and deaths != expected:
                raise Broken(f"the dead letter of {dead} tells {deaths}, to be told was {expected}")
            self._told[id_] = deaths
            features = self._where.places[name].features if name in self._where.places else {}
            target = features.get("dead_letter_to", features.get("dead_letter_address"))
            if target is not None and event.run.routing_key != target:
                raise Broken(f"the dead letter of {dead} goes to {event.run.routing_key} and not to {target}")

    def _expected(self, dead: int, queue: str, reason: str) -> Told:
        deaths = dict(self._told.get(dead, {}))
        deaths[queue, reason] = deaths.get((queue, reason), 0) + 1
        return deaths

    def turn_ended(self) -> None:
        self._is_starting = False
        if self._waiting:
            raise Broken(f"no dead letters came of {list(self._waiting)[:5]}")
        if self._unburied:
            raise Broken(f"{sorted(self._unburied)[:5]} died of their last attempt at a restart without dead letters")


def deaths_in(header: bytes) -> Told:
    """What the x-death of a content header tells: how often, by queue and reason."""
    tagged: Any = Content(header[HEADER_START:], b"").headers.get("x-death")
    assert tagged is not None
    deaths: Told = {}
    for _, entry in tagged[1]:
        key = entry["queue"][1].decode(), entry["reason"][1].decode()
        if key in deaths:
            raise Broken(f"x-death has two entries of {key}")
        deaths[key] = entry["count"][1]
    return deaths
