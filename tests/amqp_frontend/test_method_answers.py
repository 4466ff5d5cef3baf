"""Which methods are answered, and with what: `nowait`, counts, names with line ends, and what tune-ok may say."""

from dataclasses import replace
from typing import Any

import pytest
from pair import Pair
from pamqp import commands as C
from peer import OPTIONS, method, publish

from leveret.amqp_frontend.session.handling import handle_bytes

#: Methods with `nowait`, and their arguments; in an order in which each of them is done.
WITH_NOWAIT: list[tuple[Any, dict[str, Any]]] = [
    (C.Exchange.Declare, {"exchange": "x", "exchange_type": "fanout"}),
    (C.Exchange.Declare, {"exchange": "y", "exchange_type": "fanout"}),
    (C.Exchange.Bind, {"source": "x", "destination": "y"}),
    (C.Queue.Declare, {"queue": "q"}),
    (C.Queue.Bind, {"queue": "q", "exchange": "y"}),
    (C.Queue.Purge, {"queue": "q"}),
    (C.Basic.Consume, {"queue": "q", "consumer_tag": "c"}),
    (C.Basic.Cancel, {"consumer_tag": "c"}),
    (C.Exchange.Unbind, {"source": "x", "destination": "y"}),
    (C.Queue.Delete, {"queue": "q"}),
    (C.Exchange.Delete, {"exchange": "x"}),
    (C.Exchange.Delete, {"exchange": "y"}),
    (C.Confirm.Select, {}),
]


@pytest.mark.parametrize("nowait", [True, False])
def test_a_method_is_answered_unless_it_says_nowait(nowait: bool) -> None:
    """Once each, in order; and it is done in both cases."""
    peer = Pair().open()
    peer.send(*(method(1, kind, nowait=nowait, **fields) for kind, fields in WITH_NOWAIT))
    answers = [type(one.frame).__name__ for one in peer.take()]
    assert answers == ([] if nowait else [f"{kind.__name__}Ok" for kind, _ in WITH_NOWAIT])
    peer.send(method(1, C.Exchange.Declare, exchange="x", passive=True))
    assert peer.expect(C.Channel.Close).reply_code == 404


def test_a_declaration_counts_what_is_left_after_deliveries() -> None:
    """What was given back in the same read is out again."""
    pair = Pair()
    peer = pair.open(2)
    peer.call(1, C.Queue.Declare, queue="q")
    peer.send(method(1, C.Basic.Consume, queue="q", consumer_tag="c"))
    peer.send(publish(1, "q", b"a"))
    peer.take()
    handle_bytes(
        peer.session, method(1, C.Basic.Nack, delivery_tag=1, requeue=True) + method(2, C.Queue.Declare, queue="q")
    )
    pair.settle()
    (answer,) = (one.frame for one in peer.take() if isinstance(one.frame, C.Queue.DeclareOk))
    assert (answer.message_count, answer.consumer_count) == (0, 1)


def test_line_ends_are_removed_from_names_wherever_an_object_is_named() -> None:
    """So that what was declared with them is found with them, and without."""
    pair = Pair()
    peer = pair.open()
    host = pair.vhost
    peer.call(1, C.Exchange.Declare, exchange="x\r\n", exchange_type="fanout")
    peer.call(1, C.Exchange.Declare, exchange="y\n", exchange_type="fanout")
    peer.call(1, C.Queue.Declare, queue="\nq\r")
    peer.call(1, C.Queue.Bind, queue="q\n", exchange="x\n")
    peer.call(1, C.Exchange.Bind, source="x\r", destination="\ny")
    assert len(host.exchanges["x"].bindings) == 2
    peer.call(1, C.Queue.Unbind, queue="q\n", exchange="x\n")
    peer.call(1, C.Exchange.Unbind, source="x\r", destination="\ny")
    assert not host.exchanges["x"].bindings
    peer.call(1, C.Queue.Delete, queue="q\r")
    peer.call(1, C.Exchange.Delete, exchange="x\n")
    assert "q" not in host.queues and "x" not in host.exchanges


@pytest.mark.parametrize(
    ("ours", "theirs", "code"),
    [
        ({"frame_max": 0}, {"frame_max": 0}, 0),
        ({"frame_max": 0}, {"frame_max": 4095}, 530),
        ({"frame_max": 8192}, {"frame_max": 4096}, 0),
        ({"frame_max": 8192}, {"frame_max": 8192}, 0),
        ({"frame_max": 8192}, {"frame_max": 8193}, 530),
        ({"frame_max": 8192}, {"frame_max": 0}, 530),
        ({"channel_max": 0}, {"channel_max": 0}, 0),
        ({"channel_max": 5}, {"channel_max": 5}, 0),
        ({"channel_max": 5}, {"channel_max": 6}, 530),
        ({"channel_max": 5}, {"channel_max": 0}, 530),
    ],
)
def test_tune_ok_stays_within_what_tune_offered(ours: dict[str, int], theirs: dict[str, int], code: int) -> None:
    """Both ends of each limit; 0 means none, which is beyond any other."""
    peer = Pair(replace(OPTIONS, **ours)).open(None)
    agreed = {
        "frame_max": ours.get("frame_max", OPTIONS.frame_max),
        "channel_max": OPTIONS.channel_max,
        **ours,
        **theirs,
    }
    peer.send(
        b"AMQP\0\0\x09\x01",
        method(0, C.Connection.StartOk, response="\0guest\0guest"),
        method(0, C.Connection.TuneOk, heartbeat=0, **agreed),
        method(0, C.Connection.Open, virtual_host="/"),
    )
    said = [one.frame for one in peer.take()]
    if code:
        (close,) = (one for one in said if isinstance(one, C.Connection.Close))
        assert close.reply_code == code
    else:
        assert isinstance(said[-1], C.Connection.OpenOk)


