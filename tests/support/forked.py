"""`pytest --processes N`: N processes share the files of a run. They are forked when all tests are collected.

Each process of pytest-xdist collects for itself, which cost `make test` a minute on two cores.
"""

import atexit
import io
import multiprocessing
import os
import signal
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest

CONTEXT = multiprocessing.get_context("fork")
#: What a process sends last.
END = "end"


class Worker:
    """A process, as the first process sees it. `running`: the test that it began last, and has not ended."""

    def __init__(self, session: pytest.Session, number: int, tests: Iterable[pytest.Item]) -> None:
        self.connection, theirs = CONTEXT.Pipe(duplex=False)
        self.process = CONTEXT.Process(target=_work, args=(session, number, tests, theirs))
        self.process.start()
        theirs.close()
        self.running = ""

    def stop(self) -> None:
        """End the test that is running, as Ctrl-C does, and remove fixtures."""
        if self.process.is_alive() and self.process.pid:
            os.kill(self.process.pid, signal.SIGINT)
        self.process.join()


def run(session: pytest.Session, groups: Sequence[Sequence[pytest.Item]], count: int) -> None:
    """Run all tests in `count` processes. Those of a group run in one process; groups begin in their order."""
    config = session.config
    if (terminal := config.pluginmanager.getplugin("terminalreporter")) is not None:
        terminal.showfspath = False
    config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    tests = _Shared(groups)
    workers = {worker.connection: worker for worker in (Worker(session, number, tests) for number in range(count))}
    try:
        while workers:
            for connection in wait(list(workers)):
                _receive(config, workers, connection)  # type: ignore[arg-type]
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
    finally:
        for worker in workers.values():
            worker.stop()


def _receive(config: pytest.Config, workers: dict[Connection, Worker], connection: Connection) -> None:
    """Tell pytest what a process reports. A process that dies fails the test that it was at."""
    worker = workers[connection]
    try:
        hook, values = connection.recv()
    except EOFError:
        hook, values = END, {}
    if hook == END:
        del workers[connection]
        worker.process.join()
        if worker.process.exitcode:
            config.hook.pytest_runtest_logreport(report=_crash(worker))
        return
    if hook == "pytest_runtest_logreport":
        values["report"] = config.hook.pytest_report_from_serializable(config=config, data=values["report"])
    elif hook == "pytest_runtest_logstart":
        worker.running = values["nodeid"]
    elif hook == "pytest_runtest_logfinish":
        worker.running = ""
    elif hook == "pytest_warning_recorded":
        config.hook.pytest_warning_recorded.call_historic(kwargs=values)
        return
    getattr(config.hook, hook)(**values)


def _crash(worker: Worker) -> pytest.TestReport:
    nodeid, code = worker.running or "a process of tests", worker.process.exitcode
    said = f"The process ended with {code}. It ran no test after this one."
    return pytest.TestReport(nodeid, (nodeid, None, nodeid), {}, "failed", said, "call")


class _Shared:
    """Tests that processes take from the same groups; each group goes to one of them, whole."""

    def __init__(self, groups: Sequence[Sequence[pytest.Item]]) -> None:
        self._groups = groups
        self._taken = CONTEXT.Value("i", 0)

    def __iter__(self) -> Iterator[pytest.Item]:
        while True:
            with self._taken.get_lock():
                at = self._taken.value
                self._taken.value += 1
            if at >= len(self._groups):
                return
            yield from self._groups[at]


def _work(session: pytest.Session, number: int, tests: Iterable[pytest.Item], connection: Connection) -> None:
    """What a forked process does: run tests until all are taken."""
    atexit._clear()  # the first process does what was registered before
    config = session.config
    _be_quiet(config)
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / str(number)
    factory._basetemp.mkdir()
    config.pluginmanager.register(Reports(config, connection))
    try:
        for item, following in pairwise(chain(tests, [None])):
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    except KeyboardInterrupt:
        pass
    finally:
        session._setupstate.teardown_exact(None)
        atexit._run_exitfuncs()
    connection.send((END, {}))  # a process that a test left behind may have the connection, too
    os._exit(0)  # without waiting for threads of tests


def _be_quiet(config: pytest.Config) -> None:
    """Print nothing: the first process reports. Capture output in files of its own."""
    if (terminal := config.pluginmanager.getplugin("terminalreporter")) is not None:
        terminal._tw._file = io.StringIO()
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture(in_=True)


class Reports:
    """Sends the first process what pytest reports in this one."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config, self._connection = config, connection

    def _send(self, hook: str, **values: Any) -> None:
        self._connection.send((hook, values))

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._send("pytest_runtest_logstart", nodeid=nodeid, location=location)

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._send("pytest_runtest_logfinish", nodeid=nodeid, location=location)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._send("pytest_runtest_logreport", report=data)

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: object
    ) -> None:
        """Its text is sent: not each warning can be pickled."""
        plain = warnings.WarningMessage(
            str(warning_message.message), warning_message.category, warning_message.filename, warning_message.lineno
        )
        self._send("pytest_warning_recorded", warning_message=plain, when=when, nodeid=nodeid, location=location)
