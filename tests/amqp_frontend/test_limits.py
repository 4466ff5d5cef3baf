"""Rules of queues in virtual time: expiry, limits, dead letters. Source: behaviour page 3.2 to 3.4."""

from typing import Any

import pytest
from pair import Pair
from pamqp import commands
from peer import Peer, method, publish

C = commands


def declare(peer: Peer, queue: str, **arguments: Any) -> None:
    """queue.declare with arguments, underscores for dashes."""
    peer.call(1, C.Queue.Declare, queue=queue, arguments={key.replace("_", "-"): arguments[key] for key in arguments})


def ready(peer: Peer, queue: str) -> int:
    """Ready messages, as declare-ok counts them."""
    return int(peer.call(1, C.Queue.Declare, queue=queue, passive=True).message_count)


def get(peer: Peer, queue: str) -> Any:
    """The next message taken with no_ack, or None."""
    peer.send(method(1, C.Basic.Get, queue=queue, no_ack=True))
    if isinstance(peer.received[0].frame, C.Basic.GetEmpty):
        peer.expect(C.Basic.GetEmpty)
        return None
    return peer.expect_content(C.Basic.GetOk)


@pytest.fixture
def pair() -> Pair:
    """A broker on virtual time."""
    return Pair()


@pytest.fixture
def peer(pair: Pair) -> Peer:
    """A connection with channel 1 open, and the queue `dead`."""
    peer = pair.open()
    declare(peer, "dead")
    return peer


DEAD = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}


@pytest.mark.parametrize(
    "queue_ttl, expiration, lives_ms", [(1000, None, 1000), (None, "500", 500), (1000, "500", 500), (500, "1000", 500)]
)
def test_the_smaller_time_to_live_counts(
    pair: Pair, peer: Peer, queue_ttl: int | None, expiration: str | None, lives_ms: int
) -> None:
    """min(queue ttl, expiration), exactly on time (trap 54)."""
    declare(peer, "q", **({"x_message_ttl": queue_ttl} if queue_ttl else {}), **DEAD)
    peer.send(publish(1, "q", b"x", **({"expiration": expiration} if expiration else {})))
    pair.advance(1000 * (lives_ms - 1) / 1000)
    assert (ready(peer, "q"), ready(peer, "dead")) == (1, 0)
    pair.advance(1)
    assert (ready(peer, "q"), ready(peer, "dead")) == (0, 1)


def test_requeueing_does_not_restart_the_clock(pair: Pair, peer: Peer) -> None:
    """A message that expired while it was out goes as soon as it is back (trap 54)."""
    declare(peer, "q", x_message_ttl=1000, **DEAD)
    peer.send(publish(1, "q", b"x"))
    peer.send(method(1, C.Basic.Get, queue="q"))
    tag = peer.expect(C.Basic.GetOk).delivery_tag
    pair.advance(5000)
    assert ready(peer, "dead") == 0  # not while it is out
    peer.send(method(1, C.Basic.Nack, delivery_tag=tag, requeue=True))
    assert (ready(peer, "q"), ready(peer, "dead")) == (0, 1)


def test_an_expired_message_behind_one_that_lives_waits(pair: Pair, peer: Peer) -> None:
    """Per-message expiry is looked at at the head only; hidden ones still count, and are never delivered (trap 52)."""
    declare(peer, "q", **DEAD)
    peer.send(publish(1, "q", b"long", expiration="10000") + publish(1, "q", b"short", expiration="10"))
    pair.advance(1000)
    assert ready(peer, "q") == 2
    assert get(peer, "q").body == b"long"
    assert (ready(peer, "q"), ready(peer, "dead")) == (0, 1)
    assert get(peer, "q") is None


