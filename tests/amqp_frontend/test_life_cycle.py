"""What happens over time, and at the ends: heartbeats, handshakes, goodbyes, crossings. Virtual time throughout."""

import pytest
from pair import Pair
from pamqp import commands
from peer import LOGIN, handshake, is_heartbeat, method, publish, raw_frame
from stand_in_journal import StandInJournal

from leveret.amqp_frontend.options import FrontendOptions
from leveret.amqp_frontend.peer.login import Peer

HEARTBEAT = raw_frame(8, 0, b"")
CLOSE: dict[str, object] = {"reply_code": 200, "reply_text": "", "class_id": 0, "method_id": 0}


def heartbeats(peer: object) -> int:
    """How many heartbeats came since the last look; nothing else may have come."""
    taken = peer.take()  # type: ignore[attr-defined]
    assert all(is_heartbeat(received) for received in taken), taken
    return len(taken)


@pytest.mark.parametrize("interval_s", [1, 2, 60])
def test_a_heartbeat_leaves_whenever_half_an_interval_was_silent(interval_s: int) -> None:
    """Every interval / 2 while nothing else is sent (behaviour page 1.8), the first one too."""
    pair = Pair()
    peer = pair.open(heartbeat_s=interval_s)
    for _ in range(10):
        pair.advance(1000 * interval_s / 2)
        peer.send(HEARTBEAT)
        assert heartbeats(peer) == 1


@pytest.mark.parametrize("after_s", [0, 0.1, 0.5, 0.9, 1, 1.1, 1.5, 1.9, 2.1])
@pytest.mark.parametrize("by", ["an answer", "a delivery"])
def test_no_two_sends_are_further_apart_than_half_an_interval(after_s: float, by: str) -> None:
    """Whatever was sent, and whenever: clients count from the last octet that came (RabbitMQ leaves up to a whole
    interval after an answer; Java's client on Netty hangs up then)."""
    pair = Pair()
    peer, other = pair.open(heartbeat_s=2), pair.open()
    peer.call(1, commands.Queue.Declare, queue="q")
    peer.call(1, commands.Basic.Consume, queue="q", no_ack=True)
    pair.advance(1000 * after_s)
    peer.take()
    if by == "an answer":
        peer.call(1, commands.Basic.Qos, prefetch_count=1)
    else:
        other.send(publish(1, "q", b"x"))
        peer.expect(commands.Basic.Deliver)
    for _ in range(4):
        pair.advance(999)
        peer.expect_nothing()
        pair.advance(1)
        assert heartbeats(peer) == 1
        peer.send(HEARTBEAT)


def test_traffic_takes_the_place_of_heartbeats() -> None:
    """When something was sent in the last half interval, no heartbeat is."""
    pair = Pair()
    peer = pair.open(heartbeat_s=2)
    for _ in range(12):
        pair.advance(990)
        peer.call(1, commands.Basic.Qos, prefetch_count=1)


def test_heartbeats_do_not_wait_for_the_disk() -> None:
    """An answer that waits for the journal is held back; the connection is alive all the same."""
    pair = Pair()
    peer = pair.open(heartbeat_s=2)
    pair.broker.context.storage.durability = StandInJournal()
    peer.session.journal.send_answer_after(7, 1)
    peer.send(method(1, commands.Basic.Qos, prefetch_count=1))
    peer.expect_nothing()
    for _ in range(3):
        pair.advance(1000)
        assert heartbeats(peer) == 1
    peer.session.journal.sync_lsn = 0
    pair.advance(1000)
    peer.expect(commands.Basic.QosOk)


def test_heartbeats_of_a_peer_that_does_not_read_are_not_gathered() -> None:
    """One is enough when the socket has room again."""
    pair = Pair()
    peer = pair.open(heartbeat_s=2)
    peer.is_reading = False
    for _ in range(20):
        pair.advance(1000)
        peer.send(HEARTBEAT)
    peer.resume()
    assert heartbeats(peer) == 1


def test_a_silent_peer_is_dropped_between_two_and_three_intervals() -> None:
    """Without a word: no connection.close, just the end of the socket (1.8)."""
    pair = Pair()
    peer = pair.open(heartbeat_s=2)
    pair.advance(3900)
    assert not peer.is_closed
    pair.advance(2100)
    assert peer.is_closed and peer.has_reset
    assert all(is_heartbeat(received) for received in peer.take())


def test_any_octet_counts_as_a_sign_of_life() -> None:
    """Partial frames too."""
    pair = Pair()
    peer = pair.open(heartbeat_s=2)
    frame = publish(1, "q", b"x" * 20)
    for octet in frame[:12]:
        pair.advance(1900)
        peer.send(bytes((octet,)))
    assert not peer.is_closed


def test_heartbeat_zero_means_none_in_either_direction() -> None:
    """Hours of silence are fine (1.5)."""
    pair = Pair()
    peer = pair.open(heartbeat_s=0)
    pair.advance(100000000)
    assert not peer.is_closed
    peer.expect_nothing()


