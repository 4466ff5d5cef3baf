"""The heap of everything that happens later."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.engine import Deadlines


@given(st.lists(st.integers(0, 50)), st.sets(st.integers(0, 30)), st.lists(st.integers(0, 60), min_size=1))
def test_due_deadlines_run_once_in_order(due: list[int], cancelled: set[int], readings: list[int]) -> None:
    """By time, equal times in the order in which they were set, cancelled ones never."""
    deadlines = Deadlines()
    done: list[tuple[int, int]] = []
    made = [deadlines.set(at, lambda each=(at, order): done.append(each)) for order, at in enumerate(due)]  # type: ignore[misc]
    for index in cancelled & set(range(len(made))):
        deadlines.cancel(made[index])
        deadlines.cancel(made[index])
    kept = [(at, order) for order, at in enumerate(due) if order not in cancelled]
    assert len(deadlines) == len(kept)
    now = 0
    for reading in readings:
        now = max(now, reading)
        waiting = sorted(set(kept) - set(done))
        assert deadlines.next_ns() == (waiting[0][0] if waiting else None)
        before = len(done)
        assert deadlines.advance(now) == len(done) - before
        assert done == sorted(each for each in kept if each[0] <= now)
    for deadline in made:
        deadlines.cancel(deadline)
    assert len(deadlines) == 0 and deadlines.next_ns() is None


def test_what_is_set_while_time_passes_runs_in_the_same_pass() -> None:
    """An action that sets another deadline in the past sees it run, and nothing runs twice."""
    deadlines = Deadlines()
    done: list[str] = []

    def first() -> None:
        done.append("first")
        deadlines.set(7, lambda: done.append("second"))

    deadlines.set(5, first)
    assert deadlines.advance(10) == 2
    assert done == ["first", "second"]


def test_one_action_can_cancel_another() -> None:
    """A deadline that is cancelled by one before it does not run."""
    deadlines = Deadlines()
    done: list[str] = []
    later = deadlines.set(6, lambda: done.append("never"))
    deadlines.set(5, lambda: deadlines.cancel(later))
    deadlines.cancel(None)
    assert deadlines.advance(10) == 1
    assert not done


def test_cancelled_deadlines_do_not_pile_up() -> None:
    """Heartbeats are set and cancelled for ever: the heap forgets them."""
    deadlines = Deadlines()
    for at in range(100_000):
        deadlines.cancel(deadlines.set(1_000_000 + at, lambda: None))
    assert len(deadlines) == 0
    assert len(deadlines._heap) < 2_000


def test_the_edge_hears_of_an_earlier_deadline_only() -> None:
    """`on_earlier` is called when the next deadline has become another one."""
    deadlines = Deadlines()
    calls: list[int | None] = []
    deadlines.on_earlier = lambda: calls.append(deadlines.next_ns())
    for at in (50, 70, 30, 30, 40):
        deadlines.set(at, lambda: None)
    assert calls == [50, 30]
