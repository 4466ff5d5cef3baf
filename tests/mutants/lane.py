"""A plug-in of pytest: tests are collected once, then each fault gets a fork of this process (`--jobs FILE`).

The fork has the fault's code instead of what it changes, runs the tests that were chosen for it until one fails, and
ends. It has a directory for temporary files of its own; nothing that it opens is shared with another.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import resource
import select
import shutil
import signal
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from time import process_time

import pytest
from swap import Program, changed_functions
from tree import Job, Result, Tree, Verdict, is_of

#: A fault that takes more memory than this is found.
MEMORY_MAX = 6 << 30
#: A test that computes for so many seconds has failed.
HANGS_S = 15
#: A test that computes for a smaller part of `--waits` seconds waits. On a busy machine one that computes gets more.
WAITS_SHARE = 0.05
#: So many times what all tests may compute they may last: on a busy machine, and where they wait.
WAITS_MAX = 20
OVER = Result(Verdict.UNDECIDED, "the time was over before the tests were")


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `Tree.try_jobs` says."""
    parser.addoption("--jobs", metavar="FILE", help="try these faults, a pickled list of `Job`s")
    parser.addoption("--results", metavar="DESCRIPTOR", type=int, help="where results are written to, pickled")
    parser.addoption("--waits", metavar="SECONDS", type=float, help="a test that waits for so long has failed")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Instead of pytest's own."""
    if (file := session.config.getoption("--jobs")) is None:
        return None
    lane = _Lane(session)
    with open(session.config.getoption("--results"), "wb") as results:
        for job in pickle.loads(Path(file).read_bytes()):
            pickle.dump(lane.run(job), results)
            results.flush()
    return True


class _Lane:
    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        self._variants: dict[str, list[str]] = defaultdict(list)  # node ids by the test without its parameters
        for id_ in self._items:
            self._variants[id_.partition("[")[0]].append(id_)
        self._passing: set[str] = set()
        self._finders: dict[str, str] = {}  # by a fault's file the file of tests that found the last one there
        self._tree = Tree(session.config.rootpath)
        gc.collect()
        self._program = Program(session.config.rootpath.resolve())
        gc.freeze()  # forks share what is there: nobody looks through it again

    def run(self, job: Job) -> tuple[Result, float]:
        """What became of it, and the CPU seconds that it took."""
        begun_s = _cpu_s()
        if self._session.testsfailed:
            return Result(Verdict.FOUND, "a module cannot be imported"), 0.0
        if not job.tests and not job.machines:
            return Result(Verdict.SURVIVED, "no test runs this function"), 0.0
        result = unknown = Result(Verdict.UNDECIDED, "its tests are not there or fail in any case: make mutants-map")
        items = self._items_of(job)
        while items:
            self._tree.plant(job.mutant)  # for programs that a test starts, and modules that it is the first to import
            result = self._in_fork(job, items)
            self._tree.remove()
            if result.verdict is not Verdict.FOUND or self._passes(result.how, job):
                break
            items = items[[item.nodeid for item in items].index(result.how) + 1 :]
            del self._items[result.how]
            result = unknown
        if result.verdict is Verdict.FOUND:
            self._finders[job.mutant.file] = result.how.partition("::")[0]
        return result, _cpu_s() - begun_s

    def _items_of(self, job: Job) -> list[pytest.Item]:
        """The test of its row, those of the file that found the last fault there, the others, and machines."""
        tests = (*job.tests, *job.machines)
        ids = dict.fromkeys(id_ for test in tests for id_ in self._variants.get(test, [test]) if id_ in self._items)
        first = f"{self._finders.get(job.mutant.file, '')}::"

        def is_later(id_: str) -> bool:
            return id_ in job.machines or not (is_of(id_, job.mutant.found_by) or id_.startswith(first))

        return [self._items[id_] for id_ in sorted(ids, key=is_later)]

    def _passes(self, test: str, job: Job) -> bool:
        """Whether a test passes without the fault; looked at once. What fails here in any case finds nothing."""
        source = self._tree.before(job.mutant)
        if test not in self._passing and test in self._items and source != job.mutant.source:
            harmless = replace(job, mutant=replace(job.mutant, source=source))
            if self._in_fork(harmless, [self._items[test]]).verdict is Verdict.FOUND:
                return False
            self._passing.add(test)
        return True

    def _in_fork(self, job: Job, items: list[pytest.Item]) -> Result:
        temporary = tempfile.mkdtemp()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os.setsid()
                os.close(read)
                os.write(write, pickle.dumps(self._run_tests(job, items, temporary, write)))
            os._exit(0)
        os.close(write)
        has_ended = bool(select.select([read], [], [], WAITS_MAX * job.seconds)[0])
        said = os.read(read, 1 << 16) if has_ended else b""
        os.close(read)
        if has_ended and not said:
            os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
        shutil.rmtree(temporary, ignore_errors=True)
        if not has_ended:
            return OVER
        result: Result = pickle.loads(said) if said else Result(Verdict.FOUND, "the process of the tests ended")
        return result

    def _run_tests(self, job: Job, items: list[pytest.Item], temporary: str, write: int) -> Result:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MAX, MEMORY_MAX))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        tempfile.tempdir = os.environ["TMPDIR"] = temporary
        if self._tree.before(job.mutant) != job.mutant.source:  # else it was there at the start
            self._program.swap(job.mutant.file, changed_functions(self._tree.before(job.mutant), job.mutant.source))
        watch = _Watch()
        self._session.config.pluginmanager.register(watch)
        waits_s, computed_s = self._session.config.getoption("--waits"), 0.0

        def hangs(*_: object) -> None:
            """Ends the process: an exception would be caught, or Hypothesis would run the example again."""
            os.write(write, pickle.dumps(Result(Verdict.FOUND, watch.running)))
            os._exit(0)

        def hangs_if_it_waits(*_: object) -> None:
            nonlocal computed_s
            before_s, computed_s = computed_s, process_time()
            if computed_s - before_s < waits_s * WAITS_SHARE:
                hangs()

        signal.signal(signal.SIGPROF, hangs)
        signal.signal(signal.SIGALRM, hangs_if_it_waits)
        result = Result(Verdict.SURVIVED, f"{len(items)} tests passed")
        machines = [item for item in items if item.nodeid in job.machines]
        others = items[: len(items) - len(machines)]
        for some, end_s in ((others, job.seconds / 2 if machines else job.seconds), (machines, job.seconds)):
            for item, following in zip(some, [*some[1:], None]):
                computed_s = process_time()
                signal.setitimer(signal.ITIMER_PROF, HANGS_S)
                signal.setitimer(signal.ITIMER_REAL, waits_s, waits_s)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.setitimer(signal.ITIMER_REAL, 0)
                if watch.failed or process_time() > end_s:
                    with contextlib.suppress(BaseException):
                        self._session._setupstate.teardown_exact(None)  # what a session's fixtures started
                    if watch.failed:
                        return Result(Verdict.FOUND, watch.failed)
                    result = OVER
                    break
        return result


def _cpu_s() -> float:
    """Of this process and of those that have ended."""
    return sum(os.times()[:4])


class _Watch:
    def __init__(self) -> None:
        self.running = self.failed = ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """It runs from now on."""
        self.running = nodeid

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The first that failed."""
        if report.failed and not self.failed:
            self.failed = report.nodeid
