"""A world that loops without time passing comes to its end, with a sentence."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from simulator import schedule as schedules
from simulator.ledger import Broken
from simulator.loop import pass_time, run, schedule


def _until_failed(begin: Callable[[], object]) -> str:
    """What the schedule says of a world that begins so."""
    said: list[Exception] = []

    async def main() -> None:
        over = trio.Event()

        def failed(error: Exception) -> None:
            said.append(error)
            over.set()

        schedule().failed = failed
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_spin) if begin is _spin else begin()
            await over.wait()
            nursery.cancel_scope.cancel()

    run(main, 1)
    assert isinstance(said[0], Broken)
    return str(said[0])


async def _spin() -> None:
    while True:
        await trio.lowlevel.checkpoint()


def _again() -> None:
    schedule().after(0, _again)


def _again_while_the_process_stands_still() -> None:
    schedule().after(0, _again)
    schedule().after(0, lambda: schedule().stand_still(10))


@pytest.mark.parametrize(
    ("begin", "of"),
    [
        (_spin, "a task that goes on and never waits"),
        (_again, "an action that asks for itself at once"),
        (_again_while_the_process_stands_still, "the same while the broker's process stands still"),
        (lambda: None, "everybody waits, and nothing is to come"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_it_ends(begin: Callable[[], object], of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "STEPS_MAX", 1000)
    assert _until_failed(begin) == "1,000 steps at 0.0 s, and no time passes"


def test_steps_count_from_the_last_time_that_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "STEPS_MAX", 1000)
    said: list[Exception] = []

    async def main() -> None:
        schedule().failed = said.append
        for _ in range(20):
            for _ in range(400):
                await trio.lowlevel.checkpoint()
            await pass_time(0.001)

    run(main, 1)
    assert not said


def test_what_only_the_process_can_do_waits_while_it_stands_still() -> None:
    """Everybody else goes on; what an operator wants is done when it runs again, whatever shorter pause there is."""
    done: list[tuple[str, bool]] = []

    async def main() -> None:
        plan = schedule()

        def act(name: str) -> None:
            done.append((name, plan.stands_still))

        plan.after(10, lambda: plan.stand_still(100))
        plan.after(20, lambda: plan.stand_still(20))
        plan.after(50, lambda: act("a client"))
        plan.after(60, lambda: plan.in_the_process(lambda: act("an operator")))
        await pass_time(200)
        plan.in_the_process(lambda: act("at once"))

    run(main, 1)
    assert done == [("a client", True), ("an operator", False), ("at once", False)]
