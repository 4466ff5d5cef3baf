"""Apache Artemis as a context manager: its distribution from Maven Central, and a fresh instance."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from ..brokers import maven
from ..brokers.peers import Peer
from ..brokers.processes import RestartableProcess, directory_for, started, text_of
from ..wire.loopback import LOOPBACK, free_ports

VERSION = "2.40.0"
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


class NoArtemis(Exception):
    """Artemis cannot run on this machine; the message says why."""


def cached(work: Path) -> Path | None:
    """The distribution that `fetch` has unpacked in `work`; None: there is none."""
    home = work / f"apache-artemis-{VERSION}"
    return home if (home / "bin" / "artemis").exists() else None


def why_java_is_missing() -> str:
    """The reason why Artemis cannot run here; "": it can."""
    return maven.why_java_is_missing(f"Artemis {VERSION}", JAVA_VERSION_MIN)


def fetch(work: Path) -> Path:
    """The unpacked distribution in `work`, downloaded if it is missing.

    Raises: NoArtemis: Java or Maven is missing, or Maven could not get it.
    """
    remark = why_java_is_missing()
    if remark:
        raise NoArtemis(remark)
    home = cached(work)
    if home is not None:
        return home
    if shutil.which("mvn") is None:
        raise NoArtemis(f"no Maven to fetch Artemis with; or unpack apache-artemis-{VERSION}-bin.zip in {work}")
    try:
        maven.fetch(ARTIFACT, work)
    except maven.NotFetched as error:
        raise NoArtemis(str(error)) from None
    return unpack(work)


def unpack(work: Path) -> Path:
    """Unpack the archive in `work`; other processes may do so at the same time. Raises: NoArtemis: it is damaged."""
    home = work / f"apache-artemis-{VERSION}"
    file = work / f"{home.name}-bin.zip"
    unpacking = work / f"unpacking-{os.getpid()}"
    try:
        with zipfile.ZipFile(file) as archive:
            archive.extractall(unpacking)
        (unpacking / home.name / "bin" / "artemis").chmod(0o755)
        (unpacking / home.name).rename(home)
    except (zipfile.BadZipFile, OSError) as error:
        if cached(work) is None:  # else another process was faster
            raise NoArtemis(f"{file} cannot be unpacked ({error}); delete it to have it fetched again") from error
    finally:
        shutil.rmtree(unpacking, ignore_errors=True)
    return home


@contextmanager
def artemis(home: Path, configuration: str) -> Iterator[Peer]:
    """Run a fresh instance with this broker.xml, in which {port} stands for the port; it can be restarted.

    Raises: NoArtemis: the instance could not be made. PeerFailed: it did not come up.
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
    """Create an instance. Raises: NoArtemis."""
    command = [str(home / "bin" / "artemis"), "create", str(instance), *CREATE]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CREATE_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        raise NoArtemis(f"artemis create took more than {CREATE_SECONDS_MAX} s") from None
    if done.returncode != 0:
        raise NoArtemis(f"artemis create: {(done.stdout + done.stderr)[-1000:]}")


def configuration_file(directory: Path) -> Path:
    """The path of an instance's broker.xml. `directory`: of the peer."""
    return directory / "instance" / "etc" / "broker.xml"
