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

SECOND = 1_000_000_000

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
        self.done = 0  # actions
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
        while heap and heap[0][0] <= end_ns:
            self._go_to(heap[0][0])
            self.done += 1
            heappop(heap)[2]()
        self._go_to(end_ns)

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

    def _go_on(self) -> None:
        """To what comes next: every task waits."""
        runner: Any = trio._core._run.GLOBAL_RUN_CONTEXT.runner  # type: ignore[attr-defined]
        deadline: float = runner.deadlines.next_deadline()
        heap = self._heap
        if heap and heap[0][0] <= deadline * SECOND:
            self._go_to(heap[0][0])
            self._do_due()
        elif self._seconds < deadline < inf:
            self._seconds = deadline
            self.now_ns = max(self.now_ns, round(deadline * SECOND))

    def _go_to(self, time_ns: int) -> None:
        if time_ns > self.now_ns:
            self.now_ns = time_ns
            self._seconds = max(self._seconds, time_ns / SECOND)

    def _do_due(self) -> None:
        heap = self._heap
        try:
            while heap and heap[0][0] <= self.now_ns:
                self.done += 1
                heappop(heap)[2]()
        except Exception as error:
            self.failed(error)
