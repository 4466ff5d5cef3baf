"""Confirms and a journal in any step: each publish is answered once, in order, and never before it is as it is said.

Behaviour page 2.14; docs/journal-format.md, "The crash model". The journal is a stand-in that is late, or fails, when
the test says; what it keeps and until when is written down there, and compared with what publishers hear.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import pytest
from effort import examples
from late_journal import LateJournal
from pair import Pair
from pamqp import commands as C
from peer import cut_at, method, publish

from leveret.settings import SettingsRepository, entry

CLOSE = {"reply_code": 200, "class_id": 0, "method_id": 0}


class Kind(NamedTuple):
    """Of messages. `queues`: those that have to take it for an ack, unless it expires while it is held."""

    key: str
    mode: int
    queues: tuple[str, ...]
    exchange: str = ""
    mandatory: bool = False
    expires_ms: int | None = None


KINDS = [
    Kind("kept", 2, ("kept",)),
    Kind("kept", 1, ("kept",)),
    Kind("transient", 2, ("transient",)),
    Kind("nowhere", 2, ()),
    Kind("nowhere", 2, (), mandatory=True),
    Kind("short", 2, ("short",)),
    Kind("short", 1, ("short",)),
    Kind("full", 2, ("full",)),
    Kind("", 2, ("kept", "transient"), "amq.fanout"),
    Kind("kept", 2, ("kept",), mandatory=True),
    Kind("transient", 2, ("transient",), expires_ms=200),
]
#: Those that are read together, however they alternate, once they are known.
PLAIN = (0, 1, 2)
#: Two publishers, each with two channels that confirm, and one that has transactions.
CONFIRMING, TRANSACTIONAL = (1, 2), 3

#: What is done, and how often of so many.
OPERATIONS = {
    "publish": 8,
    "declare": 1,
    "transact": 1,
    "commit": 8,
    "fail": 1,
    "recover": 2,
    "alarm": 1,
    "calm": 2,
    "take": 2,
    "wait": 1,
}
ENDINGS = ("declare", "close", "error", "goodbye")


class Answer(NamedTuple):
    """One that waits for the journal: of which method, up to which LSN, and the messages that it is about."""

    kind: type[Any]
    channel: int
    lsn: int
    bodies: list[bytes]


class World:
    """`unanswered`: of each channel that is open the publishes that were not answered, as tag -> (body, kind).

    `run_of`: body -> those that were published in one read; they may wait for each other.
    """

    def __init__(self, cuts: list[int]) -> None:
        limit = entry("full", memory_limit=2_000, cursor="vm")
        self.pair = Pair(broker={"settings": SettingsRepository([limit])})
        self.taker = self.pair.open(1)
        declare = self.taker.call
        short: dict[str, Any] = {"x-max-length": 2, "x-overflow": "reject-publish"}
        for name in ("kept", "short", "full"):
            declare(1, C.Queue.Declare, queue=name, durable=True, arguments=short if name == "short" else {})
        declare(1, C.Queue.Declare, queue="transient", exclusive=True)
        for name in ("kept", "transient"):
            declare(1, C.Queue.Bind, queue=name, exchange="amq.fanout")
        self.peers = [self.pair.open(3) for _ in range(2)]
        self.journal = LateJournal(self.pair.broker)
        self.unanswered: dict[tuple[int, int], dict[int, tuple[bytes, Kind]]] = {}
        self.tags: dict[tuple[int, int], int] = {}
        self.numbers: dict[tuple[int, int], set[int]] = {}
        self.answers: list[list[Answer]] = [[], []]
        self.run_of: dict[bytes, list[bytes]] = {}
        self.may_refuse: set[bytes] = set()
        self.since_ns: dict[bytes, int] = {}
        self.ended: set[tuple[int, int]] = set()
        self.count = 0
        for n, peer in enumerate(self.peers):
            peer.call(TRANSACTIONAL, C.Tx.Select)
            for channel in CONFIRMING:
                peer.call(channel, C.Confirm.Select)
                self.unanswered[n, channel], self.tags[n, channel], self.numbers[n, channel] = {}, 0, set()
                self.publish((n, channel), [*PLAIN, *PLAIN, *PLAIN], "")
        self.commit(1 << 20, True)
        self.check()
        for peer in self.peers:
            peer.cut = cut_at(cuts)

    # -- what happens -------------------------------------------------------------------------------------------------

    def publish(self, line: tuple[int, int], run: list[int], then: str) -> None:
        """A run of messages in one read, and what the client does `then`."""
        if not self.is_open(line) or (then == "declare" and self.is_parked(line)):
            return
        n, channel = line
        octets, together = b"", []
        for kind in map(KINDS.__getitem__, run):
            self.tags[line] += 1
            body, more = self.message(channel, kind)
            self.unanswered[line][self.tags[line]] = body, kind
            together.append(body)
            self.run_of[body] = together
            self.numbers[line].add(self.count)
            if self.journal.has_failed and any(one in self.may_refuse for one, _ in self.unanswered[line].values()):
                self.may_refuse.add(body)  # what stands before it is not refused yet
            octets += more
        if then == "close":
            octets += method(channel, C.Channel.Close, **CLOSE)
        elif then == "error":
            octets += method(channel, C.Basic.Ack, delivery_tag=1 << 40)
        elif then == "goodbye":
            octets += method(0, C.Connection.Close, **CLOSE)
        self.peers[n].send(octets)
        self.look_at(n)
        if then == "declare":
            self.declare(line)
        elif then:
            ended = [line] if then != "goodbye" else [one for one in self.unanswered if one[0] == n]
            for one in ended:
                if not self.answers[n]:
                    self.expect_answered(one)
                assert self.answers[n] or one not in self.unanswered, f"{then} is not answered"
                self.ended.add(one)
            if then == "goodbye":
                for one in ended:
                    self.unanswered.pop(one, None)
                self.answers[n].clear()
                self.peers[n].hang_up()

    def message(self, channel: int, kind: Kind) -> tuple[bytes, bytes]:
        """Its body, which no other has, and its octets."""
        self.count += 1
        body = b"%d " % self.count + bytes(500)
        self.since_ns[body] = self.pair.clock.monotonic_ns()
        properties: dict[str, Any] = {"delivery_mode": kind.mode}
        if kind.expires_ms is not None:
            properties["expiration"] = str(kind.expires_ms)
        return body, publish(channel, kind.key, body, exchange=kind.exchange, mandatory=kind.mandatory, **properties)

    def declare(self, line: tuple[int, int], is_new: bool = True) -> None:
        """A durable queue: the answer waits for the journal, also for all that this connection did before."""
        n, channel = line
        if self.is_open(line) and not self.journal.has_failed and not self.is_parked(line):
            self.count += 1
            sent = method(channel, C.Queue.Declare, queue=f"new {self.count}" if is_new else "kept", durable=True)
            own = [body for (m, _), of in self.unanswered.items() if m == n for body, _ in of.values()]
            before = [body for body in own if body in self.journal.queues_of]
            lsn = self.journal.next_lsn + 1 if is_new else 0
            self.answers[n].append(Answer(C.Queue.DeclareOk, channel, lsn, [] if self.journal.is_behind else before))
            self.peers[n].send(sent)

    def transact(self, n: int, run: list[int]) -> None:
        """A transaction: nothing of it is published before its commit."""
        if self.peers[n].is_closed or self.is_parked((n, TRANSACTIONAL)):
            return
        made = [self.message(TRANSACTIONAL, KINDS[kind]) for kind in run if KINDS[kind].key not in ("short", "full")]
        bodies = [body for body, _ in made]
        self.peers[n].send(b"".join(octets for _, octets in made))
        assert not any(body in self.journal.queues_of for body in bodies), "published before the commit"
        self.look_at(n)
        self.answers[n].append(Answer(C.Tx.CommitOk, TRANSACTIONAL, 0, bodies))
        self.peers[n].send(method(TRANSACTIONAL, C.Tx.Commit))

    def is_open(self, line: tuple[int, int]) -> bool:
        """Whether the client may still say something on a channel."""
        return line in self.unanswered and line not in self.ended

    def is_parked(self, line: tuple[int, int]) -> bool:
        """Whether something waits for room on a channel."""
        n, number = line
        area: Any = self.peers[n].session.backlog.parking
        return any(channel.number == number for channel in area.channels)

    def commit(self, records: int, is_told: bool) -> None:
        self.journal.commit(records, is_told=is_told)
        if not is_told:
            self.look()  # nothing that is not safe, whoever has heard of it
            self.journal.commit(0)

    def barrier_of(self, body: bytes) -> int:
        """What a publish may wait for: it, and what came with it."""
        return max(self.journal.barrier_of.get(one, 0) for one in self.run_of[body])

    def fail(self) -> None:
        for unanswered in self.unanswered.values():
            waits = False
            for body, _ in unanswered.values():
                waits |= self.barrier_of(body) > self.journal.safe_lsn
                if waits:
                    self.may_refuse.add(body)
        self.journal.fail()

    def recover(self) -> None:
        self.journal.recover()

    def alarm(self, is_on: bool) -> None:
        if is_on:
            self.pair.broker.flow.raise_alarm("test")
        else:
            self.pair.broker.flow.end_alarm()

    def take(self, queue: str, count: int) -> None:
        for _ in range(count):
            self.taker.send(method(1, C.Basic.Get, queue=queue, no_ack=True))
            self.taker.take()

    def wait(self) -> None:
        self.pair.advance(300)

    # -- what always holds --------------------------------------------------------------------------------------------

    def look(self) -> None:
        self.pair.settle()
        self.pair.advance(0)
        for n in range(len(self.peers)):
            self.look_at(n)

    def look_at(self, n: int) -> None:
        """All that a publisher heard, in order."""
        for one in self.peers[n].take():
            frame, line = one.frame, (n, one.channel)
            if isinstance(frame, C.Basic.Ack | C.Basic.Nack):
                assert line in self.unanswered, "a confirm on a channel that is closed"
                self.confirmed(line, frame)
            elif isinstance(frame, C.Channel.Close | C.Channel.CloseOk):
                if line not in self.ended:  # else it comes late, and more may be safe by now
                    self.expect_answered(line)
                self.unanswered.pop(line, None)
            elif isinstance(frame, C.Connection.CloseOk):
                for closed in [one for one in self.unanswered if one[0] == n]:
                    if not self.answers[n]:
                        self.expect_answered(closed)
                    del self.unanswered[closed]
            elif isinstance(frame, C.Queue.DeclareOk | C.Tx.CommitOk):
                answer = next(waits for waits in self.answers[n] if waits.channel == one.channel)
                self.answers[n].remove(answer)
                assert isinstance(frame, answer.kind), "out of order"
                assert self.journal.safe_lsn >= answer.lsn, "answered before it is safe"
                for body in answer.bodies:
                    self.expect_safe(body)
            else:
                assert isinstance(frame, C.Basic.Return), frame

    def confirmed(self, line: tuple[int, int], frame: Any) -> None:
        unanswered = self.unanswered[line]
        first = next(iter(unanswered), None)
        tags = [tag for tag in unanswered if tag <= frame.delivery_tag]
        assert tags and tags[-1] == frame.delivery_tag, "answered twice, or never published"
        assert frame.multiple or frame.delivery_tag == first, "out of order"
        for tag in tags:
            body, kind = unanswered.pop(tag)
            took = self.journal.queues_of.get(body)
            if took is None:
                waited_ms = (self.pair.clock.monotonic_ns() - self.since_ns[body]) // 1_000_000
                assert kind.expires_ms is not None and waited_ms >= kind.expires_ms, "answered while it is held"
                assert isinstance(frame, C.Basic.Ack), "what expires is not refused"
            elif isinstance(frame, C.Basic.Ack):
                assert took == set(kind.queues), f"acked, and {kind.key} has not taken it"
                self.expect_safe(body)
            else:
                assert took != set(kind.queues) or body in self.may_refuse, "refused for nothing"

    def expect_safe(self, body: bytes) -> None:
        """Nobody may hear of it before."""
        assert body in self.journal.queues_of, "answered, and not published"
        assert self.journal.barrier_of.get(body, 0) <= self.journal.safe_lsn, "answered before it is safe"

    def expect_answered(self, line: tuple[int, int]) -> None:
        """Up to the first one that is held, or waits for the journal, all have been answered."""
        for tag, (body, _) in self.unanswered.get(line, {}).items():
            if body not in self.journal.queues_of:
                return  # held
            if not self.journal.has_failed and self.barrier_of(body) > self.journal.safe_lsn:
                return
            raise AssertionError(f"no word of {tag} on {line}")

    def check(self) -> None:
        """After each step: those who may have heard have."""
        self.look()
        for n, answers in enumerate(self.answers):
            if not answers:
                for channel in CONFIRMING:
                    self.expect_answered((n, channel))
            elif self.journal.safe_lsn >= self.journal.next_lsn and not self.journal.is_behind:
                parked = [self.is_parked((n, answer.channel)) for answer in answers]
                assert any(parked), f"nothing to wait for: {answers[0].kind}"

    def end(self) -> None:
        """The journal is well and all there is to do is done: each publish was answered."""
        self.alarm(False)
        self.recover()
        self.check()
        for _ in range(400):
            if not any(self.unanswered.values()) and not any(self.answers):
                break
            self.take("full", 4)
            self.commit(100, True)
            self.check()
        for queue, bodies in self.journal.came_to.items():
            came = [int(body.split()[0]) for body in bodies]
            for line, numbers in self.numbers.items():
                own = [number for number in came if number in numbers]
                assert own == sorted(own), f"out of order: {line} in {queue}"
        assert not any(self.unanswered.values()), "never answered"
        assert not any(self.answers), "never answered"


def some(chance: Random, world: World, name: str) -> None:
    """An operation, with arguments by lot."""
    if name == "publish":
        then = chance.choice(ENDINGS) if chance.random() < 0.08 else ""
        kinds = chance.choice([range(len(KINDS)), PLAIN, [chance.randrange(len(KINDS))]])
        run = chance.choices(kinds, k=chance.randint(1, 7))
        world.publish((chance.randrange(2), chance.choice(CONFIRMING)), run, then)
    elif name == "declare":
        world.declare((chance.randrange(2), chance.choice(CONFIRMING)), chance.random() < 0.5)
    elif name == "transact":
        run = chance.choice((chance.choices(range(len(KINDS)), k=chance.randint(1, 4)), [*PLAIN] * 3))
        world.transact(chance.randrange(2), run)
    elif name == "commit":
        world.commit(chance.randint(1, 6), chance.random() < 0.7)
    elif name == "take":
        world.take(chance.choice(["full", "short", "kept"]), chance.randint(1, 4))
    elif name in ("alarm", "calm"):
        world.alarm(name == "alarm")
    else:
        getattr(world, name)()


@pytest.mark.parametrize("seed", range(examples(24)))
def test_each_publish_is_answered_once_in_order_and_never_early(seed: int) -> None:
    """Kept, transient, unroutable, refused and held ones in any mix; a journal that is late, partly safe, or fails."""
    chance = Random(seed)
    world = World([chance.randrange(1 << 16) for _ in range(chance.choice((0, 0, 1, 3)))])
    for name in chance.choices([*OPERATIONS], [*OPERATIONS.values()], k=40):
        some(chance, world, name)
        world.check()
    world.end()
