"""What grows with every message, and what keeps what is gone, is seen where it is, at whatever depth."""

from __future__ import annotations

import pytest
from simulator.growth import ALWAYS, EACH, check_gone, check_growth
from simulator.ledger import Broken

from leveret.testing.harness import Harness


@pytest.mark.parametrize(("entries", "messages", "is_seen"), [
    (ALWAYS + 1, 0, True), (ALWAYS, 0, False), (ALWAYS + EACH, 1, False), (ALWAYS + EACH + 1, 1, True),
])  # fmt: skip
def test_a_table_with_an_entry_for_each_message(entries: int, messages: int, is_seen: bool) -> None:
    """In an object with slots, below a queue of a virtual host."""
    harness = Harness()
    queue = harness.queue()
    broker = {"broker": harness.broker}
    check_growth(broker, messages)
    queue.sessions.update(dict.fromkeys(range(entries)))  # type: ignore[arg-type]
    if not is_seen:
        check_growth(broker, messages)
    else:
        with pytest.raises(Broken, match=r"Queue\.sessions"):
            check_growth(broker, messages)
    queue.sessions.clear()


@pytest.mark.parametrize("how", ["a list", "a deadline"])
def test_what_keeps_a_deleted_queue(how: str) -> None:
    """A list of the broker, or something that is to be done later."""
    harness = Harness()
    queue, broker = harness.queue(), harness.broker
    if how == "a list":
        broker.background.to_trim[queue] = None  # type: ignore[attr-defined]
    else:
        broker.context.deadlines.set(1 << 62, lambda: queue.mark())
    check_gone({"broker": broker}, {})
    harness.vhost.queues.remove(queue)
    with pytest.raises(Broken, match="which has ended"):
        check_gone({"broker": broker}, {})


@pytest.mark.parametrize("arguments", [{"x_non_destructive": True}, {"x_queue_type": "stream"}], ids=["kept", "stream"])
def test_a_queue_that_keeps_messages_forgets_readers_that_left(arguments: dict[str, object]) -> None:
    """World 72204: it kept the one that was next, and with it a connection, until it delivered again."""
    harness = Harness()
    harness.queue(**arguments)  # type: ignore[arg-type]
    session = harness.connect()
    harness.consume(by=session, prefetch=10)
    harness.publish("A", "B", delivery_mode=2)
    assert harness.taken() == "AB"
    harness.deliveries.clear()
    session.client.close()
    harness.end_turn()
    check_gone({"broker": harness.broker}, {})
