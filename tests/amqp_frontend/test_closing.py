"""The last word: whatever is still to be said, nothing comes behind a close, and all that was out is given back.

Behaviour page 0.3, 1.1, 1.7, 1.8. Each way to end a channel or a connection, with everything pending that can be.
"""

from __future__ import annotations

from typing import Any

import pytest
from late_journal import LateJournal
from pair import Pair
from pamqp import commands as C
from peer import Cut, Peer, byte_by_byte, method, publish, whole

from leveret.engine import errors
from leveret.settings import SettingsRepository, entry

CLOSE: dict[str, Any] = {"reply_code": 200, "class_id": 0, "method_id": 0}
#: How a channel ends -> what is said, and the last word about it.
CHANNEL_ENDS: dict[str, tuple[bytes, type[Any]]] = {
    "close": (method(1, C.Channel.Close, **CLOSE), C.Channel.CloseOk),
    "unknown tag": (method(1, C.Basic.Ack, delivery_tag=1 << 40), C.Channel.Close),
    "unknown tag of a reject": (method(1, C.Basic.Reject, delivery_tag=77, requeue=True), C.Channel.Close),
}
#: The same of a connection; what the broker does by itself has no octets.
CONNECTION_ENDS: dict[str, tuple[bytes, type[Any]]] = {
    "close": (method(0, C.Connection.Close, **CLOSE), C.Connection.CloseOk),
    "wrong frame": (b"\x09" + bytes(7), C.Connection.Close),
    "not open": (method(7, C.Basic.Qos, prefetch_count=1), C.Connection.Close),
    "expelled": (b"", C.Connection.Close),
    "stop": (b"", C.Connection.Close),
}
CUTS = pytest.mark.parametrize("cut", [whole, byte_by_byte])


class Bench:
    """A peer whose channels 1 and 2 each have a delivery out, a confirm that waits, and a publish that is held."""

    def __init__(self, cut: Cut, **settings: int) -> None:
        full = entry("full", memory_limit=10, cursor="vm", **settings)
        self.pair = Pair(broker={"settings": SettingsRepository([full])})
        self.other: Peer = self.pair.open(1)
        for queue in ("a", "b", "full", "kept"):
            self.other.call(1, C.Queue.Declare, queue=queue, durable=True)
        self.peer: Peer = self.pair.open(2, heartbeat_s=10, hears_blocked=True)
        self.journal = LateJournal(self.pair.broker)
        for number, queue in ((1, "a"), (2, "b")):
            self.peer.send(method(number, C.Confirm.Select), method(number, C.Basic.Qos, prefetch_count=3))
            self.peer.send(method(number, C.Basic.Consume, queue=queue, consumer_tag=queue))
            self.other.send(publish(1, queue, b"out"))
            self.peer.send(publish(number, "kept", b"waits %d" % number, delivery_mode=2))
        self.other.send(publish(1, "full", b"fills"))
        for number in (1, 2):
            self.peer.send(publish(number, "full", b"held"))
        self.peer.take()
        self.peer.cut = cut

    def go_on(self) -> None:
        """Everything that was pending may happen now."""
        self.other.send(publish(1, "a", b"later") + publish(1, "b", b"later"))
        self.journal.commit(100)
        self.other.send(method(1, C.Basic.Get, queue="full", no_ack=True))
        self.pair.settle()
        self.pair.advance(6000)

    def bodies(self, queue: str) -> list[tuple[bytes | None, bool]]:
        """What is ready: body, and whether it was delivered before."""
        found = []
        while True:
            self.other.take()
            got = self.other.get(queue)
            if got is None:
                return found
            found.append((got.body, got.frame.redelivered))


