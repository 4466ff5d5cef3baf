"""A thread with its own trio loop, and calls into it from other threads, asyncio, and other trio loops."""

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import sniffio
import trio

from .engine_clock import RealClock

T = TypeVar("T")

#: Maximum seconds of a start or a stop. A longer one is a fault of this library.
TIMEOUT_S = 30.0


class BrokerStopped(RuntimeError):
    """The broker is not running."""


class WouldBlockTheLoop(RuntimeError):
    """A blocking call was made in a running event loop, whose clients could not react meanwhile, or by a condition in
    the broker's loop.
    """


class LoopThread:
    """Runs `main` in a trio loop in another thread until `end`.

    `main` must call its argument `started` with a nursery when it is ready, and end when `stopping` is set.
    """

    def __init__(self, main: Callable[[Callable[[trio.Nursery], None], trio.Event], Awaitable[None]]) -> None:
        self._main = main
        self._started: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._stopping: trio.Event | None = None
        self._is_ending = False
        self._waiting: set[Future[Any]] = set()
        self._lock = threading.Lock()  # protects `_waiting`
        # A daemon thread, so that an aborted test run can exit while the broker runs.
        self._thread = threading.Thread(target=self._run, name="leveret broker", daemon=True)

    # -- life -------------------------------------------------------------------------------------------------------

    def begin(self) -> "Future[None]":
        """Start the thread. The future ends when `main` is ready, or with its error."""
        self._thread.start()
        return self._started

    def end(self) -> "Future[None]":
        """Ask `main` to end. The future ends when the loop has ended; call `join` then."""
        self._is_ending = True
        if self._started.done() and not self._ended.done() and not self._thread.is_alive():
            self._ended.set_result(None)  # in a forked process: the broker of the other process continues
            return self._ended
        token, stopping = self._token, self._stopping
        if token is not None and stopping is not None:
            try:
                token.run_sync_soon(stopping.set)
            except trio.RunFinishedError:
                pass
        return self._ended

    def join(self) -> None:
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the broker's thread does not end"

    @property
    def is_running(self) -> bool:
        """Whether `submit` and `wait` are possible. A forked process does not have the thread."""
        return self._started.done() and not self._ended.done() and self._thread.is_alive()

    def _run(self) -> None:
        try:
            trio.run(self._serve, clock=RealClock())
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)
        finally:
            with self._lock:
                left, self._waiting = self._waiting, set()
            for future in left:
                if not future.done():
                    future.set_exception(BrokerStopped("the broker stopped before it answered"))

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stopping = trio.Event()
        if self._is_ending:  # `end` was called before the nursery existed
            self._stopping.set()

        def started(nursery: trio.Nursery) -> None:
            self._nursery = nursery
            self._started.set_result(None)

        await self._main(started, self._stopping)
        self._nursery = None

    # -- calls ------------------------------------------------------------------------------------------------------

    def submit(self, function: Callable[[], Awaitable[T]]) -> "Future[T]":
        """Run an async function in the loop.

        Raises: BrokerStopped, also in the future; WouldBlockTheLoop, when called in the loop's own thread.
        """
        if threading.current_thread() is self._thread:
            raise WouldBlockTheLoop("the broker was asked from inside one of its own answers, such as a condition")
        future: Future[T] = Future()
        token = self._token
        if token is None or not self.is_running:
            raise BrokerStopped("the broker is not running in this process")
        with self._lock:
            self._waiting.add(future)

        async def run() -> None:
            try:
                result = await function()
            except Exception as error:
                self._forget(future)
                future.set_exception(error)
            else:
                self._forget(future)
                future.set_result(result)

        def begin() -> None:
            try:
                if self._nursery is not None:
                    self._nursery.start_soon(run)
                    return
            except RuntimeError:  # its last task has just ended
                pass
            self._forget(future)
            future.set_exception(BrokerStopped("the broker is stopping"))

        try:
            token.run_sync_soon(begin)
        except trio.RunFinishedError:
            self._forget(future)
            raise BrokerStopped("the broker is not running") from None
        return future

    def _forget(self, future: "Future[Any]") -> None:
        with self._lock:
            self._waiting.discard(future)

    def wait(self, function: Callable[[], Awaitable[T]], what: str, instead: str = "") -> T:
        """Run an async function in the loop, and wait for its end without a limit.

        For the error's text: `what`: the function's public name; `instead`: its name in event loops.
        Raises: WouldBlockTheLoop, when called from a running event loop; BrokerStopped.
        """
        if is_in_event_loop():
            name = instead or f"{what}_async"
            raise WouldBlockTheLoop(f"{what}() would stop this event loop, and its clients; use `await ...{name}()`")
        return self.submit(function).result()


def is_in_event_loop() -> bool:
    """Whether the caller runs inside trio or asyncio."""
    try:
        sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        return False
    return True


#: Rounds of an event loop after which its clients have read, woken their tasks, and answered.
LOOP_TURNS = 20
#: Maximum seconds of a wait for a loop that has ended or hangs.
LOOP_TIMEOUT_S = 1.0


def turns_of_this_loop() -> "Callable[[], Awaitable[None]] | None":
    """A function for the broker's loop that waits for `LOOP_TURNS` rounds of the caller's loop; None: there is no loop.

    After them the loop's clients have had their turns, however busy the machine is.
    """
    if not is_in_event_loop():
        return None
    begin: Callable[..., object]
    again: Callable[..., object]
    if sniffio.current_async_library() == "asyncio":
        import asyncio

        loop = asyncio.get_running_loop()
        begin, again = loop.call_soon_threadsafe, loop.call_soon
    else:
        begin = again = trio.lowlevel.current_trio_token().run_sync_soon

    async def wait() -> None:
        done, here = trio.Event(), trio.lowlevel.current_trio_token()

        def turn(left: int) -> None:
            try:
                if left:
                    again(turn, left - 1)
                else:
                    here.run_sync_soon(done.set)
            except trio.RunFinishedError:
                pass

        with trio.move_on_after(LOOP_TIMEOUT_S):
            try:
                begin(turn, LOOP_TURNS)
            except RuntimeError:  # the loop has ended
                return
            await done.wait()

    return wait


async def result_of(future: "Future[T]") -> T:
    """Wait for a future of another thread, in trio or asyncio."""
    if sniffio.current_async_library() == "asyncio":
        import asyncio  # costs 20 ms, which other callers save

        return await asyncio.wrap_future(future)
    done = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def notify(_: object) -> None:
        try:
            token.run_sync_soon(done.set)
        except trio.RunFinishedError:
            pass

    future.add_done_callback(notify)
    await done.wait()
    return future.result()
