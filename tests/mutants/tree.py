"""A copy of the tree that gets one fault at a time, and the tests that run in it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from enum import Enum
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from mutant import ROOT, Mutant

#: What a copy of the tree needs: the rooms, and what the tests read.
PARTS = (
    "amqp_frontend",
    "benchmarks",
    "changelog.d",
    "console",
    "deploy",
    "docs",
    "engine",
    "expressions",
    "interop",
    "journal",
    "pipeline",
    "settings",
    "src",
    "tests",
    "vendored",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "Makefile",
    "LICENSE",
)
#: Exit statuses of pytest: no such tests, none collected.
NO_TESTS = (4, 5)


class Verdict(Enum):
    """FOUND: a test failed, or a world broke. SURVIVED: all that were chosen passed. UNDECIDED: the time was over."""

    FOUND = "found"
    SURVIVED = "SURVIVED"
    UNDECIDED = "UNDECIDED"


class Result(NamedTuple):
    """`how`: the test that failed, or what broke; else why nothing did."""

    verdict: Verdict
    how: str


class Tree:
    """A copy in `directory`. Use it as a context: it is removed at the end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._begun = 0

    def __enter__(self) -> Tree:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        unwanted = shutil.ignore_patterns("__pycache__", ".mypy_cache", ".ruff_cache")
        for part in PARTS:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, self.directory / part, symlinks=True, ignore=unwanted)
            else:
                shutil.copy2(ROOT / part, self.directory / part)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def plant(self, mutant: Mutant) -> None:
        """Write its file, with a time of its own: compiled code is told apart by whole seconds."""
        self._begun += 2
        path = self.directory / mutant.file
        path.write_text(mutant.source)
        os.utime(path, (2_000_000_000 + self._begun, 2_000_000_000 + self._begun))

    def remove(self, mutant: Mutant) -> None:
        """The file as it was."""
        shutil.copy2(ROOT / mutant.file, self.directory / mutant.file)

    def run_tests(self, tests: list[str], seconds: float) -> Result:
        """Run tests in this order until one fails. One that hangs for half of the time fails, too."""
        if not tests:
            return Result(Verdict.SURVIVED, "no test runs this function")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "--no-header",
            "-p",
            "no:cacheprovider",
            "-p",
            "in_order",
        ]
        command += ["--tb=no", f"--timeout={max(20, seconds / 2):.0f}", f"--in-order={self.directory}/.order"]
        (self.directory / ".order").write_text("\n".join(tests))
        code, printed = self.run([*command, *dict.fromkeys(test.partition("::")[0] for test in tests)], seconds)
        if code is None:
            return Result(Verdict.UNDECIDED, f"{seconds:.0f} s were over")
        if code in NO_TESTS:
            return Result(Verdict.UNDECIDED, "these tests are not there any more: make mutants-map")
        if code == 0:
            return Result(Verdict.SURVIVED, f"{len(tests)} tests passed")
        lines = [line for line in printed.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return Result(Verdict.FOUND, lines[0] if lines else printed.strip()[-200:] or f"exit {code}")

    def run_simulation(self, seed: int, seconds: float) -> Result:
        """Run worlds from this seed on, for so many seconds."""
        program = "tests/simulation/simulate.py"
        limits = ["--seed", str(seed), "--seconds", str(seconds), "--shorten", "0", "--keep", str(self.directory)]
        code, printed = self.run([sys.executable, program, *limits], seconds * 4)
        lines = [line for line in printed.splitlines() if "BROKEN" in line or "Error" in line]
        if code in (0, None):
            return Result(Verdict.SURVIVED, "no world broke")
        return Result(Verdict.FOUND, lines[-1] if lines else printed.strip()[-200:])

    def run(self, command: list[str], seconds: float) -> tuple[int | None, str]:
        """Exit status and what was printed; None: the time was over."""
        environment = {**os.environ, "PYTHONPATH": f"{self.directory}/src:{Path(__file__).parent}"}
        environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
        end = monotonic() + seconds
        process = subprocess.Popen(
            command,
            cwd=self.directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=max(0, end - monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]
        return process.returncode, printed
