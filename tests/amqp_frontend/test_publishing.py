"""Where publishes go while queues, bindings and permissions change: nothing of a kind is remembered for too long.

Behaviour page 2.7, 2.14. Worlds by seed, against routes that are found anew for each message.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from desk import VirtualDesk
from effort import examples
from pamqp import commands as C
from peer import LOGIN, Peer, cut_at, handshake, method, publish

QUEUES = ("a", "b", "c")
#: Exchange and routing key of what is published.
KINDS = [("", "a"), ("", "b"), ("amq.direct", "a"), ("amq.direct", "b"), ("amq.topic", "a.b"), ("amq.fanout", "")]
#: Exchange, and the key of a binding.
BINDINGS = [("amq.direct", "a"), ("amq.direct", "b"), ("amq.topic", "a.*"), ("amq.topic", "#"), ("amq.fanout", "")]
#: What a user may write -> the exchanges that are refused.
WRITES = {".*": (), "^$|^amq": (), "^amq\\.(topic|fanout)$": ("", "amq.direct"), "": tuple(one for one, _ in KINDS)}


class World:
    """A publisher (with confirms or without), and somebody who changes what there is.

    `bound`: queue, exchange, key. `expected`: of each queue what is to be in it, in order.
    """

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.desk = VirtualDesk()
        self.pair = self.desk.pair
        self.other: Peer = self.pair.open(1)
        self.desk.command("users", action="add", name="quest", password="quest")
        self.permitted(".*")
        self.peer: Peer = self.pair.open(None)
        for burst in handshake():
            self.peer.send(burst.replace(LOGIN, LOGIN.replace(b"g", b"q")))
        self.peer.take()
        self.confirms = chance.random() < 0.7
        self.open()
        self.peer.cut = cut_at([chance.randrange(1 << 12) for _ in range(chance.choice((0, 0, 2)))])
        self.expected: dict[str, list[bytes]] = {}
        self.bound: set[tuple[str, str, str]] = set()
        self.refused: tuple[str, ...] = ()
        self.count = 0
        for queue in QUEUES[:2]:
            self.declare(queue)

    def open(self) -> None:
        self.peer.call(1, C.Channel.Open)
        if self.confirms:
            self.peer.call(1, C.Confirm.Select)
        self.tags = 0

    # -- what changes -------------------------------------------------------------------------------------------------

    def declare(self, queue: str) -> None:
        self.other.call(1, C.Queue.Declare, queue=queue)
        self.expected.setdefault(queue, [])

    def delete(self, queue: str) -> None:
        self.other.call(1, C.Queue.Delete, queue=queue)
        self.expected.pop(queue, None)
        self.bound = {one for one in self.bound if one[0] != queue}

    def bind(self, queue: str) -> None:
        exchange, key = self.chance.choice(BINDINGS)
        if queue in self.expected:
            self.other.call(1, C.Queue.Bind, queue=queue, exchange=exchange, routing_key=key)
            self.bound.add((queue, exchange, key))

    def unbind(self, queue: str) -> None:
        own = sorted(one for one in self.bound if one[0] == queue)
        if own:
            one = self.chance.choice(own)
            self.other.call(1, C.Queue.Unbind, queue=queue, exchange=one[1], routing_key=one[2])
            self.bound.remove(one)

    def permit(self, _: str) -> None:
        write = self.chance.choice([".*", ".*", *WRITES])
        self.permitted(write)
        self.refused = WRITES[write]

    def permitted(self, write: str) -> None:
        self.desk.command("permissions", action="set", vhost="/", user="quest", configure=".*", write=write, read=".*")

    # -- what is published --------------------------------------------------------------------------------------------

    def queues_of(self, exchange: str, key: str) -> set[str]:
        if not exchange:
            return {key} & self.expected.keys()
        words = key.split(".")
        return {
            queue
            for queue, source, pattern in self.bound
            if source == exchange
            and (
                exchange == "amq.fanout"
                or pattern in (key, "#")
                or (pattern == "a.*" and words[0] == "a" and len(words) == 2)
            )
        }

    def publish(self) -> None:
        """Several kinds in one read, each more than once: they are known, and read together."""
        kinds = self.chance.choices(KINDS, k=self.chance.randint(1, 4))
        run = self.chance.choice((kinds * 3, sorted(kinds * 3), kinds))
        octets, returned, refused_at = b"", [], None
        for at, (exchange, key) in enumerate(run):
            self.count += 1
            body = b"%d" % self.count
            octets += publish(1, key, body, exchange=exchange, mandatory=True)
            if refused_at is None and exchange in self.refused:
                refused_at = at
            if refused_at is None:
                queues = self.queues_of(exchange, key)
                for queue in queues:
                    self.expected[queue].append(body)
                if not queues:
                    returned.append(body)
        self.peer.send(octets)
        self.hear(len(run) if refused_at is None else refused_at, returned, refused_at is not None)

    def hear(self, count: int, returned: list[bytes], is_refused: bool) -> None:
        """Each is returned or not, and confirmed behind that; a refused one ends the channel, and what follows it."""
        back, confirmed = [], self.tags
        heard = self.peer.take()
        if is_refused:
            closed = heard.pop().frame
            assert isinstance(closed, C.Channel.Close) and closed.reply_code == 403
            self.peer.send(method(1, C.Channel.CloseOk))
        for one in heard:
            if isinstance(one.frame, C.Basic.Return):
                assert one.frame.reply_code == 312 and one.body is not None
                back.append(one.body)
            else:
                assert self.confirms and isinstance(one.frame, C.Basic.Ack), one
                assert one.frame.delivery_tag > confirmed
                assert one.frame.multiple or one.frame.delivery_tag == confirmed + 1
                confirmed = one.frame.delivery_tag
        assert back == returned
        assert not self.confirms or confirmed == self.tags + count
        self.tags += count
        if is_refused:
            self.open()

    def look(self) -> None:
        """All queues have what they are to have, and are empty then."""
        for queue, expected in self.expected.items():
            there: list[Any] = []
            while True:
                got = self.other.get(queue)
                if got is None:
                    break
                there.append(got.body)
            assert there == expected, queue
            expected.clear()


@pytest.mark.parametrize("seed", range(examples(16)))
def test_each_goes_where_it_belongs_now(seed: int) -> None:
    """Runs and mixed runs of kinds that are known from before the change."""
    chance = Random(seed)
    world = World(chance)
    for _ in range(60):
        world.publish()
        if chance.random() < 0.4:
            world.look()
        if chance.random() < 0.7:
            change = chance.choice([world.bind, world.bind, world.unbind, world.delete, world.declare, world.permit])
            change(chance.choice(QUEUES))
    world.look()


@pytest.mark.parametrize("seed", range(examples(6)))
def test_a_change_in_the_same_read(seed: int) -> None:
    """Of the same channel, between publishes: those before it go by what was, those behind it by what is."""
    chance = Random(seed)
    world = World(chance)
    world.confirms = False
    for _ in range(40):
        octets, answers = b"", 0
        for _ in range(chance.randint(2, 8)):
            exchange, key = chance.choice(KINDS)
            for _ in range(chance.choice((1, 3))):
                world.count += 1
                octets += publish(1, key, b"%d" % world.count, exchange=exchange)
                for queue in world.queues_of(exchange, key):
                    world.expected[queue].append(b"%d" % world.count)
            queue, (source, pattern) = chance.choice(QUEUES[:2]), chance.choice(BINDINGS)
            if chance.random() < 0.6:
                is_there = (queue, source, pattern) in world.bound
                kind = C.Queue.Unbind if is_there else C.Queue.Bind
                octets += method(1, kind, queue=queue, exchange=source, routing_key=pattern)
                world.bound ^= {(queue, source, pattern)}
                answers += 1
        world.peer.send(octets)
        frames = [one.frame for one in world.peer.take() if not isinstance(one.frame, C.Basic.Ack)]
        assert len(frames) == answers and all(isinstance(one, C.Queue.BindOk | C.Queue.UnbindOk) for one in frames)
        world.look()
