"""A real `leveret serve` in a process of its own, for tests of what only a process has. It is a fork of the forge."""

import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from node_forge import ForgedProcess, forge


class BrokerProcess:
    """A running broker: `lines` it printed when ready, `port` of the first TCP listener."""

    def __init__(self, process: ForgedProcess, lines: list[str], log: Path) -> None:
        self.process = process
        self.lines = lines
        self._log = log
        ports = [int(match[1]) for line in lines if (match := re.search(r":(\d+)/$", line))]
        self.port = ports[0] if ports else 0

    @property
    def url(self) -> str:
        """For clients."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    @property
    def pid(self) -> int:
        """Of the process."""
        return self.process.pid

    def rss_kib(self) -> int:
        """Resident memory of the process."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        raise AssertionError("the broker is no more")

    def log(self) -> str:
        """What it logged so far."""
        return self._log.read_text()

    def wait_for_log(self, text: str) -> str:
        """The first line with `text` that it logged, or will log soon. Raises: AssertionError after a minute."""
        with subprocess.Popen(["tail", "-n", "+1", "-F", self._log], stdout=subprocess.PIPE, text=True) as tail:
            alarm = threading.Timer(60, tail.kill)
            alarm.start()
            try:
                assert tail.stdout is not None
                for line in tail.stdout:
                    if text in line:
                        return line.rstrip()
            finally:
                alarm.cancel()
                tail.kill()
        raise AssertionError(f"{text!r} was not logged within a minute:\n{self.log()}")

    def stop(self) -> int:
        """SIGTERM, then the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@contextmanager
def leveret_serve(
    directory: Path,
    *arguments: str,
    config: str | None = None,
    listen: tuple[str, ...] = ("127.0.0.1:0",),
    data: Path | None = None,
    descriptors: int | None = None,
    management: str | None = "off",
) -> Iterator[BrokerProcess]:
    """Start a broker with its files in `directory`; killed at the end if it still runs.

    `data`: for its journal. `management`: where the console listens; None: as configured, and so do its metrics.
    `descriptors`: how many it may have open, if not as many as this process.
    """
    where = ["--memory"] if data is None else ["--data", str(data)]
    command = ["serve", "--debug", *where, *arguments]
    if management is not None:
        command += ["--management", management]
    for address in listen:
        command += ["--listen", address]
    if config is not None:
        (directory / "leveret.toml").write_text(config)
        command += ["--config", str(directory / "leveret.toml")]
    log = directory / "log"
    log.write_text("")
    more = 2 if management is None else int(management != "off")  # lines of the console
    process = forge().start(command, log, directory, descriptors)
    try:
        lines = [process.stdout.readline().strip() for _ in range(len(listen) + more)]
        assert all(line.startswith("leveret ready ") for line in lines), (lines, log.read_text())
        yield BrokerProcess(process, lines, log)
    finally:
        process.kill()
        process.wait()
