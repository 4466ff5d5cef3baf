"""Turns of connections without a switch to their tasks: their sockets stay registered in a second epoll next to trio's.

A wait through `trio.lowlevel.wait_readable` costs an epoll_ctl, a switch to the task and one round of trio's loop. That
is half of the CPU of a message that comes alone (benchmarks/README.md, "A message that comes alone"). Here the socket's
turn is called where trio waits for events; its task continues only after a turn that needs more than a read and a send.

trio's epoll is one of the registered descriptors, and both are level-triggered, so no event can be lost. trio has no
public interface for this: `Poller` replaces `_epoll` of its I/O manager, and reads its queue of runnable tasks. Where
these do not exist (other systems, another trio) there is no poller, and endpoints wait through trio. See
docs/decisions/0031.
"""

import math
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import trio

T = TypeVar("T")


class _Waiter(Generic[T]):
    """A task that waits for its socket. `turn` returns the result of the wait, or None to wait longer."""

    __slots__ = ("error", "fd", "result", "task", "turn", "waiters")

    def __init__(
        self, fd: int, waiters: "dict[int, _Waiter[Any]]", task: trio.lowlevel.Task, turn: Callable[[], T | None]
    ) -> None:
        self.fd = fd
        self.waiters = waiters
        self.task = task
        self.turn = turn
        self.result: T | None = None
        self.error: BaseException | None = None

    def take_turn(self) -> bool:
        """Take a turn. Returns: whether the wait is over and the task continues."""
        try:
            self.result = self.turn()
        except BaseException as error:  # the task raises it
            self.error = error
            return True
        return self.result is not None

    def abort(self, _: object) -> trio.lowlevel.Abort:
        """End the wait: the task was cancelled."""
        del self.waiters[self.fd]
        return trio.lowlevel.Abort.SUCCEEDED


def nothing_to_do() -> float:
    """See `Poller.before_wait`."""
    return math.inf


class Poller:
    """Waits in place of trio's epoll: for trio's events, and for the sockets of connections."""

    __slots__ = ("_epoll", "_events", "_inner", "_inner_fd", "_runnable", "_waiters", "before_wait", "modify",
                 "register", "unregister")  # fmt: skip

    def __init__(self, inner: "select.epoll", runnable: Sequence[object]) -> None:
        """`inner`: trio's epoll. `runnable`: the tasks that trio will run next."""
        self._inner = inner
        self._inner_fd = inner.fileno()
        self._runnable = runnable
        self._waiters: dict[int, _Waiter[Any]] = {}
        self._events: list[tuple[int, int]] = []  # those whose turns are still to come, the last one first
        #: Called before each wait, between turns. Returns: the seconds after which it is called again at the latest.
        self.before_wait: Callable[[], float] = nothing_to_do
        self._epoll = select.epoll()
        self._epoll.register(self._inner_fd, select.EPOLLIN)
        self.modify, self.register, self.unregister = inner.modify, inner.register, inner.unregister

    async def until(self, fd: int, turn: Callable[[], T | None]) -> T:
        """Call `turn` whenever the descriptor is readable, until it returns a value. Returns: the value.

        A turn must not bring forward a deadline of trio, which would be noticed only after the next event: wake a task
        instead.
        Raises: what `turn` raises; Cancelled; OSError.
        """
        try:
            self._epoll.modify(fd, select.EPOLLIN)  # still registered since an earlier wait
        except OSError:  # new, or forgotten by `_take_turns`
            self._epoll.register(fd, select.EPOLLIN)
        waiters = self._waiters
        waiter = waiters[fd] = _Waiter(fd, waiters, trio.lowlevel.current_task(), turn)
        try:
            await trio.lowlevel.wait_task_rescheduled(waiter.abort)
        except trio.Cancelled:
            if waiter.error is None:
                raise
        if waiter.error is not None:
            raise waiter.error
        assert waiter.result is not None
        return waiter.result  # type: ignore[no-any-return]

    def forget(self, fd: int) -> None:
        """Forget a descriptor before it is closed: otherwise a copy of it in another process would wake this one."""
        with suppress(OSError):  # it was never registered
            self._epoll.unregister(fd)

    def poll(self, timeout: float, maxevents: int) -> Sequence[tuple[int, int]]:
        """See `select.epoll.poll`. Returns when trio has events, when a task is to run, or after the timeout."""
        end = time.monotonic() + timeout
        while True:
            if not self._events:
                self._events = self._epoll.poll(min(timeout, self.before_wait()))
                self._events.reverse()
            if self._take_turns():
                return self._inner.poll(0, maxevents)
            if self._runnable:
                return ()
            timeout = end - time.monotonic()
            if timeout <= 0:
                return ()

    def _take_turns(self) -> bool:
        """Take the turns of the events until a task continues: it runs before the next turn.

        Returns: whether trio has events.
        """
        events, waiters = self._events, self._waiters
        while events:
            fd = events.pop()[0]
            waiter = waiters.get(fd)
            if waiter is not None:
                # The turn may have cancelled its task's wait.
                if waiter.take_turn() and waiters.get(fd) is waiter:
                    del waiters[fd]
                    trio.lowlevel.reschedule(waiter.task)
                    return False
            elif fd == self._inner_fd:
                return True
            else:
                self.forget(fd)
        return False

    def close(self) -> None:
        """See `select.epoll.close`; trio calls it at its end."""
        self._epoll.close()
        self._inner.close()


