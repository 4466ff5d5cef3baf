"""What a leased queue does, one message at a time: lists, and no care for speed.

Written from the reference: queues page A.2 to A.9 and C.6, its index of conflicts, and DEVIATIONS.md, "Where we differ
from AMPS". Times are virtual milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: What is not declared (A.3).
UNSAID: dict[str, Any] = {
    "lease_period": None,
    "semantics": "at-least-once",
    "max_backlog": None,
    "backlog": 1,
    "expiration": None,
    "expiration_model": "default",
    "expire_leased": "immediate",
    "fairness": None,
    "leasing": "sublet",
    "max_deliveries": 0,
    "max_cancels": 0,
    "priority": False,
    "barrier": False,
    "depth": None,
    "deferred": 86_400_000,
}
#: Filters of consumers and requests, as they are written -> what they take.
FILTERS: dict[str, Callable[[LeaseMessage], bool]] = {
    "/p > 1": lambda one: one.p > 1,
    "/p = 0": lambda one: one.p == 0,
    "/p IN (1, 2)": lambda one: one.p in (1, 2),
    "/s IS NULL": lambda one: not one.is_barrier,
}


@dataclass(eq=False)
class LeaseMessage:
    """`number`: its place among all that were published. `p`, `is_barrier`: what its body says."""

    number: int
    body: str
    p: int
    is_barrier: bool
    expires: int | None = None
    deliveries: int = 0
    cancels: int = 0


@dataclass(eq=False)
class Out:
    """What a tag stands for. `message`: None for what was only shown. `is_live`: it counts; else it is a tombstone.

    `is_slot`: at most once, so that only the place in the backlog is left of it. `due`: when it ends by time.
    """

    session: LeaseSession
    message: LeaseMessage | None
    consumer: LeaseConsumer | None
    is_live: bool = True
    is_slot: bool = False
    due: int | None = None
    began: int = 0

    def expires(self) -> int | None:
        """When its message does, while it is leased. What lives no time, and was taken at once, came in time (A.5)."""
        if self.is_slot or self.message is None or self.message.expires in (None, self.began):
            return None
        return self.message.expires


@dataclass(eq=False)
class LeaseConsumer:
    """`limit`: its backlog. `is_aside`: it wants barriers alone. `is_late`: its last lease ended by time."""

    session: LeaseSession
    tag: str
    limit: int
    no_ack: bool
    priority: int
    filter: str | None
    is_aside: bool
    used: int = 0
    is_late: bool = False

    def takes(self, message: LeaseMessage) -> bool:
        return self.filter is None or FILTERS[self.filter](message)


@dataclass(eq=False)
class LeaseSession:
    """A channel. `qos`: what basic.qos said last; None: nothing."""

    client: int
    qos: int | None = None
    next_tag: int = 1
    out: dict[int, Out] = field(default_factory=dict)
    consumers: dict[str, LeaseConsumer] = field(default_factory=dict)
    deliveries: list[list[Any]] = field(default_factory=list)


class LeaseQueue:
    """`bury`: a dead letter goes, with its reasons. `now`: the clock."""

    def __init__(self, said: Mapping[str, Any], bury: Callable[[LeaseMessage, str], None], now: Callable[[], int]):
        self.rules = {**UNSAID, **said}
        self.bury, self.now = bury, now
        self.ready: list[LeaseMessage] = []
        self.active: set[LeaseMessage] = set()  # with a depth: what of the queue is there for anybody, ready or leased
        self.outs: list[Out] = []  # live ones, in the order in which they began
        self.consumers: list[LeaseConsumer] = []
        self.next = 0  # round robin: the place behind the one that was served last
        self.newest = 0  # the number of the last that came
        self.deferred: dict[int, int | None] = {}  # number -> until when
        self.counters = {"acknowledged": 0, "expired": 0, "killed": 0, "lease_ended": 0}

    # -- in ---------------------------------------------------------------------------------------------------------

    def lifetime(self, of_message: int | None) -> int | None:
        """A.5, its table."""
        of_queue, model = self.rules["expiration"], self.rules["expiration_model"]
        if of_message is None or model == "queue":
            return of_queue
        if model == "latest":
            return None if of_queue is None else max(of_message, of_queue)
        if model == "earliest":
            return of_message if of_queue is None else min(of_message, of_queue)
        return of_message

    def publish(self, messages: Sequence[LeaseMessage], expiration: int | None) -> None:
        """A.5; what lives no time goes to whoever can take it at once, or expires."""
        lifetime = self.lifetime(expiration)
        for message in messages:
            message.expires = None if lifetime is None else self.now() + lifetime
            self.ready.append(message)
            self.newest = message.number
        self.order()
        self.prune()
        self.settle_deferred()
        self.dispatch()
        self.expire()

    def order(self) -> None:
        """The highest priority first, then what came first."""
        self.ready.sort(key=lambda one: (-one.p if self.rules["priority"] else 0, one.number))

    def begin_again(self, there: list[LeaseMessage]) -> None:
        """A broker starts, and has these: nobody has any of them, and all counts are 0."""
        for message in there:
            message.deliveries = message.cancels = 0
        self.ready, self.outs, self.consumers, self.next = list(there), [], [], 0
        self.counters = dict.fromkeys(self.counters, 0)
        self.order()
        self.expire()

    # -- acknowledgements in advance (C.6) ----------------------------------------------------------------------------

    def prune(self) -> None:
        self.deferred = {n: until for n, until in self.deferred.items() if until is None or until > self.now()}

    def settle_deferred(self) -> None:
        """What is there now, and was acknowledged before, is gone."""
        if not self.deferred:
            return
        for message in self.visible():
            if message.number in self.deferred:
                del self.deferred[message.number]
                self.ready.remove(message)
                self.gone(message)
                self.settle_deferred()
                return
        here = {message.number for message in self.ready}
        self.deferred = {n: None if n in here else until for n, until in self.deferred.items()}

    # -- what is there ------------------------------------------------------------------------------------------------

    def visible(self) -> list[LeaseMessage]:
        """What is ready and, with a target depth, active (A.3)."""
        depth = self.rules["depth"]
        if depth is None:
            return list(self.ready)
        for message in self.ready:
            if len(self.active) >= depth:
                break
            self.active.add(message)
        return [message for message in self.ready if message in self.active]

    def behind_no_barrier(self) -> list[LeaseMessage]:
        """Up to the first barrier (A.9)."""
        visible = self.visible()
        at = next((at for at, one in enumerate(visible) if self.rules["barrier"] and one.is_barrier), len(visible))
        return visible[:at]

    def has_room(self) -> bool:
        """MaxBacklog (A.3)."""
        return self.rules["max_backlog"] is None or len(self.outs) < self.rules["max_backlog"]

    # -- out ----------------------------------------------------------------------------------------------------------

    def eligible(self, message: LeaseMessage) -> list[LeaseConsumer]:
        """A.4; of those that have priorities the highest."""
        free = [
            one
            for one in self.consumers
            if not one.is_aside and (one.no_ack or one.used < one.limit) and one.takes(message)
        ]
        highest = max((one.priority for one in free), default=0)
        return [one for one in free if one.priority == highest]

    def choose(self, free: list[LeaseConsumer]) -> LeaseConsumer:
        """A.4, the fairness models."""
        fairness = self.rules["fairness"] or (
            "round-robin" if self.rules["semantics"] == "at-most-once" else "proportional"
        )
        if fairness == "fast":
            return free[0]
        if fairness == "round-robin":
            places = {one: self.consumers.index(one) for one in free}
            chosen = next((one for one in free if places[one] >= self.next), free[0])
            self.next = places[chosen] + 1
            return chosen
        # A share as a fraction is compared without rounding: all limits are small. Without a limit it is 0.
        shares = [(0 if one.no_ack else one.used / one.limit, one.is_late, self.consumers.index(one)) for one in free]
        return free[shares.index(min(shares))]

    def dispatch(self) -> None:
        """Until nothing more can go."""
        while True:
            self.settle_deferred()
            found = [(one, free) for one in self.behind_no_barrier() if (free := self.eligible(one))]
            if found and self.has_room():
                message, free = found[0]
                self.deliver(message, self.choose(free))
            elif not self.release_barrier():
                return

    def deliver(self, message: LeaseMessage, consumer: LeaseConsumer) -> None:
        seen = self.lend(message, consumer.session, consumer, no_ack=consumer.no_ack)
        consumer.session.deliveries.append([consumer.tag, *seen])

    def lend(
        self, message: LeaseMessage, session: LeaseSession, consumer: LeaseConsumer | None, *, no_ack: bool
    ) -> list[Any]:
        """Returns what the client sees."""
        self.ready.remove(message)
        message.deliveries += 1
        period, tag = self.rules["lease_period"], session.next_tag
        until = None if period is None else self.now() + period
        session.next_tag += 1
        seen = [tag, message.body, message.deliveries, message.cancels, None if no_ack else until]
        if no_ack:
            self.gone(message)
            return seen
        out = session.out[tag] = Out(session, message, consumer, due=until, began=self.now())
        self.outs.append(out)
        if consumer is not None:
            consumer.used += 1
        if self.rules["semantics"] == "at-most-once":
            out.is_slot = True
            self.gone(message)
        return seen

    def release_barrier(self) -> bool:
        """A.9. Returns whether one went."""
        visible = self.visible()
        if not (self.rules["barrier"] and visible and visible[0].is_barrier and not self.outs and self.consumers):
            return False
        (message, *_) = visible
        self.ready.remove(message)
        for consumer in self.consumers:
            if consumer.takes(message):
                self.show(message, consumer.session, consumer.tag, no_ack=consumer.no_ack)
        self.gone(message)
        return True

    def show(self, message: LeaseMessage, session: LeaseSession, tag: str, *, no_ack: bool) -> None:
        """A delivery that counts nowhere; its tag is settled by whatever comes."""
        session.deliveries.append([tag, session.next_tag, message.body])
        if not no_ack:
            session.out[session.next_tag] = Out(session, None, None, is_live=False)
        session.next_tag += 1

    def get(self, session: LeaseSession, *, no_ack: bool) -> list[Any] | None:
        """A.4: one lease outside of all consumers."""
        visible = self.visible()
        if not visible or not self.has_room():
            return None
        if self.rules["barrier"] and visible[0].is_barrier and (self.outs or self.consumers):
            return None
        seen = self.lend(visible[0], session, None, no_ack=no_ack)
        self.dispatch()
        return seen

    # -- back ---------------------------------------------------------------------------------------------------------

    def gone(self, message: LeaseMessage) -> None:
        """Acknowledged."""
        self.counters["acknowledged"] += 1
        self.active.discard(message)

    def end(self, out: Out, *, keeps_tag: bool) -> LeaseMessage | None:
        """A lease, or a slot, ends. Returns the message, if it was leased. `keeps_tag`: without the client's act."""
        self.outs.remove(out)
        out.is_live = False
        if out.consumer is not None:
            out.consumer.used -= 1
        if not keeps_tag:
            del out.session.out[next(tag for tag, one in out.session.out.items() if one is out)]
        message = out.message
        if out.is_slot:
            out.message = None
            return None
        return message

    def back(self, messages: list[LeaseMessage], *, is_cancel: bool) -> None:
        """The table of A.5: LEASED, and the lease ends."""
        now = self.now()
        for message in messages:
            self.counters["lease_ended"] += 1
            reasons = []
            message.cancels += is_cancel
            if is_cancel and 0 < self.rules["max_cancels"] <= message.cancels:
                reasons.append("max_cancels")
            if 0 < self.rules["max_deliveries"] <= message.deliveries:
                reasons.append("max_deliveries")
            if not reasons and message.expires is not None and message.expires <= now:
                reasons.append("time_limit")
            if reasons:
                self.kill(message, ",".join(reasons))
            else:
                self.ready.append(message)
        self.order()

    def kill(self, message: LeaseMessage, reasons: str) -> None:
        """EXPIRED (A.5)."""
        self.counters["expired" if reasons == "time_limit" else "killed"] += 1
        self.active.discard(message)
        self.bury(message, reasons)

    def settle(self, session: LeaseSession, tags: Sequence[int], how: str) -> None:
        """`how`: ack, cancel or expire. The act is the client's: what is a tombstone hears of acknowledgements only.

        What one consumer gives back is offered before the next one's is there: each that was got, then the consumers'
        by their tags (behaviour page 2.10).
        """
        groups = [tags]
        if how == "cancel":
            names = {tag: one.tag if (one := session.out[tag].consumer) else "" for tag in tags}
            groups = [[tag] for tag in tags if not names[tag]]
            groups += [[tag for tag in tags if names[tag] == name] for name in sorted({*names.values()} - {""})]
        for group in groups:
            self._settle(session, group, how)
            self.dispatch()

    def _settle(self, session: LeaseSession, tags: Sequence[int], how: str) -> None:
        messages = []
        for tag in tags:
            out = session.out[tag]
            if not out.is_live:
                del session.out[tag]
                if how == "ack" and out.message is not None:
                    self.acknowledge_late(out)
                continue
            if out.consumer is not None and how == "ack":
                out.consumer.is_late = False
            if (message := self.end(out, keeps_tag=False)) is not None:
                messages.append(message)
        if how == "cancel":
            self.back(messages, is_cancel=True)
        for message in messages:
            if how == "ack":
                self.gone(message)
            elif how == "expire":
                self.kill(message, "forced_expire")

    def acknowledge_late(self, past: Out) -> None:
        """A.5, stale tags."""
        message = past.message
        if message in self.ready:
            self.ready.remove(message)
            self.gone(message)
            return
        for out in self.outs:
            if out.message is message and (
                self.rules["leasing"] == "sublet" or out.session.client == past.session.client
            ):
                self.end(out, keeps_tag=True)
                self.counters["lease_ended"] += 1
                self.gone(message)
                return

    def break_all(self, outs: Sequence[Out], *, keeps_tags: bool) -> None:
        """Leases end without an act."""
        self.back([m for out in outs if (m := self.end(out, keeps_tag=keeps_tags)) is not None], is_cancel=False)

    def leave(self, consumers: Sequence[LeaseConsumer], *, keeps_tags: bool = True) -> None:
        """They are cancelled, or their channel is closed (A.2)."""
        for consumer in consumers:
            at = self.consumers.index(consumer)
            del self.consumers[at]
            self.next -= at < self.next
        self.break_all([out for out in self.outs if out.consumer in consumers], keeps_tags=keeps_tags)

    def discard(self, chosen: Callable[[LeaseMessage], bool], numbers: list[int] | None, how: str) -> list[int]:
        """A.6, by somebody who holds nothing: matches, deleted, deferred. `numbers`: bookmarks; None: a filter."""
        matches = deleted = deferred = 0
        known, there = set(), self.visible()
        inactive = {one.number for one in self.ready} - {one.number for one in there}  # before anything is removed
        if self.rules["leasing"] != "strict":
            for out in [out for out in self.outs if not out.is_slot and out.message and chosen(out.message)]:
                message = self.end(out, keeps_tag=True)
                assert message is not None
                known.add(message.number)
                matches += 1
                if how == "cancel":
                    self.back([message], is_cancel=True)
                else:
                    self.counters["lease_ended"] += 1
                    deleted += 1
                    self._remove(message, how)
        elif numbers is not None:
            known = {out.message.number for out in self.outs if out.message and not out.is_slot}
        if numbers is not None:
            there = self.visible()
        for message in [one for one in there if chosen(one)] if how != "cancel" else ():
            self.ready.remove(message)
            known.add(message.number)
            matches, deleted = matches + 1, deleted + 1
            self._remove(message, how)
        if numbers is not None and how == "":
            deferred = self._defer([number for number in numbers if number not in known], inactive)
        self.settle_deferred()
        self.dispatch()
        return [matches, deleted, deferred]

    def _defer(self, numbers: list[int], here: set[int]) -> int:
        """`here`: messages that are not active yet."""
        self.prune()
        wanted = [number for number in dict.fromkeys(numbers) if number > self.newest or number in here]
        for number in wanted:
            self.deferred[number] = None if number in here else self.now() + self.rules["deferred"]
        return len(wanted)

    def _remove(self, message: LeaseMessage, how: str) -> None:
        if how == "expire":
            self.kill(message, "forced_expire")
        else:
            self.gone(message)

    def renew(self, numbers: list[int]) -> int:
        """An operator has leases begin again (docs/leases.md). Returns how many."""
        period = self.rules["lease_period"]
        found = [out for out in self.outs if not out.is_slot and out.message and out.message.number in numbers]
        for out in found:
            out.due = None if period is None else self.now() + period
        return len(found)

    def purge(self) -> int:
        """A.10: what is leased stays."""
        count = len(self.ready)
        self.active -= set(self.ready)
        self.ready = []
        return count

    def browse(self, session: LeaseSession, tag: str, top_n: int | None, filter_: str | None) -> None:
        """A.7."""
        shown = [one for one in self.visible() if filter_ is None or FILTERS[filter_](one)]
        for message in shown[:top_n]:
            self.show(message, session, tag, no_ack=False)

    # -- time ---------------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """What is ready and over."""
        self.prune()
        for message in [one for one in self.ready if one.expires is not None and one.expires <= self.now()]:
            self.ready.remove(message)
            if message.number in self.deferred:
                del self.deferred[message.number]
                self.gone(message)
            else:
                self.kill(message, "time_limit")

    def expire_leased(self) -> None:
        """The same of what is leased, unless that waits for the end of the lease (A.5)."""
        for out in list(self.outs) if self.rules["expire_leased"] == "immediate" else ():
            if (due := out.expires()) is not None and due <= self.now():
                message = self.end(out, keeps_tag=True)
                assert message is not None
                self.counters["lease_ended"] += 1
                self.kill(message, "time_limit")

    def next_due(self) -> list[int]:
        """When something happens by itself."""
        dues = [out.due for out in self.outs if out.due is not None]
        dues += [one.expires for one in self.ready if one.expires is not None]
        if self.rules["expire_leased"] == "immediate":
            dues += [due for out in self.outs if (due := out.expires()) is not None]
        return dues

    def pass_time(self) -> None:
        """Lifetimes before leases (A.5)."""
        self.expire()
        self.expire_leased()
        over = [out for out in self.outs if out.due is not None and out.due <= self.now()]
        for out in over:
            if out.consumer is not None:
                out.consumer.is_late = True
        self.break_all(over, keeps_tags=True)
        self.dispatch()
