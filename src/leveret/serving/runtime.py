"""The part that all frontends share: ends of turns, the wait for deadlines, and unfinished work."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import trio

from ..amqp_frontend.edge.arrival import Arrival
from ..engine import Broker, Clock, Deadlines


class SystemClock:
    """Real time (`engine.Clock`)."""

    __slots__ = ()

    @staticmethod
    def monotonic_ns() -> int:
        return time.monotonic_ns()

    @staticmethod
    def wall_ms() -> int:
        return time.time_ns() // 1_000_000


class DeadlineTimer:
    """Wakes up for the first of a heap of deadlines, and runs due work.

    `before` is called before each check and may call `watch`; `done` is called after each check.
    """

    def __init__(
        self,
        clock: Clock,
        deadlines: Deadlines | None,
        done: Callable[[], object],
        before: Callable[[], object] = lambda: None,
    ) -> None:
        self._done = done
        self._before = before
        self._wake = trio.Event()
        self._sleeping_until_ns: int | None = None
        self.watch(clock, deadlines)

    def watch(self, clock: Clock, deadlines: Deadlines | None) -> None:
        """Watch other deadlines by this clock. None: watch none: tests move a virtual clock, or the broker is suspended
        or has resigned."""
        self._clock = clock
        self._deadlines = deadlines
        if deadlines is not None:
            deadlines.on_earlier = self._moved
        self._wake.set()

    def _moved(self) -> None:
        """Wake up if the first deadline is now earlier than the one waited for."""
        deadlines = self._deadlines
        due_ns = None if deadlines is None else deadlines.next_ns()
        if self._sleeping_until_ns is None or (due_ns is not None and due_ns < self._sleeping_until_ns):
            self._wake.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            deadlines, clock = self._deadlines, self._clock
            self._sleeping_until_ns = due_ns = None if deadlines is None else deadlines.next_ns()
            self._wake = trio.Event()
            delay_s = float("inf") if due_ns is None else max(0.0, (due_ns - clock.monotonic_ns()) / 1e9)
            with trio.move_on_after(delay_s):
                await self._wake.wait()
            self._before()
            if deadlines is not None and deadlines is self._deadlines:
                deadlines.advance(clock.monotonic_ns())
                self._done()


def _nothing(*, is_short: bool = False) -> bool:
    return False


#: Replaces a broker that has resigned, so that `end_turn` does nothing.
NO_TURNS = SimpleNamespace(end_turn=_nothing, scheduler=SimpleNamespace(to_load=(), load=_nothing))


class Runtime:
    """Runs a broker inside trio; frontends call `end_turn`.

    Args:
        commit: passes the records of a turn to the journal.
        sleeps: wait for deadlines; False: tests move the time.
    Attributes:
        suspended: not None while frontends must read nothing: an event that is set when the broker resumes or resigns.
            None: not suspended.
        is_silent: suspended, and frontends also send nothing.
        has_resigned: `resign` has ended the broker.
        on_suspend, on_resign: callbacks of frontends, called at once by `suspend` and `resign`.
        divert: takes connections that are accepted while the broker is silent; None: they wait in the frontend.
        check_standstill: called before work of a client or a deadline; suspends or resigns if the process was stopped
            for too long. None: not in a cluster.
    """

    def __init__(self, broker: Broker, commit: Callable[[], None] | None = None, *, sleeps: bool = True) -> None:
        self.suspended: trio.Event | None = None
        self.is_silent = self.has_resigned = False
        self.on_suspend: list[Callable[[], object]] = []
        self.on_resign: list[Callable[[], object]] = []
        self.divert: Callable[[Arrival], object] | None = None
        self.check_standstill: Callable[[], object] | None = None
        self._sleeps = sleeps
        self._set_broker(broker, commit)
        self._more = trio.Event()
        self._has_leftovers = False  # unfinished work continues in each round of the event loop
        self._timer = DeadlineTimer(broker.context.clock, self._deadlines, self.end_turn, self._check_standstill)

    def replace_broker(self, broker: Broker, commit: Callable[[], None] | None, *, sleeps: bool) -> None:
        self._sleeps = sleeps
        self._set_broker(broker, commit)
        self._timer.watch(broker.context.clock, self._deadlines)

    def _set_broker(self, broker: Broker, commit: Callable[[], None] | None) -> None:
        self.broker = broker
        self._turns: Any = broker  # the broker, or NO_TURNS after it has resigned
        self._commit = commit

    @property
    def _deadlines(self) -> Deadlines | None:
        return self.broker.context.deadlines if self._sleeps else None

    # -- a cluster --------------------------------------------------------------------------------------------------

    def quiesce(self) -> None:
        """Read nothing from clients and run no deadline until `resume`, `suspend` or `resign`. Idempotent.

        Begun work is finished, and output is sent. Called between turns.
        """
        if self.suspended is None and not self.has_resigned:
            self.suspended = trio.Event()
            self._timer.watch(self.broker.context.clock, None)

    def suspend(self) -> None:
        """Like `quiesce`, but send nothing, and do not finish begun work. Idempotent. Called between turns."""
        self.quiesce()
        if not self.is_silent and not self.has_resigned:
            self.is_silent = True
            for action in self.on_suspend:
                action()

    def resume(self) -> None:
        """Undo `quiesce` or `suspend`. Idempotent."""
        if self.suspended is not None:
            self._timer.watch(self.broker.context.clock, self._deadlines)
            self._end_suspension()

    def _end_suspension(self) -> None:
        suspended, self.suspended, self.is_silent = self.suspended, None, False
        if suspended is not None:
            suspended.set()

    def resign(self) -> None:
        """End the broker: it writes nothing, and runs no turn and no deadline. Idempotent.

        Clients get connection.close, by callbacks in `on_resign`, and nothing else. The caller ends the frontends and
        the tasks of the journal. Called between turns.
        """
        if self.has_resigned:
            return
        self.has_resigned = True
        self._turns, self._commit = NO_TURNS, None
        self._timer.watch(self.broker.context.clock, None)
        self.broker.context.listeners.clear()
        for action in self.on_resign:
            action()
        self._end_suspension()

    async def wait_while_suspended(self) -> None:
        """Return when frontends may read and send, or when the broker has resigned."""
        self._check_standstill()
        while self.suspended is not None:
            await self.suspended.wait()

    def _check_standstill(self) -> None:
        if self.check_standstill is not None:
            self.check_standstill()

    # -- turns ------------------------------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """Dispatch and flush after a turn; unfinished work continues in separate turns."""
        broker = self._turns
        try:
            if broker.end_turn(is_short=self._has_leftovers) or broker.scheduler.to_load:
                self._has_leftovers = True
                self._more.set()
        finally:  # after an error, too: turns of other connections follow before the error stops the broker
            if self._commit is not None:
                self._commit()

    def _do_more(self) -> bool:
        """Run a turn for unfinished work. Returns whether some is left."""
        broker = self._turns
        try:
            return broker.end_turn() or broker.scheduler.load() or bool(broker.scheduler.to_load)
        finally:
            if self._commit is not None:
                self._commit()

    async def run(self) -> None:
        """Run due deadlines and unfinished work until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._timer.run)
            nursery.start_soon(self._do_leftovers)

    async def _do_leftovers(self) -> None:
        while True:
            await self._more.wait()
            self._more = trio.Event()
            try:
                while True:
                    self._check_standstill()
                    if self.is_silent:
                        await self.wait_while_suspended()
                    if not self._do_more():
                        break
                    await trio.lowlevel.checkpoint()  # other connections' turns come between
            finally:
                self._has_leftovers = False
