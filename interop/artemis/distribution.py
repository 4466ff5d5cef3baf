"""A real Apache Artemis as a context manager: its distribution from Maven Central, an instance of its own to run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..peers import LOOPBACK, Peer, Restarts, _directory, _free_ports, _listens, _process

VERSION = "2.40.0"
ARTIFACT = f"org.apache.activemq:apache-artemis:{VERSION}:zip:bin"
DOWNLOAD_SECONDS_MAX = 600
JAVA_VERSION_MIN = 11
# What an instance is made with: only what AMQP 1.0 needs, no web console, files without libaio.
CREATE = (
    *("--silent", "--user", "guest", "--password", "guest", "--allow-anonymous", "--host", LOOPBACK, "--nio"),
    *("--no-web", "--no-autotune", "--no-hornetq-acceptor", "--no-mqtt-acceptor", "--no-stomp-acceptor"),
)


class NoArtemis(Exception):
    """None can be run on this machine; the message says why."""


def missing() -> str:
    """What Artemis needs and this machine has not, or ""."""
    for program, remark in (("java", "no Java (11 or newer)"), ("mvn", "no Maven to fetch Artemis with")):
        if shutil.which(program) is None:
            return remark
    said = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_VERSION_MIN:
        return f"Artemis {VERSION} needs Java {JAVA_VERSION_MIN} or newer"
    return ""


def fetch(work: Path) -> Path:
    """The unpacked distribution in `work`, downloaded when it is not there yet.

    Raises: NoArtemis: Java or Maven is missing, or Maven could not get it.
    """
    remark = missing()
    if remark:
        raise NoArtemis(remark)
    home = work / f"apache-artemis-{VERSION}"
    if (home / "bin" / "artemis").exists():
        return home
    work.mkdir(parents=True, exist_ok=True)
    command = ["mvn", "--batch-mode", "--quiet", "dependency:copy", f"-Dartifact={ARTIFACT}"]
    try:
        done = subprocess.run(
            [*command, f"-DoutputDirectory={work}"],
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        raise NoArtemis(f"Maven took more than {DOWNLOAD_SECONDS_MAX} s") from None
    if done.returncode != 0:
        raise NoArtemis(f"Maven could not get {ARTIFACT}:\n{(done.stdout + done.stderr)[-1000:]}")
    unpacking = work / f"unpacking-{os.getpid()}"
    with zipfile.ZipFile(work / f"apache-artemis-{VERSION}-bin.zip") as archive:
        archive.extractall(unpacking)
    script = unpacking / home.name / "bin" / "artemis"
    script.chmod(0o755)
    try:
        (unpacking / home.name).rename(home)
    except OSError:
        if not (home / "bin" / "artemis").exists():  # else another run was faster
            raise
    shutil.rmtree(unpacking, ignore_errors=True)
    return home


@contextmanager
def artemis(home: Path, configuration: str) -> Iterator[Peer]:
    """Run a fresh instance with this broker.xml, in which {port} stands for the port; it can be restarted.

    Raises: NoArtemis: the instance could not be made. PeerFailed: it did not come up.
    """
    with _directory("artemis") as directory:
        instance, log = directory / "instance", directory / "output"
        create = [str(home / "bin" / "artemis"), "create", str(instance), *CREATE]
        done = subprocess.run(create, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise NoArtemis(f"artemis create: {(done.stdout + done.stderr)[-1000:]}")
        (port,) = _free_ports(1)
        (instance / "etc" / "broker.xml").write_text(configuration.replace("{port}", str(port)))
        environment = {**os.environ, "JAVA_ARGS": "-Xms128M -Xmx512M -Dlog4j2.disableJmx=true"}
        command = [str(instance / "bin" / "artemis"), "run"]
        with Restarts(lambda: _process(command, environment, log, directory), lambda: _listens(port), log) as processes:
            processes.start()
            yield Peer("artemis", port, processes.process.pid, directory, log, processes=processes)
