"""Work for two brokers at once: results, exceptions with their text, and processes that end."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing import active_children

import pytest

from leveret.interop.running.at_once import WorkFailed, at_once


def work(broker: str) -> str:
    """What the name of the broker says."""

    class LocalError(Exception):
        """Cannot be pickled."""

    if broker == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if broker == "exits":
        sys.exit(0)
    if broker == "fails":
        raise LocalError("the reason") from ValueError("the cause")
    if broker == "missing":
        raise FileNotFoundError("not installed")
    if broker == "endless":
        signal.pause()
    return f"of {broker}"


def test_results() -> None:
    """By broker, in order."""
    assert at_once(work, ["b", "a"], ()) == {"b": "of b", "a": "of a"}


@pytest.mark.parametrize(
    "broker, said",
    [
        ("killed", ["the process for killed ended"]),
        ("exits", ["the process for exits ended"]),
        ("fails", ["the reason", "the cause", "in work"]),
    ],
)
def test_a_failure_is_told_and_ends_the_other_process(broker: str, said: list[str]) -> None:
    """Whatever the other one does."""
    with pytest.raises(WorkFailed) as failed:
        at_once(work, [broker, "endless"], (FileNotFoundError,))
    assert all(one in str(failed.value) for one in said)
    assert active_children() == []


def test_an_expected_exception_is_raised_as_it_is() -> None:
    """Its text is the reason why a tool is left out."""
    with pytest.raises(FileNotFoundError, match="not installed"):
        at_once(work, ["missing", "endless"], (FileNotFoundError,))


#: SIGTERM comes as the fork returns: the worker has begun, and goes on for ever if nobody ends it.
STRUCK = """
import os, signal, threading
from multiprocessing import get_context
from leveret.interop.brokers.processes import unwind_on_sigterm
from leveret.interop.running.at_once import at_once
unwind_on_sigterm()
process_type = get_context("fork").Process
start = process_type.start

def start_and_signal(worker):
    start(worker)
    print(worker.pid, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

process_type.start = start_and_signal
at_once(lambda broker: threading.Event().wait(), ["a"], ())
"""


def test_sigterm_ends_a_worker_that_has_just_begun() -> None:
    """In a process of its own: one with other threads may get the signal in one of these."""
    with subprocess.Popen([sys.executable, "-c", STRUCK], stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        worker = int(command.stdout.readline())
        try:
            assert command.wait(60) == 128 + signal.SIGTERM
            assert not os.path.exists(f"/proc/{worker}")
        finally:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
