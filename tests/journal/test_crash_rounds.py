"""kill -9 under load, scaled to seconds (`make crash` runs thousands of rounds)."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("crash_rounds.py")


@pytest.mark.parametrize("fsync", ["commit", "never"])
def test_nothing_confirmed_is_lost_and_nothing_acked_comes_back(fsync: str) -> None:
    """The seed is in the output; a killed process loses nothing that was handed to the system, in any mode."""
    command = [sys.executable, str(PROGRAM), "--rounds", "6", "--fsync", fsync]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