def test_the_client_s_heartbeat_is_used_even_if_larger_than_offered() -> None:
    """The server obeys (trap 5)."""
    pair = Pair(FrontendOptions(heartbeat_s=10))
    peer = pair.open(heartbeat_s=1000)
    pair.advance(499000)
    peer.expect_nothing()
    pair.advance(1000)
    assert heartbeats(peer) == 1


def test_handshake_timeout_counts_from_accept_to_open() -> None:
    """10 s from accept until running; the socket just ends (1.1)."""
    pair = Pair()
    slow, fast = pair.open(None), pair.open(None)
    for burst in handshake():
        slow.send(burst[:-1])
        break
    fast.send(*handshake())
    pair.advance(9900)
    assert not slow.is_closed
    pair.advance(200)
    assert slow.is_closed and slow.has_reset
    assert not fast.is_closed


def test_a_refused_login_is_silent_for_three_seconds() -> None:
    """No connection.close without the capability; then the socket ends (trap 3)."""
    pair = Pair()
    peer = pair.open(None, frontend={"refused_login_delay_ms": 3000})
    peer.send(handshake()[0], method(0, commands.Connection.StartOk, mechanism="PLAIN", response="\0guest\0wrong"))
    peer.expect(commands.Connection.Start)
    pair.advance(2900)
    assert not peer.is_closed
    peer.expect_nothing()
    pair.advance(200)
    assert peer.is_closed and peer.has_reset


def test_after_close_ok_the_peer_hangs_up_or_is_hung_up_on() -> None:
    """The socket stays open for the client to close, 30 s at most (trap 77)."""
    pair = Pair()
    polite, lazy = pair.open(), pair.open()
    for peer in (polite, lazy):
        assert isinstance(peer.call(0, commands.Connection.Close, **CLOSE), commands.Connection.CloseOk)
        assert not peer.is_closed
    polite.hang_up()
    pair.advance(29000)
    assert not lazy.is_closed
    pair.advance(2000)
    assert lazy.is_closed


def test_a_close_that_is_not_answered_ends_by_itself() -> None:
    """Server close, no close-ok: dropped after min(heartbeat, 30) s."""
    pair = Pair()
    peer = pair.open(heartbeat_s=4)
    peer.send(raw_frame(99, 0, b"abc"))
    peer.expect(commands.Connection.Close)
    pair.advance(3000)
    assert not peer.is_closed
    pair.advance(1100)
    assert peer.is_closed


@pytest.mark.parametrize("bursts", [0, 1, 2])
def test_a_broker_that_stops_does_not_wait_for_strangers(bursts: int) -> None:
    """Who is not logged in would not understand a close: the socket is closed at once."""
    peer = Pair().open(None)
    peer.send(*handshake()[:bursts])
    peer.take()
    peer.session.closing.stop()
    assert peer.is_closed
    peer.expect_nothing()


def test_closes_that_cross_are_both_answered() -> None:
    """Both sides close at once: the peer's close is answered, its close-ok ends it (1.7)."""
    pair = Pair()
    peer = pair.open()
    peer.session.closing.stop()
    peer.expect(commands.Connection.Close)
    peer.send(method(0, commands.Connection.Close, **CLOSE))
    peer.expect(commands.Connection.CloseOk)
    assert not peer.is_closed
    peer.send(method(0, commands.Connection.CloseOk))
    assert peer.is_closed


def test_channel_closes_that_cross_leave_the_number_usable() -> None:
    """channel.close against channel.close: answered; the number opens again with or without a late close-ok."""
    for late_close_ok in (True, False):
        pair = Pair()
        peer = pair.open()
        peer.send(
            method(1, commands.Basic.Ack, delivery_tag=9)
            + method(1, commands.Channel.Close, **CLOSE)
            + publish(1, "q", b"ignored")
        )
        peer.expect(commands.Channel.Close)
        peer.expect(commands.Channel.CloseOk)
        if late_close_ok:
            peer.send(method(1, commands.Channel.CloseOk))
        assert isinstance(peer.call(1, commands.Channel.Open), commands.Channel.OpenOk)
        assert isinstance(peer.call(1, commands.Basic.Qos, prefetch_count=1), commands.Basic.QosOk)


def test_the_end_of_a_virtual_host_cancels_no_consumers() -> None:
    """RabbitMQ deletes the queues first, so that each consumer gets basic.cancel, and then closes the connection."""
    pair = Pair()
    peer = pair.open()
    peer.call(1, commands.Queue.Declare, queue="q")
    peer.call(1, commands.Basic.Consume, queue="q")
    pair.broker.virtual_hosts.delete("/")
    pair.settle()
    (closed,) = peer.take()
    assert closed.frame.reply_text == "CONNECTION_FORCED - vhost '/' is deleted"


def test_confirms_are_sent_before_close_ok() -> None:
    """What was published is confirmed, also when the close comes in the same read (docs/DEVIATIONS.md)."""
    pair = Pair()
    peer = pair.open()
    peer.call(1, commands.Confirm.Select)
    peer.send(publish(1, "q", b"x") + publish(1, "q", b"y") + method(1, commands.Channel.Close, **CLOSE))
    assert peer.expect(commands.Basic.Ack).delivery_tag == 2
    peer.expect(commands.Channel.CloseOk)


