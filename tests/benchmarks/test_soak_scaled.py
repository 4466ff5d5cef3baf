"""The soak, scaled to seconds: what clients made the broker take, it gives back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"
TIMEOUT_SECONDS = 500


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc on this machine: the soak reads the broker's")
def test_a_dozen_rounds_leave_nothing_behind() -> None:
    """Short connections, every exchange type, confirms, returns, tx, requeues, cut sockets, half frames, deaf clients:
    all served as AMQP says, and no descriptor, connection, queue, consumer, message or task is left at the end."""
    done = subprocess.run(
        [sys.executable, str(SOAK), "--quick"], capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
