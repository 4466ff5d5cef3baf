"""Direct replies: who may ask for them, and for how long (behaviour page 3.10)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.engine import Session
from leveret.engine.errors import ReplyConsumerMissing, ReplyConsumerTaken
from leveret.engine.queues import consumers
from leveret.testing.harness import Harness


class World(Harness):
    """A client that may ask, and a queue for its requests."""

    ends_turns = False

    def __init__(self) -> None:
        super().__init__()
        self.queue("requests")

    def ask(self) -> None:
        """Raises: ReplyConsumerMissing."""
        self.publish("?", key="requests", mandatory=True, reply_to="amq.rabbitmq.reply-to")

    def answer(self, address: str) -> bool:
        """Whether it went to somebody."""
        return not self.publish("!", key=address, mandatory=True)


def _cancel(session: Session) -> None:
    session.cancel("t")


def _cancel_all(session: Session) -> None:
    session.subscriptions.cancel(list(session.consumers))


def _cancel_by_broker(session: Session) -> None:
    consumers.cancel(session.consumers["t"].queue, [session.consumers["t"]])


@pytest.mark.parametrize("ends", [_cancel, _cancel_all, _cancel_by_broker])
@pytest.mark.parametrize("has_other", [False, True])
def test_one_consumer_at_a_time(ends: Callable[[Session], None], has_other: bool) -> None:
    """A second one is refused while there is one; after its end another may come, and only then requests go out."""
    world = World()
    session = world.session
    for number in range(3):
        if has_other:
            world.consume("requests", "other", no_ack=True)
        with pytest.raises(ReplyConsumerMissing):
            world.ask()
        session.consume_replies("t", f"address-{number}", no_ack=True)
        with pytest.raises(ReplyConsumerTaken):
            session.consume_replies("u", "another", no_ack=True)
        world.ask()
        assert world.answer(f"address-{number}")
        ends(session)
        if has_other and "other" in session.consumers:
            session.cancel("other")
        assert not world.answer(f"address-{number}")


def test_the_end_of_another_consumer_changes_nothing() -> None:
    """Of the same channel, whichever was there first."""
    world = World()
    for tag in ("first", "last"):
        if tag == "last":
            world.session.consume_replies("t", "address", no_ack=True)
        world.consume("requests", tag, no_ack=True)
    for tag in ("first", "last"):
        world.session.cancel(tag)
        world.ask()
        assert world.answer("address")
        with pytest.raises(ReplyConsumerTaken):
            world.session.consume_replies("u", "another", no_ack=True)
