"""Apache Artemis as a context manager: its distribution from Maven Central, and a fresh instance."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from ..brokers.maven import unpacked
from ..brokers.peers import Peer
from ..brokers.processes import PeerFailed, RestartableProcess, directory_for, started, text_of
from ..wire.loopback import LOOPBACK, free_ports

VERSION = "2.40.0"
NAME = f"apache-artemis-{VERSION}"
ARTIFACT = f"org.apache.activemq:apache-artemis:{VERSION}:zip:bin"
CREATE_SECONDS_MAX = 120
JAVA_VERSION_MIN = 11
#: Logged when its acceptors listen. That the port answers is not enough: it may be another program's.
IS_ACTIVE = "AMQ221007"
# Options of an instance: only AMQP 1.0, no web console, files without libaio.
CREATE = (
    *("--silent", "--user", "guest", "--password", "guest", "--allow-anonymous", "--host", LOOPBACK, "--nio"),
    *("--no-web", "--no-autotune", "--no-hornetq-acceptor", "--no-mqtt-acceptor", "--no-stomp-acceptor"),
)


def fetch(work: Path) -> Path:
    """The unpacked distribution in `work`, downloaded if it is missing. Raises: NotFetched."""
    home = unpacked(ARTIFACT, f"{NAME}-bin.zip", NAME, work, JAVA_VERSION_MIN)
    (home / "bin" / "artemis").chmod(0o755)  # zip archives do not keep the mode
    return home


@contextmanager
def artemis(home: Path, configuration: str) -> Iterator[Peer]:
    """Run a fresh instance with this broker.xml, in which {port} stands for the port; it can be restarted.

    Raises: PeerFailed: the instance could not be made, or did not come up.
    """
    with directory_for("artemis") as directory:
        instance, log = directory / "instance", directory / "output"
        _create(home, instance)
        (port,) = free_ports(1)
        configuration_file(directory).write_text(configuration.replace("{port}", str(port)))
        environment = {**os.environ, "JAVA_ARGS": "-Xms128M -Xmx512M -Dlog4j2.disableJmx=true"}
        command = [str(instance / "bin" / "artemis"), "run"]
        starts = 0

        def start() -> AbstractContextManager[subprocess.Popen[bytes]]:
            nonlocal starts
            starts += 1
            return started(command, environment, log, directory)

        with RestartableProcess(start, lambda: text_of(log).count(IS_ACTIVE) >= starts, log) as processes:
            processes.start()
            yield Peer("artemis", port, processes.process.pid, directory, log, processes=processes)


def _create(home: Path, instance: Path) -> None:
    """Raises: PeerFailed."""
    command = [str(home / "bin" / "artemis"), "create", str(instance), *CREATE]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CREATE_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"artemis create took more than {CREATE_SECONDS_MAX} s") from None
    if done.returncode != 0:
        raise PeerFailed(f"artemis create: {(done.stdout + done.stderr)[-1000:]}")


def configuration_file(directory: Path) -> Path:
    """The path of an instance's broker.xml. `directory`: of the peer."""
    return directory / "instance" / "etc" / "broker.xml"
