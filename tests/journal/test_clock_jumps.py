"""Somebody sets the wall clock: what runs is monotonic, what is recorded is stated anew (ruling 6)."""

import pytest
from durable_desk import PATH, DurableDesk
from simulated_files import SimulatedFiles

from leveret.journal import recover
from leveret.journal.recording.checkpoint import checkpoint

HOUR_MS = 3_600_000


def jump(desk: DurableDesk, delta_ms: int) -> None:
    """NTP, an operator, a virtual machine that slept."""
    desk.pair.clock.jump_wall_ms(delta_ms)


@pytest.mark.parametrize("delta_ms", [-30 * 24 * HOUR_MS, -HOUR_MS, HOUR_MS, 30 * 24 * HOUR_MS])
def test_time_to_live_and_delays_go_on(delta_ms: int) -> None:
    """A message lives as long as it was given, and waits as long."""
    desk = DurableDesk(SimulatedFiles(), "[[address-setting]]\nmatch = 'slow'\nredelivery-delay = 2000\n")
    desk.declare(durable=True)
    desk.declare("slow", durable=True)
    desk.publish("expires", delivery_mode=2, expiration="1000")
    desk.publish("waits", key="slow", delivery_mode=2)
    desk.nack(desk.must_get("slow"))
    desk.settle()
    jump(desk, delta_ms)
    desk.advance_ms(990)
    assert (desk.counts()[0], desk.counts("slow")[0]) == (1, 0)
    desk.advance_ms(20)
    assert (desk.counts()[0], desk.counts("slow")[0]) == (0, 0)
    desk.advance_ms(980)
    assert desk.counts("slow")[0] == 0
    desk.advance_ms(20)
    assert desk.counts("slow")[0] == 1


@pytest.mark.parametrize("delta_ms", [-HOUR_MS, HOUR_MS])
def test_a_checkpoint_behind_a_jump_knows_the_right_times(delta_ms: int) -> None:
    """Then a restart, too, gives messages what is left of their time."""
    files = SimulatedFiles()
    desk = DurableDesk(files)
    desk.declare(durable=True)
    desk.publish("expires", delivery_mode=2, expiration="1000")
    desk.settle()
    jump(desk, delta_ms)
    for _ in checkpoint(desk.pair.broker, desk.journal, desk.recorder):
        desk.journal.commit()
    desk.settle()
    found = recover(files.power_cut(), PATH)
    (message,) = [message for queue in found.queues.values() for message in queue.messages()]
    assert message.expires_ms == desk.wall_ms + 1000
