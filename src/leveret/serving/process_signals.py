"""The signals of a broker process, as values that a task waits for.

The handler is not written in Python, because such a handler runs between any two instructions, also inside another call
of itself: if signals arrive faster than it returns (from an impatient supervisor), the calls nest until the stack
overflows, and the error appears in any line of the program.
"""

import signal
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

#: Signals that stop the broker.
STOPS = (signal.SIGINT, signal.SIGTERM)
#: Signals that make the broker read its configuration again; Windows has none.
RELOADS = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()


class SignalQueue:
    """The signals that arrived and were not read yet, each number once."""

    def __init__(self, wakeups: trio.socket.SocketType) -> None:
        self._wakeups = wakeups
        self._arrived: dict[int, FrameType | None] = {}
        #: A signal handler: a method of a dict, because that is written in C.
        self.handler = self._arrived.setdefault

    def __aiter__(self) -> "SignalQueue":
        return self

    async def __anext__(self) -> signal.Signals:
        while not self._arrived:
            if self._wakeups.fileno() < 0:
                raise StopAsyncIteration
            try:
                await self._wakeups.recv(4096)
            except trio.ClosedResourceError:
                raise StopAsyncIteration from None
        number = next(iter(self._arrived))
        del self._arrived[number]
        return signal.Signals(number)


@contextmanager
def open_signal_queue(numbers: Iterable[signal.Signals]) -> Iterator[SignalQueue]:
    """Receive these signals in the block; after it they are ignored until the process ends.

    Call it in Python's main thread, within `trio.run`. Iteration over the queue ends after the block.
    """
    writer, reader = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    wakeups = trio.socket.from_stdlib_socket(reader)
    queue = SignalQueue(wakeups)
    # A full buffer is no error: the octets in it only wake the reader up.
    previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        for number in numbers:
            signal.signal(number, queue.handler)
        yield queue
    finally:
        ignore(numbers)
        signal.set_wakeup_fd(previous)
        wakeups.close()
        writer.close()


def ignore(numbers: Iterable[signal.Signals]) -> None:
    """Ignore these signals, also while the interpreter ends, when it resets Python's handlers to the default."""
    sys.unraisablehook = _without_late_signals
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def _without_late_signals(unraisable: "UnraisableHookArgs") -> None:
    """Drop Python's report of a signal that arrived while its handler was replaced by SIG_IGN."""
    if not (isinstance(unraisable.exc_value, OSError) and "ignored due to race condition" in str(unraisable.exc_value)):
        sys.__unraisablehook__(unraisable)
