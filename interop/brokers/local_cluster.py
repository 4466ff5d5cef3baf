"""A cluster on this machine: three nodes of Leveret and three members of etcd, on loopback.

    python -m leveret.interop.brokers.local_cluster [--directory DIR] [--config FILE]...
    python -m leveret.interop.brokers.local_cluster --directory DIR --start NAME

The first command runs until Ctrl-C or SIGTERM. When all nodes accept clients, it prints
`leveret node NAME ready amqp://HOST:PORT/ pid PID` for each, then `leveret cluster ready`. The second command makes the
first one start a node that has ended. Configurations, data and logs are in DIR, which may be used again; without DIR
they are in a temporary directory, which is deleted at the end. `make cluster` and `make cluster-node` run these.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..wire.loopback import LOOPBACK, answers_amqp
from .processes import POLL_SECONDS, PeerFailed, await_fact, end_of, kill_group

NAMES = ("a", "b", "c")
WITHOUT_ETCD = "no etcd on this machine (Debian: apt install etcd-server; make peers)"
#: Below the ephemeral ports, so that no client has a node's port when the node is started again.
PORTS = range(20_000, 32_000)
#: Seconds after which a node that should hand over and end is killed.
STOP_SECONDS_MAX = 20.0
ETCD_STOP_SECONDS_MAX = 5.0
CTL_SECONDS_MAX = 60.0
#: Seconds between two lines about what the cluster waits for.
REPORT_SECONDS = 15.0

NODE = """\
# Of `make cluster`; written anew at each start.
[broker]
listen = [{listen}]
data = "{data}"
{broker}{console}
[cluster]
node = "{name}"
nodes = [{nodes}]
etcd = [{etcd}]
"""
CONSOLE = """
[management]
listen = ["{host}:{console}"]
metrics = "{host}:{metrics}"
"""


class LocalCluster:
    """The processes of a cluster. `directory`: with their files and folders."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: str = "",
        broker: str = "",
        data: Path | None = None,
        has_tls: bool = False,
        files: Sequence[Path] = (),
    ) -> None:
        """Options that all nodes share.

        `settings`: more lines of [cluster], and tables. `broker`: more lines of [broker].
        `files`: further configuration files, outside of the directory.
        `data`: the directory of the journals (default: in `directory`). `has_tls`: with ports for TLS.

        Raises: FileNotFoundError: etcd is not on this machine.
        """
        self.directory = directory
        self._settings, self._broker = settings, broker
        self._data, self._has_tls, self._files = data, has_tls, files
        self._etcd = shutil.which("etcd")
        if self._etcd is None:
            raise FileNotFoundError(WITHOUT_ETCD)
        self._ports = self._read_ports()
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._members: dict[int, subprocess.Popen[bytes]] = {}

    # -- processes -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all processes, without waiting for them: `await_clients`."""
        self._end_leftovers()
        for member in range(3):
            self.start_member(member)
        for name in NAMES:
            self.start_node(name)

    def start_node(self, name: str) -> None:
        """Start a node that does not run."""
        (self.directory / f"{name}.toml").write_text(self._configuration(name))
        command = [sys.executable, "-P", "-m", "leveret", "serve", "--config", f"{name}.toml"]
        command += [word for file in self._files for word in ("--config", str(file.resolve()))]
        self._nodes[name] = self._run(name, command)

    def start_member(self, member: int) -> None:
        """Start a member of etcd that does not run."""
        client, peer = (f"http://{LOOPBACK}:{self._ports[f'etcd{member}-{kind}']}" for kind in ("client", "peer"))
        every = ",".join(f"etcd{one}=http://{LOOPBACK}:{self._ports[f'etcd{one}-peer']}" for one in range(3))
        name = f"etcd{member}"
        command = [
            *(str(self._etcd), "--name", name, "--data-dir", name, "--logger", "zap"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", every),
            *("--auto-compaction-mode", "revision", "--auto-compaction-retention", "1000"),
        ]
        self._members[member] = self._run(name, command)

    def is_running(self, name: str) -> bool:
        """Whether a node's process exists; it may be stopped by SIGSTOP."""
        return name in self._nodes and self._nodes[name].poll() is None

    def accepts(self, name: str) -> bool:
        """Whether clients at a node are answered: it leads, or passes them on to the leader."""
        return answers_amqp(self.port(name), seconds=1)

    def await_clients(self) -> None:
        """Wait until clients at each node are answered. Raises: PeerFailed."""
        for name in NAMES:
            self.wait_until(partial(self.accepts, name), f"{name} accepts clients")

    def ctl(self, name: str, *command: str) -> str:
        """Run `leveret ctl` at a node. Returns its output. Raises: PeerFailed: it failed."""
        url = f"amqp://guest:guest@{LOOPBACK}:{self.port(name)}/"
        asked = [sys.executable, "-P", "-m", "leveret", "ctl", "--url", url, *command]
        try:
            done = subprocess.run(asked, capture_output=True, text=True, timeout=CTL_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise PeerFailed(f"ctl {' '.join(command)} did not end") from None
        if done.returncode:
            raise PeerFailed(f"ctl {' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def status(self) -> dict[str, Any]:
        """The output of `leveret ctl cluster` at the first node that answers; {}: none does."""
        for name in filter(self.is_running, NAMES):
            with suppress(PeerFailed):
                return dict(json.loads(self.ctl(name, "--json", "cluster")))
        return {}

    def leader_first(self) -> list[str]:
        """The names of the nodes, the leader's first. Raises: PeerFailed: no node leads."""
        leader = ""

        def look() -> bool:
            nonlocal leader
            leader = str(self.status().get("leader") or "")  # which may not answer the next time
            return leader != ""

        self.wait_until(look, "a node leads")
        return sorted(NAMES, key=lambda name: name != leader)

    def start_ended(self) -> None:
        """Start the nodes that have ended, and wait until all are in sync. Raises: PeerFailed."""
        for name in NAMES:
            if not self.is_running(name):
                self.start_node(name)
        self.await_in_sync()

    def await_in_sync(self) -> None:
        """Raises: PeerFailed."""
        self.wait_until(lambda: len(self.status().get("insync", ())) == len(NAMES), "all nodes are in sync")

    def wait_until(self, fact: Callable[[], bool], what: str) -> None:
        """Raises: PeerFailed: the time is over; with the ends of the nodes' logs."""
        await_fact(fact, what, map(self.log, NAMES))

    def port(self, name: str, kind: str = "amqp") -> int:
        """A port of a node. `kind`: amqp, amqps, console, metrics or link."""
        return int(self._ports[f"{name}-{kind}"])

    def process(self, name: str) -> subprocess.Popen[bytes]:
        """The process of a node; of one that does not run, the last one."""
        return self._nodes[name]

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a node."""
        self._nodes[name].send_signal(number)

    def send_to_members(self, number: signal.Signals) -> None:
        """Send a signal to each member of etcd."""
        for process in self._members.values():
            process.send_signal(number)

    def ready_line(self, name: str) -> str:
        """The line that is printed for a node that accepts clients."""
        pid = (self.directory / f"{name}.pid").read_text()
        return f"leveret node {name} ready amqp://{LOOPBACK}:{self.port(name)}/ pid {pid}"

    def how_it_ended(self, name: str) -> str | None:
        """How a node ended, in words; None: it runs."""
        code = self._nodes[name].poll()
        if code is None:
            return None
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return f"leveret node {name} {how}"

    def log(self, name: str) -> Path:
        """The path of the log of a node, or of a member of etcd (etcd0)."""
        return self.directory / f"{name}.log"

    def stop(self) -> None:
        """End the nodes, which hand over, then etcd. Processes that do not end are killed."""
        self._end(self._nodes.values(), STOP_SECONDS_MAX)
        self._end(self._members.values(), ETCD_STOP_SECONDS_MAX)

    def kill(self) -> None:
        """Kill all processes."""
        for process in (*self._nodes.values(), *self._members.values()):
            kill_group(process)

    # -- details -------------------------------------------------------------------------------------------------------

    def _run(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a process outside of our process group, so that Ctrl-C ends only us, and we end the others in order."""
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self.directory / f"{name}.pid").write_text(str(process.pid))
        return process

    def _end(self, processes: Iterable[subprocess.Popen[bytes]], seconds: float) -> None:
        running = [process for process in processes if process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)  # it may be stopped
        deadline = time.monotonic() + seconds
        while any(process.poll() is None for process in running) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        for process in running:
            kill_group(process)

    def _end_leftovers(self) -> None:
        """Kill the processes of an earlier run that was killed."""
        for file in self.directory.glob("*.pid"):
            with suppress(OSError, ValueError):
                pid = int(file.read_text())
                if Path(f"/proc/{pid}/cwd").resolve() == self.directory.resolve():
                    os.killpg(pid, signal.SIGKILL)
                    while Path(f"/proc/{pid}").exists():
                        time.sleep(POLL_SECONDS)
            file.unlink()
        for file in self.directory.glob("*.start"):
            file.unlink()

    def _configuration(self, name: str) -> str:
        nodes = ", ".join(f'"{one}={LOOPBACK}:{self._ports[f"{one}-link"]}"' for one in NAMES)
        etcd = ", ".join(f'"http://{LOOPBACK}:{self._ports[f"etcd{one}-client"]}"' for one in range(3))
        data = name if self._data is None else self._data / name
        listen = f'"{LOOPBACK}:{self.port(name)}"'
        if self._has_tls:
            listen += f', "amqps://{LOOPBACK}:{self.port(name, "amqps")}"'
        ports = {kind: self.port(name, kind) for kind in ("metrics", "console")}
        console = CONSOLE.format(host=LOOPBACK, **ports) if find_spec("h11") else ""
        facts = {"name": name, "nodes": nodes, "etcd": etcd, "data": data, "listen": listen}
        return NODE.format(**facts, broker=self._broker, console=console) + self._settings

    def _read_ports(self) -> dict[str, int]:
        """The ports of all processes, which stay the same for a directory."""
        file = self.directory / "ports.json"
        if file.exists():
            return dict(json.loads(file.read_text()))
        wanted = [f"etcd{member}-{kind}" for member in range(3) for kind in ("client", "peer")]
        wanted += [f"{name}-{kind}" for name in NAMES for kind in ("amqp", "amqps", "link", "metrics", "console")]
        found: dict[str, int] = {}
        with ExitStack() as held:
            for port in random.sample(PORTS, len(PORTS)):
                holder = held.enter_context(socket.socket())
                with suppress(OSError):
                    holder.bind((LOOPBACK, port))
                    found[wanted[len(found)]] = port
                if len(found) == len(wanted):
                    break
        file.write_text(json.dumps(found))
        return found


class _Command:
    """The running command: prints the state of the cluster, and reads requests from files."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._waiting: list[str] = []  # started nodes that do not accept clients yet
        self._dead: set[str] = set()

    def run(self) -> int:
        cluster = self._cluster
        print(f"leveret cluster in {cluster.directory}", flush=True)
        cluster.start()
        ready: list[str] = []
        reported = time.monotonic()
        while len(ready) < len(NAMES):
            for name in NAMES:
                if (how := cluster.how_it_ended(name)) is not None:
                    print(f"{how}; it wrote:\n{end_of(cluster.log(name))}", file=sys.stderr)
                    return 1
                if name not in ready and cluster.accepts(name):
                    ready.append(name)
            if time.monotonic() > reported + REPORT_SECONDS:
                reported = time.monotonic()
                waiting = ", ".join(sorted(set(NAMES) - set(ready)))
                print(f"leveret cluster waits for {waiting} (logs: {cluster.directory}/*.log)", file=sys.stderr)
            time.sleep(POLL_SECONDS)
        for name in NAMES:
            print(cluster.ready_line(name), flush=True)
        print("leveret cluster ready", flush=True)
        while True:
            self._note_changes()
            time.sleep(POLL_SECONDS * 5)

    def _note_changes(self) -> None:
        cluster = self._cluster
        for name in NAMES:
            if (how := cluster.how_it_ended(name)) is not None:
                if name not in self._dead:
                    self._dead.add(name)
                    print(how, flush=True)
                asked = cluster.directory / f"{name}.start"
                if asked.exists():
                    cluster.start_node(name)
                    asked.unlink()
                    self._dead.discard(name)
                    self._waiting.append(name)
        for name in list(self._waiting):
            if not cluster.is_running(name) or cluster.accepts(name):
                self._waiting.remove(name)
                if cluster.is_running(name):
                    print(cluster.ready_line(name), flush=True)


def run_cluster(directory: Path, files: Sequence[Path]) -> int:
    """Run a cluster until Ctrl-C, SIGTERM, or the end of the terminal unless SIGHUP is ignored (nohup).

    SIGINT ends it even in the background, where shells ignore SIGINT.
    """
    for stopping in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if stopping is not signal.SIGHUP or signal.getsignal(stopping) is not signal.SIG_IGN:
            signal.signal(stopping, signal.default_int_handler)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print(f"a cluster runs in {directory} already", file=sys.stderr)
            return 1
        try:
            cluster = LocalCluster(directory, files=files)
        except FileNotFoundError as error:
            print(error, file=sys.stderr)
            return 1
        try:
            return _Command(cluster).run()
        except KeyboardInterrupt:
            return 0
        finally:
            try:
                cluster.stop()
            except KeyboardInterrupt:  # a second signal: end at once
                cluster.kill()


def ask_to_start(directory: Path, name: str) -> int:
    """Make the cluster that runs in a directory start a node, and wait until the node accepts clients."""
    if not _has_cluster(directory):
        print(f"no cluster runs in {directory}: make cluster CLUSTER_DIR={directory}", file=sys.stderr)
        return 1
    cluster = LocalCluster(directory)
    file, asked = directory / f"{name}.pid", directory / f"{name}.start"
    before = file.read_text()
    if _is_alive(before):
        print(f"leveret node {name} runs already, pid {before}", file=sys.stderr)
        return 1
    asked.touch()
    while asked.exists() or not cluster.accepts(name):
        if not _has_cluster(directory):
            asked.unlink(missing_ok=True)
            print(f"the cluster in {directory} was stopped", file=sys.stderr)
            return 1
        if not asked.exists() and not _is_alive(file.read_text()):
            print(f"leveret node {name} ended; it wrote:\n{end_of(cluster.log(name))}", file=sys.stderr)
            return 1
        time.sleep(POLL_SECONDS)
    print(cluster.ready_line(name), flush=True)
    return 0


def _has_cluster(directory: Path) -> bool:
    """Whether a cluster runs in a directory: it holds a lock."""
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _is_alive(pid: str) -> bool:
    """Whether a process runs, and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description="Three nodes of Leveret and three members of etcd on loopback.")
    parser.add_argument("--directory", metavar="DIR", help="configurations, data, logs; without it a temporary one")
    parser.add_argument("--config", metavar="FILE", type=Path, action="append", default=[], help="of each node, too")
    parser.add_argument("--start", metavar="NAME", choices=NAMES, help="start this node of it again")
    options = parser.parse_args()
    if options.start is not None and options.directory is None:
        parser.error("--start needs the --directory of the cluster (CLUSTER_DIR)")
    if options.directory is None:
        with tempfile.TemporaryDirectory(prefix="leveret-cluster-", ignore_cleanup_errors=True) as made:
            return run_cluster(Path(made), options.config)
    directory = Path(options.directory).resolve()
    if options.start is not None:
        if not (directory / "ports.json").exists():
            print(f"no cluster was started in {directory}: make cluster CLUSTER_DIR={directory}", file=sys.stderr)
            return 1
        return ask_to_start(directory, options.start)
    directory.mkdir(parents=True, exist_ok=True)
    return run_cluster(directory, options.config)


if __name__ == "__main__":
    sys.exit(main())
