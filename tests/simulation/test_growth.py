"""What grows with every message, and what keeps what is gone, is seen where it is, at whatever depth."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from simulator.growth import ALSO, ALWAYS, EACH, OF_SEGMENTS, UNTIL_LATER, check_gone, check_growth
from simulator.ledger import Broken

from leveret.testing.harness import Harness

ROOT = Path(__file__).parents[2]


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


def test_what_may_have_more_entries_is_there() -> None:
    """By the name that the code has now: else a world breaks by chance, as IdCache did after a renaming."""
    sources = [
        path.read_text()
        for room in ("engine", "journal", "amqp_frontend", "src")
        for path in ROOT.glob(f"{room}/**/*.py")
    ]
    for where in {*ALSO, *OF_SEGMENTS, *UNTIL_LATER}:
        name, attribute = where.removesuffix("[]").split(".")
        of_class = [
            source.partition(f"\nclass {name}")[2] for source in sources if re.search(rf"^class {name}\b", source, re.M)
        ]
        assert any(re.search(rf"\b{attribute}\b", source) for source in of_class), where


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
