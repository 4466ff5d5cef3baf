"""The thread of a running broker, the objects in its loop, and calls into that loop."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import trio

from .clock import TestClock
from .history import Recorder
from .loop_thread import LoopThread
from .options import RuntimeOptions

if TYPE_CHECKING:
    from .runtime import WatchedRuntime

T = TypeVar("T")


class Host:
    """The thread, and the objects in its loop: `runtime`, `clock`, `recorder`, which are set when the thread starts."""

    def __init__(self, options: RuntimeOptions) -> None:
        self.options = options
        self.thread = LoopThread(self._main)
        self.runtime: WatchedRuntime
        self.clock: TestClock
        self.recorder: Recorder

    async def _main(self, started: Callable[[trio.Nursery], None], stopping: trio.Event) -> None:
        from .runtime import WatchedRuntime  # loads the frontend: 25 ms that many test runs save

        self.runtime = WatchedRuntime(self.options, self._listen_to)
        self.clock = TestClock(self.thread, self.runtime)
        await self.runtime.serve(started, stopping)

    def _listen_to(self, runtime: "WatchedRuntime", clears_history: bool) -> None:
        if clears_history:
            self.recorder = Recorder(runtime.clock, self.options.history_max)
        self.recorder.listen_to(runtime.broker)

    def ask(self, function: Callable[[], T]) -> T:
        """Call a function in the broker's loop, after all input of clients so far is handled."""

        async def look() -> T:
            await self.runtime.catch_up()
            return function()

        return self.thread.submit(look).result()

    def ask_until(self, function: Callable[[], T], is_enough: Callable[[T], bool], within_s: float) -> T:
        """`ask` again after each activity, until `is_enough` accepts the answer or these real seconds have passed.

        Returns: the last answer. Raises: WouldBlockTheLoop, whose text names the public callers.
        """

        async def look() -> T:
            await self.runtime.catch_up()
            found = function()
            with trio.move_on_after(within_s):
                while not is_enough(found):
                    await self.runtime.wait_for_activity()
                    await self.runtime.catch_up()
                    found = function()
            return found

        if within_s <= 0:
            return self.ask(function)
        return self.thread.wait(look, "assert_... with within=", "settled_async")
