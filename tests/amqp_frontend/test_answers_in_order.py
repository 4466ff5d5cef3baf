"""What a client reads comes in the order of what it did; no more is kept for it than it reads, and none it cannot know.

Behaviour page 1.7, 2.9, 2.13 and 2.14.
"""

from __future__ import annotations

import pytest
from pair import Pair
from pamqp import commands as C
from peer import LOGIN, handshake, method, publish

from leveret.amqp_frontend.peer.output import REPLIES_MAX

CLOSE = {"reply_code": 200, "class_id": 0, "method_id": 0}


def test_confirms_come_before_the_answer_to_a_close() -> None:
    """Of the connection, also where both were in one read."""
    pair = Pair()
    peer = pair.open(2)
    for number in (1, 2):
        peer.call(number, C.Confirm.Select)
    peer.send(publish(1, "none", b"x") * 2 + publish(2, "none", b"x") + method(0, C.Connection.Close, **CLOSE))
    *confirms, answer = [one.frame for one in peer.take()]
    assert [(one.name, one.delivery_tag) for one in confirms] == [("Basic.Ack", 2), ("Basic.Ack", 1)]
    assert isinstance(answer, C.Connection.CloseOk)


def test_a_get_comes_behind_deliveries_that_were_made_before() -> None:
    """Delivery tags rise, also in one read."""
    pair = Pair()
    peer = pair.open(2)
    for queue in ("a", "b"):
        peer.call(1, C.Queue.Declare, queue=queue)
    peer.call(1, C.Basic.Consume, queue="a", consumer_tag="c")
    peer.send(publish(2, "b", b"got"))
    peer.send(publish(2, "a", b"delivered") + method(1, C.Basic.Get, queue="b") + method(1, C.Basic.Get, queue="b"))
    delivered, got, empty = peer.take()
    assert (delivered.frame.delivery_tag, delivered.body) == (1, b"delivered")
    assert (got.frame.delivery_tag, got.body) == (2, b"got")
    assert isinstance(empty.frame, C.Basic.GetEmpty)


def test_answers_that_nobody_reads_are_not_piled_up() -> None:
    """Requests in one read are answered as far as there is room; the rest when the client has read."""
    pair = Pair()
    peer, size, count = pair.open(1), 100_000, 80
    peer.call(1, C.Queue.Declare, queue="q")
    peer.send(publish(1, "q", bytes(size)) * count)
    peer.is_reading = False
    peer.send(method(1, C.Basic.Get, queue="q", no_ack=True) * count)
    assert peer.session.output.reply_size <= REPLIES_MAX + size + 1000
    peer.is_reading = True
    peer.go_on()
    assert [one.frame.message_count for one in peer.take()] == [*range(count - 1, -1, -1)]


@pytest.mark.parametrize("knows", [True, False])
def test_a_cancel_from_the_broker_is_for_clients_that_know_it(knows: bool) -> None:
    """Others hear nothing of a queue that is deleted under their consumer."""
    pair = Pair()
    peer = pair.open(None)
    header, start_ok, *rest = handshake()
    if not knows:
        start_ok = method(0, C.Connection.StartOk, client_properties={}, mechanism="PLAIN", response=LOGIN.decode())
    peer.send(header, start_ok, *rest)
    peer.take()
    peer.open_channels(1)
    peer.call(1, C.Queue.Declare, queue="q")
    peer.call(1, C.Basic.Consume, queue="q", consumer_tag="c")
    other = pair.open(1)
    other.call(1, C.Queue.Delete, queue="q")
    assert [one.frame.name for one in peer.take()] == (["Basic.Cancel"] if knows else [])
