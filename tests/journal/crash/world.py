"""The queues of a lane, and what its client remembers from round to round beside the facts."""

from __future__ import annotations

import json
import random
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from .broker import LIMITED
from .content import FANOUT, delay_ms, expiration_ms, has_headers, is_transient, key_of
from .truth import Fact, Line, Operation, Truth

FANOUT_QUEUES = ("a", "b", "quorum")
RING_SIZE, CAPPED_LENGTH, KEPT_LENGTH = 50, 80, 600
#: The topic that leased queues capture; its messages with headers go to one more.
TOPIC, CAPTURING = "orders", ("captured", "captured-in-part")
ONCE, ONCE_BACKLOG = "once", 200
#: Times are stated anew at each start and checkpoint, in whole milliseconds.
SLACK_MS = 100
TIMED_MS, BRIEF_MS = 3_600_000, 5000
#: Durable queues that are always there, with their arguments. `log-N` (a stream) comes and goes.
QUEUES: dict[str, dict[str, Any]] = {
    "a": {},
    "b": {},
    "quorum": {"x-queue-type": "quorum"},
    "first": {"x-max-priority": 9},
    "timed": {"x-message-ttl": TIMED_MS},
    "work": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    "dead": {},
    "ring": {"x-ring-size": RING_SIZE},
    "capped": {"x-max-length": CAPPED_LENGTH, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "over"},
    "over": {},
    "brief": {"x-message-ttl": BRIEF_MS, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "late"},
    "late": {},
    "newest": {"x-last-value-key": "key"},
    "kept": {"x-non-destructive": True, "x-ring-size": KEPT_LENGTH},
    "later": {},  # what comes here waits for hours
    **{name: {} for name in LIMITED},
}
STREAM = {"x-queue-type": "stream"}
_LEASED = {"x-queue-type": "amps", "x-max-backlog-per-consumer": 100_000}
#: Leased queues. Nothing expires in them: only an acknowledgement takes a message out, or a reject from "lent", where
#: leases end by acts alone.
LEASED: dict[str, dict[str, Any]] = {
    "lent": _LEASED | {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "ended"},
    "lent-briefly": _LEASED | {"x-lease-period": 30, "x-max-backlog-per-consumer": 20, "x-fairness": "round-robin"},
    ONCE: {
        "x-queue-type": "amps",
        "x-semantics": "at-most-once",
        "x-max-backlog-per-consumer": 50,
        "x-max-backlog-total": ONCE_BACKLOG,
    },
    "urgent": _LEASED | {"x-priority-expr": "PROPERTY('priority')", "x-max-backlog-per-consumer": 50},
    "captured": _LEASED | {"x-underlying-topic": TOPIC, "x-max-backlog-total": 100},
    "captured-in-part": _LEASED
    | {"x-underlying-topic": TOPIC, "x-queue-filter": "n IS NOT NULL", "x-lease-period": 60},
}
QUEUES |= {"ended": {}, **LEASED}
#: Where dead letters come from: their contents are those of messages for there.
DIED_IN = {"dead": "work", "over": "capped", "late": "brief", "ended": "lent"}
#: What messages were published to that are in these queues, which are others.
PUBLISHED_TO = {**dict.fromkeys(FANOUT_QUEUES, FANOUT), **dict.fromkeys(CAPTURING, TOPIC), **DIED_IN}
#: Queues that drop their head when a message comes: only one connection publishes to them, and none consumes; nor does
#: any from "brief", "newest", "later".
LENGTHS = {"ring": RING_SIZE, "capped": CAPPED_LENGTH, "kept": KEPT_LENGTH}
CONSUMED = ("a", "b", "quorum", "first", "timed", "work", "dead", "over", "late", "ended")


def message(queue: str, number: int) -> Fact:
    """That a message is in a queue."""
    return ("message", queue, number)


def count(queue: str, number: int, deliveries: int) -> Fact:
    """That it came back so many times; of queues that do not tell, 1: at least once."""
    return ("count", queue, number, deliveries)


def queue_fact(name: str, arguments: dict[str, Any]) -> Fact:
    """That a durable queue is there."""
    return ("queue", name, json.dumps(arguments, sort_keys=True))


def exchange_fact(name: str, kind: str, arguments: dict[str, Any]) -> Fact:
    """That a durable exchange is there."""
    return ("exchange", name, kind, json.dumps(arguments, sort_keys=True))


def binding_fact(source: str, target_type: str, target: str, key: str) -> Fact:
    """That something is bound."""
    return ("binding", source, target_type, target, key)


def policy_fact(command: str, vhost: str, name: str, definition: dict[str, Any]) -> Fact:
    """That a policy says this. `command`: policies or operator-policies."""
    return ("policy", command, vhost, name, json.dumps(definition, sort_keys=True))


def user_fact(name: str, tags: str, hashed: str) -> Fact:
    """That a user is there. `tags`: in any order, with commas."""
    return ("user", name, ",".join(sorted(filter(None, tags.split(",")))), hashed)


def permission_fact(user: str, vhost: str, configure: str) -> Fact:
    """That a user may do something there."""
    return ("permission", user, vhost, configure)


