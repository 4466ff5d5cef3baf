"""Virtual time, and what happens when: a heap of actions.

Trio's clock belongs to it. When every task waits, time goes on to what comes next: a deadline of a task, or an action,
which is done right there. An action costs no task and no switch to one.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

import trio
from trio.testing import MockClock

from .ledger import Broken

SECOND = 1_000_000_000

#: So many turns of tasks, and actions, at one time: the world would never end. A long turn has some hundreds.
STEPS_MAX = 200_000

Action = Callable[[], object]


class Schedule:
    """Actions of the same nanosecond are done in the order in which they were asked for.

    `clock`: for trio, which calls its `_autojump` when nothing can go on; there is no public way to be called then.
    `failed`: an action raised.
    """

    def __init__(self) -> None:
        self.clock: Any = MockClock(autojump_threshold=0)
        self.clock.current_time = lambda: self._seconds
        self.clock.deadline_to_sleep_time = lambda deadline: 0 if deadline <= self._seconds else inf
        self.clock._autojump = self._go_on
        self._heap: list[tuple[int, int, Action]] = []
        self._numbers = count()
        self._seconds = 0.0
        self.now_ns = 0
        self._steps = 0  # since time passed
        self._still_until_ns = 0
        self.failed: Callable[[Exception], object] = lambda error: None

    def at(self, time_ns: int, action: Action) -> None:
        """Do this then; a time that is over is now."""
        heappush(self._heap, (time_ns, next(self._numbers), action))

    def after(self, delay_ns: int, action: Action) -> None:
        """Do this so many nanoseconds from now."""
        heappush(self._heap, (self.now_ns + delay_ns, next(self._numbers), action))

    def stand_still(self, duration_ns: int) -> None:
        """The broker's process does, for so long, while everybody else goes on: called from an action."""
        heap, end_ns = self._heap, self.now_ns + duration_ns
        self._still_until_ns = max(self._still_until_ns, end_ns)
        while heap and heap[0][0] <= end_ns:
            self._go_to(heap[0][0])
            self._step()
            heappop(heap)[2]()
        self._go_to(end_ns)

    @property
    def stands_still(self) -> bool:
        """Whether the broker's process does."""
        return self.now_ns < self._still_until_ns

    def in_the_process(self, action: Action) -> None:
        """Do what only the broker's process can: now, or when it does not stand still any more."""
        if self.stands_still:
            self.at(self._still_until_ns + 1, action)
        else:
            action()

    async def pass_time(self, duration_ns: int) -> None:
        """Wait so long."""
        waiting = [trio.lowlevel.current_task()]

        def due() -> None:
            if waiting:
                trio.lowlevel.reschedule(waiting.pop())

        def abort(_: Any) -> trio.lowlevel.Abort:
            waiting.clear()
            return trio.lowlevel.Abort.SUCCEEDED

        self.after(duration_ns, due)
        await trio.lowlevel.wait_task_rescheduled(abort)

    def tasks_had_their_turn(self) -> None:
        """To be called for each turn of trio's loop."""
        try:
            self._step()
        except Broken as error:
            self.failed(error)

    def _step(self) -> None:
        """Raises: Broken, in a world that loops."""
        self._steps += 1
        if self._steps >= STEPS_MAX:
            self._steps = 0
            raise Broken(f"{STEPS_MAX:,} steps at {self._seconds} s, and no time passes")

    def _go_on(self) -> None:
        """To what comes next, until a task has something to do: every task waits."""
        runner = _runner()
        heap, tasks, next_deadline = self._heap, runner.runq, runner.deadlines.next_deadline
        while not tasks and not has_calls():
            deadline: float = next_deadline()
            if deadline <= self._seconds:
                return
            if heap and heap[0][0] <= deadline * SECOND:
                self._go_to(heap[0][0])
                self._do_due()
            elif deadline < inf:
                self._go_to(round(deadline * SECOND))
                self._seconds = deadline
                return
            else:
                return

    def _go_to(self, time_ns: int) -> None:
        if time_ns > self.now_ns:
            self.now_ns = time_ns
            self._seconds = max(self._seconds, time_ns / SECOND)
            self._steps = 0

    def _do_due(self) -> None:
        heap = self._heap
        try:
            while heap and heap[0][0] <= self.now_ns:
                self._step()
                heappop(heap)[2]()
        except Exception as error:
            self.failed(error)


def has_calls() -> bool:
    """Whether somebody calls from outside of trio's tasks: a signal, or trio itself at its end."""
    queue = _runner().entry_queue
    return bool(queue.queue or queue.idempotent_queue)


def _runner() -> Any:
    """There is no public way to trio's loop."""
    return trio._core._run.GLOBAL_RUN_CONTEXT.runner  # type: ignore[attr-defined]
