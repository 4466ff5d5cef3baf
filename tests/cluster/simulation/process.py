"""A process of a simulated world: a run of trio of its own, which the world steps.

Each node has its own run, with its own tasks, deadlines and calls from threads. So a node stands still by not being
stepped, while the others run: no task of it needs a gate, and nothing of it is left out. (Trio's guest mode has a
thread that waits for the system; here nothing waits.) What a dead process has is ended, cut off from the world.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from math import ceil, inf
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar
from unittest.mock import patch

import outcome
import trio

if TYPE_CHECKING:
    from .world import World

MS = 1_000_000
#: There is no public way to any of this.
_run: Any = trio._core._run  # type: ignore[attr-defined]
_context: Any = _run.GLOBAL_RUN_CONTEXT
#: Steps of a dead process until its tasks must have ended.
LAST_STEPS = 2_000


class Killed(Exception):
    """The process is gone."""


class _Clock(trio.abc.Clock):
    def __init__(self, world: World) -> None:
        self._world = world

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return self._world.now_ns / 1e9

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return max(deadline - self.current_time(), 0)


class Process:
    """`owner`: what it is the process of. `later(delay_ns, action)` of it: do something then, or never."""

    current: ClassVar[Process | None] = None

    def __init__(self, world: World, owner: Any, main: Callable[[], Awaitable[None]]) -> None:
        self.world, self.owner = world, owner
        self.is_dead = False
        self._main = main
        self._threads: dict[trio.lowlevel.Task, None] = {}
        self._wakes_ns: float = inf
        self._runner = _run.setup_runner(_Clock(world), [], False, True)
        _context.__dict__.clear()
        self._steps = _run.unrolled_run(self._runner, self._live, (), host_uses_signal_set_wakeup_fd=True)
        self._events: Any = None

    async def _live(self) -> None:
        with trio.CancelScope() as self._scope:
            await self._main()

    def call(self, action: Callable[[], object]) -> None:
        """Do something as the system would, and let the tasks go on. Raises: what they raise."""
        if self.is_dead:
            return
        with self._in_context():
            action()
            self._go_on()
        if not self.is_dead:
            self._plan()

    @contextmanager
    def _in_context(self) -> Iterator[None]:
        assert Process.current is None, "a process calls another one"
        Process.current = self
        _context.runner = self._runner
        try:
            yield
        finally:
            _context.__dict__.clear()
            Process.current = None

    def _go_on(self, steps: int = 100_000) -> None:
        """Until all tasks wait."""
        runner = self._runner
        for _ in range(steps):
            try:
                timeout = self._steps.send(self._events)
            except StopIteration:
                self.is_dead = True
                runner.main_task_outcome.unwrap()
                return
            queue = runner.entry_queue
            has_calls = bool(queue.queue or queue.idempotent_queue)
            self._events = runner.io_manager.get_events(0) if has_calls else ()
            if timeout > 0 and not has_calls:
                return
        raise AssertionError(f"{self.owner.name}: {steps} steps, and no time passes")

    def _plan(self) -> None:
        deadline = self._runner.deadlines.next_deadline()
        if deadline == inf:
            return
        due_ns = max(ceil(deadline * 1e9), self.world.now_ns + 1)
        if due_ns < self._wakes_ns:
            self._wakes_ns = due_ns
            self.owner.soon(due_ns - self.world.now_ns, lambda: self._wake(due_ns))

    def _wake(self, due_ns: int) -> None:
        if self._wakes_ns == due_ns:
            self._wakes_ns = inf

    def kill(self) -> None:
        """It ends at once. Its tasks are ended here, cut off from everything."""
        if self.is_dead:
            return
        self.is_dead = True
        with self._in_context():
            self._scope.cancel()
            for task in list(self._threads):
                self._end_thread(task, outcome.Error(Killed()))
            try:
                self._go_on(LAST_STEPS)
            except BaseException:  # of tasks that find everything gone
                pass

    # -- threads ----------------------------------------------------------------------------------------------------

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        """The result of what a thread does; it takes some time."""
        if self.is_dead:
            raise Killed
        task = trio.lowlevel.current_task()
        self._threads[task] = None
        self.owner.soon(self.world.chance.uniform(0.1, 3) * MS, lambda: self._end_thread(task, outcome.capture(work)))
        return await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)

    def _end_thread(self, task: trio.lowlevel.Task, result: Any) -> None:
        if task in self._threads:
            del self._threads[task]
            trio.lowlevel.reschedule(task, result)


async def pass_time(seconds: float) -> None:
    """Wait in virtual time."""
    await trio.sleep_until(trio.current_time() + seconds)


async def _run_sync(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    process = Process.current
    assert process is not None
    return await process.in_thread(lambda: work(*arguments))


@contextmanager
def processes(seed: int) -> Iterator[None]:
    """Threads are the world's, and whatever is random comes from the seed, as in tests/simulation."""
    chance = Random(f"processes {seed}")
    with (
        patch.object(trio.to_thread, "run_sync", _run_sync),
        patch.object(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
        patch.object(_run, "_r", Random(chance.getrandbits(64))),
        patch.object(os, "urandom", chance.randbytes),
        patch.object(secrets, "token_bytes", chance.randbytes),
    ):
        yield
