"""A turn that became long is cut: others are served before the rest, and nobody can tell but by that.

Work is counted in messages times queues, as the broker itself counts it, or in lines that run, never in time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from pair import Pair
from pamqp import commands
from peer import Peer, method, publish
from steps import steps

from leveret.amqp_frontend.peer.channel import EFFORT_MAX, FEW_QUEUES
from leveret.amqp_frontend.session.handling import handle_bytes
from leveret.engine import Envelope
from leveret.engine.exchanges.routed import Routed
from leveret.engine.messages.content import NATIVE, encode_header, scan_properties
from leveret.engine.messages.field_table import Field
from leveret.engine.turn import PART_MIN

C = commands
QUEUES = 500
#: Lines of Python of a turn: about as many as take its 5 ms.
LINES_MAX = 150_000


class Stage(Pair):
    """`f` reaches 500 queues; `turns` is the work of each turn of `step`."""

    def __init__(self, kind: str = "fanout", queues: int = QUEUES) -> None:
        super().__init__()
        self.turns: list[int] = []
        self.queues = queues
        peer = self.open()
        peer.call(1, C.Exchange.Declare, exchange="f", exchange_type=kind)
        for number in range(queues):
            peer.call(1, C.Queue.Declare, queue=f"q{number}")
            peer.call(1, C.Queue.Bind, queue=f"q{number}", exchange="f", routing_key="#" if kind == "topic" else "")

    def step(self, peer: Peer, data: bytes = b"") -> None:
        """One turn."""
        before = self.broker.context.turn.effort
        handle_bytes(peer.session, data)
        self.end_turn()
        peer._flush()
        self.turns.append(self.broker.context.turn.effort - before)

    def finish(self, peer: Peer) -> None:
        """All that is left."""
        while peer.session.backlog.has_more:
            self.step(peer)

    def counts(self) -> set[int]:
        """How many messages the queues have."""
        vhost = self.broker.virtual_hosts["/"]
        return {vhost.queues[f"q{number}"].ready_count for number in range(self.queues)}


def message(number: int, *, key: str = "", **properties: Any) -> bytes:
    return publish(1, key, b"%d" % number, exchange="f", **properties)


@pytest.mark.parametrize(
    ("kind", "key", "properties"),
    [
        ("fanout", "", {}),
        ("fanout", "k{}", {}),
        ("topic", "a.b.c", {}),
        ("headers", "", {}),
        ("fanout", "", {"headers": {"CC": ["q0"]}}),
    ],
    ids=["one run", "a run for each key", "topic", "headers", "copies"],
)
def test_no_turn_publishes_to_too_many_queues(kind: str, key: str, properties: dict[str, Any]) -> None:
    """Many messages of one read to many queues: each turn some, and all of them in the end, in order."""
    stage = Stage(kind)
    peer = stage.open()
    stage.step(peer, b"".join(message(number, key=key.format(number), **properties) for number in range(100)))
    assert peer.session.backlog.has_more
    stage.finish(peer)
    assert stage.counts() == {100} and sum(stage.turns) >= 100 * QUEUES
    assert max(stage.turns) < EFFORT_MAX + PART_MIN * QUEUES
    bodies = [one.body for one in stage.broker.virtual_hosts["/"].queues["q7"].store]
    assert bodies == [b"%d" % number for number in range(100)]


def test_a_read_full_of_messages_to_few_queues_is_one_turn() -> None:
    """As ever."""
    stage = Stage(queues=FEW_QUEUES)
    peer = stage.open()
    one = message(1)
    stage.step(peer, one * (128 * 1024 // len(one)))
    assert stage.counts() == {128 * 1024 // len(one)}


def test_others_are_served_in_between_and_what_follows_waits() -> None:
    """Another client gets its answers; the publisher its own in the order of the questions, confirms among them."""
    stage = Stage()
    peer, other = stage.open(), stage.open()
    peer.call(1, C.Confirm.Select)
    stage.step(peer, message(1) * 100 + method(1, C.Queue.Declare, queue="q0", passive=True))
    assert other.call(1, C.Queue.Declare, queue="q0", passive=True).message_count < 100
    stage.finish(peer)
    frames = [received.frame for received in peer.take()]
    (declared,) = (frame for frame in frames if isinstance(frame, C.Queue.DeclareOk))
    assert declared.message_count == 100
    acked = [frame.delivery_tag for frame in frames if isinstance(frame, C.Basic.Ack)]
    assert acked == sorted(acked) and acked[-1] == 100 and len(acked) == len(frames) - 1


def test_two_publishers_take_turns() -> None:
    """What one has left does not hold up the other, and each queue has the ids in rising order."""
    stage = Stage()
    first, second = stage.open(), stage.open()
    stage.step(first, message(1) * 50)
    stage.step(second, message(2) * 50)
    while first.session.backlog.has_more or second.session.backlog.has_more:
        for peer in (first, second):
            if peer.session.backlog.has_more:
                stage.step(peer)
    assert stage.counts() == {100}
    ids = [one.id for one in stage.broker.virtual_hosts["/"].queues["q7"].store]
    assert ids == sorted(ids)


def test_a_publisher_that_goes_in_the_middle() -> None:
    """What was not reached is as if it had not been read; each message is in all its queues or in none."""
    stage = Stage()
    peer = stage.open()
    stage.step(peer, message(1) * 100)
    peer.hang_up()
    (count,) = stage.counts()
    assert 0 < count < 100
    assert stage.broker.statistics().clients == 1


def test_a_channel_that_fails_in_the_middle() -> None:
    """The exchange goes: the rest of the run is refused once, and what was read behind it is handled as ever."""
    stage = Stage()
    peer, other = stage.open(2), stage.open()
    stage.step(peer, message(1) * 100 + message(1) * 3 + method(2, C.Queue.Declare, queue="q0", passive=True))
    other.call(1, C.Exchange.Delete, exchange="f")
    stage.finish(peer)
    closed, declared = peer.take()
    assert isinstance(closed.frame, C.Channel.Close) and closed.frame.reply_code == 404
    assert isinstance(declared.frame, C.Queue.DeclareOk)
    assert stage.counts() == {declared.frame.message_count}


def test_an_operator_ends_the_connection_in_the_middle() -> None:
    """Nothing more of it is published; its close-ok is still read."""
    stage = Stage()
    peer = stage.open()
    stage.step(peer, message(1) * 100)
    before = stage.counts()
    peer.session.closing.stop()
    stage.finish(peer)
    peer.send(method(0, C.Connection.CloseOk))
    assert stage.counts() == before and peer.is_closed


# -- what it costs to find the way -----------------------------------------------------------------------------------


class Searches(Stage):
    """No queue is reached, or one: all work is in finding that."""

    def __init__(self) -> None:
        super().__init__(queues=1)
        self.vhost = self.broker.virtual_hosts["/"]

    def exchange(self, name: str, kind: str) -> None:
        self.vhost.exchanges.declare(name, kind)

    def bind(self, exchange: str, key: str, **conditions: int) -> None:
        self.vhost.bindings.add(
            "queue", "q0", exchange, key, {name: Field("I", value) for name, value in conditions.items()}
        )


def many_new_keys(stage: Searches) -> bytes:
    """Each costs little, but more than a message."""
    for number in range(1_000):
        stage.bind("amq.topic", f"a{number % 7}.*.b{number}.#")
    return b"".join(publish(1, f"a{number % 7}.x.b{number}.y", b"m", exchange="amq.topic") for number in range(1_000))


def keys_of_bad_patterns(stage: Searches) -> bytes:
    """Each goes through all patterns, word by word."""
    for number in range(400):
        words = ["a" if number >> place % 9 & 1 else "*.#" for place in range(40)]
        stage.bind("amq.topic", ".".join(["#", *words, "a"]))
    return b"".join(publish(1, ".".join("a" * (60 + number)), b"m", exchange="amq.topic") for number in range(60))


def keys_of_many_branches(stage: Searches) -> bytes:
    """Each passes all nodes of the tree."""
    for first, second in combinations(range(60), 2):
        stage.bind("amq.topic", ".".join("*" if place in (first, second) else "a" for place in range(60)) + ".z")
    return b"".join(publish(1, ".".join("a" * 60) + f".{number}", b"m", exchange="amq.topic") for number in range(20))


def many_header_sets(stage: Searches) -> bytes:
    """Each asks for another choice of ten headers, and each message has all ten: it is compared with all of them."""
    for number in range(1, 1_000):
        stage.bind("amq.headers", "", **{f"h{bit}": 1 for bit in range(10) if number >> bit & 1})
    headers = {f"h{bit}": 1 for bit in range(10)}
    return publish(1, "", b"m", exchange="amq.headers", headers=headers) * 60


def a_complete_graph(stage: Searches) -> bytes:
    """Exchanges all of which are bound to all others."""
    names = [f"g{number}" for number in range(60)]
    for name in names:
        stage.exchange(name, "fanout")
    for source in names:
        for destination in names:
            stage.vhost.bindings.add("exchange", destination, source, "", {})
    return b"".join(publish(1, f"{number}", b"m", exchange="g0") for number in range(60))


SEARCHES = [many_new_keys, keys_of_bad_patterns, keys_of_many_branches, many_header_sets, a_complete_graph]


@pytest.mark.parametrize("attack", SEARCHES)
def test_no_turn_looks_for_too_many_ways(attack: Callable[[Searches], bytes]) -> None:
    """Ways that are dear to find: each turn some, others' turns between, and all messages are published in the end."""
    stage = Searches()
    peer, other = stage.open(), stage.open()
    data = attack(stage)
    before = stage.broker.context.counters.published

    def turn(octets: bytes = b"") -> int:
        lines = steps(lambda: stage.step(peer, octets))
        assert other.call(1, C.Queue.Declare, queue="q0", passive=True).queue == "q0"
        return lines

    dearest = turn(data)
    turns = 1
    while peer.session.backlog.has_more:
        dearest = max(dearest, turn())
        turns += 1
    assert turns > 3
    assert max(stage.turns) < 2 * EFFORT_MAX
    assert dearest < LINES_MAX
    assert stage.broker.context.counters.published - before == data.count(b"\x00\x3c\x00\x28")


