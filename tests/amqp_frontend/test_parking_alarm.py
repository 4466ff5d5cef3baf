"""An operator's alarm, and a full disk, hold publishes as a limit of the broker does. Queues page E.4, row 3."""

from __future__ import annotations

from typing import Any

import pytest
from pair import Pair
from pamqp import commands as C
from peer import Cut, Peer, byte_by_byte, method, publish, whole
from stand_in_journal import StandInJournal

from leveret.amqp_frontend.flow import steps
from leveret.amqp_frontend.wire.layout import HEARTBEAT_FRAME
from leveret.engine import BlockedEvent, Event, EventKind, errors
from leveret.settings import SettingsRepository, entry

CUTS = pytest.mark.parametrize("cut", [whole, byte_by_byte])
CLOSE = {"reply_code": 200, "class_id": 0, "method_id": 0}


class Bench:
    """A queue, perhaps with settings, a publisher on channel 1 (`mode`), and another one."""

    def __init__(self, cut: Cut = whole, *, mode: type[Any] | None = None, **settings: Any) -> None:
        entries = [entry("q", **settings)] if settings else []
        self.pair = Pair(broker={"settings": SettingsRepository(entries)})
        self.events: list[BlockedEvent] = []
        self.pair.broker.context.listeners.append(self._listen)
        self.other: Peer = self.pair.open(1)
        self.other.call(1, C.Queue.Declare, queue="q", durable=True)
        self.peer: Peer = self.pair.open(2, hears_blocked=True, cut=cut)
        if mode is not None:
            self.peer.send(method(1, mode))
            self.peer.take()

    def _listen(self, event: Event) -> None:
        if isinstance(event, BlockedEvent):
            self.events.append(event)

    def raise_alarm(self) -> None:
        self.pair.broker.flow.raise_alarm("tea break")

    def end_alarm(self) -> None:
        self.pair.broker.flow.end_alarm()
        self.pair.settle()

    def fill_disk(self) -> None:
        self.pair.broker.context.storage.durability = StandInJournal()
        self.pair.broker.context.storage.durability.has_failed = True

    def empty_disk(self) -> None:
        assert isinstance(self.pair.broker.context.storage.durability, StandInJournal)
        self.pair.broker.context.storage.durability.has_failed = False
        self.pair.broker.release_awaiting()
        self.pair.advance(0)  # it is told outside of a turn

    def heard(self) -> list[str]:
        """What the publisher was sent, but for connection.blocked and unblocked."""
        return [one.frame.name for one in self.peer.take() if one.channel]

    def bodies(self) -> list[bytes]:
        """What is in the queue, which is empty then."""
        return self.other.bodies("q")

    def blocked(self) -> list[tuple[str, str, int]]:
        """Who waits: destination, limit, for how many ms."""
        now_ns = self.pair.clock.monotonic_ns()
        flow = self.pair.broker.flow
        return [(one.destination, one.limit, (now_ns - one.since_ns) // 1_000_000) for one in flow.blocked()]


def test_who_waits_for_its_end_is_known_and_told() -> None:
    """As who waits for a limit: in the broker's list, and by events; the client hears the operator's reason."""
    bench = Bench()
    bench.raise_alarm()
    bench.peer.send(publish(1, "q", b"1"))
    assert bench.peer.expect(C.Connection.Blocked).reason == "tea break"
    bench.pair.advance(2000)
    assert bench.blocked() == [("broker", "alarm", 2_000)]
    bench.end_alarm()
    assert bench.blocked() == []
    assert [(one.kind, one.limit, one.waited_ms) for one in bench.events] == [
        (EventKind.BLOCKED, "alarm", 0),
        (EventKind.UNBLOCKED, "alarm", 2_000),
    ]
    assert bench.bodies() == [b"1"]


def test_too_few_nodes_in_sync_hold_publishers_and_consumers_are_served() -> None:
    """As an operator's alarm. The client gets the reason, and the limit has a name."""
    bench = Bench()
    bench.peer.send(publish(1, "q", b"0"))  # its route is cached
    bench.pair.broker.flow.raise_replication("replication: 1 of 2 nodes in sync")
    bench.peer.send(publish(1, "q", b"1"))
    assert bench.peer.expect(C.Connection.Blocked).reason == "replication: 1 of 2 nodes in sync"
    assert bench.blocked() == [("broker", "replication", 0)]
    assert bench.bodies() == [b"0"]
    bench.pair.broker.flow.end_replication()
    bench.pair.settle()
    assert bench.blocked() == [] and bench.bodies() == [b"1"]
    assert [(one.kind, one.limit) for one in bench.events] == [
        (EventKind.BLOCKED, "replication"),
        (EventKind.UNBLOCKED, "replication"),
    ]


def test_publishes_wait_until_neither_alarm_is_raised() -> None:
    """The operator's and the replication's may be raised at once, and end in any order."""
    bench = Bench()
    bench.raise_alarm()
    bench.pair.broker.flow.raise_replication("replication: 1 of 2 nodes in sync")
    bench.peer.send(publish(1, "q", b"1"))
    bench.end_alarm()
    assert bench.blocked() == [("broker", "replication", 0)]
    bench.raise_alarm()
    bench.pair.broker.flow.end_replication()
    bench.pair.settle()
    assert bench.blocked() == [("broker", "alarm", 0)] and bench.bodies() == []
    bench.end_alarm()
    assert bench.blocked() == [] and bench.bodies() == [b"1"]


def test_a_commit_waits_for_nodes_in_sync() -> None:
    """As one; a commit without publishes does not wait."""
    bench = Bench(mode=C.Tx.Select)
    bench.pair.broker.flow.raise_replication("replication: 1 of 2 nodes in sync")
    bench.peer.send(method(1, C.Tx.Commit), publish(1, "q", b"1"), method(1, C.Tx.Commit))
    assert bench.heard() == ["Tx.CommitOk"] and bench.bodies() == []
    bench.pair.broker.flow.end_replication()
    bench.pair.settle()
    assert bench.heard() == ["Tx.CommitOk"] and bench.bodies() == [b"1"]


def test_nobody_passes_those_who_wait() -> None:
    """Connections go on in the order in which they were held."""
    bench = Bench()
    bench.raise_alarm()
    bench.peer.send(publish(1, "q", b"1"), publish(1, "q", b"2"))
    bench.other.send(publish(1, "q", b"3"))
    bench.end_alarm()
    assert bench.bodies() == [b"1", b"2", b"3"]


@CUTS
@pytest.mark.parametrize(
    ("mode", "mandatory", "answer"),
    [(C.Confirm.Select, False, "Basic.Nack"), (None, True, "Basic.Return"), (None, False, "Channel.Close")],
)
def test_an_address_may_refuse_instead(mode: Any, mandatory: bool, answer: str, cut: Cut) -> None:
    """Rows 5 to 7: the queue has room, but the broker takes nothing."""
    bench = Bench(cut, mode=mode, send_fail_if_no_space=True)
    bench.raise_alarm()
    bench.peer.send(publish(1, "q", b"x", mandatory=mandatory))
    assert bench.heard() == [answer]
    assert bench.blocked() == []
    bench.end_alarm()
    assert bench.bodies() == []


def test_an_address_may_refuse_after_a_time() -> None:
    """Row 8."""
    bench = Bench(mode=C.Confirm.Select, send_fail_if_no_space_after_ms=500)
    bench.raise_alarm()
    bench.peer.send(publish(1, "q", b"x"))
    bench.pair.advance(490)
    assert bench.heard() == []
    bench.pair.advance(20)
    assert bench.heard() == ["Basic.Nack"]


@pytest.mark.parametrize("is_replication", [False, True])
def test_a_reload_may_refuse_what_it_holds(is_replication: bool) -> None:
    bench = Bench(mode=C.Confirm.Select, memory_limit=1_000_000)
    if is_replication:
        bench.pair.broker.flow.raise_replication("replication: 1 of 2 nodes in sync")
    else:
        bench.raise_alarm()
    bench.peer.send(publish(1, "q", b"x"))
    settings = SettingsRepository([entry("q", memory_limit=1_000_000, send_fail_if_no_space=True)])
    bench.pair.broker.reloading.replace_settings(settings, bench.pair.broker.context.options)
    bench.pair.settle()
    assert bench.heard() == ["Basic.Nack"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_transaction_waits_with_its_commit_or_is_refused_there(fails: bool) -> None:
    """Row 13: what is published is gathered, and also what is wrong is said at once."""
    bench = Bench(mode=C.Tx.Select, **({"send_fail_if_no_space": True} if fails else {}))
    bench.raise_alarm()
    bench.peer.send(publish(1, "q", b"1"), publish(1, "q", b"2"))
    assert bench.blocked() == [] and bench.heard() == []
    bench.peer.send(method(1, C.Tx.Commit))
    assert bench.heard() == (["Channel.Close"] if fails else [])
    bench.end_alarm()
    assert bench.heard() == ([] if fails else ["Tx.CommitOk"])
    assert bench.bodies() == ([] if fails else [b"1", b"2"])


def test_the_next_channel_of_a_number_is_held_although_the_last_one_was_transactional() -> None:
    """What a transaction found out about a route during the alarm is not remembered."""
    bench = Bench(mode=C.Tx.Select)
    bench.raise_alarm()
    bench.peer.send(publish(1, "q", b"1"))
    bench.peer.call(1, C.Channel.Close, **CLOSE)
    bench.peer.call(1, C.Channel.Open)
    bench.peer.send(publish(1, "q", b"1"))
    assert bench.blocked() == [("broker", "alarm", 0)]
    bench.end_alarm()
    assert bench.bodies() == [b"1"]


@pytest.mark.parametrize("settings", [{}, {"memory_limit": 1_000_000}], ids=["plain", "metered"])
@pytest.mark.parametrize("mixed", [False, True])
def test_what_expires_meanwhile_is_confirmed_and_not_there(settings: dict[str, Any], mixed: bool) -> None:
    """Row 15, also where no limit concerns the queue."""
    bench = Bench(mode=C.Confirm.Select, **settings)
    kinds = [{"expiration": "100"}, {}, {"expiration": "5000"}]
    run = b"".join(publish(1, "q", b"%d" % n, **kind) for n, kind in enumerate(kinds))
    bench.peer.send(run)
    assert bench.bodies() == [b"0", b"1", b"2"]
    bench.heard()
    bench.raise_alarm()
    if mixed:
        bench.peer.send(run)
    else:
        for n, kind in enumerate(kinds):
            bench.peer.send(publish(1, "q", b"%d" % n, **kind))
    bench.pair.advance(1000)
    bench.end_alarm()
    assert bench.bodies() == [b"1", b"2"]
    acks = [one.frame for one in bench.peer.take() if isinstance(one.frame, C.Basic.Ack)]
    assert acks[-1].delivery_tag == 6
    assert bench.pair.broker.context.counters.expired == 1


@pytest.mark.parametrize("expirations", [("100", "200"), ("100", "5000"), ("5000", "100")])
def test_of_a_mixed_run_each_expires_by_itself(expirations: tuple[str, str]) -> None:
    """Also where all kinds of it may expire; each is confirmed."""
    bench = Bench(mode=C.Confirm.Select)
    run = b"".join(publish(1, "q", b"%d" % n, expiration=expirations[n % 2], priority=n % 2) for n in range(6))
    for _ in range(2):
        bench.peer.send(run)
    assert len(bench.bodies()) == 12
    bench.heard()
    bench.raise_alarm()
    bench.peer.send(run)
    bench.pair.advance(1000)
    bench.end_alarm()
    assert bench.bodies() == [b"%d" % n for n in range(6) if expirations[n % 2] == "5000"]
    acks = [one.frame for one in bench.peer.take() if isinstance(one.frame, C.Basic.Ack)]
    assert acks[-1].delivery_tag == 18
    assert bench.pair.broker.context.counters.expired == 3 * expirations.count("100") + 3 * expirations.count("200")


def test_what_is_wrong_with_an_expired_publish_is_said() -> None:
    bench = Bench(mode=C.Confirm.Select)
    bench.raise_alarm()
    bench.peer.send(publish(1, "q", b"x", exchange="none", expiration="100"))
    bench.pair.advance(1000)
    bench.end_alarm()
    assert bench.heard() == ["Channel.Close"]


@pytest.mark.parametrize("close", ["channel", "connection"])
def test_without_confirms_a_close_waits_for_the_disk(close: str) -> None:
    """And with them it does not: nothing was confirmed."""
    bench = Bench()
    bench.fill_disk()
    octets = method(1, C.Channel.Close, **CLOSE) if close == "channel" else method(0, C.Connection.Close, **CLOSE)
    bench.peer.send(publish(1, "q", b"1", delivery_mode=2), octets)
    assert bench.peer.expect(C.Connection.Blocked).reason == "low on disk"
    bench.peer.expect_nothing()
    assert bench.blocked() == [("broker", "disk", 0)]
    bench.empty_disk()
    assert bench.bodies() == [b"1"]
    bench.peer.expect(C.Channel.CloseOk if close == "channel" else C.Connection.CloseOk)
    bench.pair.advance(1000)
    assert bench.blocked() == []


def test_a_close_that_waited_comes_behind_all_publishes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they take several turns: none of them is dropped."""
    bench = Bench()
    bench.other.call(1, C.Queue.Declare, queue="r")
    for queue in ("q", "r"):
        bench.other.call(1, C.Queue.Bind, queue=queue, exchange="amq.fanout")
    monkeypatch.setattr(steps, "EFFORT_MAX", 1)  # a turn handles one of them
    bench.raise_alarm()
    bench.peer.send(*(publish(1, "", b"%d" % number, exchange="amq.fanout") for number in range(5)))
    bench.peer.send(method(0, C.Connection.Close, **CLOSE))
    bench.end_alarm()
    assert bench.bodies() == [b"0", b"1", b"2", b"3", b"4"]
    assert [one.frame.name for one in bench.peer.take()] == ["Connection.Blocked", "Connection.CloseOk"]


@pytest.mark.parametrize("end", ["expelled", "stop"])
def test_a_close_of_the_broker_crosses_one_that_waits(end: str) -> None:
    """Both are said, once: the client gets the answer for which it waits, and learns that the broker closes."""
    bench = Bench()
    bench.raise_alarm()
    bench.peer.send(publish(1, "q", b"1"), method(0, C.Connection.Close, **CLOSE))
    bench.peer.expect(C.Connection.Blocked)
    bench.peer.expect_nothing()
    client = bench.peer.session.login.client
    assert client is not None
    if end == "expelled":
        client.expel(errors.ConnectionForced(reason="test"))
    else:
        bench.peer.session.closing.stop()
    assert [one.frame.name for one in bench.peer.take()] == ["Connection.Close", "Connection.CloseOk"]
    bench.end_alarm()
    bench.peer.send(HEARTBEAT_FRAME)
    bench.peer.expect_nothing()
    assert bench.bodies() == []
    bench.pair.advance(30_000)
    assert bench.peer.is_closed


def test_each_notice_says_why_the_peer_is_blocked_now() -> None:
    """Not why it was blocked before."""
    bench = Bench()
    for reason in ("tea break", "fire drill"):
        bench.pair.broker.flow.raise_alarm(reason)
        bench.peer.send(publish(1, "q", b"1"))
        assert bench.peer.expect(C.Connection.Blocked).reason == reason
        bench.end_alarm()
        bench.pair.advance(1000)
        bench.peer.expect(C.Connection.Unblocked)


def test_the_disk_may_be_full_again() -> None:
    """Before what waited for it had its turn."""
    bench = Bench()
    bench.fill_disk()
    bench.peer.send(publish(1, "q", b"1", delivery_mode=2))
    assert isinstance(bench.pair.broker.context.storage.durability, StandInJournal)
    bench.pair.broker.context.storage.durability.has_failed = False
    bench.pair.broker.release_awaiting()
    bench.pair.broker.context.storage.durability.has_failed = True
    bench.pair.settle()
    assert bench.blocked() == [("broker", "disk", 0)]
    bench.empty_disk()
    assert bench.bodies() == [b"1"]


@pytest.mark.parametrize("size", [1000, 200_000])
def test_a_close_that_waited_leaves_nothing_of_what_came_behind_it(size: int) -> None:
    """The beginning of a publish, small or in a buffer of its own: it is not counted against the connection."""
    pair = Pair()
    peer = pair.open(2)
    peer.call(2, C.Queue.Declare, queue="q")
    pair.broker.flow.raise_alarm("test")
    behind = publish(1, "q", bytes(size), body_max=size // 2)
    close = method(1, C.Channel.Close, reply_code=200, class_id=0, method_id=0)
    peer.send(publish(1, "q", b"held") + close + behind[: -size // 2 - 8])
    incomplete = peer.session.connection.incomplete
    peer.expect_nothing()
    pair.broker.flow.end_alarm()
    pair.settle()
    assert [one.frame.name for one in peer.take()] == ["Channel.CloseOk"]
    assert (incomplete.octets, incomplete.reserved, incomplete.direct) == (0, 0, None)
    assert peer.call(1, C.Channel.Open).name == "Channel.OpenOk"
    assert peer.call(2, C.Queue.Declare, queue="q", passive=True).message_count == 1
