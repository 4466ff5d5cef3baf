"""Somebody sets the wall clock: what runs is monotonic, what is recorded is stated anew (ruling 6)."""

import pytest
from durable_desk import PATH, DurableDesk
from journal_workload import Driver
from simulated_files import SimulatedFiles

from leveret.engine import ManualClock
from leveret.journal import Journal, JournalOptions, recover
from leveret.journal.disk.segment import segments_in
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


YEARS_MS = 4 * 365 * 24 * HOUR_MS


def restarted_in_time(desk: DurableDesk, text: str, *, is_stated: bool) -> DurableDesk:
    """A broker after the clock was set right; `is_stated`: a checkpoint was made while it was ahead."""
    desk.settle()
    if is_stated:
        for _ in checkpoint(desk.pair.broker, desk.journal, desk.recorder):
            desk.journal.commit()
    desk.settle()
    return DurableDesk(desk.files.power_cut(), text)


@pytest.mark.parametrize("is_stated", [False, True])
def test_what_waits_since_the_clock_ran_ahead_waits_no_longer_than_its_delay(is_stated: bool) -> None:
    """The clock was four years ahead when three came back, and is right at the next start."""
    text = "[[address-setting]]\nmatch = 'q'\nredelivery-delay = 2000\n"
    desk = DurableDesk(SimulatedFiles(), text)
    desk.declare()
    jump(desk, YEARS_MS)
    desk.publish(*"ABC", delivery_mode=2)
    for _ in range(3):
        desk.nack(desk.must_get())
    again = restarted_in_time(desk, text, is_stated=is_stated)
    assert again.journal.recovered.has_moved_times
    assert again.counts() == (0, 0, 3)
    again.advance_ms(1990)
    assert again.counts() == (0, 0, 3)
    again.advance_ms(20)
    assert again.counts() == (3, 0, 0)


@pytest.mark.parametrize("is_stated", [False, True])
def test_what_expires_since_the_clock_ran_ahead_lives_no_longer_than_it_was_given(is_stated: bool) -> None:
    """Ready or waiting for its time."""
    desk = DurableDesk(SimulatedFiles())
    desk.declare()
    jump(desk, YEARS_MS)
    desk.publish("A", delivery_mode=2, expiration="1000")
    desk.publish("B", delivery_mode=2, headers={"x-delay": 500}, expiration="1000")
    again = restarted_in_time(desk, "", is_stated=is_stated)
    again.advance_ms(990)
    assert again.counts()[0] >= 1
    again.advance_ms(1500)
    assert again.counts() == (0, 0, 0)


def test_times_of_a_right_clock_stay() -> None:
    """They are moved only where they were written in the future."""
    text = "[[address-setting]]\nmatch = 'q'\nredelivery-delay = 2000\n"
    desk = DurableDesk(SimulatedFiles(), text)
    desk.declare()
    desk.publish("A", delivery_mode=2)
    desk.nack(desk.must_get())
    desk.settle()
    files = desk.files.power_cut()
    later = recover(files, PATH, now_ms=desk.wall_ms + HOUR_MS)
    assert not later.has_moved_times
    (message,) = [message for queue in later.queues.values() for message in queue.messages()]
    assert message.state.due_ms == desk.wall_ms + 2000


def test_segments_of_a_clock_that_ran_ahead_are_not_kept_until_then() -> None:
    """`retain`: they count as ended now."""
    files = SimulatedFiles()
    options = JournalOptions(segment_size=1000, preallocate_size=0, retain_ms=HOUR_MS)
    clock = ManualClock()
    clock.jump_wall_ms(YEARS_MS)
    driver = Driver(Journal.open(PATH, clock, options, files=files, threaded=False), clock)
    driver.declare("a")
    for _ in range(10):
        driver.publish([bytes(300)], "a")
        driver.journal.commit()
    driver.settle("a", list(driver.model["a"]))
    assert driver.journal.wait(driver.journal.commit())
    clock.jump_wall_ms(-YEARS_MS)
    driver.publish([b"x"], "a")  # in a new segment: the open one is not as old as it seems
    driver.journal.commit()
    driver.checkpoint()
    assert driver.journal.wait(driver.journal.commit())
    assert driver.journal.old_segments.reclaim() == []
    clock.advance_ns(2 * HOUR_MS * 1_000_000)
    assert driver.journal.old_segments.reclaim()


def test_a_clock_that_was_set_back_ends_the_segment() -> None:
    """Else the open one would seem young until the clock is there again, and readers and deletion would wait for it."""
    files, clock = SimulatedFiles(), ManualClock()
    clock.jump_wall_ms(YEARS_MS)
    driver = Driver(Journal.open(PATH, clock, JournalOptions(preallocate_size=0), files=files, threaded=False), clock)
    driver.declare("a")
    for jump_ms, count in ((0, 1), (0, 1), (-YEARS_MS, 2), (0, 2)):
        clock.jump_wall_ms(jump_ms)
        driver.publish([b"x"], "a")
        assert driver.journal.wait(driver.journal.commit())
        assert len(segments_in(files, PATH)) == count
