"""An answer about something durable waits for what its connection did before, and for nothing else."""

from collections.abc import Callable

import pytest
from desk import GETS
from durable_desk import DurableDesk
from pamqp import commands
from peer import method, publish
from simulated_files import SimulatedFiles

C = commands
DECLARE = method(GETS, C.Queue.Declare, queue="q", durable=True)
PASSIVE = method(GETS, C.Queue.Declare, queue="q", passive=True, durable=True)
BIND = method(GETS, C.Queue.Bind, queue="q", exchange="amq.direct", routing_key="k")


@pytest.fixture
def desk() -> DurableDesk:
    """With a queue, a binding and two messages, all safe."""
    desk = DurableDesk(SimulatedFiles())
    desk.declare()
    desk.bind("q", "amq.direct", "k")
    for body in "AB":
        desk.peer.send(publish(GETS, "q", body.encode(), delivery_mode=2))
    desk.settle()
    desk.peer.take()
    return desk


def ack_one(desk: DurableDesk) -> None:
    got = desk.get()
    assert got is not None
    desk.ack(got)


def ack_in_one_read(desk: DurableDesk) -> None:
    got = desk.get()
    assert got is not None
    desk.peer.send(method(GETS, C.Basic.Ack, delivery_tag=got.tag) + method(GETS, C.Basic.Qos, prefetch_count=9))
    desk.peer.take()


def reject_one(desk: DurableDesk) -> None:
    got = desk.get()
    assert got is not None
    desk.reject(got, requeue=False)


def get_without_ack(desk: DurableDesk) -> None:
    desk.get(no_ack=True)


def publish_one(desk: DurableDesk) -> None:
    desk.peer.send(publish(GETS, "q", b"C", delivery_mode=2))


@pytest.mark.parametrize("asked", [DECLARE, PASSIVE, BIND])
@pytest.mark.parametrize("act", [ack_one, ack_in_one_read, reject_one, get_without_ack, publish_one])
def test_an_answer_waits_for_what_was_done_before(
    act: Callable[[DurableDesk], None], asked: bytes, desk: DurableDesk
) -> None:
    """Nothing new is recorded for it. A kill before it comes may undo what was done, a kill behind it does not."""
    act(desk)
    desk.journal.commit()
    desk.peer.send(asked)
    assert desk.peer.take() == []
    count = DurableDesk(desk.files.crash()).declare()
    assert count == 2
    desk.settle()
    (answer,) = desk.peer.take()
    assert answer.frame.name.endswith("Ok")
    assert DurableDesk(desk.files.crash()).declare() == (3 if act is publish_one else 1)


@pytest.mark.parametrize("asked", [DECLARE, PASSIVE, BIND])
def test_an_answer_waits_for_nothing_that_is_safe(asked: bytes, desk: DurableDesk) -> None:
    """No commit is made for it."""
    ack_one(desk)
    desk.settle()
    commits = desk.journal.statistics().commits
    desk.peer.send(asked)
    (answer,) = desk.peer.take()
    assert answer.frame.name.endswith("Ok")
    desk.settle()
    assert desk.journal.statistics().commits == commits


def test_an_answer_of_a_service_waits_for_what_the_service_did(desk: DurableDesk) -> None:
    """Messages were discarded by a request: who reads the answer does not find them after a kill."""
    desk.declare("leased", x_queue_type="amps")
    desk.peer.send(publish(GETS, "leased", b"A", delivery_mode=2))
    desk.peer.send(method(GETS, C.Queue.Declare, queue="answers", exclusive=True))
    desk.peer.send(method(GETS, C.Basic.Consume, queue="answers", no_ack=True))
    desk.settle()
    desk.peer.take()
    request = {"headers": {"queue": "leased", "filter": "1 = 1"}, "reply_to": "answers"}
    desk.peer.send(publish(GETS, "sow_delete", b"", exchange="amps.control", **request))
    desk.pair.end_turn()
    assert desk.peer.take() == []
    desk.settle()
    (answer,) = desk.peer.take()
    assert isinstance(answer.frame, C.Basic.Deliver) and b'"records_deleted": 1' in answer.body
    assert DurableDesk(desk.files.crash()).declare("leased", x_queue_type="amps") == 0


def test_an_answer_waits_for_nothing_of_others(desk: DurableDesk) -> None:
    """Another connection acknowledges; this one has done nothing."""
    other = desk.pair.open()
    ack_one(desk)
    other.send(method(1, C.Queue.Declare, queue="q", durable=True))
    assert [type(one.frame) for one in other.take()] == [C.Queue.DeclareOk]


@pytest.mark.parametrize(
    "change, asked",
    [
        (method(1, C.Queue.Declare, queue="new", durable=True), method(1, C.Queue.Declare, queue="new", durable=True)),
        (method(1, C.Queue.Delete, queue="q"), method(1, C.Queue.Delete, queue="q")),
        (
            method(1, C.Queue.Bind, queue="q", exchange="amq.direct", routing_key="new"),
            method(1, C.Queue.Bind, queue="q", exchange="amq.direct", routing_key="new"),
        ),
    ],
    ids=["declare", "delete", "bind"],
)
def test_an_answer_waits_for_a_change_of_others_that_it_found(change: bytes, asked: bytes, desk: DurableDesk) -> None:
    """Two clients ask for the same: what the second is told is true after a kill, too."""
    first, second = desk.pair.open(), desk.pair.open()
    for peer, octets in ((first, change), (second, asked)):
        peer.send(octets)
        assert peer.take() == []
    desk.settle()
    for peer in (first, second):
        (answer,) = peer.take()
        assert answer.frame.name.endswith("Ok")


def test_a_transient_queue_waits_for_nothing(desk: DurableDesk) -> None:
    """Reply queues come and go, and nothing survives of them."""
    ack_one(desk)
    desk.peer.send(method(GETS, C.Queue.Declare, queue="reply", exclusive=True))
    assert [type(one.frame) for one in desk.peer.take()] == [C.Queue.DeclareOk]


@pytest.mark.parametrize(
    "asked",
    [
        method(1, C.Queue.Declare, queue="new", durable=True),
        method(1, C.Exchange.Declare, exchange="new", durable=True),
        method(1, C.Queue.Bind, queue="q", exchange="amq.direct", routing_key="new"),
        method(1, C.Queue.Unbind, queue="q", exchange="amq.direct", routing_key="k"),
        method(1, C.Queue.Delete, queue="q"),
    ],
)
def test_an_answer_waits_for_the_record_of_what_was_asked(asked: bytes, desk: DurableDesk) -> None:
    """A new connection did nothing before: what the answer promises is on disk before it is sent."""
    other = desk.pair.open()
    other.send(asked)
    assert other.take() == []
    desk.settle()
    (answer,) = other.take()
    assert answer.frame.name.endswith("Ok")
