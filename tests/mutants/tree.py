"""A copy of the tree that gets one fault at a time, and the tests that run in it."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO

from mutant import ROOT, Mutant
from simulated import Seed

#: What a copy of the tree needs: the rooms, and what the tests read.
PARTS = (
    "amqp_frontend",
    "benchmarks",
    "changelog.d",
    "cluster",
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
#: A test that hardly computes for so many seconds waits, and has failed (`lane.py`).
WAITS_S = 60
#: Where the process ended before the first test or world: a fault of which this comes is found.
NOTHING = "there was no result"


class Verdict(Enum):
    """FOUND: a test failed, or a world broke. SURVIVED: all that were chosen passed. UNDECIDED: the time was over."""

    FOUND = "found"
    SURVIVED = "SURVIVED"
    UNDECIDED = "UNDECIDED"


class Result(NamedTuple):
    """`how`: the test that failed, or what broke; else why nothing did."""

    verdict: Verdict
    how: str


def is_of(node_id: str, test: str) -> bool:
    """Whether a node is this test, with whatever parameters: what a row says of them may be outdated."""
    return node_id.partition("[")[0] == test.partition("[")[0]


@dataclass(frozen=True, slots=True)
class Job:
    """A fault, and the tests that look for it, in this order, for `seconds` at most: half of them, if `machines` come
    last. A test that is named without its parameters is tried with each of them.
    """

    mutant: Mutant
    tests: list[str]
    seconds: float
    machines: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class WorldsJob:
    """A fault, and the simulated worlds that look for it, one after the other, for `seconds` of CPU time at most."""

    mutant: Mutant
    seeds: Sequence[Seed]
    seconds: float


AnyJob = Job | WorldsJob


class Tree:
    """A copy in `directory`. Use it as a context: it is removed at the end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._begun = 0
        self._planted: tuple[str, str] | None = None
        self._times_ns = 0, 0  # of the file in which it is planted

    def __enter__(self) -> Tree:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        unwanted = shutil.ignore_patterns("__pycache__", ".mypy_cache", ".ruff_cache")
        for part in PARTS:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, self.directory / part, symlinks=True, ignore=unwanted)
            else:
                shutil.copy2(ROOT / part, self.directory / part)
        # Otherwise each program that a test starts compiles all that it imports: 5 CPU seconds for a broker.
        subprocess.run([sys.executable, "-m", "compileall", "-q", *PARTS], cwd=self.directory, check=True)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def plant(self, mutant: Mutant) -> None:
        """Write its file, with a time of its own: compiled code is told apart by whole seconds."""
        self._begun += 2
        self._planted = mutant.file, self.before(mutant)
        path = self.directory / mutant.file
        self._times_ns = path.stat().st_atime_ns, path.stat().st_mtime_ns
        path.write_text(mutant.source)
        os.utime(path, (2_000_000_000 + self._begun, 2_000_000_000 + self._begun))

    def remove(self) -> None:
        """The file as it was, with its time, so that its compiled code is valid."""
        if self._planted is not None:
            file, source = self._planted
            (self.directory / file).write_text(source)
            os.utime(self.directory / file, ns=self._times_ns)
            self._planted = None

    def before(self, mutant: Mutant) -> str:
        """Its file without it."""
        if self._planted is not None and self._planted[0] == mutant.file:
            return self._planted[1]
        return (self.directory / mutant.file).read_text()

    def try_jobs(self, jobs: Sequence[AnyJob]) -> Iterator[tuple[Result, float]]:
        """What becomes of each, and the seconds that it takes, in one process: one that collects all their tests
        (`lane.py`), or one that imports the simulation (`worlds.py`)."""
        file = self.directory / ".jobs"
        file.write_bytes(pickle.dumps(jobs))
        read, write = os.pipe()
        if tested := [job for job in jobs if isinstance(job, Job)]:
            command = [*self._collecting(tested), f"--jobs={file}", f"--results={write}"]
        else:
            command = [sys.executable, "tests/mutants/worlds.py", str(file), str(write)]
        with open(self.directory / ".said", "w+") as said, open(read, "rb") as results:
            process = self._start(command, stdout=said, pass_fds=(write,))
            os.close(write)
            for _ in jobs:
                yield _next_result(results, said)
            process.wait()

    def _collecting(self, jobs: list[Job]) -> list[str]:
        """Pytest, with the files that have their tests."""
        files = dict.fromkeys(test.partition("::")[0] for job in jobs for test in (*job.tests, *job.machines))
        there = [file for file in files if (self.directory / file).exists()]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "lane"]
        command += ["--assert=plain", "--timeout=0", f"--waits={WAITS_S}"]  # nobody reads why a test failed
        return [*command, *(there or ["tests/mutants"])]  # some test, or pytest would take all

    def try_anew(self, job: AnyJob) -> tuple[Result, float]:
        """In a process that has the fault from the start."""
        self.plant(job.mutant)
        try:
            ((result, seconds),) = self.try_jobs([job])
            return (Result(Verdict.FOUND, result.how) if result.how.startswith(NOTHING) else result), seconds
        finally:
            self.remove()

    def _start(self, command: list[str], **options: Any) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": f"{self.directory}/src:{Path(__file__).parent}"}
        environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
        return subprocess.Popen(
            command,
            cwd=self.directory,
            env=environment,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **options,
        )


def _next_result(results: BinaryIO, said: TextIO) -> tuple[Result, float]:
    try:
        result: tuple[Result, float] = pickle.load(results)
    except EOFError:
        said.seek(0)
        result = Result(Verdict.UNDECIDED, f"{NOTHING}: {said.read()[-2000:]}"), 0.0
    return result