class Wakeup:
    """Calls a function where trio waits, whenever another thread asks for it.

    `TrioToken.run_sync_soon` switches to a task of trio for each call, which takes ten times as long.
    `eventfd`: the function is also called when something else has written to it.
    """

    __slots__ = ("_action", "_lock", "_poller", "eventfd")

    def __init__(self, poller: Poller, action: Callable[[], object]) -> None:
        self._poller = poller
        self._action = action
        self.eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()  # a request must not write to the next file with this number

    def request(self) -> None:
        """Ask for a call, from any thread. Requests before a call share it. After the end of `run`: no effect."""
        with self._lock:
            if self.eventfd >= 0:
                os.eventfd_write(self.eventfd, 1)

    async def run(self) -> None:
        """Call the function on each request, until cancelled. Raises: as the function."""
        try:
            await self._poller.until(self.eventfd, self._call)
        finally:
            self._poller.forget(self.eventfd)
            with self._lock:
                os.close(self.eventfd)
                self.eventfd = -1

    def _call(self) -> None:
        os.eventfd_read(self.eventfd)
        self._action()


_OF_RUN: trio.lowlevel.RunVar[Poller | None] = trio.lowlevel.RunVar("poller")


def poller_of_this_run() -> Poller | None:
    """The poller of this run of trio; None: it cannot have one."""
    try:
        return _OF_RUN.get()
    except LookupError:
        poller = _attach()
        _OF_RUN.set(poller)
        return poller


async def until_readable(fd: int, turn: Callable[[], T | None]) -> T:
    """See `Poller.until`; through trio where this run has no poller. The descriptor may be closed afterwards."""
    if (poller := poller_of_this_run()) is not None:
        try:
            return await poller.until(fd, turn)
        finally:
            poller.forget(fd)
    while True:
        await trio.lowlevel.wait_readable(fd)
        if (result := turn()) is not None:
            return result


def _attach() -> Poller | None:
    """Put a poller in the place of this run's epoll. None: trio waits in another way, or its inside has changed."""
    try:
        from trio._core._run import GLOBAL_RUN_CONTEXT

        runner = GLOBAL_RUN_CONTEXT.runner
        io_manager: Any = runner.io_manager
        inner = io_manager._epoll
        if runner.is_guest or not isinstance(inner, select.epoll):  # a guest waits for events in a thread
            return None
        poller = io_manager._epoll = Poller(inner, runner.runq)
    except (ImportError, AttributeError):
        return None
    return poller