@CUTS
@pytest.mark.parametrize("together", [True, False], ids=["in one read", "alone"])
@pytest.mark.parametrize("end", CHANNEL_ENDS)
def test_nothing_comes_behind_the_close_of_a_channel(end: str, together: bool, cut: Cut) -> None:
    """Of that channel; the other one goes on: deliveries, confirms, what it holds.

    What was published behind a held publish goes with it.
    """
    bench = Bench(cut)
    octets, last = CHANNEL_ENDS[end]
    before = publish(1, "a", b"just before") if together else b""
    bench.peer.send(before + octets)
    bench.pair.settle()
    heard = [one for one in bench.peer.take() if one.channel == 1]
    assert isinstance(heard[-1].frame, last)
    if isinstance(heard[-1].frame, C.Channel.Close):
        bench.peer.send(
            publish(1, "a", b"ignored"), method(1, C.Basic.Ack, delivery_tag=1), method(1, C.Channel.CloseOk)
        )
    bench.go_on()
    after = bench.peer.take()
    assert not [one for one in after if one.channel == 1]
    of_other = {one.frame.name for one in after if one.channel == 2}
    assert of_other == {"Basic.Deliver", "Basic.Ack"}
    assert bench.bodies("a") == [(b"out", True), (b"later", False)]
    assert bench.bodies("b") == []
    assert isinstance(bench.peer.call(1, C.Channel.Open), C.Channel.OpenOk)
    bench.peer.send(method(1, C.Confirm.Select), publish(1, "a", b"new"))
    heard = bench.peer.take()
    assert [one.frame.name for one in heard] == ["Confirm.SelectOk", "Basic.Ack"]
    assert heard[1].frame.delivery_tag == 1


@CUTS
@pytest.mark.parametrize("end", CONNECTION_ENDS)
def test_nothing_comes_behind_the_close_of_a_connection(end: str, cut: Cut) -> None:
    """Not even a heartbeat, a notice, or a confirm; until it hangs up, and when it does not."""
    bench = Bench(cut)
    octets, last = CONNECTION_ENDS[end]
    bench.peer.send(octets)
    closing = bench.peer.session.closing
    client = bench.peer.session.login.client
    assert client is not None
    if end == "expelled":
        client.expel(errors.ConnectionForced(reason="test"))
    elif end == "stop":
        closing.stop()
    heard = bench.peer.take()
    assert isinstance(heard[-1].frame, last)
    assert not bench.peer.is_closed
    bench.peer.send(publish(1, "a", b"ignored"), method(2, C.Basic.Ack, delivery_tag=1), b"\x01\x02garbage")
    bench.go_on()
    assert [one.frame.name for one in bench.peer.take()] == []
    assert bench.bodies("a") == [(b"out", True), (b"later", False)]
    assert bench.bodies("b") == [(b"out", True), (b"later", False)]
    assert bench.bodies("full") == []
    assert bench.bodies("kept") == [(b"waits 1", False), (b"waits 2", False)]
    bench.pair.advance(30000)
    assert bench.peer.is_closed and bench.peer.incoming.is_between_frames
    assert bench.pair.broker.flow.blocked() == []
    assert client.closed and not client.sessions
    bench.other.hang_up()
    assert bench.pair.broker.next_deadline_ns() is None, "a timer is left behind"


@pytest.mark.parametrize("end", ["lost", "silent"])
def test_a_connection_that_is_gone_leaves_nothing_behind(end: str) -> None:
    """All is given back, nothing is written to it, and no timer asks for it."""
    bench = Bench(whole)
    if end == "lost":
        bench.peer.hang_up()
    else:
        assert not bench.peer.session.journal.is_throttled  # it is read
        bench.pair.advance(31000)
    assert bench.peer.is_closed
    octets = len(bench.peer.incoming.octets)
    bench.go_on()
    bench.pair.advance(60000)
    assert len(bench.peer.incoming.octets) == octets
    assert bench.bodies("a") == [(b"out", True), (b"later", False)]
    assert bench.bodies("full") == []
    bench.other.hang_up()
    assert bench.pair.broker.next_deadline_ns() is None