def test_flow_stops_and_starts_deliveries() -> None:
    """channel.flow(active=false) is honoured in our own profile (ruling 15)."""
    pair = Pair()
    peer = pair.open()
    peer.call(1, commands.Queue.Declare, queue="q")
    peer.call(1, commands.Basic.Consume, queue="q", no_ack=True)
    assert peer.call(1, commands.Channel.Flow, active=False).active is False
    peer.send(publish(1, "q", b"later"))
    peer.expect_nothing()
    peer.send(method(1, commands.Channel.Flow, active=True))
    assert peer.expect(commands.Channel.FlowOk).active is True
    assert peer.expect_content(commands.Basic.Deliver).body == b"later"


def test_flow_is_not_implemented_in_rabbitmq_profiles() -> None:
    """540 on the connection, as RabbitMQ answers."""
    pair = Pair(FrontendOptions(honours_flow=False))
    peer = pair.open()
    close = peer.call(1, commands.Channel.Flow, active=False)
    assert (close.reply_code, close.reply_text) == (540, "NOT_IMPLEMENTED - active=false")


@pytest.mark.parametrize("mechanism, is_allowed", [("ANONYMOUS", True), ("EXTERNAL", False)])
def test_other_mechanisms_work_where_they_are_offered(mechanism: str, is_allowed: bool) -> None:
    """ANONYMOUS logs in as a configured user; EXTERNAL needs a certificate; both are off by default."""
    pair = Pair(FrontendOptions(mechanisms=("PLAIN", mechanism), refused_login_delay_ms=0))
    peer = pair.open(None, facts=Peer("over TLS", is_loopback=True, is_secured=True))
    peer.send(handshake()[0], method(0, commands.Connection.StartOk, mechanism=mechanism, response="trace"))
    assert mechanism in peer.expect(commands.Connection.Start).mechanisms
    if is_allowed:
        peer.expect(commands.Connection.Tune)
    else:
        assert peer.is_closed
    silent = Pair(FrontendOptions(refused_login_delay_ms=0)).open(None)
    silent.send(handshake()[0], method(0, commands.Connection.StartOk, mechanism=mechanism, response="trace"))
    assert silent.is_closed


def test_update_secret_is_accepted() -> None:
    """With password users it changes nothing (1.10)."""
    peer = Pair().open()
    answer = peer.call(0, commands.Connection.UpdateSecret, new_secret="s", reason="r")
    assert isinstance(answer, commands.Connection.UpdateSecretOk)


def test_guest_logs_in_from_loopback_only() -> None:
    """A peer from elsewhere gets the same 403 as a wrong password."""
    from leveret.amqp_frontend.peer.login import MECHANISMS
    from leveret.engine.errors import LoginRefused
    from leveret.serving.composition import default_users

    plain = MECHANISMS["PLAIN"]
    assert plain(b"\0guest\0guest", default_users(), Peer("x", True), "guest").is_administrator
    with pytest.raises(LoginRefused):
        plain(b"\0guest\0guest", default_users(), Peer("x", False), "guest")


@pytest.mark.parametrize(
    ("sent", "is_accepted"), [(HEARTBEAT, True), (raw_frame(3, 0, b""), False)], ids=["heartbeat", "body"]
)
def test_of_frames_before_the_connection_is_open_only_a_heartbeat_is_no_error(sent: bytes, is_accepted: bool) -> None:
    """A client may begin its heartbeats as soon as they are agreed; a content has no channel yet."""
    peer = Pair().open(None)
    *before, opening = handshake(heartbeat_s=60)
    peer.send(*before, sent, opening)
    last = peer.take()[-1].frame
    assert isinstance(last, commands.Connection.OpenOk if is_accepted else commands.Connection.Close)
    assert is_accepted or last.reply_code == 505


def test_a_broker_that_stops_says_so_to_a_client_that_opens() -> None:
    """It is logged in, and understands a close."""
    pair = Pair()
    peer = pair.open(None)
    header, start_ok, tune_ok, _ = handshake()
    peer.send(header, start_ok, tune_ok)
    peer.take()
    peer.session.closing.stop()
    assert [one.frame.name for one in peer.take()] == ["Connection.Close"] and not peer.is_closed


def test_a_capability_that_is_false_is_none() -> None:
    """A client that says so does not hear connection.blocked."""
    pair = Pair()
    peer = pair.open(None)
    header, _, *others = handshake()
    properties = {"capabilities": {"connection.blocked": False}}
    start_ok = method(
        0, commands.Connection.StartOk, client_properties=properties, mechanism="PLAIN", response=LOGIN.decode()
    )
    peer.send(header, start_ok, *others)
    peer.take()
    peer.call(1, commands.Channel.Open)
    peer.call(1, commands.Queue.Declare, queue="q")
    pair.broker.flow.raise_alarm("test")
    peer.send(publish(1, "q", b"x"))
    assert pair.broker.flow.blocked()
    peer.expect_nothing()
