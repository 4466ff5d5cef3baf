"""Does the same work for several brokers at the same time, each in its own process."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

T = TypeVar("T")


class WorkFailed(Exception):
    """The work for a broker raised an unexpected exception, or its process ended."""


def at_once(work: Callable[[str], T], brokers: Sequence[str], expected: tuple[type[Exception], ...]) -> dict[str, T]:
    """The results of the work for each broker.

    `expected`: exceptions, which can be pickled, that are raised here, too. Raises: WorkFailed, with the traceback of
    any other exception.
    """
    context, connections = get_context("fork"), {}
    with ExitStack() as stack:
        for broker in brokers:
            receiver, sender = context.Pipe(duplex=False)
            connections[broker] = stack.enter_context(receiver)
            with sender:  # closed here before the next fork, so that it ends with the worker
                worker = context.Process(target=_send_result, args=(sender, work, broker, expected))
                held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
                try:  # between these two lines, no one would end the worker
                    worker.start()
                    stack.callback(_end, worker)
                finally:
                    signal.pthread_sigmask(signal.SIG_SETMASK, held)
        return {broker: _received(connection, broker) for broker, connection in connections.items()}


def _send_result(
    sender: Connection, work: Callable[[str], object], broker: str, expected: tuple[type[Exception], ...]
) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    result: object = None
    failure: Exception | str | None = None
    try:
        result = work(broker)
    except expected as error:
        failure = error
    except Exception:
        failure = traceback.format_exc()  # as text, because not every exception can be pickled
    sender.send((result, failure))


def _received(connection: Connection, broker: str) -> Any:
    try:
        result, failure = connection.recv()
    except EOFError:
        raise WorkFailed(f"the process for {broker} ended before its work") from None
    if isinstance(failure, Exception):
        raise failure
    if failure is not None:
        raise WorkFailed(f"the work for {broker} failed:\n{failure}")
    return result


def _end(worker: BaseProcess) -> None:
    worker.terminate()  # which does nothing if it has ended
    worker.join()
