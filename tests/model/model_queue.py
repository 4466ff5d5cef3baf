"""What a queue with rules does, one message at a time: lists, and no care for speed.

Begun from the reference, with what DEVIATIONS.md and the engine say where it is silent: address-settings page 3.2
(expiry), 3.4 (last values), 4.5 (rings), 5.1 to 5.4 (redelivery, dead letters); behaviour page 2.10 (requeued messages,
whose turn it is). Times are virtual milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

#: What a queue does that has no address-setting: for ever, again and again, at once.
UNSAID: dict[str, Any] = {
    "ring": None,
    "last_value": False,
    "delay": 0,
    "multiplier": 1.0,
    "cap": None,
    "attempts": -1,
    "dead": "",
    "expired": "",
    "expiry_delay": None,
    "expiry_min": None,
    "expiry_max": None,
    "no_expiry": False,
}
#: Who says one of these has ten attempts unless it says otherwise (DEVIATIONS.md, "built-in 10 attempts").
LIMITING = {"delay", "multiplier", "cap", "dead"}


def resolved(rules: dict[str, Any]) -> dict[str, Any]:
    """A value for every rule."""
    return {**UNSAID, **({"attempts": 10} if LIMITING & rules.keys() else {}), **rules}


@dataclass(eq=False)
class ModelMessage:
    """`number`: when it came. `age`: when it was first published.

    `failed`: attempts that count. `told`: x-delivery-count.
    """

    number: int
    body: str
    key: str | None
    expires: int | None
    origin: str | None = None
    deaths: list[list[Any]] = field(default_factory=list)
    age: int = 0
    failed: int = 0
    told: int = 0
    delivered: int = 0
    cancels: int = 0


@dataclass(eq=False)
class Out:
    """A delivery that is not settled. `consumer`: None for basic.get."""

    message: ModelMessage
    consumer: ModelConsumer | None


@dataclass(eq=False)
class ModelConsumer:
    """`prefetch`: 0 for no limit."""

    session: ModelSession
    tag: str
    prefetch: int
    no_ack: bool
    out: int = 0

    def has_credit(self) -> bool:
        """Whether it may be given another one."""
        return self.no_ack or not self.prefetch or self.out < self.prefetch


@dataclass(eq=False)
class ModelSession:
    """One client's channel for one queue."""

    queue: ModelQueue
    next_tag: int = 1
    out: dict[int, Out] = field(default_factory=dict)
    consumers: dict[str, ModelConsumer] = field(default_factory=dict)
    deliveries: list[list[Any]] = field(default_factory=list)


#: Where a dead message goes: to the queue of this name, as a new message.
Bury = Callable[[str, ModelMessage], None]


