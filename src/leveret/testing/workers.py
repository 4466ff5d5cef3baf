"""Runs workers of an application during a `with` block of a test, in a thread or a process.

    with thread_worker(broker, consume, broker.url, consumes="orders"):
        ...

frameworks.py has workers of Celery, dramatiq, FastStream and taskiq.
"""

import os
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from ..settings.printable import printable_lines
from .broker import RunningBroker
from .nearest_names import nearest_keywords, nearest_names

#: Maximum real seconds of a worker to begin, and to end.
TIMEOUT_S = 30.0
#: Seconds between two checks of a worker's state.
LOOK_S = 0.1
#: Maximum characters of a process's output in a failure.
OUTPUT_MAX = 4_000


class WorkerFailed(AssertionError):
    """A worker ended too early or with an error, or it did not end."""


@contextmanager
def thread_worker(
    broker: RunningBroker,
    target: Callable[..., object],
    *args: object,
    consumes: str | None = None,
    stop: Callable[[], object] | None = None,
    timeout: float = TIMEOUT_S,
    **kwargs: object,
) -> Iterator[threading.Thread]:
    """Run `target(*args, **kwargs)` in its own thread until the block ends.

    Args:
        consumes: a queue; the block begins when it has a consumer.
        stop: makes the target return. Default: the broker cancels the consumers of its virtual host, which makes
            pika's `start_consuming` return.
        timeout: maximum time to begin and to end, in real seconds.
    Raises: WorkerFailed, also when the target raised before it was stopped; later errors of it are ignored.
    """
    errors: list[BaseException] = []

    def run() -> None:
        try:
            target(*args, **kwargs)
        except BaseException as error:
            errors.append(error)

    name = f"worker {getattr(target, '__name__', target)}"
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()

    def raise_error() -> None:
        if errors:
            raise WorkerFailed(f"{name} raised {type(errors[0]).__name__}: {errors[0]}") from errors[0]

    try:
        if consumes is not None:
            _wait_for_consumer(broker, consumes, thread.is_alive, timeout)
            raise_error()
        yield thread
        raise_error()
    finally:
        if thread.is_alive():
            (stop or (lambda: _cancel_consumers(broker)))()
            thread.join(timeout)
    if thread.is_alive():
        frame = sys._current_frames().get(thread.ident or 0)
        where = "".join(traceback.format_stack(frame)[-3:])
        raise WorkerFailed(f"{name} did not end within {timeout:g} s; it is here:\n{where}")


@nearest_keywords
@contextmanager
def process_worker(
    broker: RunningBroker,
    command: Sequence[str],
    *,
    consumes: str | None = None,
    says: str | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT_S,
) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a command until the block ends. It gets the broker's URL in `AMQP_URL` and for "{url}" in its words.

    Args:
        consumes: a queue; the block begins when it has a consumer.
        says: a text; the block begins when the command has written it.
        environment: variables besides our own; "{url}" is replaced in them, too.
        timeout: maximum time to begin and to end (it is terminated, then killed), in real seconds.
    Raises: WorkerFailed, with the end of its output, when it does not begin or ends by itself with an error.
    """
    url = broker.url
    variables = {**os.environ, "AMQP_URL": url, "PYTHONUNBUFFERED": "1"}
    variables |= {key: value.replace("{url}", url) for key, value in (environment or {}).items()}
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                [part.replace("{url}", url) for part in command],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise WorkerFailed(f"{command[0]}: it can't be started: {error.strerror}") from None
        try:
            if consumes is not None:
                _wait_for_consumer(broker, consumes, lambda: process.poll() is None, timeout)
            if says is not None:
                _wait_for_text(process, output, says.encode(), timeout)
            yield process
            if process.poll():
                raise WorkerFailed("it ended with an error")
        except WorkerFailed as error:
            code = process.poll()
            state = "is running" if code is None else f"ended with code {code}"
            raise WorkerFailed(f"{command[0]}: {error}; it {state}, and wrote:\n{_end_of(output)}") from None
        finally:
            process.terminate()
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for_consumer(broker: RunningBroker, queue: str, is_alive: Callable[[], bool], timeout: float) -> None:
    left = timeout
    while left > 0 and not broker.has_consumer(queue, within=LOOK_S):
        if not is_alive():
            raise WorkerFailed(f"it ended before it consumed queue {queue!r}")
        left -= LOOK_S
    if left <= 0:
        listed = ", ".join(repr(each.name) for each in broker.queues()) or "none"
        raise WorkerFailed(f"queue {queue!r} has no consumer after {timeout:g} s (there are: {listed})")


def _wait_for_text(process: "subprocess.Popen[bytes]", output: IO[bytes], text: bytes, timeout: float) -> None:
    waited = threading.Event()
    left = timeout
    while text not in _all_of(output):
        if process.poll() is not None or left <= 0:
            raise WorkerFailed(f"{text.decode()!r} is not in its output")
        waited.wait(LOOK_S)
        left -= LOOK_S


def _all_of(output: IO[bytes]) -> bytes:
    return os.pread(output.fileno(), 10_000_000, 0) if hasattr(os, "pread") else _read_by_seeking(output)


def _read_by_seeking(output: IO[bytes]) -> bytes:
    """Read a file whose position the process shares, and restore the position to the end, where the process writes."""
    output.seek(0)
    data = output.read()
    output.seek(0, os.SEEK_END)
    return data


def _end_of(output: IO[bytes]) -> str:
    return printable_lines(_all_of(output)[-OUTPUT_MAX:].decode("utf-8", "replace"))


def _cancel_consumers(broker: RunningBroker) -> None:
    for queue in broker.queues():
        if queue.consumers:
            broker.faults.cancel_consumers(queue.name).stop()


@nearest_names
class Workers:
    """The fixture `amqp_worker`. A call starts a worker, which ends with the fixture's scope."""

    def __init__(self, broker: RunningBroker, enter: Callable[[Any], Any]) -> None:
        self._broker = broker
        self._enter = enter

    def __call__(self, target: "Callable[..., object] | Sequence[str]", *args: object, **options: Any) -> Any:
        """Start a function as `thread_worker`, or a command as `process_worker`. Returns: the thread or the process."""
        if callable(target):
            return self._enter(thread_worker(self._broker, target, *args, **options))
        return self._enter(process_worker(self._broker, target, **options))
