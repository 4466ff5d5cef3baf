"""Work for two brokers at once: results, exceptions with their text, and processes that end."""

import os
import signal
import sys
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