def test_time_to_live_zero_delivers_or_expires(pair: Pair, peer: Peer) -> None:
    """A waiting consumer gets it; get never sees it (trap 53)."""
    declare(peer, "q", x_message_ttl=0, **DEAD)
    peer.send(publish(1, "q", b"nobody"))
    assert (ready(peer, "q"), ready(peer, "dead")) == (0, 1)
    peer.call(1, C.Basic.Consume, queue="q", consumer_tag="t")
    peer.send(publish(1, "q", b"somebody"))
    assert peer.expect_content(C.Basic.Deliver).body == b"somebody"
    assert ready(peer, "dead") == 1


def test_consumers_never_get_expired_messages(pair: Pair, peer: Peer) -> None:
    """A consumer that comes late gets only what lives."""
    declare(peer, "q")
    for body, expiration in ((b"dies", "10"), (b"lives", "100000"), (b"dies too", "10")):
        peer.send(publish(1, "q", body, expiration=expiration))
    pair.advance(1000)
    peer.send(method(1, C.Basic.Consume, queue="q", no_ack=True))
    peer.expect(C.Basic.ConsumeOk)
    assert peer.expect_content(C.Basic.Deliver).body == b"lives"
    peer.expect_nothing()


def test_a_loop_of_expiry_ends_and_a_loop_of_rejection_goes_on(pair: Pair, peer: Peer) -> None:
    """A ttl queue that dead-letters to itself is emptied; with a rejection in the loop it is kept (trap 58)."""
    declare(peer, "q", x_message_ttl=10, x_dead_letter_exchange="", x_dead_letter_routing_key="q")
    peer.send(publish(1, "q", b"x"))
    pair.advance(1000)
    assert ready(peer, "q") == 0
    declare(peer, "r", x_dead_letter_exchange="", x_dead_letter_routing_key="r")
    peer.send(publish(1, "r", b"x"))
    for count in (1, 2, 3):
        peer.send(method(1, C.Basic.Get, queue="r"))
        got = peer.expect_content(C.Basic.GetOk)
        peer.send(method(1, C.Basic.Reject, delivery_tag=got.frame.delivery_tag, requeue=False))
        peer.send(method(1, C.Basic.Get, queue="r"))
        got = peer.expect_content(C.Basic.GetOk)
        headers: Any = got.properties.headers
        assert headers["x-death"][0]["count"] == count
        peer.send(method(1, C.Basic.Nack, delivery_tag=got.frame.delivery_tag, requeue=True))


def test_a_missing_dead_letter_exchange_drops_silently(pair: Pair, peer: Peer) -> None:
    """It need not exist; at death it is looked for (trap 59)."""
    declare(peer, "q", x_message_ttl=10, x_dead_letter_exchange="nowhere")
    peer.send(publish(1, "q", b"x"))
    pair.advance(1000)
    assert ready(peer, "q") == 0
    assert pair.broker.statistics().counters["expired"] == 1


def test_queues_expire_when_nobody_uses_them(pair: Pair, peer: Peer) -> None:
    """x-expires: consumers, gets and redeclarations count as use, publishing does not (3.2)."""
    declare(peer, "q", x_expires=1000)
    pair.advance(900)
    declare(peer, "q", x_expires=1000)
    pair.advance(900)
    assert get(peer, "q") is None
    pair.advance(900)
    peer.call(1, C.Basic.Consume, queue="q", consumer_tag="t")
    pair.advance(100000)
    assert "q" in pair.broker.virtual_hosts["/"].queues
    peer.call(1, C.Basic.Cancel, consumer_tag="t")
    pair.advance(500)
    peer.send(publish(1, "q", b"does not count"))
    pair.advance(500)
    assert "q" not in pair.broker.virtual_hosts["/"].queues
    assert ready(peer, "dead") == 0
    assert pair.broker.next_deadline_ns() is None


def test_drop_head_keeps_the_newest(pair: Pair, peer: Peer) -> None:
    """Dropped from the head, dead-lettered with reason maxlen (3.3)."""
    declare(peer, "q", x_max_length=2, **DEAD)
    for body in (b"1", b"2", b"3"):
        peer.send(publish(1, "q", body))
    assert (ready(peer, "q"), ready(peer, "dead")) == (2, 1)
    dead = get(peer, "dead")
    assert dead.body == b"1"
    assert dead.properties.headers["x-death"][0]["reason"] == "maxlen"


