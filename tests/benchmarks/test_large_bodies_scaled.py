"""The benchmark of large bodies, scaled to seconds: it runs, and no octet is lost or changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "large_bodies.py"


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no /proc on this machine: it reads the broker's")
def test_bodies_arrive_as_they_were_published() -> None:
    """64 KiB to 128 MiB, through real sockets, to a consumer on the same channel number and on another."""
    done = subprocess.run([sys.executable, str(PROGRAM), "--quick"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
