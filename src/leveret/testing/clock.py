"""`broker.clock` moves virtual time from deadline to deadline, and lets clients react to each.

After each step that sent something to clients, the broker waits until it is quiet: nothing to read, nothing unsent, no
turn due, for `quiet_ms` of real time. Source: ruling 25.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

import trio

from .loop_thread import LoopThread, result_of, turns_of_this_loop
from .nearest_names import nearest_names

if TYPE_CHECKING:
    from .runtime import WatchedRuntime

T = TypeVar("T")
#: See `loop_thread.turns_of_this_loop`.
Turns = Callable[[], Awaitable[None]]
#: Maximum years of one step, because dates end with the year 9999.
YEARS_MAX = 1000


class ClockIsReal(RuntimeError):
    """A real clock cannot be moved."""


@nearest_names
class TestClock:
    """The broker's time, which decides TTL, redelivery delays, scheduled delivery and queue expiry."""

    __test__ = False  # tells pytest that it is not a test class, despite its name

    def __init__(self, thread: LoopThread, runtime: "WatchedRuntime") -> None:
        self.thread = thread
        self.runtime = runtime
        self._moving = trio.Lock()
        self._autojumps: dict[Autojump, None] = {}

    # -- reading ----------------------------------------------------------------------------------------------------

    @property
    def mode(self) -> str:
        """ "real" or "virtual"."""
        return self.runtime.clock.mode

    @property
    def elapsed(self) -> float:
        """Seconds of the broker's time since its start or its reset."""
        return self.runtime.clock.monotonic_ns() / 1e9

    def now(self) -> datetime:
        """The broker's wall time, in UTC."""
        return datetime.fromtimestamp(self.runtime.clock.wall_ms() / 1000, UTC)

    # -- moving -----------------------------------------------------------------------------------------------------

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Advance virtual time. Each deadline on the way takes effect at its own instant, in order.

        Returns when the broker is quiet at the new time. Deadlines of one instant take effect in the order of their
        setting.
        Raises: ClockIsReal; ValueError for a negative time; WouldBlockTheLoop inside an event loop.
        """
        move = self._advance(_ns(days, hours, minutes, seconds, milliseconds))
        self.thread.wait(move, "clock.advance")

    async def advance_async(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """`advance` for trio and asyncio; other tasks of the loop run meanwhile."""
        move = self._advance(_ns(days, hours, minutes, seconds, milliseconds), turns_of_this_loop())
        await result_of(self.thread.submit(move))

    def travel_to(self, when: datetime) -> None:
        """Advance virtual time until the broker's wall clock shows `when` (naive: UTC). Raises: as `advance`."""
        self.thread.wait(self._travel(when), "clock.travel_to")

    async def travel_to_async(self, when: datetime) -> None:
        """`travel_to` for trio and asyncio."""
        await result_of(self.thread.submit(self._travel(when, turns_of_this_loop())))

    def autojump(self, *, limit: timedelta | None = None) -> "Autojump":
        """Jump to the next deadline whenever the broker is quiet, until the end of the `with` block or `stop`.

        `limit`: the most time of all jumps together. Time does not wait for a client that needs more than `quiet_ms` to
        react.
        Raises: ClockIsReal.
        """
        self._check_virtual()
        limit_ns = None if limit is None else round(limit.total_seconds() * 1e9)
        autojump = Autojump(self, limit_ns, turns_of_this_loop())
        self._autojumps[autojump] = None
        self.thread.submit(autojump.begin).result()
        return autojump

    def stop_autojumps(self) -> None:
        """Stop all automatic jumps. Call it in the broker's loop."""
        for autojump in list(self._autojumps):
            autojump.end()
        self._autojumps.clear()

    def forget(self, autojump: "Autojump") -> None:
        """Forget an autojump that has stopped."""
        self._autojumps.pop(autojump, None)

    # -- in the broker's loop -----------------------------------------------------------------------------------------

    def _advance(self, delta_ns: int, turns: Turns | None = None) -> Callable[[], Awaitable[None]]:
        self._check_virtual()
        if delta_ns < 0:
            raise ValueError("time does not run backwards")

        async def move() -> None:
            await self.runtime.quiet(turns)  # handle earlier input of clients at the earlier time
            async with self._moving:
                await self._go_to(self.runtime.clock.monotonic_ns() + delta_ns, turns)

        return move

    def _travel(self, when: datetime, turns: Turns | None = None) -> Callable[[], Awaitable[None]]:
        self._check_virtual()
        wall_ms = round((when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp() * 1000)

        async def move() -> None:
            await self.runtime.quiet(turns)
            async with self._moving:
                clock = self.runtime.clock
                delta_ms = wall_ms - clock.wall_ms()
                if delta_ms < 0:
                    raise ValueError(f"{when} is in the past of the broker, where it is {self.now()}")
                await self._go_to(clock.monotonic_ns() + delta_ms * 1_000_000, turns)

        return move

    async def _go_to(self, until_ns: int, turns: Turns | None = None) -> None:
        runtime = self.runtime
        while (due_ns := runtime.broker.next_deadline_ns()) is not None and due_ns <= until_ns:
            if await runtime.step_to(due_ns):
                await runtime.quiet(turns)
        runtime.clock.move_to(until_ns)

    def timed(self, function: Callable[[Callable[[int], Awaitable[None]]], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """A function that runs an async function. Its argument, a callback, moves virtual time to an instant (ns).

        Raises: ClockIsReal.
        """
        self._check_virtual()

        async def run() -> T:
            async with self._moving:
                return await function(self._go_to)

        return run

    async def jump(self, until_ns: int | None) -> bool:
        """Jump to the next deadline, at most to `until_ns`. Returns False if there is no deadline until then."""
        async with self._moving:
            due_ns = self.runtime.broker.next_deadline_ns()
            if due_ns is None or (until_ns is not None and due_ns > until_ns):
                return False
            await self.runtime.step_to(due_ns)
            return True

    def _check_virtual(self) -> None:
        if not self.runtime.clock.is_virtual:
            raise ClockIsReal(
                'this broker runs on real time; start it, or reset it, with clock="virtual" '
                '(with pytest: mark the test with @pytest.mark.amqp(clock="virtual"); with amqp_module_broker the '
                'module: pytestmark = pytest.mark.amqp(clock="virtual"))'
            )


@nearest_names
class Autojump:
    """Automatic jumps of virtual time; see `TestClock.autojump`."""

    def __init__(self, clock: TestClock, limit_ns: int | None, turns: Turns | None) -> None:
        self._clock = clock
        self._turns = turns
        self._limit_ns = limit_ns
        self._scope = trio.CancelScope()

    def __enter__(self) -> "Autojump":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop jumping. Raises: BrokerStopped; WouldBlockTheLoop in the thread of the broker."""

        async def end() -> None:
            self.end()

        self._clock.thread.submit(end).result()
        self._clock.forget(self)

    async def begin(self) -> None:
        """Begin. Call it in the broker's loop."""
        self._clock.runtime.nursery.start_soon(self._run)

    def end(self) -> None:
        """End. Call it in the broker's loop."""
        self._scope.cancel()

    async def _run(self) -> None:
        runtime = self._clock.runtime
        until_ns = None if self._limit_ns is None else runtime.clock.monotonic_ns() + self._limit_ns
        with self._scope:
            while True:
                await runtime.quiet(self._turns)
                seen = runtime.activity
                if not await self._clock.jump(until_ns) and runtime.activity == seen:
                    await runtime.wait_for_activity()


def _ns(days: float, hours: float, minutes: float, seconds: float, milliseconds: float) -> int:
    ms = days * 86_400_000 + hours * 3_600_000 + minutes * 60_000 + seconds * 1000 + milliseconds
    if not abs(ms) < YEARS_MAX * 366 * 86_400_000:  # `>=` would accept NaN
        raise ValueError(f"{ms} ms is invalid, expected at most {YEARS_MAX} years")
    return round(ms * 1e6)