class ModelQueue:
    """`bury`: publishes a dead letter, later. `now`: the clock."""

    def __init__(self, name: str, rules: dict[str, Any], bury: Bury, now: Callable[[], int]) -> None:
        self.name = name
        self.rules = resolved(rules)
        self.bury, self.now = bury, now
        self.ready: list[ModelMessage] = []
        self.scheduled: list[tuple[int, ModelMessage]] = []
        self.unacked = 0
        self.consumer_list: list[ModelConsumer] = []
        self.counters = {"acknowledged": 0, "expired": 0, "killed": 0, "replaced": 0}

    def say(self, rules: dict[str, Any]) -> None:
        """The settings are others now: what a queue got as it was made stays (3.4)."""
        made = {name: self.rules[name] for name in ("ring", "last_value")}
        self.rules = {**resolved(rules), **made}

    # -- in ---------------------------------------------------------------------------------------------------------

    def lifetime(self, expiration: int | None) -> int | None:
        """3.2."""
        rules = self.rules
        if rules["no_expiry"]:
            return None
        if rules["expiry_delay"] is not None:
            return rules["expiry_delay"] if expiration is None else expiration
        low, high = rules["expiry_min"], rules["expiry_max"]
        if expiration is None:
            return low if high is None else high
        if low is not None and expiration < low:
            return low
        return high if high is not None and expiration > high else expiration

    def publish(self, message: ModelMessage, expiration: int | None) -> None:
        """At the tail, or at the place of the older value. What lives no time goes if nobody takes it at once."""
        lifetime = self.lifetime(expiration)
        message.expires = None if lifetime is None else self.now() + lifetime
        self.expire()
        self.insert(message)
        self.dispatch(fresh=message)
        self.expire()
        self.trim()

    def insert(self, message: ModelMessage) -> None:
        """Before the first that was published later; of one key only the youngest stays, where the first was (3.4)."""
        if not self.meets(message):
            later = (at for at, other in enumerate(self.ready) if other.number > message.number)
            self.ready.insert(next(later, len(self.ready)), message)

    def meets(self, message: ModelMessage) -> bool:
        """Whether one of its key is ready; then the younger of the two is in that place."""
        if self.rules["last_value"] and message.key is not None:
            for at, other in enumerate(self.ready):
                if other.key == message.key:
                    self.counters["replaced"] += 1
                    if other.age < message.age:  # the newest is what was published last, whatever way it comes
                        self.ready[at] = message
                    return True
        return False

    def insert_all(self, messages: list[ModelMessage]) -> None:
        """Those that come back together: of one key only the youngest does. First those that replace another take its
        place, then the others find theirs: they stay behind the former if they were published later."""
        youngest: dict[str, ModelMessage] = {}
        if self.rules["last_value"]:
            for message in sorted(messages, key=lambda one: one.age):
                if message.key is not None:
                    youngest[message.key] = message
        kept = [one for one in messages if one.key is None or youngest.get(one.key, one) is one]
        self.counters["replaced"] += len(messages) - len(kept)
        for message in [one for one in kept if not self.meets(one)]:
            self.insert(message)

    def trim(self) -> None:
        """4.5.1 and 4.5.9: one insertion drops one message at most, the oldest that has not expired."""
        self.expire()
        ring = self.rules["ring"]
        if ring is not None and len(self.ready) > ring:
            self.ready.pop(0)
            self.counters["replaced"] += 1

    # -- out --------------------------------------------------------------------------------------------------------

    def dispatch(self, fresh: ModelMessage | None = None) -> None:
        """To the first in the consumer list that has credit, who goes to its end."""
        while self.ready:
            if self.ready[0] is not fresh:
                self.expire()
            taker = next((one for one in self.consumer_list if one.has_credit()), None)
            if taker is None or not self.ready:
                return
            at = self.consumer_list.index(taker) + 1
            self.consumer_list = self.consumer_list[at:] + self.consumer_list[:at]
            self.deliver(self.ready.pop(0), taker.session, taker, no_ack=taker.no_ack)

    def deliver(
        self, message: ModelMessage, session: ModelSession, consumer: ModelConsumer | None, *, no_ack: bool
    ) -> list[Any]:
        """Returns what the client sees."""
        tag = session.next_tag
        session.next_tag += 1
        seen = [tag, message.body, message.delivered > 0, *self.told(message)]
        message.delivered += 1
        if no_ack:
            self.counters["acknowledged"] += 1
        else:
            session.out[tag] = Out(message, consumer)
            self.unacked += 1
            if consumer is not None:
                consumer.out += 1
        if consumer is not None:
            session.deliveries.append([consumer.tag, *seen])
        return seen

    def told(self, message: ModelMessage) -> list[Any]:
        """Headers: failed attempts (5.6: none on the first), where it came from, its deaths."""
        return [message.told, message.origin, message.deaths]

    def get(self, session: ModelSession, *, no_ack: bool) -> list[Any] | None:
        """basic.get."""
        self.expire()
        return self.deliver(self.ready.pop(0), session, None, no_ack=no_ack) if self.ready else None

    # -- back -------------------------------------------------------------------------------------------------------

    def settle(self, session: ModelSession, tags: list[int]) -> list[ModelMessage]:
        """These are out no more. Returns: oldest delivery first."""
        settled = []
        for tag in tags:
            out = session.out.pop(tag)
            self.unacked -= 1
            if out.consumer is not None:
                out.consumer.out -= 1
            settled.append(out.message)
        return settled

    def groups(self, session: ModelSession, tags: list[int]) -> list[list[int]]:
        """What is given back together: each that was got, then those of one consumer after the other (as RabbitMQ)."""
        got = [[tag] for tag in tags if session.out[tag].consumer is None]
        by_name: dict[str, list[int]] = {}
        for tag in tags:
            consumer = session.out[tag].consumer
            if consumer is not None:
                by_name.setdefault(consumer.tag, []).append(tag)
        return got + [by_name[name] for name in sorted(by_name)]

    def ack(self, session: ModelSession, tags: list[int]) -> None:
        """basic.ack."""
        self.counters["acknowledged"] += len(self.settle(session, tags))
        self.dispatch()

    def refuse(self, session: ModelSession, tags: list[int]) -> None:
        """Without requeue: dead, whatever the count (5.2)."""
        for group in self.groups(session, tags):
            for message in self.settle(session, group):
                self.kill(message, "rejected")
        self.dispatch()

    def requeue(self, session: ModelSession, tags: list[int], *, counted: bool) -> None:
        """By a client that goes on."""
        for group in self.groups(session, tags):
            self.give_back(session, group, counted=counted, delayed=True)

    def give_back(self, session: ModelSession, tags: list[int], *, counted: bool, delayed: bool) -> None:
        """5.2, 4.5.4 to 4.5.6: attempts, then ring, then delay; the newest comes first to the ring. Those that die
        together die in their order in the queue."""
        back = []
        for message in sorted(self.settle(session, tags), key=lambda one: one.number):
            message.failed += counted
            if message.failed and (
                self.rules["attempts"] > 0 or self.rules["delay"] > 0
            ):  # ruling 14: on no other queue
                message.told = message.failed
            if 0 < self.rules["attempts"] <= message.failed:
                self.kill(message, "delivery_limit")
            else:
                back.append(message)
        returned = []
        for message in sorted(back, key=lambda one: one.number, reverse=True):
            wait = self.wait(message.failed) if delayed else None
            if wait is None:
                returned.append(message)
            elif self.rules["ring"] is not None and len(self.ready) + 1 > self.rules["ring"]:
                self.counters["replaced"] += 1
            else:
                due = self.now() + wait
                self.scheduled.append((due if message.expires is None else min(due, message.expires), message))
        self.insert_all(returned)
        self.dispatch()
        self.expire()
        for _ in returned:
            self.trim()

    def wait(self, failed: int) -> int | None:
        """5.1."""
        delay = self.rules["delay"]
        if delay <= 0:
            return None
        cap = 10 * delay if self.rules["cap"] is None else self.rules["cap"]
        return int(min(delay * self.rules["multiplier"] ** max(failed - 1, 0), cap))

    # -- ends -------------------------------------------------------------------------------------------------------

    def kill(self, message: ModelMessage, reason: str) -> None:
        """5.4."""
        self.counters["expired" if reason == "expired" else "killed"] += 1
        target = self.rules["expired" if reason == "expired" else "dead"]
        if target:
            deaths = [list(death) for death in message.deaths]
            same = [death for death in deaths if death[:2] == [reason, self.name]]
            deaths = [death for death in deaths if death not in same]
            deaths.insert(0, [reason, self.name, same[0][2] + 1 if same else 1])
            self.bury(target, ModelMessage(0, message.body, message.key, None, self.name, deaths, age=message.age))

    def expire(self) -> bool:
        """Those at the head whose time is over; those behind one that lives longer wait. Returns: whether any."""
        before = len(self.ready)
        while self.ready and self.ready[0].expires is not None and self.ready[0].expires <= self.now():
            self.kill(self.ready.pop(0), "expired")
        return len(self.ready) < before

    def next_due(self) -> list[int]:
        """When something happens by itself."""
        dues = [due for due, _ in self.scheduled]
        if self.ready and self.ready[0].expires is not None:
            dues.append(self.ready[0].expires)
        return dues

    def pass_time(self) -> None:
        """What is due: those that waited are at their places (5.3), or their time is over."""
        soonest_first = sorted(self.scheduled, key=lambda one: (one[0], one[1].number))
        due = [message for when, message in soonest_first if when <= self.now()]
        self.scheduled = [(when, message) for when, message in self.scheduled if when > self.now()]
        for message in due:
            if message.expires is not None and message.expires <= self.now():
                self.kill(message, "expired")
        returned = [one for one in due if one.expires is None or one.expires > self.now()]
        self.insert_all(returned)
        self.expire()
        self.dispatch()
        for _ in returned:
            self.trim()

    def purge(self) -> int:
        """What is ready and what waits (7.1)."""
        count = len(self.ready) + len(self.scheduled)
        self.ready, self.scheduled = [], []
        return count
