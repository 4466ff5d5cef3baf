"""Any settings, consumers, acts, times and restarts of a leased queue against a model that hands out one by one.

After each step the same messages went to the same clients, with the same counts; at most one live lease a message;
no backlog exceeded; nothing lost but by acknowledgement, or as a dead letter with its reason; no tag that was issued
and not settled is refused. Source: queues page A.4, A.5, A.6, A.9, C.5.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest
from effort import examples
from simulated_files import SimulatedFiles

sys.path.insert(0, str(Path(__file__).parent))
from object_rounds import Struck

from leveret.engine import MS, Client, Delivered, Envelope, ManualClock, Session, User
from leveret.engine.clients.session import NACKED
from leveret.engine.leases import discarding, renew_leases
from leveret.engine.leases.state import bookmark_of, leases_of
from leveret.engine.messages.content import PLAIN, encode_header, scan_properties
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.messages.message import Message
from leveret.testing.harness import Harness

USER = User("u")


@dataclass(eq=False)
class Msg:
    """A message. `place`: where it stands in the order of delivery."""

    number: int
    kind: int
    place: tuple[int, int]
    is_barrier: bool
    expires_ms: int | None
    deliveries: int = 0
    cancels: int = 0


@dataclass(eq=False)
class Held:
    """What a client has under a tag. `what`: live, slot, past."""

    message: Msg | None
    what: str
    until_ms: int | None = None
    is_got: bool = False


@dataclass(eq=False)
class Peer:
    """A client with one session, and perhaps a subscription: `limit` None: none; 0: for barriers alone."""

    name: str
    client: Client
    session: Session
    limit: int | None = None
    no_ack: bool = False
    kind: int | None = None
    is_late: bool = False
    tags: dict[int, Held] = field(default_factory=dict)
    next_tag: int = 1
    expected: list[tuple[Any, ...]] = field(default_factory=list)
    seen: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def used(self) -> int:
        """Of its backlog."""
        return 0 if self.no_ack else sum(one.what != "past" and not one.is_got for one in self.tags.values())

    def takes(self, message: Msg) -> bool:
        """Whether its filter takes a message."""
        return self.kind is None or self.kind == message.kind


class World(Harness):
    """A broker with a journal on simulated files, a queue `q` with these arguments, and `dead` for its dead letters."""

    has_client = False
    files: SimulatedFiles

    def __init__(self, files: SimulatedFiles, arguments: dict[str, Any], wall_ms: int, memory: int) -> None:
        self.arguments = arguments
        clock = ManualClock(wall_ms - 1000)
        clock.advance_ns(1_000_000_000)
        super().__init__(journal=files, clock=clock, memory=memory or None, user=USER)

    def begin(self) -> None:
        super().begin()
        self.queue("dead")
        table = {"x_queue_type": "amps", "x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}
        self.leased: Any = self.queue("q", **table, **self.arguments)
        self.reader = self.open("reader")
        self.settle()

    def open(self, name: str) -> Peer:
        session = self.connect(name, flush=lambda: self.read_of(peer))
        peer = Peer(name, session.client, session)
        return peer

    @staticmethod
    def read_of(peer: Peer) -> None:
        for effect in peer.client.take_outbox():
            if isinstance(effect, Delivered):
                for first, envelope, contents in effect.runs():
                    for at, content in enumerate(contents):
                        peer.seen.append((first + at, *told(envelope, content), effect.redelivered))
        peer.client.drained()

    def settle(self) -> None:
        while self.turn() or self.broker.scheduler.hungry:
            pass
        self.write_journal()

    def dead_letters(self) -> list[tuple[int, str]]:
        """Those that came since the last look: number and reason."""
        found = []
        while (got := self.reader.session.get(self.vhost.queues.named("dead"), no_ack=True)) is not None:
            message = got[1]
            reason = message.envelope.headers(message.content)["x-amps-reason"].text
            found.append((json.loads(message.body)["n"], reason))
        return found


def told(envelope: Envelope, content: bytes) -> tuple[Any, ...]:
    """Number, count of deliveries, count of cancels, and whether it is told to be a barrier."""
    headers = envelope.headers(content)
    body = json.loads(envelope.framing.split(content)[1])
    counts = [headers[key].value for key in ("x-delivery-count", "x-cancel-count")]
    return body["n"], *counts, "x-barrier" in headers


#: Each is set to one of these, or (None) not said.
SETTINGS: dict[str, tuple[Any, ...]] = {
    "x-max-backlog-per-consumer": (1, 2, 3, 1000, 1000),
    "x-lease-period": (None, 50, 100),
    "x-max-backlog-total": (None, None, 1, 3, 5),
    "x-message-ttl": (None, 80, 150),
    "x-expiration-model": ("queue", "latest", "earliest", "default"),
    "x-expire-leased": ("immediate", "immediate", "at-lease-end"),
    "x-leasing": ("strict", "sublet"),
    "x-max-deliveries": (None, None, 1, 2, 3),
    "x-cancel-limit": (None, None, 1, 2),
    "x-deferred-ack-ttl": (None, 100),
}
SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"x-fairness": "fast"},
    {"x-fairness": "round-robin"},
    {"x-semantics": "at-most-once"},
    {"x-priority-expr": "/p"},
    {"x-barrier-expr": "/s = 1"},
    {"x-barrier-expr": "/s = 1", "x-fairness": "round-robin"},
    {"x-barrier-expr": "/s = 1", "x-semantics": "at-most-once"},
    {"x-queue-filter": "/k <> 2"},
)
#: What happens, and how often.
VERBS = {
    "publish": 6,
    "subscribe": 3,
    "act": 7,
    "wait": 5,
    "get": 2,
    "leave": 1,
    "discard": 1,
    "discard_named": 1,
    "defer": 1,
    "renew": 1,
    "checkpoint": 0.4,
    "purge": 0.2,
    "restart": 0.4,
    "crash": 0.8,
}


class LeasedMachine:
    """The model beside the broker; its public verbs are what clients, operators, time and power cuts do."""

    def __init__(self, arguments: dict[str, Any], shape: dict[str, Any], memory: int) -> None:
        self.arguments = {**arguments, **shape}
        self.world = World(SimulatedFiles(), self.arguments, 1_700_000_000_000, memory)
        self.now_ms = self._clock_ms = 0  # what the model has heard of, and what the broker's clock says
        self.number = 0
        self.ready: list[Msg] = []
        self._id_of: dict[int, int] = {}  # of messages, by number
        self.deferred: dict[int, int] = {}  # acknowledgements of messages to come, by id: until when
        self._made: dict[int, Msg] = {}
        self.subscribed: list[Peer] = []
        self.next = 0  # whose turn it is
        self.dead: list[tuple[int, str]] = []
        self._read: set[int] = set()  # dead letters that were read, and come back where that was not safe
        self.peers = [self.world.open("getter")]

    def _of(self, key: str, default: Any = None) -> Any:
        return self.arguments.get(key, default)

    @property
    def is_at_most_once(self) -> bool:
        return self._of("x-semantics") == "at-most-once"

    # -- the model ----------------------------------------------------------------------------------------------------

    def _outstanding(self) -> list[tuple[Peer, int, Held]]:
        return [
            (peer, tag, held) for peer in self.peers for tag, held in peer.tags.items() if held.what in ("live", "slot")
        ]

    def _leased(self, message: Msg) -> tuple[Peer, Held] | None:
        found = [(peer, held) for peer, _, held in self._outstanding() if held.message is message]
        assert len(found) <= 1
        return found[0] if found else None

    def _room(self) -> int:
        limit = self._of("x-max-backlog-total")
        return 10**9 if limit is None else limit - len(self._outstanding())

    def _dispatch(self) -> None:
        while self.ready:
            self.ready.sort(key=lambda one: one.place)
            gate = next((at for at, one in enumerate(self.ready) if one.is_barrier), len(self.ready))
            if gate == 0:
                if self._outstanding() or not self.subscribed:
                    return
                barrier = self.ready.pop(0)
                for peer in self.subscribed:
                    if peer.takes(barrier):
                        self._tell(peer, barrier, Held(None, "past"), (1, 0, True, False), is_kept=not peer.no_ack)
                continue
            if self._room() <= 0 or not self._grant_one(gate):
                return

    def _grant_one(self, gate: int) -> bool:
        for message in self.ready[:gate]:
            free = [
                (at, peer)
                for at, peer in enumerate(self.subscribed)
                if peer.limit and (peer.no_ack or peer.used < peer.limit) and peer.takes(message)
            ]
            if free:
                self.ready.remove(message)
                self._grant(self._chosen(free), message)
                return True
        return False

    def _chosen(self, free: list[tuple[int, Peer]]) -> Peer:
        fairness = self._of("x-fairness", "round-robin" if self.is_at_most_once else "proportional")
        if fairness == "fast":
            return free[0][1]
        if fairness == "round-robin":
            at, peer = next((one for one in free if one[0] >= self.next), free[0])
            self.next = at + 1
            return peer

        def share(one: tuple[int, Peer]) -> tuple[Fraction, int, bool, int]:
            at, peer = one
            ratio = Fraction(0) if peer.no_ack else Fraction(peer.used, peer.limit or 1)
            return ratio, peer.used if not ratio else 0, peer.is_late, at

        return min(free, key=share)[1]

    def _grant(self, peer: Peer, message: Msg, *, is_get: bool = False, no_ack: bool | None = None) -> None:
        no_ack = peer.no_ack if no_ack is None else no_ack
        period = self._of("x-lease-period")
        message.deliveries += 1
        held = Held(message, "live", None if period is None else self.now_ms + period)
        if self.is_at_most_once:
            held.what, held.message = "slot", None
        counts = (message.deliveries, message.cancels, False, message.deliveries > 1)
        self._tell(peer, message, held, counts, is_kept=not no_ack, is_get=is_get)

    def _tell(
        self, peer: Peer, message: Msg, held: Held, counts: tuple[Any, ...], *, is_kept: bool, is_get: bool = False
    ) -> None:
        if not is_get:
            peer.expected.append((peer.next_tag, message.number, *counts))
        if is_kept:
            peer.tags[peer.next_tag] = held
        peer.next_tag += 1

    def _end(self, helds: list[Held], *, is_cancel: bool = False) -> None:
        """Leases end unacknowledged."""
        for held in helds:
            was, held.what = held.what, "past"
            message = held.message
            if was != "live" or message is None:
                continue
            message.cancels += is_cancel
            reasons = []
            if is_cancel and 0 < self._of("x-cancel-limit", 0) <= message.cancels:
                reasons.append("max_cancels")
            if 0 < self._of("x-max-deliveries", 0) <= message.deliveries:
                reasons.append("max_deliveries")
            if not reasons and message.expires_ms is not None and message.expires_ms <= self.now_ms:
                reasons.append("time_limit")
            if reasons:
                self.dead.append((message.number, ",".join(reasons)))
            else:
                self.ready.append(message)

    def _acked(self, peer: Peer, held: Held) -> None:
        was, message = held.what, held.message
        held.what, held.message = "past", None
        if was != "past" or message is None:
            return
        other = self._leased(message)
        if other is None:
            if message in self.ready:
                self.ready.remove(message)
        elif self._of("x-leasing") != "strict" or other[0] is peer:
            other[1].what, other[1].message = "past", None

    def _lifetime(self, own_ms: int | None) -> int | None:
        queue_ms, model = self._of("x-message-ttl"), self._of("x-expiration-model", "default")
        if own_ms is None or model == "queue":
            return queue_ms
        if model == "latest":
            return None if queue_ms is None else max(own_ms, queue_ms)
        if model == "earliest":
            return own_ms if queue_ms is None else min(own_ms, queue_ms)
        return own_ms

    def _pass(self, now_ms: int) -> None:
        self.now_ms = now_ms
        for message in [one for one in self.ready if one.expires_ms is not None and one.expires_ms <= now_ms]:
            self.ready.remove(message)
            self.dead.append((message.number, "time_limit"))
        is_immediate = self._of("x-expire-leased", "immediate") == "immediate"
        for _, _, held in self._outstanding():
            message = held.message
            if is_immediate and message is not None and message.expires_ms is not None and message.expires_ms <= now_ms:
                held.what = "past"
                self.dead.append((message.number, "time_limit"))
        for peer, _, held in self._outstanding():
            if held.until_ms is not None and held.until_ms <= now_ms:
                if peer in self.subscribed and not held.is_got:
                    peer.is_late = True
                self._end([held])
        self._dispatch()

    def _next_ms(self) -> int | None:
        times = [held.until_ms for _, _, held in self._outstanding()]
        times += [one.expires_ms for one in self.ready]
        if self._of("x-expire-leased", "immediate") == "immediate":
            times += [held.message.expires_ms for _, _, held in self._outstanding() if held.message is not None]
        return min((time for time in times if time is not None), default=None)

    # -- what happens -------------------------------------------------------------------------------------------------

    def publish(self, kinds: list[int], rank: int, barrier: int, own: int | None) -> None:
        properties: dict[str, Any] = {"delivery_mode": 2}
        if own is not None:
            properties["expiration"] = str(own).encode()
        bodies = []
        for id_, kind in enumerate(kinds, self.world.broker.context.next_id):
            self.number += 1
            bodies.append(json.dumps({"n": self.number, "k": kind, "p": rank, "s": barrier}).encode())
            if "x-queue-filter" in self.arguments and kind == 2:
                continue
            life = self._lifetime(own)
            place = (-rank if "x-priority-expr" in self.arguments else 0, self.number)
            is_barrier = bool(barrier) and "x-barrier-expr" in self.arguments
            expires_ms = None if life is None else self.now_ms + life
            self._made[self.number] = message = Msg(self.number, kind, place, is_barrier, expires_ms)
            if self.deferred.pop(id_, 0) > self.now_ms:
                continue
            self.ready.append(message)
        contents = [PLAIN.join(encode_header(len(body), properties), body) for body in bodies]
        envelope = Envelope("", "q", scan_properties(PLAIN.split(contents[0])[0][12:]))
        route = self.world.vhost.router.route("", "q", USER)
        self.world.reader.session.publish(route, envelope, contents, mandatory=False)
        last = self.world.broker.context.next_id
        self._id_of.update((self.number - at, last - 1 - at) for at in range(len(kinds)))
        self._finish()

    def subscribe(self, limit: int | None, qos: int | None, no_ack: bool, kind: int | None) -> None:
        peer = self.world.open(f"c{len(self.peers)}")
        self.peers.append(peer)
        if qos is not None:
            peer.session.set_prefetch(qos, total=False)
        arguments: FieldTable = {} if limit is None else {"x-max-backlog": Field("l", limit)}
        if kind is not None:
            arguments["x-filter"] = Field("S", f"/k = {kind}".encode())
        peer.session.consume(self.world.leased, "t", no_ack=no_ack, exclusive=False, arguments=arguments)
        largest = self._of("x-max-backlog-per-consumer")
        wanted = limit if limit is not None else 1 if qos is None else qos or largest
        peer.limit, peer.no_ack, peer.kind = min(largest, wanted), no_ack, kind
        self.subscribed.append(peer)
        self._finish()

    def leave(self, at: int, how: str) -> None:
        peer = self.subscribed[at % len(self.subscribed)]
        self._unsubscribe(peer)
        self._end(list(peer.tags.values()))
        if how == "cancel":
            peer.session.cancel("t")
        else:
            peer.client.close(failed=how == "lose")
            self.peers.remove(peer)
        self._finish()

    def _unsubscribe(self, peer: Peer) -> None:
        at = self.subscribed.index(peer)
        self.subscribed.remove(peer)
        if at < self.next:
            self.next -= 1

    def act(self, who: int, at: int, multiple: bool, act: str) -> None:
        peer = self.peers[who % len(self.peers)]
        if not peer.tags:
            return
        tag = list(peer.tags)[at % len(peer.tags)]
        if act == "recover":
            named = list(peer.tags)
            peer.session.recover()
        else:
            named = [one for one in peer.tags if one <= tag] if multiple else [tag]
            if act == "ack":
                peer.session.ack(tag, multiple=multiple)
            else:
                why = "rejected" if act == "reject" else NACKED
                peer.session.reject(tag, multiple=multiple, requeue=act != "expire", why=why)
        helds = [peer.tags[one] for one in named]
        if act == "ack":
            for held in helds:
                if held.what != "past" and not held.is_got:
                    peer.is_late = False
                self._acked(peer, held)
        elif act == "expire":
            for held in helds:
                if held.what == "live" and held.message is not None:
                    self.dead.append((held.message.number, "forced_expire"))
                held.what, held.message = "past", None
        else:
            self._end([held for held in helds if held.what != "past"], is_cancel=True)
        for one in named:
            del peer.tags[one]
        self._finish()

    def get(self, no_ack: bool) -> None:
        peer = self.peers[0]
        got = peer.session.get(self.world.leased, no_ack=no_ack)
        first = min(self.ready, key=lambda one: one.place, default=None)
        waits = first is not None and first.is_barrier and (self._outstanding() or self.subscribed)
        if first is None or waits or self._room() <= 0:
            assert got is None
            return
        assert got is not None
        self.ready.remove(first)
        tag, message, redelivered, left = got
        self._grant(peer, first, is_get=True, no_ack=no_ack)
        if not no_ack:
            peer.tags[tag].is_got = True
        counts = (first.number, first.deliveries, first.cancels, first.is_barrier, first.deliveries > 1)
        assert (*told(message.envelope, message.content), redelivered) == counts and left == len(self.ready)
        self._finish()

    def discard(self, option: str, kind: int) -> None:
        steps = discarding(self.world.leased, None, f"/k = {kind}", option)
        for _ in steps:
            pass
        self._take(option, lambda message: message.kind == kind)
        self._finish()

    def _take(self, option: str, takes: Callable[[Msg], bool]) -> None:
        """Messages that nobody has, or, unless leasing is strict, somebody has."""
        is_strict = self._of("x-leasing") == "strict"
        for _, _, held in self._outstanding():
            message = held.message
            if message is None or not takes(message) or is_strict:
                continue
            if option == "cancel":
                self._end([held], is_cancel=True)
                continue
            held.what, held.message = "past", None
            if option == "expire":
                self.dead.append((message.number, "forced_expire"))
        for message in [one for one in self.ready if takes(one) and option != "cancel"]:
            self.ready.remove(message)
            if option == "expire":
                self.dead.append((message.number, "forced_expire"))

    def discard_named(self, option: str, numbers: list[int]) -> None:
        """By bookmarks, as far as the messages are there."""
        there = {self._id_of[number] for number in numbers if number in self._id_of}
        if not there:
            return
        bookmarks = ",".join(map(bookmark_of, there))
        for _ in discarding(self.world.leased, bookmarks, None, option):
            pass
        named = {number for number in numbers if number in self._id_of}
        self._take(option, lambda message: message.number in named)
        self._finish()

    def defer(self, offset: int) -> None:
        """One of the next messages is acknowledged; whether the queue is going to capture it is not known."""
        id_ = self.world.broker.context.next_id + offset
        for _ in discarding(self.world.leased, bookmark_of(id_), None, ""):
            pass
        self.deferred[id_] = self.now_ms + self._of("x-deferred-ack-ttl", 86_400_000)
        self._finish()

    def renew(self, numbers: list[int]) -> None:
        """Leases of these messages begin again."""
        named = {number for number in numbers if number in self._id_of}
        if not named:
            return
        period = self._of("x-lease-period")
        held = [one for _, _, one in self._outstanding() if one.message is not None and one.message.number in named]
        bookmarks = ",".join(bookmark_of(self._id_of[number]) for number in named)
        assert renew_leases(self.world.leased, bookmarks) == len(held)
        for one in held if period is not None else ():
            one.until_ms = self.now_ms + period
        self._finish()

    def checkpoint(self) -> None:
        """The journal states all that is there."""
        self.world.checkpoint()

    def purge(self) -> None:
        assert self.world.vhost.queues.purge("q", self.world.reader.client) == len(self.ready)
        self.ready.clear()
        self._finish()

    def wait(self, ms: int) -> None:
        until = self.now_ms + ms
        while (due := self._next_ms()) is not None and due <= until:
            self._advance(max(due, self.now_ms))
        self._advance(until)
        self._finish()

    def _advance(self, now_ms: int) -> None:
        self.world.clock.advance_ns((now_ms - self._clock_ms) * MS)
        self._clock_ms = now_ms
        self.world.broker.advance()
        self.world.settle()
        self._pass(now_ms)

    def restart(self) -> None:
        self.world.settle()
        files = self.world.files.power_cut()
        self.world.journal.close()
        self._start_on(files, self._alive())

    def crash(self, chance: Random) -> None:
        """A kill or a power cut at some file operation: what was safe before is as it was, what was under way may be.

        At least once, that is: at most once, whatever was ready may have been on its way.
        """
        self.world.settle()
        self._read.clear()
        before, number, deferred = self._alive(), self.number, dict(self.deferred)
        left = chance.randrange(1, 40)

        def fault(operation: str, path: str) -> None:
            nonlocal left
            left -= operation != "read"
            if left < 0:
                raise Struck

        self.world.files.fault = fault
        try:
            for _ in range(10):
                step(self, chance, [verb for verb in VERBS if verb not in ("crash", "restart", "defer")])
                before, number, deferred = self._alive(), self.number, dict(self.deferred)
                self.agrees()
                self.world.settle()
        except Struck:
            pass
        old = self.world
        old.files.fault = lambda operation, path: None
        self._pass(self._clock_ms)
        old.journal.contents.close()
        is_kill, after = chance.random() < 0.5, self._alive()
        new = {one: message for one, message in self._made.items() if one > number}
        surely = set() if self.is_at_most_once else before.keys() & after.keys()
        died = {dead for dead, _ in self.dead}
        self._start_on(old.files.crash() if is_kill else old.files.power_cut(chance), before | new, surely, died)
        self.deferred = {id_: until for id_, until in deferred.items() if id_ >= self.world.broker.context.next_id}

    def _alive(self) -> dict[int, Msg]:
        """What is ready or leased."""
        leased = [held.message for _, _, held in self._outstanding() if held.message is not None]
        return {message.number: message for message in (*self.ready, *leased)}

    def _start_on(
        self,
        files: SimulatedFiles,
        there: dict[int, Msg],
        surely: Set[int] | None = None,
        died: Set[int] = frozenset(),
    ) -> None:
        """Another broker. `there`: what it may have; `surely`: what of that it must, None: all; `died`: what is dead
        where it is not there.
        """
        wall_ms = self.world.clock.wall_ms()
        self.world = World(files, self.arguments, wall_ms, self.world.memory or 0)
        next_id = self.world.broker.context.next_id  # of what no queue took, or is lost, others may have the ids
        self._id_of = {number: id_ for number, id_ in self._id_of.items() if id_ < next_id}
        if surely is not None:
            numbers = {id_: number for number, id_ in self._id_of.items()}
            found = [numbers[id_] for id_ in ids_in(self.world.leased)]
            dead = [number for number, _ in self.world.dead_letters()]
            assert len(found) == len(set(found)) and set(found) <= there.keys(), (found, list(there))
            assert len(dead) == len(set(dead)) and not set(dead) & set(found), (dead, found)
            assert died - set(found) <= set(dead) <= there.keys() | self._read, (died, dead, found)
            over = {one for one in dead if one in there and 0 < (there[one].expires_ms or 0) <= self._clock_ms}
            assert surely <= set(found) | over, (surely, found, dead)
            there = {number: there[number] for number in found}
            self.dead.clear()
        self.ready = list(there.values())
        for message in self.ready:
            message.deliveries = message.cancels = 0
        self.subscribed.clear()
        self.next = 0
        self.peers = [self.world.open("getter")]
        self._pass(self.now_ms)
        self._finish()

    def _finish(self) -> None:
        self.world.settle()
        self._dispatch()

    # -- what must be so ----------------------------------------------------------------------------------------------

    def agrees(self) -> None:
        queue = self.world.leased
        for peer in self.peers:
            assert peer.seen == peer.expected, peer.name
            assert list(peer.session.unacked) == list(peer.tags), peer.name
            if peer in self.subscribed:
                consumer = peer.session.consumers["t"]
                assert consumer.unacked == peer.used
                assert peer.no_ack or not peer.limit or peer.used <= peer.limit
        assert Counter(self.world.dead_letters()) == Counter(self.dead)
        self._read.update(number for number, _ in self.dead)
        self.dead.clear()
        outstanding = self._outstanding()
        assert queue.ready_count == len(self.ready)
        assert queue.unacked == len(outstanding) == len(leases_of(queue).book)
        limit = self._of("x-max-backlog-total")
        assert limit is None or len(outstanding) <= limit

    def end(self) -> None:
        """Give everything back."""
        self.world.journal.close()


def ids_in(queue: Any) -> list[int]:
    """Of what is ready, also of what is only in the journal."""
    found = [message.id for message in queue.messages()]
    for part in queue.store.paged_parts():
        found += [part.id] if isinstance(part, Message) else part.ids
    return found


def step(machine: LeasedMachine, chance: Random, verbs: Sequence[str] = tuple(VERBS)) -> str:
    """Something happens. Returns what."""
    pick = chance.choice
    (verb,) = chance.choices(verbs, [VERBS[one] for one in verbs])
    arguments: dict[str, Any] = {"chance": chance} if verb == "crash" else {}
    if verb == "publish":
        kinds = [chance.randrange(3) for _ in range(chance.randint(1, 4))]
        own = pick([None, None, 30, 90, 300])
        arguments = {"kinds": kinds, "rank": chance.randrange(3), "barrier": pick([0, 0, 0, 1]), "own": own}
    elif verb == "subscribe":
        if len(machine.subscribed) >= 4:
            return "nothing"
        arguments = {"limit": pick([None, None, 0, 1, 2, 5]), "qos": pick([None, 0, 1, 3, 3])}
        arguments |= {"no_ack": pick([False] * 5 + [True]), "kind": pick([None, None, None, 0, 1])}
        if machine.world.memory:
            arguments["kind"] = None  # who takes what is in memory may be served before what must be read is
    elif verb == "leave":
        if not machine.subscribed:
            return "nothing"
        arguments = {"at": chance.randrange(4), "how": pick(["cancel", "close", "lose"])}
    elif verb == "act":
        arguments = {"who": chance.randrange(6), "at": chance.randrange(6), "multiple": pick([False, True])}
        arguments["act"] = pick(["ack", "ack", "nack", "reject", "expire", "recover"])
        late = [
            (who, at)
            for who, peer in enumerate(machine.peers)
            for at, held in enumerate(peer.tags.values())
            if held.what == "past" and held.message is not None
        ]
        if late and chance.random() < 0.5:
            who, at = pick(late)
            arguments = {"who": who, "at": at, "multiple": False, "act": "ack"}
    elif verb == "get":
        arguments = {"no_ack": pick([False, False, True])}
    elif verb == "discard":
        arguments = {"option": pick(["", "cancel", "expire"]), "kind": chance.randrange(3)}
    elif verb == "discard_named":
        numbers = [chance.randint(1, machine.number + 1) for _ in range(3)]
        arguments = {"option": pick(["", "cancel", "expire"]), "numbers": numbers}
    elif verb == "defer":
        arguments = {"offset": chance.randrange(3)}
    elif verb == "renew":
        arguments = {"numbers": [chance.randint(1, machine.number + 1) for _ in range(4)]}
    elif verb == "wait":
        arguments = {"ms": pick([1, 20, 49, 50, 51, 200])}
    getattr(machine, verb)(**arguments)
    return f"{verb} {arguments}"


def history(seed: int, steps: int) -> None:
    """One history; a failure tells its seed and what happened."""
    chance = Random(seed)
    settings = {key: value for key, values in SETTINGS.items() if (value := chance.choice(values)) is not None}
    shape = SHAPES[seed % len(SHAPES)]
    machine = LeasedMachine(settings, shape, chance.choice([0, 300]))
    done: list[str] = []
    try:
        for _ in range(steps):
            done.append(step(machine, chance))
            machine.agrees()
    except Exception as error:
        error.add_note(f"seed {seed}, {machine.arguments}: " + "; ".join(done[-12:]))
        raise
    finally:
        machine.end()


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_a_leased_queue_does_as_the_model(shape: int) -> None:
    """Histories of each kind of queue, with other settings each."""
    for number in range(examples(4)):
        history(number * len(SHAPES) + shape, 120)