@pytest.mark.parametrize("first", ["peer", "other"])
def test_no_timer_outlives_the_connections(first: str) -> None:
    """Heartbeats, notices, what is held for a time: with the last connection nothing is to come any more."""
    bench = Bench(whole, send_fail_if_no_space_after_ms=60_000)
    bench.journal.commit(100)
    for peer in (bench.peer, bench.other) if first == "peer" else (bench.other, bench.peer):
        peer.hang_up()
    assert bench.pair.broker.next_deadline_ns() is None
    assert not bench.pair.broker.context.awaiting


@pytest.mark.parametrize("how", CHANNEL_ENDS)
def test_a_channel_that_ends_by_an_error_has_failed_to_handle_what_was_out(how: str) -> None:
    """One attempt, after which its message is dead; what a client closes itself is no attempt (address-settings page
    7.1)."""
    pair = Pair(broker={"settings": SettingsRepository([entry("a", max_delivery_attempts=1)])})
    peer: Peer = pair.open(1)
    peer.call(1, C.Queue.Declare, queue="a")
    peer.send(method(1, C.Basic.Consume, queue="a", consumer_tag="a"), publish(1, "a", b"out"))
    queue = pair.broker.virtual_hosts["/"].queues["a"]
    assert queue.events.unacked == 1
    peer.send(CHANNEL_ENDS[how][0])
    assert (queue.ready_count, queue.events.unacked) == (int(how == "close"), 0)


def test_deliveries_of_the_turn_of_an_error_are_not_sent_behind_the_close() -> None:
    """They were on their way when the connection was refused, and are in the queue again."""
    pair = Pair()
    peer = pair.open(1)
    peer.call(1, C.Queue.Declare, queue="q")
    peer.call(1, C.Basic.Consume, queue="q", consumer_tag="c")
    peer.send(publish(1, "q", b"x") + method(1, C.Channel.Open))
    assert [one.frame.name for one in peer.take()] in (["Connection.Close"], ["Basic.Deliver", "Connection.Close"])
    assert pair.broker.virtual_hosts["/"].queues["q"].ready_count == 1


@pytest.mark.parametrize("cut_at", range(13))
@pytest.mark.parametrize("behind", [b"", b"\x08\x00\x00\x00\x00\x00\x00\xce"], ids=["", "heartbeat"])
def test_a_close_ok_instead_of_the_rest_of_a_refused_frame_arrives_in_two_reads(cut_at: int, behind: bytes) -> None:
    """Wherever it is divided: the connection ends at once, not when the time for a close-ok is over."""
    pair = Pair()
    peer = pair.open(1)
    peer.send(b"\x03\x00\x01" + (1 << 20).to_bytes(4, "big") + bytes(100))
    peer.expect(C.Connection.Close)
    peer.send(bytes(5000))
    octets = behind + method(0, C.Connection.CloseOk)
    peer.send(octets[:cut_at])
    peer.send(octets[cut_at:])
    assert peer.is_closed


@pytest.mark.parametrize("left", range(1, 25))
@pytest.mark.parametrize("cut_at", [1, 5, 11, 12, 19])
@pytest.mark.parametrize("behind", [b"", b"\x08\x00\x00\x00\x00\x00\x00\xce"], ids=["", "heartbeat"])
def test_the_rest_of_a_refused_frame_ends_inside_a_close_ok(left: int, cut_at: int, behind: bytes) -> None:
    """Its head promised so many octets more than came, and what came instead was taken for them."""
    pair = Pair()
    peer = pair.open(1)
    peer.send(b"\x03\x00\x01" + (1 << 20).to_bytes(4, "big") + bytes(100))
    peer.expect(C.Connection.Close)
    peer.send(bytes((1 << 20) + 1 - 100 - left))
    octets = behind + method(0, C.Connection.CloseOk)
    peer.send(octets[:cut_at])
    peer.send(octets[cut_at:])
    assert peer.is_closed