@pytest.mark.parametrize("overflow, dead", [("reject-publish", 0), ("reject-publish-dlx", 1)])
def test_reject_publish_nacks_exactly_the_refused(pair: Pair, peer: Peer, overflow: str, dead: int) -> None:
    """In a run of publishes only those above the limit are nacked; with -dlx they leave a dead letter."""
    declare(peer, "q", x_max_length=2, x_overflow=overflow, **DEAD)
    peer.call(1, C.Confirm.Select)
    peer.send(publish(1, "q", b"1") + publish(1, "q", b"2") + publish(1, "q", b"3") + publish(1, "other", b"4"))
    assert peer.expect(C.Basic.Ack).delivery_tag == 2
    nack = peer.expect(C.Basic.Nack)
    assert (nack.delivery_tag, nack.multiple) == (3, False)
    assert peer.expect(C.Basic.Ack).delivery_tag == 4
    assert (ready(peer, "q"), ready(peer, "dead")) == (2, dead)


def test_bytes_are_bodies_and_limits_hold_for_them(pair: Pair, peer: Peer) -> None:
    """x-max-length-bytes counts ready bodies only."""
    declare(peer, "q", x_max_length_bytes=10)
    for body in (b"12345", b"67890", b"x"):
        peer.send(publish(1, "q", body, message_id="m" * 50))
    assert ready(peer, "q") == 2
    assert get(peer, "q").body == b"67890"
    peer.send(publish(1, "q", b"0123456789"))
    assert get(peer, "q").body == b"0123456789"


def test_a_requeued_message_keeps_its_level(pair: Pair, peer: Peer) -> None:
    """Back to its own priority level, at its place (3.5)."""
    declare(peer, "q", x_max_priority=9)
    for body, priority in ((b"low", 1), (b"high 1", 5), (b"high 2", 5)):
        peer.send(publish(1, "q", body, priority=priority))
    peer.send(method(1, C.Basic.Get, queue="q"))
    first = peer.expect_content(C.Basic.GetOk)
    assert first.body == b"high 1"
    peer.send(method(1, C.Basic.Nack, delivery_tag=first.frame.delivery_tag, requeue=True))
    assert [get(peer, "q").body for _ in range(3)] == [b"high 1", b"high 2", b"low"]


def test_limit_zero_delivers_only_at_once(pair: Pair, peer: Peer) -> None:
    """Every message is dropped unless a consumer waits for it (3.3)."""
    declare(peer, "q", x_max_length=0)
    peer.send(publish(1, "q", b"dropped"))
    assert ready(peer, "q") == 0
    peer.call(1, C.Basic.Consume, queue="q", no_ack=True)
    peer.send(publish(1, "q", b"taken"))
    assert peer.expect_content(C.Basic.Deliver).body == b"taken"
    assert pair.broker.statistics().counters["dropped"] == 1


def test_a_chain_of_limits_does_not_recurse(pair: Pair, peer: Peer) -> None:
    """A thousand full queues, each dead-lettering into the next: one publish ripples through all of them."""
    for number in range(1000):
        target = f"q{number + 1}"
        declare(peer, f"q{number}", x_max_length=1, x_dead_letter_exchange="", x_dead_letter_routing_key=target)
    declare(peer, "q1000")
    for number in range(1000):
        peer.send(publish(1, f"q{number}", b"x"))
    peer.send(publish(1, "q0", b"one too many"))
    assert ready(peer, "q1000") == 1


def test_a_channel_that_is_confirmed_before_its_error(pair: Pair, peer: Peer) -> None:
    """What stood before the error in the same read is confirmed first."""
    peer.call(1, C.Confirm.Select)
    peer.send(publish(1, "dead", b"x") + publish(1, "k", b"y", exchange="missing"))
    assert peer.expect(C.Basic.Ack).delivery_tag == 1
    assert peer.expect(C.Channel.Close).reply_code == 404
