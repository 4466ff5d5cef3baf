"""The edge that all frontends share: the end of a turn, the sleep until the next deadline, what is left over."""

import time
from collections.abc import Callable

import trio

from ..engine import Broker


class SystemClock:
    """Real time (`engine.Clock`)."""

    __slots__ = ()

    @staticmethod
    def monotonic_ns() -> int:
        """See `Clock`."""
        return time.monotonic_ns()

    @staticmethod
    def wall_ms() -> int:
        """See `Clock`."""
        return time.time_ns() // 1_000_000


class Runtime:
    """Runs a broker inside trio; frontends call `end_turn`. `commit`: hands what a turn recorded to the journal."""

    def __init__(self, broker: Broker, commit: Callable[[], None] | None = None) -> None:
        self.broker = broker
        self._commit = commit
        self._more = trio.Event()
        self._earlier = trio.Event()
        self._sleeping_until_ns: int | None = None

    def end_turn(self) -> None:
        """Dispatch and flush what a turn left; what does not fit into it is done soon after."""
        if self._turn_ends(feeds=False):
            self._more.set()

    def _turn_ends(self, *, feeds: bool) -> bool:
        """Returns whether there is more to do."""
        broker = self.broker
        try:
            return broker.end_turn() or (feeds and broker.feed()) or bool(broker.hungry)
        finally:  # also when what a consumer is to get could not be read: others have turns before the broker stops
            if self._commit is not None:
                self._commit()

    async def run(self) -> None:
        """Do what is due, and what turns left over, until cancelled."""
        self.broker.deadlines.on_earlier = self._deadline_moved
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_deadlines)
            nursery.start_soon(self._do_leftovers)

    async def _do_leftovers(self) -> None:
        while True:
            await self._more.wait()
            self._more = trio.Event()
            while self._turn_ends(feeds=True):
                await trio.lowlevel.checkpoint()  # other connections' turns come between

    async def _keep_deadlines(self) -> None:
        broker = self.broker
        while True:
            due_ns = broker.next_deadline_ns()
            self._sleeping_until_ns = due_ns
            self._earlier = trio.Event()
            delay_s = float("inf") if due_ns is None else max(0.0, (due_ns - broker.clock.monotonic_ns()) / 1e9)
            with trio.move_on_after(delay_s):
                await self._earlier.wait()
            broker.advance()
            self.end_turn()

    def _deadline_moved(self) -> None:
        """The first deadline is a new one: wake up only if it is before the one that is slept for."""
        due_ns = self.broker.next_deadline_ns()
        if self._sleeping_until_ns is None or (due_ns is not None and due_ns < self._sleeping_until_ns):
            self._earlier.set()