def topic_fact(user: str, vhost: str, exchange: str, write: str) -> Fact:
    """That a user may write to some topics there."""
    return ("topic-permission", user, vhost, exchange, write)


def limit_fact(vhost: str, queues_max: int) -> Fact:
    """That a virtual host may have so many queues."""
    return ("limit", vhost, queues_max)


def inner_fact(vhost: str, what: str, *more: object) -> Fact:
    """That something is there in another virtual host than the one where the load is."""
    return ("inner", vhost, what, *more)


def vhost_fact(name: str) -> Fact:
    """That a virtual host is there."""
    return ("vhost", name)


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class World:
    """What all connections of a lane share."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.truth = Truth()
        self.next_number = 1
        self.next_name = 1
        self.stream = ""  # its name now; "": none
        self.heads: dict[str, deque[int]] = {name: deque() for name in LENGTHS}  # oldest first
        self.counts: dict[tuple[str, int], int] = {}  # how often messages came back, if they did
        self.places: dict[Fact, tuple[Line, int]] = {}  # of messages: line, and a number that rises
        self.offsets: dict[int, int] = {}  # in the stream
        self.bookmarks: dict[Fact, str] = {}  # of messages in leased queues
        self.is_borrowed = False  # somebody consumed leased queues since the last look
        self.newest: dict[int, int] = {}  # key -> number
        self.times: dict[Fact, tuple[int, int]] = {}  # when messages expire or are due, wall ms: not before, not after
        self.waiting: dict[int, tuple[int, int]] = {}  # id -> number, due time (wall ms)
        self.clock_moved_ms = 0  # how much wall time and running time went apart so far
        self._offset_ms = wall_ms() - time.monotonic_ns() // 1_000_000
        self._place = 0

    def new_number(self) -> int:
        """For a message."""
        self.next_number += 1
        return self.next_number - 1

    def new_name(self, what: str) -> str:
        """For a queue, an exchange, ..."""
        self.next_name += 1
        return f"{what}{self.next_name - 1}"

    def did(self, line: Line, what: str, adds: Sequence[Fact] = (), removes: Sequence[Fact] = ()) -> Operation:
        """An operation is about to be sent; messages have their places in the order of these."""
        self._place += 1
        for fact in adds:
            if fact[0] == "message":
                self.places[fact] = (line, self._place)
        return self.truth.did(line, what, adds, removes)

    def effect_of_publish(self, number: int, target: str) -> tuple[list[Fact], list[Fact]]:
        """What a publish makes and unmakes, of the queues that have a length as well."""
        if target == FANOUT:
            if is_transient(number, target):
                return [message("quorum", number)], []
            return [message(queue, number) for queue in FANOUT_QUEUES], []
        if target == TOPIC:
            return [message(queue, number) for queue in CAPTURING[: 1 + has_headers(number)]], []
        adds, removes = [message(target, number)], []
        after_ms = self.time_ms(number, target)
        if after_ms is not None:
            self.times[adds[0]] = (wall_ms() + after_ms, 0)
        if target == "newest":
            if (older := self.newest.get(key_of(number))) is not None:
                removes.append(message(target, older))
            self.newest[key_of(number)] = number
        head = self.heads.get(target)
        if head is not None:
            head.append(number)
            if len(head) > LENGTHS[target]:
                oldest = head.popleft()
                removes.append(message(target, oldest))
                if target == "capped":
                    adds.append(message("over", oldest))
        return adds, removes

    def time_ms(self, number: int, target: str) -> int | None:
        """How long after it was published a message has its time."""
        if target == "timed":
            return min(TIMED_MS, expiration_ms(number, target) or TIMED_MS)
        return {"brief": BRIEF_MS, "later": delay_ms(number)}.get(target)

    def look_at_clock(self) -> None:
        """Somebody may have set it."""
        offset_ms = wall_ms() - time.monotonic_ns() // 1_000_000
        self.clock_moved_ms += abs(offset_ms - self._offset_ms)
        self._offset_ms = offset_ms

    def all_is_sent(self) -> None:
        """The broker is gone: what was published came not later than now."""
        now_ms = wall_ms()
        for fact, (earliest, latest) in self.times.items():
            after_ms = self.time_ms(int(str(fact[2])), str(fact[1]))
            if not latest and after_ms is not None:
                self.times[fact] = (earliest, now_ms + after_ms)

    def expired(self, number: int) -> None:
        """A message of the queue "brief" may have: nobody but the broker knows when it does."""
        old, new = message("brief", number), message("late", number)
        if new not in self.truth.now and old in self.truth.now:
            self.did(("expiry", number), f"expiry of {number}", [new], [old])

    def taken(self, queue: str, number: int) -> list[Fact]:
        """What goes when a message leaves a queue; nothing that would have outlived a broker, if it is transient."""
        if queue != "quorum" and queue in FANOUT_QUEUES and is_transient(number, FANOUT):
            return []
        facts = [message(queue, number)]
        if (queue, number) in self.counts:
            facts.append(count(queue, number, self.counts.pop((queue, number))))
        return facts

    def messages_in(self, queue: str) -> list[Fact]:
        """If everything was done. O(all facts)."""
        return [fact for fact in self.truth.now if fact[0] == "message" and fact[1] == queue]
