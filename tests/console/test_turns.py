"""Many requests at once: whoever else the broker serves waits for one step of one of them, not for one of each."""

from __future__ import annotations

from collections.abc import Generator
from unittest.mock import Mock

import pytest
import trio
import trio.testing

from leveret.console.http_messages import Answer, Refusal
from leveret.console.state import ConsoleState, in_turns
from leveret.engine import Broker, ManualClock
from leveret.serving.runtime import Runtime

REQUESTS, STEPS = 30, 10


def test_one_step_at_a_time() -> None:
    """In rounds of the loop; and each request has its steps in turn with the others'."""
    order: list[int] = []
    ends: list[None] = []
    most: list[int] = []

    def steps(number: int) -> Generator[None, None, Answer]:
        for _ in range(STEPS):
            order.append(number)
            yield
        return Answer(200)

    async def look() -> None:
        while True:
            before = len(order)
            await trio.lowlevel.checkpoint()
            most.append(len(order) - before)

    async def main() -> None:
        turn = trio.Lock()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            async with trio.open_nursery() as requests:
                for number in range(REQUESTS):
                    requests.start_soon(in_turns, steps(number), turn, lambda: ends.append(None))
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert max(most) <= 2  # one a round; where in a round somebody has his turn is chance
    assert len(order) == REQUESTS * STEPS and len(ends) == REQUESTS * (STEPS + 1)
    for number in range(REQUESTS):
        places = [at for at, one in enumerate(order) if one == number]
        assert all(after - before <= 2 * REQUESTS for before, after in zip(places, places[1:]))


def test_requests_wait_while_the_broker_is_suspended_and_are_refused_after_its_end() -> None:
    """Nothing is said that another leader may know otherwise."""
    runtime = Runtime(Broker(ManualClock()))
    state: ConsoleState = Mock(runtime=runtime)
    passed: list[str] = []

    async def ask(name: str) -> None:
        await ConsoleState.wait_for_leadership(state)
        passed.append(name)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await ask("before")
            runtime.suspend()
            nursery.start_soon(ask, "meanwhile")
            await trio.testing.wait_all_tasks_blocked()
            assert passed == ["before"]
            runtime.resume()
        runtime.suspend()
        runtime.resign()
        with pytest.raises(Refusal, match="no longer leads"):
            await ask("after")

    trio.run(main)
    assert passed == ["before", "meanwhile"]
