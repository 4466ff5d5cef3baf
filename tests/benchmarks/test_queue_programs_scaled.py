"""Benchmark programs about queues, long jobs and the cost of messages, scaled to seconds: their checks hold."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

NEEDS_COMPILER = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc: the load generator cannot be built")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def long(*values: object, marks: Collection[pytest.MarkDecorator] = ()) -> object:
    """A program that `make test-long` runs."""
    return pytest.param(*values, marks=[pytest.mark.long, *marks])


@pytest.mark.parametrize(
    "program, flags",
    [
        ("delays.py", ["--count", "2000", "--seconds", "1"]),
        ("waiting.py", ["--count", "20000"]),
        ("returning.py", ["--count", "1500", "--memory", "64KiB", "--kinds", "leased,priority", "--ways", "close"]),
        ("rpc.py", ["--quick"]),
        long("routes.py", ["--sizes", "1000", "--seconds", "0.2", "--rounds", "1"]),
        long("probe.py", ["--quick", "--journal", "commit", "definitions", "filtered_replays", "proxied_connections"]),
        ("probe.py", ["--quick", "--memory", "purge", "reload"]),
        ("wake_ups.py", ["--count", "200", "--rounds", "1"]),
        long("deep.py", ["--count", "60000", "--memory", "16MiB"], marks=[NEEDS_COMPILER]),
        long("leased.py", ["--quick"], marks=[NEEDS_COMPILER]),
        ("owners.py", ["--quick"]),
        pytest.param("ring.py", ["--count", "20000", "--rounds", "1"], marks=NEEDS_COMPILER),
        long("curves.py", ["--quick"], marks=[NEEDS_COMPILER]),
        long(
            "cluster.py",
            ["--subjects", "single,cluster", "--only", "rate,handover,killed"],
            marks=[NEEDS_COMPILER, pytest.mark.skipif(shutil.which("etcd") is None, reason="no etcd (make peers)")],
        ),
    ],
)
@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no /proc on this machine: they read the broker's")
def test_it_runs(program: str, flags: list[str]) -> None:
    """No message early, twice or missing; a ring of 1,000 holds 1,000; memory a message within its
    bound; no lease ends early."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / program), *flags], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