def test_ways_that_are_known_cost_nothing() -> None:
    """A read full of messages whose keys were seen is one turn, as ever."""
    stage = Searches()
    stage.bind("amq.topic", "a.*.#")
    peer = stage.open()
    data = b"".join(publish(1, f"a.{number}.x", b"m", exchange="amq.topic") for number in range(400))
    stage.step(peer, data)
    stage.finish(peer)
    stage.turns.clear()
    stage.step(peer, data * 3)
    assert stage.turns == [0] and not peer.session.backlog.has_more
    assert stage.counts() == {1_600}


def test_a_transaction_looks_for_ways_in_slices() -> None:
    """Where each message is looked at, that is done as it comes, also before a commit."""
    stage = Searches()
    peer = stage.open()
    data = many_header_sets(stage)
    peer.call(1, C.Tx.Select)
    stage.step(peer, data)
    assert peer.session.backlog.has_more
    stage.finish(peer)
    assert max(stage.turns) < 2 * EFFORT_MAX
    peer.call(1, C.Tx.Commit)


def test_a_headers_table_is_read_once_on_its_way() -> None:
    """However many exchanges ask for it."""
    stage = Searches()
    header = encode_header(0, {"headers": {f"h{number}": Field("I", number) for number in range(500)}})
    facts = scan_properties(header[12:])

    def work(count: int) -> int:
        name = f"h{count}."
        for number in range(count):
            stage.exchange(f"{name}{number}", "headers")
            if number:
                stage.vhost.bindings.add("exchange", f"{name}{number}", f"{name}{number - 1}", "", {})
        message = Routed(("",), Envelope(f"{name}0", "", facts), NATIVE.join(header, b""))
        return steps(lambda: stage.vhost.router.reach(stage.vhost.exchanges[f"{name}0"], message))

    one = work(1)
    assert work(20) < 2 * one
