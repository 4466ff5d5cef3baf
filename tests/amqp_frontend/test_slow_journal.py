"""A journal that cannot keep up: who publishes what it keeps is not read, everybody else is."""

from __future__ import annotations

from typing import Any

import pytest
from pair import Pair
from pamqp import commands
from peer import publish
from stand_in_journal import StandInJournal

C = commands
PERSISTENT, TRANSIENT = {"delivery_mode": 2}, {"delivery_mode": 1}


@pytest.mark.parametrize(
    ("key", "properties", "scope", "waits"),
    [
        ("durable", PERSISTENT, "durable", True),
        ("durable", TRANSIENT, "durable", False),
        ("transient", PERSISTENT, "durable", False),
        ("stream", TRANSIENT, "durable", True),  # it keeps all that comes
        ("nowhere", PERSISTENT, "durable", False),
        ("durable", TRANSIENT, "all", True),
        ("transient", TRANSIENT, "all", True),
    ],
)
@pytest.mark.parametrize("count", [1, 3], ids=["one", "a run"])
def test_who_waits(key: str, properties: dict[str, Any], scope: str, waits: bool, count: int) -> None:
    """What the journal keeps decides, not that it is slow."""
    pair = Pair()
    peer = pair.open()
    peer.call(1, C.Queue.Declare, queue="durable", durable=True)
    peer.call(1, C.Queue.Declare, queue="transient", exclusive=True)
    peer.call(1, C.Queue.Declare, queue="stream", durable=True, arguments={"x-queue-type": "stream"})
    pair.broker.context.storage.durability = StandInJournal(is_congested=True, takes_transient=scope == "all")
    peer.send(publish(1, key, b"x", **properties) * count)
    assert peer.session.journal.is_throttled == waits
    assert (
        peer.session.login.client in pair.broker.context.awaiting
    ) == waits  # it is told when the journal has caught up
    pair.broker.context.storage.durability = StandInJournal(takes_transient=scope == "all")
    assert not peer.session.journal.is_throttled


@pytest.mark.parametrize(("modes", "waits"), [((1, 1), False), ((1, 2), True)])
def test_a_mixed_run(modes: tuple[int, int], waits: bool) -> None:
    """One message that is kept is enough."""
    pair = Pair()
    peer = pair.open()
    peer.call(1, C.Queue.Declare, queue="durable", durable=True)
    data = b"".join(
        publish(1, "durable", b"x", delivery_mode=mode, message_type=f"t{at}") for at, mode in enumerate(modes)
    )
    peer.send(data)  # the kinds are known from here on
    pair.broker.context.storage.durability = StandInJournal(is_congested=True, takes_transient=False)
    peer.send(data * 4)
    assert peer.session.journal.is_throttled == waits


def test_who_published_before_the_journal_was_slow_is_read() -> None:
    """Its publishes are written; acknowledgements and what it does next are not kept waiting for those of others."""
    pair = Pair()
    peer = pair.open()
    peer.call(1, C.Queue.Declare, queue="durable", durable=True)
    pair.broker.context.storage.durability = StandInJournal()
    peer.send(publish(1, "durable", b"x", **PERSISTENT))
    assert not peer.session.journal.is_throttled
    pair.broker.context.storage.durability = StandInJournal(is_congested=True)
    assert not peer.session.journal.is_throttled
