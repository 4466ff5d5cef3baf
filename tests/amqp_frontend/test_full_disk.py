"""What becomes of publishes while the disk is full, by the policy of their address. Address-settings page 3.3."""

from __future__ import annotations

from typing import Any

import pytest
from pair import Pair
from pamqp import commands
from peer import Peer, method, publish
from stand_in_journal import StandInJournal

from leveret.settings import SettingsRepository, entry

C = commands
PERSISTENT, TRANSIENT = {"delivery_mode": 2}, {"delivery_mode": 1}
#: Queues and their policies.
POLICIES = {"q": None, "block": "BLOCK", "fail": "FAIL", "drop": "DROP"}


class Bench:
    """A broker whose disk is full, with a durable queue for each policy, all of them bound to `amq.fanout`."""

    def __init__(self, *, confirms: bool, arguments: dict[str, Any] | None = None) -> None:
        entries = [entry(name, disk_full_policy=policy) for name, policy in POLICIES.items() if policy]
        self.pair = Pair(broker={"settings": SettingsRepository(entries)})
        self.peer: Peer = self.pair.open(2)
        for name in POLICIES:
            self.peer.call(1, C.Queue.Declare, queue=name, durable=True, arguments=arguments or {})
        if confirms:
            self.peer.call(1, C.Confirm.Select)
        self.journal = StandInJournal()
        self.journal.has_failed = True
        self.pair.broker.context.storage.durability = self.journal

    def publish(self, key: str, properties: dict[str, Any], exchange: str = "") -> str:
        """What is heard of one message: ack, nack, held, or nothing."""
        self.peer.send(publish(1, key, b"x", exchange=exchange, **properties))
        return self.heard()

    def heard(self) -> str:
        """Since this was last asked."""
        self.pair.end_turn()
        heard = [received.frame for received in self.peer.take()]
        if self.peer.session.backlog.parking.contents.count:
            assert not heard
            return "held"
        if not heard:
            return "nothing"
        (frame,) = heard
        return {C.Basic.Ack: "ack", C.Basic.Nack: "nack"}[type(frame)]

    def make_room(self) -> None:
        """The disk is not full any more."""
        self.journal.has_failed = False
        self.pair.broker.release_awaiting()
        self.pair.settle()

    def ready(self, name: str) -> int:
        """Messages in a queue."""
        return self.pair.broker.virtual_hosts["/"].queues.named(name).ready_count


@pytest.mark.parametrize("confirms", [True, False], ids=["confirms", "no confirms"])
@pytest.mark.parametrize(
    ("queue", "with_confirms", "without", "kept"),
    [
        ("q", "nack", "held", (0, 1)),
        ("block", "held", "held", (1, 1)),
        ("fail", "nack", "nothing", (0, 0)),
        ("drop", "ack", "nothing", (0, 0)),
    ],
)
def test_each_policy(queue: str, with_confirms: str, without: str, kept: tuple[int, int], confirms: bool) -> None:
    """What is held comes in when there is room again; transient messages come in at once."""
    bench = Bench(confirms=confirms)
    assert bench.publish(queue, TRANSIENT) == ("ack" if confirms else "nothing")
    assert bench.publish(queue, PERSISTENT) == (with_confirms if confirms else without)
    assert bench.ready(queue) == 1
    bench.make_room()
    assert bench.ready(queue) == 1 + kept[not confirms]


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-queue-type": "quorum"},
        {"x-last-value-key": "k"},
        {"x-non-destructive": True},
        {"x-max-priority": 5},
    ],
    ids=lambda arguments: "-".join(map(str, arguments.values())),
)
def test_each_kind_of_queue(arguments: dict[str, Any]) -> None:
    """The policy is the same, whatever the queue keeps of its messages."""
    bench = Bench(confirms=True, arguments=arguments)
    heard = [bench.publish(name, {"delivery_mode": 2}) for name in ("q", "fail", "drop", "block")]
    assert heard == ["nack", "nack", "ack", "held"]
    assert [bench.ready(name) for name in ("q", "fail", "drop", "block")] == [0] * 4
    bench.make_room()
    assert [bench.ready(name) for name in ("q", "fail", "drop", "block")] == [0, 0, 0, 1]


def test_streams_have_no_policy() -> None:
    """Of the settings of addresses none holds for them."""
    bench = Bench(confirms=True, arguments={"x-queue-type": "stream"})
    assert [bench.publish(name, {"delivery_mode": 2}) for name in ("fail", "drop", "block")] == ["nack"] * 3


@pytest.mark.parametrize(
    ("queues", "heard"),
    [
        (("drop", "fail"), "nack"),
        (("drop", "q"), "nack"),
        (("drop", "fail", "block"), "held"),
    ],
)
def test_the_strictest_of_several_decides(queues: tuple[str, ...], heard: str) -> None:
    """A message for several queues is held if one of them blocks, and a nack if one of them refuses it."""
    bench = Bench(confirms=True)
    bench.journal.has_failed = False
    for name in queues:
        bench.peer.call(2, C.Queue.Bind, queue=name, exchange="amq.fanout")
    bench.journal.has_failed = True
    assert bench.publish("", PERSISTENT, "amq.fanout") == heard


def test_the_policy_is_live() -> None:
    """It rules messages that arrive later."""
    bench = Bench(confirms=True)
    assert bench.publish("drop", PERSISTENT) == "ack"
    bench.pair.broker.reloading.replace_settings(SettingsRepository([entry("drop", disk_full_policy="FAIL")]))
    assert bench.publish("drop", PERSISTENT) == "nack"


def test_a_commit_without_a_transaction_does_not_wait_for_room() -> None:
    """It is an error in any case."""
    bench = Bench(confirms=False)
    bench.peer.send(method(2, C.Tx.Commit))
    closed = bench.peer.expect(C.Channel.Close)
    assert (closed.reply_code, closed.reply_text) == (406, "PRECONDITION_FAILED - channel is not transactional")
