"""A client goes with very many deliveries: they come back a slice a turn, in order; counted in messages."""

from collections.abc import Iterator

import pytest

from leveret.engine.clients.settling import REQUEUE_SLICE
from leveret.testing.harness import Harness

COUNT = 5 * REQUEUE_SLICE + 10


class Stage(Harness):
    """`holder` has all messages of `q` out, and `other` waits for some."""

    ends_turns = False

    def __init__(self) -> None:
        super().__init__(unsent_max=1 << 40)
        self.holder, self.other = self.connect("c"), self.session
        self.q = self.queue(durable=False, client=self.holder.client)
        self.publish(*["x"] * COUNT)
        self.consume(tag="h", by=self.holder)
        self.end_turn()
        assert self.q.unacked == COUNT

    def returned(self) -> Iterator[int]:
        """Messages that came back in each turn."""
        return self.turns(lambda: -self.q.unacked)


@pytest.mark.parametrize("how", ["lost", "closed", "channel closed"])
def test_they_come_back_in_slices(how: str) -> None:
    """Some at once, a slice with each turn; the ids rise, and none is missing."""
    stage = Stage()
    if how == "channel closed":
        stage.holder.close()
    else:
        stage.holder.client.close(failed=how == "lost")
    assert stage.q.unacked == COUNT - REQUEUE_SLICE and not stage.q.consumers
    assert max(stage.returned()) == REQUEUE_SLICE
    assert not stage.q.sessions and not stage.q.freeze_count
    ids = [message.id for message in stage.q.store]
    assert len(ids) == COUNT and ids == sorted(ids)


def test_others_get_them_in_order() -> None:
    """Nothing is handed out before the oldest is there, nor what is published meanwhile."""
    stage = Stage()
    stage.consume(tag="o", by=stage.other)
    stage.holder.client.close(failed=True)
    stage.publish(*"xxx")
    got = 0
    while stage.broker.end_turn():
        got = sum(one.consumer.tag == "o" for one in stage.deliveries)
        assert not got or not stage.q.freeze_count
    assert len(stage.other.unacked) == COUNT + 3
    ids = [message.id for message in stage.other.unacked.values()]
    assert ids == sorted(ids)


def test_the_queue_is_deleted_meanwhile() -> None:
    """What had not come back is gone with it."""
    stage = Stage()
    stage.holder.client.close(failed=True)
    stage.vhost.queues.remove(stage.q)
    stage.end_turn()
    assert stage.q.deleted and not stage.holder.unacked
    assert not stage.q.sessions


def test_who_asks_meanwhile_waits() -> None:
    """It is said to be busy until all are back."""
    stage = Stage()
    stage.holder.client.close(failed=True)
    assert stage.q.is_busy()
    stage.end_turn()
    assert not stage.q.is_busy() and stage.q.ready_count == COUNT
