"""A copy of the tree that gets one fault at a time, and the tests that run in it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic

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
#: Exit statuses of pytest: 1, tests failed; 2, the run was ended; 4 and 5, no such tests, none collected.
FAILED, NO_TESTS = (1, 2, 3), (4, 5)


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

    def fails(self, tests: list[str], seconds: float) -> str | None:
        """Run tests in this order until one fails. Returns: which, and None if all pass or `seconds` are over.

        A test that hangs is found when the time is over within it: that is a failure too.
        """
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
        if code in NO_TESTS or code == 0 or code is None:
            return None
        lines = [line for line in printed.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return lines[0] if lines else printed.strip()[-200:] or f"exit {code}"

    def breaks_simulation(self, seed: int, seconds: float) -> str | None:
        """Run worlds from this seed on, for so many seconds of CPU. Returns: what broke."""
        program = "tests/simulation/simulate.py"
        limits = ["--seed", str(seed), "--seconds", str(seconds), "--shorten", "0", "--keep", str(self.directory)]
        code, printed = self.run([sys.executable, program, *limits], seconds * 4)
        lines = [line for line in printed.splitlines() if "BROKEN" in line or "Error" in line]
        return None if code in (0, None) else (lines[-1] if lines else printed.strip()[-200:])

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
            printed, _ = process.communicate(timeout=max(1, end - monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]
        return process.returncode, printed
