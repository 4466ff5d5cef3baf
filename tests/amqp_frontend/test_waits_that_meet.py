"""Two waits of one connection at once: parked publishes beside an alarm that an operator ends, a full disk beside a
transaction, a close beside what was begun. Queues page E.4, E.5."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pair import Pair
from pamqp import commands as C
from peer import OPTIONS, Cut, byte_by_byte, method, publish, whole
from stand_in_journal import StandInJournal

from leveret.engine import ServiceExchange
from leveret.settings import SettingsRepository, entry

CUTS = pytest.mark.parametrize("cut", [whole, byte_by_byte])
CALM_MS = 200


@CUTS
def test_a_request_to_a_service_passes_an_alarm(cut: Cut) -> None:
    """So that an operator can end it."""
    pair = Pair()
    asked: list[bytes] = []
    service = ServiceExchange("service", lambda envelope, content: asked.append(content))
    pair.broker.virtual_hosts["/"].exchanges["service"] = service
    pair.broker.flow.raise_alarm("test")
    peer = pair.open(1, cut=cut)
    peer.call(1, C.Confirm.Select)
    peer.send(publish(1, "k", b"end it", exchange="service"))
    assert len(asked) == 1 and isinstance(peer.expect(C.Basic.Ack), C.Basic.Ack)


@CUTS
def test_a_transaction_can_be_rolled_back_while_the_disk_is_full(cut: Cut) -> None:
    """Its publishes wait at the commit: nothing is parked before, and the rollback is answered at once."""
    pair = Pair(broker={"settings": SettingsRepository([entry("q", disk_full_policy="BLOCK")])})
    peer = pair.open(1, cut=cut)
    peer.call(1, C.Queue.Declare, queue="q", durable=True)
    peer.call(1, C.Tx.Select)
    journal = pair.broker.context.storage.durability = StandInJournal()
    journal.has_failed = True
    peer.send(publish(1, "q", b"x", delivery_mode=2), method(1, C.Tx.Rollback))
    pair.settle()
    peer.expect(C.Tx.RollbackOk)
    assert not peer.session.backlog.parking.channels


@CUTS
def test_a_publish_that_expired_while_it_was_parked_is_checked_all_the_same(cut: Cut) -> None:
    """Its exchange was deleted meanwhile: the channel is closed, as for any other publish there."""
    pair = Pair()
    other, peer = pair.open(1), pair.open(1, cut=cut)
    other.call(1, C.Exchange.Declare, exchange="x", exchange_type="fanout")
    peer.call(1, C.Confirm.Select)
    pair.broker.flow.raise_alarm("test")
    peer.send(publish(1, "k", b"x", exchange="x", expiration="100"))
    other.call(1, C.Exchange.Delete, exchange="x")
    pair.advance(200)
    pair.broker.flow.end_alarm()
    pair.settle()
    assert peer.expect(C.Channel.Close).reply_code == 404


@CUTS
def test_who_is_blocked_a_second_time_is_not_unblocked_by_the_first(cut: Cut) -> None:
    """A notice was due for channel 1, and came earlier for channel 2: it stands as long as both wait."""
    pair = Pair(broker={"settings": SettingsRepository([entry("q", memory_limit=10, cursor="vm")])})
    other, peer = pair.open(1), pair.open(2, hears_blocked=True, cut=cut)
    other.call(1, C.Queue.Declare, queue="q")
    other.send(publish(1, "q", b"fills"))
    pair.advance(1000)
    peer.send(publish(1, "q", b"is parked"))
    peer.expect(C.Connection.Blocked)
    other.send(method(1, C.Basic.Get, queue="q", no_ack=True), method(1, C.Basic.Get, queue="q", no_ack=True))
    pair.settle()
    pair.advance(CALM_MS)
    peer.expect(C.Connection.Unblocked)
    other.send(publish(1, "q", b"fills"))
    pair.advance(CALM_MS // 2)
    peer.send(publish(1, "q", b"is parked"))
    pair.advance(CALM_MS * 3 // 4)
    peer.send(publish(2, "q", b"is parked, too"))
    peer.take()
    for _ in range(10):
        pair.advance(CALM_MS)
        assert not [one for one in peer.take() if isinstance(one.frame, C.Connection.Unblocked)]


@CUTS
def test_what_was_begun_behind_a_close_that_waits_counts_no_more(cut: Cut) -> None:
    """The half of a message: the channels of the connection may begin as many again."""
    pair = Pair()
    peer = pair.open(2, cut=cut)
    peer.call(1, C.Queue.Declare, queue="q")
    pair.broker.flow.raise_alarm("test")
    message = publish(1, "q", b"y" * 300, body_max=100)
    close = method(1, C.Channel.Close, reply_code=200, class_id=0, method_id=0)
    peer.send(publish(1, "q", b"is parked"), close, message[: len(message) - 108])
    assert peer.session.connection.incomplete.octets == 200
    pair.broker.flow.end_alarm()
    pair.settle()
    peer.go_on()
    peer.expect(C.Channel.CloseOk)
    assert peer.session.connection.incomplete.octets == 0
    assert not peer.session.backlog.parking.channels


@CUTS
@pytest.mark.parametrize("end", [C.Connection.CloseOk, C.Channel.CloseOk], ids=["connection", "channel"])
def test_deliveries_come_before_the_answer_to_a_close(
    end: type[C.Connection.CloseOk | C.Channel.CloseOk], cut: Cut
) -> None:
    """Those of a consumer without acknowledgements have left the queue: they would be lost."""
    pair = Pair()
    other, peer = pair.open(1), pair.open(1, cut=cut)
    other.call(1, C.Queue.Declare, queue="q")
    other.send(publish(1, "q", b"a") + publish(1, "q", b"b"))
    number, close = (0, C.Connection.Close) if end is C.Connection.CloseOk else (1, C.Channel.Close)
    consume = method(1, C.Basic.Consume, queue="q", consumer_tag="c", no_ack=True)
    peer.send(consume + method(number, close, reply_code=200, class_id=0, method_id=0))
    assert [type(one.frame) for one in peer.take()] == [C.Basic.ConsumeOk, C.Basic.Deliver, C.Basic.Deliver, end]


@CUTS
def test_a_message_that_is_too_large_follows_one_of_its_kind(cut: Cut) -> None:
    """The route is known by then; the message is refused, and none without its body is in the queue."""
    pair = Pair(replace(OPTIONS, message_size_max=100))
    other, peer = pair.open(1), pair.open(1, cut=cut)
    other.call(1, C.Queue.Declare, queue="q")
    peer.send(publish(1, "q", b"fits"))
    peer.send(publish(1, "q", b"x" * 101))
    assert peer.expect(C.Channel.Close).reply_code == 406
    assert other.bodies("q") == [b"fits"]
