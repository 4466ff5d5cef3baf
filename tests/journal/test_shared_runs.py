"""A run that several consumers share: what one of them settles is its own part of it, also after a restart."""

from __future__ import annotations

import pytest
from desk import GETS, PUBLISHES
from durable_desk import DurableDesk
from pamqp import commands
from peer import publish
from simulated_files import SimulatedFiles

OTHER = 9  # a channel


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_without_acknowledgements_beside_one_that_acknowledges(first: str, second: str) -> None:
    """Consumer a, that acknowledges nothing, has every second message of a run; those of b are still there."""
    desk = DurableDesk(SimulatedFiles())
    desk.declare()
    for channel, tag in ((GETS, first), (OTHER, second)):
        if channel == OTHER:
            desk.peer.call(OTHER, commands.Channel.Open)
        desk.peer.call(channel, commands.Basic.Consume, queue="q", consumer_tag=tag, no_ack=tag == "a")
    desk.peer.send(b"".join(publish(PUBLISHES, "q", body.encode(), delivery_mode=2) for body in "ABCDEF"))
    desk.peer.take()
    desk.settle()
    again = DurableDesk(desk.files.power_cut())
    assert again.all() == ("BDF" if first == "a" else "ACE")
