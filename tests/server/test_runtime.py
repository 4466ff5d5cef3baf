"""The edge of a broker that all frontends share: turns for unfinished work, deadlines, suspension, the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from leveret.engine import Broker, Unreadable
from leveret.serving.runtime import Runtime

STEPS = 500


class TrioClock:
    """The time of the event loop."""

    @staticmethod
    def monotonic_ns() -> int:
        return int(trio.current_time() * 1e9)

    @staticmethod
    def wall_ms() -> int:
        return int(trio.current_time() * 1e3)


class Stage:
    """A runtime. `steps` of a background task that were done, `commits` so far."""

    def __init__(self, clock: MockClock) -> None:
        self.steps = self.commits = 0
        self.clock = clock
        self.runtime = Runtime(Broker(TrioClock()), self._commit)

    def _commit(self) -> None:
        self.commits += 1

    def begin_work(self) -> None:
        """Of many steps, one at the end of each turn."""

        def work() -> Iterator[None]:
            for _ in range(STEPS):
                self.steps += 1
                yield

        self.runtime.broker.context.background.run(work())
        self.runtime.end_turn()

    async def pass_by(self, rounds: int = 20) -> None:
        for _ in range(rounds):
            await trio.lowlevel.checkpoint()

    async def passes(self, seconds: int) -> None:
        """Second by second."""
        for _ in range(seconds):
            self.clock.jump(1)
            await wait_all_tasks_blocked()


def run(story: Callable[[Stage], Awaitable[None]]) -> None:
    clock = MockClock()

    async def main() -> None:
        stage = Stage(clock)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.runtime.run)
            await wait_all_tasks_blocked()
            await story(stage)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=clock)


def test_unfinished_work_goes_on_between_the_turns_of_others() -> None:
    """Each of its turns is committed. A second time, too."""

    async def story(stage: Stage) -> None:
        for times in (1, 2):
            stage.begin_work()
            await stage.pass_by()
            assert (times - 1) * STEPS + 1 < stage.steps < times * STEPS
            await wait_all_tasks_blocked()
            assert stage.steps == times * STEPS <= stage.commits

    run(story)


def test_a_suspended_broker_does_nothing_until_it_goes_on() -> None:
    """Neither begun work nor what is due; then all of it."""

    async def story(stage: Stage) -> None:
        runtime, came = stage.runtime, []
        stage.begin_work()
        await stage.pass_by()
        runtime.suspend()
        done = stage.steps, stage.commits
        runtime.broker.context.deadlines.set(
            TrioClock.monotonic_ns() + 900_000_000, lambda: came.append(trio.current_time())
        )
        await stage.passes(5)
        assert (stage.steps, stage.commits) == done and not came and stage.steps < STEPS
        runtime.resume()
        assert not runtime.is_silent
        await wait_all_tasks_blocked()
        assert stage.steps == STEPS and len(came) == 1

    run(story)


def test_a_broker_that_has_resigned_writes_nothing() -> None:
    """Whatever was begun, and whoever still ends a turn."""

    async def story(stage: Stage) -> None:
        stage.begin_work()
        await stage.pass_by()
        stage.runtime.suspend()
        stage.runtime.resign()
        done = stage.steps, stage.commits
        stage.runtime.end_turn()
        await stage.runtime.wait_while_suspended()
        await stage.passes(5)
        assert (stage.steps, stage.commits) == done

    run(story)


def test_a_turn_that_cannot_read_is_committed() -> None:
    """Other turns come before the broker stops, and what was recorded must not be theirs."""

    async def story(stage: Stage) -> None:
        def fails() -> Iterator[None]:
            raise Unreadable("it is broken")
            yield

        stage.runtime.broker.context.background.run(fails())
        with pytest.raises(Unreadable, match="it is broken"):
            stage.runtime.end_turn()
        assert stage.commits == 1

    run(story)


def test_deadlines_come_in_time_and_end_a_turn() -> None:
    """Also one that is earlier than what was waited for. Before each it is asked whether this broker may go on."""

    async def story(stage: Stage) -> None:
        came: list[tuple[str, int]] = []
        runtime, begun = stage.runtime, trio.current_time()

        def note(what: str) -> None:
            came.append((what, round(trio.current_time() - begun)))

        runtime.check_standstill = partial(note, "look")
        for name, seconds in (("late", 3), ("early", 1)):
            runtime.broker.context.deadlines.set(TrioClock.monotonic_ns() + seconds * 900_000_000, partial(note, name))
            await wait_all_tasks_blocked()
        came.clear()
        commits = stage.commits
        await stage.passes(5)
        assert came == [("look", 1), ("early", 1), ("look", 3), ("late", 3)]
        assert stage.commits == commits + 2

    run(story)