def test_a_peer_has_as_many_channels_as_it_agreed_to() -> None:
    """Fewer than the broker offers."""
    peer = Pair().open(2, channel_max=2)
    close = peer.call(3, C.Channel.Open)
    assert isinstance(close, C.Connection.Close) and close.reply_code == 530


def test_an_empty_key_is_the_queues_name_only_if_the_queue_is_not_named_either() -> None:
    """queue.bind without both means the last declared queue and its name (behaviour page 2.6)."""
    peer = Pair().open()
    peer.call(1, C.Queue.Declare, queue="q")
    peer.call(1, C.Queue.Bind, queue="q", exchange="amq.direct", routing_key="")
    peer.call(1, C.Queue.Bind, queue="", exchange="amq.topic", routing_key="")
    for exchange, key in (("amq.direct", ""), ("amq.direct", "q"), ("amq.topic", ""), ("amq.topic", "q")):
        peer.send(publish(1, key, f"{exchange} {key}".encode(), exchange=exchange))
    peer.send(method(1, C.Basic.Get, queue="q", no_ack=True) * 3)
    assert [one.body for one in peer.take()] == [b"amq.direct ", b"amq.topic q", None]


def test_what_a_queue_delivered_comes_before_the_answer_to_its_deletion() -> None:
    """Both are of one read; the cancel of the consumer comes last."""
    peer = Pair().open()
    peer.call(1, C.Queue.Declare, queue="q")
    peer.call(1, C.Basic.Consume, queue="q", consumer_tag="c", no_ack=True)
    peer.send(publish(1, "q", b"m") + method(1, C.Queue.Delete, queue="q"))
    assert [type(one.frame) for one in peer.take()] == [C.Basic.Deliver, C.Queue.DeleteOk, C.Basic.Cancel]


def test_a_cancel_by_the_broker_wants_no_answer() -> None:
    """As RabbitMQ says it; a client that answered would be right, too."""
    peer = Pair().open()
    peer.call(1, C.Queue.Declare, queue="q")
    peer.call(1, C.Basic.Consume, queue="q", consumer_tag="c")
    peer.send(method(1, C.Queue.Delete, queue="q", nowait=True))
    cancel = peer.expect(C.Basic.Cancel, channel=1)
    assert (cancel.consumer_tag, cancel.nowait) == ("c", True)


def test_a_consumer_of_replies_is_answered_unless_it_says_nowait() -> None:
    peer = Pair().open()
    consume = {"queue": "amq.rabbitmq.reply-to", "no_ack": True}
    peer.send(method(1, C.Basic.Consume, consumer_tag="a", nowait=True, **consume))
    peer.expect_nothing()
    peer.send(method(1, C.Basic.Cancel, consumer_tag="a", nowait=True))
    assert peer.call(1, C.Basic.Consume, consumer_tag="b", **consume).consumer_tag == "b"


@pytest.mark.parametrize("kind", [C.Basic.Recover, C.Basic.RecoverAsync])
def test_deliveries_are_recovered_with_requeue_only(kind: Any) -> None:
    """540, as RabbitMQ: there is no redelivery to the same consumer."""
    close = Pair().open().call(1, kind, requeue=False)
    assert (close.reply_code, close.reply_text) == (540, "NOT_IMPLEMENTED - requeue=false")


def test_an_exchange_that_is_in_use_is_deleted_unless_the_client_says_if_unused() -> None:
    pair = Pair()
    peer = pair.open(2)
    peer.call(1, C.Exchange.Declare, exchange="x", exchange_type="fanout")
    peer.call(1, C.Queue.Declare, queue="q")
    peer.call(1, C.Queue.Bind, queue="q", exchange="x")
    close = peer.call(1, C.Exchange.Delete, exchange="x", if_unused=True)
    assert close.reply_code == 406 and "x" in pair.vhost.exchanges
    assert isinstance(peer.call(2, C.Exchange.Delete, exchange="x"), C.Exchange.DeleteOk)


def test_a_channel_that_is_closed_does_not_count() -> None:
    """Of as many as the client agreed to."""
    peer = Pair().open(2, channel_max=2)
    for closed, opened in ((1, 3), (2, 1), (3, 2)):
        peer.call(closed, C.Channel.Close, reply_code=200, class_id=0, method_id=0)
        assert isinstance(peer.call(opened, C.Channel.Open), C.Channel.OpenOk)


def test_a_queue_that_was_only_looked_for_is_the_last_one_of_its_channel() -> None:
    """An empty name then means it, as in RabbitMQ."""
    pair = Pair()
    other, peer = pair.open(1), pair.open(1)
    other.call(1, C.Queue.Declare, queue="seen")
    other.send(publish(1, "seen", b"x"))
    peer.call(1, C.Queue.Declare, queue="made")
    peer.call(1, C.Queue.Declare, queue="seen", passive=True)
    assert peer.call(1, C.Queue.Purge, queue="").message_count == 1
