"""Worlds of a fresh seed, for as long as a test run can spare; `make simulate` has more time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from effort import IS_CI

PROGRAM = Path(__file__).with_name("simulate.py")
#: What the program writes when a world broke: not when it fails by itself.
BROKEN = "BROKEN in the world of seed"
#: Real seconds.
SECONDS = 5


def test_worlds_of_a_fresh_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another seed each time, which is printed: `simulate.py --seed N --worlds 1` shows a world again."""
    command = [sys.executable, str(PROGRAM), "--seconds", str(SECONDS), "--keep", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True)
    with capsys.disabled():
        print(f"\nsimulation: {run.stdout.splitlines()[0]}", end=" ")
    plans = [file.read_text() for file in tmp_path.iterdir()]
    what_broke = "\n".join([run.stdout, run.stderr, *plans])
    if BROKEN in run.stderr and IS_CI:
        pytest.xfail(what_broke)  # a find of chance is no fault of the change that is tested; it is there to be kept
    assert run.returncode == 0, what_broke
