"""A client goes with very many deliveries: they come back a slice a turn, in order; counted in messages."""

from collections.abc import Iterator

import pytest

from leveret.engine import Broker, Client, Envelope, ManualClock, Queue, User
from leveret.engine.clients.bulk_requeue import REQUEUE_SLICE
from leveret.engine.clients.session import Session
from leveret.engine.delivery.effects import Delivered
from leveret.engine.messages.content import PLAIN, encode_header

USER = User("u")
COUNT = 5 * REQUEUE_SLICE + 10
BLOB = PLAIN.join(encode_header(1), b"x")


class Stage:
    """`holder` has all messages of `q` out, and `other` waits for some."""

    def __init__(self) -> None:
        self.broker = Broker(ManualClock(), unsent_max=1 << 40)
        self.vhost = self.broker.virtual_hosts["/"]
        self.holder, self.other = self.connect(), self.connect()
        self.queue: Queue = self.vhost.queues.declare("q", client=self.holder.client)
        self.publish(COUNT)
        self.consume(self.holder, "h")
        self.finish()
        assert self.queue.unacked == COUNT

    def connect(self) -> Session:
        client: Client = self.broker.connections.open("/", USER, name="c", flush=lambda: None)
        return client.open_session()

    def publish(self, count: int) -> None:
        route = self.vhost.router.route("", "q", USER)
        self.other.publish(route, Envelope("", "q"), [BLOB] * count, mandatory=False)

    def consume(self, session: Session, tag: str) -> None:
        session.consume(self.queue, tag, no_ack=False, exclusive=False, arguments={})

    def finish(self) -> None:
        while self.broker.end_turn():
            pass

    def turns(self) -> Iterator[int]:
        """Messages that came back in each turn."""
        is_more = True
        while is_more:
            before = self.queue.unacked
            is_more = self.broker.end_turn()
            yield before - self.queue.unacked


@pytest.mark.parametrize("how", ["lost", "closed", "channel closed"])
def test_they_come_back_in_slices(how: str) -> None:
    """Some at once, a slice with each turn; the ids rise, and none is missing."""
    stage = Stage()
    if how == "channel closed":
        stage.holder.close()
    else:
        stage.holder.client.close(failed=how == "lost")
    assert stage.queue.unacked == COUNT - REQUEUE_SLICE and not stage.queue.consumers
    assert max(stage.turns()) == REQUEUE_SLICE
    assert not stage.queue.sessions and not stage.queue.freeze_count
    ids = [message.id for message in stage.queue.store]
    assert len(ids) == COUNT and ids == sorted(ids)


def test_others_get_them_in_order() -> None:
    """Nothing is handed out before the oldest is there, nor what is published meanwhile."""
    stage = Stage()
    stage.consume(stage.other, "o")
    stage.holder.client.close(failed=True)
    stage.publish(3)
    got = 0
    while stage.broker.end_turn():
        got = sum(len(one.contents) for one in stage.other.client.outbox if isinstance(one, Delivered))
        assert not got or not stage.queue.freeze_count
    assert len(stage.other.unacked) == COUNT + 3
    ids = [message.id for message in stage.other.unacked.values()]
    assert ids == sorted(ids)


def test_the_queue_is_deleted_meanwhile() -> None:
    """What had not come back is gone with it."""
    stage = Stage()
    stage.holder.client.close(failed=True)
    stage.vhost.queues.remove(stage.queue)
    stage.finish()
    assert stage.queue.deleted and not stage.holder.unacked
    assert not stage.queue.sessions


def test_who_asks_meanwhile_waits() -> None:
    """It is said to be busy until all are back."""
    stage = Stage()
    stage.holder.client.close(failed=True)
    assert stage.queue.is_busy()
    stage.finish()
    assert not stage.queue.is_busy() and stage.queue.ready_count == COUNT
