"""A cluster on this machine, from one command: three nodes of Leveret and three members of etcd, on loopback.

    python -m leveret.interop.brokers.local_cluster [--directory DIR] [--config FILE]...
    python -m leveret.interop.brokers.local_cluster --directory DIR --start NAME

The first runs until Ctrl-C or SIGTERM. It prints `leveret node NAME ready amqp://HOST:PORT/ pid PID` for each node when
all of them accept clients, then `leveret cluster ready`. A node that ends stays dead until the second asks the first to
start it again. Configurations, data and logs are in DIR, which may be used again; without one they are in a temporary
directory, which is deleted at the end. `make cluster` and `make cluster-node` are these.
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
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path

from ..wire.loopback import LOOPBACK
from .processes import POLL_SECONDS, end_of, kill_group

NAMES = ("a", "b", "c")
WITHOUT_ETCD = "no etcd on this machine (Debian: apt install etcd-server; make peers)"
#: Below the ports that systems give to clients, so that they are still free when a node is started again.
PORTS = range(20_000, 32_000)
#: Seconds that a node has to hand over and end; then it is killed.
STOP_SECONDS_MAX = 20.0
ETCD_STOP_SECONDS_MAX = 5.0
#: Seconds between two lines that say what is waited for.
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
    """Its processes. `directory` has a file or a folder for each of them."""

    def __init__(
        self,
        directory: Path,
        names: Sequence[str] = NAMES,
        settings: str = "",
        *,
        broker: str = "",
        data: Path | None = None,
        has_tls: bool = False,
        files: Sequence[Path] = (),
    ) -> None:
        """The same for each node: `settings`: more lines of [cluster], and tables; `broker`: more lines of [broker];
        `files`: further configurations, not in the directory.

        `data`: where the journals are (default: in the directory). `has_tls`: each has a port with TLS as well.
        Raises: FileNotFoundError: no etcd.
        """
        self.directory, self.names = directory, tuple(names)
        self._settings, self._broker = settings, broker
        self._data, self._has_tls, self._files = data, has_tls, files
        self._etcd = shutil.which("etcd")
        if self._etcd is None:
            raise FileNotFoundError(WITHOUT_ETCD)
        self._ports = self._read_ports()
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._members: dict[int, subprocess.Popen[bytes]] = {}

    # -- what it does -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """All of it; then `await_clients`."""
        self._end_leftovers()
        for member in range(3):
            self.start_member(member)
        for name in self.names:
            self.start_node(name)

    def start_node(self, name: str) -> None:
        """One that does not run."""
        (self.directory / f"{name}.toml").write_text(self._configuration(name))
        command = [sys.executable, "-P", "-m", "leveret", "serve", "--config", f"{name}.toml"]
        command += [word for file in self._files for word in ("--config", str(file.resolve()))]
        self._nodes[name] = self._run(name, command)

    def start_member(self, member: int) -> None:
        """Of etcd, one that does not run."""
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
        """Whether a node's process is there, if only stopped."""
        return name in self._nodes and self._nodes[name].poll() is None

    def accepts(self, name: str) -> bool:
        """Whether a client that connects to a node is answered: a node leads, and this one passes clients on to it."""
        try:
            with socket.create_connection((LOOPBACK, self.port(name)), timeout=1) as connection:
                connection.settimeout(1)
                connection.sendall(b"AMQP\0\0\x09\x01")
                return connection.recv(3) == b"\x01\0\0"
        except OSError:
            return False

    def port(self, name: str, kind: str = "amqp") -> int:
        """Of a node, for clients of AMQP; or another `kind`: amqps, console, metrics, link."""
        return int(self._ports[f"{name}-{kind}"])

    def process(self, name: str) -> subprocess.Popen[bytes]:
        """Of a node that runs, or ran last."""
        return self._nodes[name]

    def pid(self, name: str) -> int:
        """Of a node that runs, or ran last."""
        return self._nodes[name].pid

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a node."""
        self._nodes[name].send_signal(number)

    def send_to_members(self, number: signal.Signals) -> None:
        """Send a signal to each member of etcd."""
        for process in self._members.values():
            process.send_signal(number)

    def ready_line(self, name: str) -> str:
        """What is printed of a node that accepts clients."""
        return f"leveret node {name} ready amqp://{LOOPBACK}:{self.port(name)}/ pid {self.pid(name)}"

    def end_of(self, name: str) -> str | None:
        """How a node's process ended, with the end of its log; None: it runs."""
        code = self._nodes[name].poll()
        if code is None:
            return None
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return f"leveret node {name} {how}"

    def log(self, name: str) -> Path:
        """Of a node, or of a member (etcd0)."""
        return self.directory / f"{name}.log"

    def stop(self) -> None:
        """In order: nodes hand over and end, then etcd. Whatever does not end is killed."""
        self._end(self._nodes.values(), STOP_SECONDS_MAX)
        self._end(self._members.values(), ETCD_STOP_SECONDS_MAX)

    def kill(self) -> None:
        """All at once."""
        for process in (*self._nodes.values(), *self._members.values()):
            kill_group(process)

    # -- how ----------------------------------------------------------------------------------------------------------

    def _run(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Not in our process group, so that Ctrl-C comes to us alone, and everything ends in order."""
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
            process.send_signal(signal.SIGCONT)  # one that was stopped
        deadline = time.monotonic() + seconds
        while any(process.poll() is None for process in running) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        for process in running:
            kill_group(process)

    def _end_leftovers(self) -> None:
        """Processes of an earlier run that was killed itself."""
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
        nodes = ", ".join(f'"{one}={LOOPBACK}:{self._ports[f"{one}-link"]}"' for one in self.names)
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
        """What each listens on; the same ports each time in one directory."""
        file = self.directory / "ports.json"
        if file.exists():
            return dict(json.loads(file.read_text()))
        wanted = [f"etcd{member}-{kind}" for member in range(3) for kind in ("client", "peer")]
        wanted += [f"{name}-{kind}" for name in self.names for kind in ("amqp", "amqps", "link", "metrics", "console")]
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
    """What is printed, and asked for by files, while a cluster runs."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._waiting: list[str] = []  # nodes that were started and do not accept clients yet
        self._dead: set[str] = set()

    def run(self) -> int:
        cluster = self._cluster
        print(f"leveret cluster in {cluster.directory}", flush=True)
        cluster.start()
        ready: list[str] = []
        reported = time.monotonic()
        while len(ready) < len(cluster.names):
            for name in cluster.names:
                if (how := cluster.end_of(name)) is not None:
                    print(f"{how}; it wrote:\n{end_of(cluster.log(name))}", file=sys.stderr)
                    return 1
                if name not in ready and cluster.accepts(name):
                    ready.append(name)
            if time.monotonic() > reported + REPORT_SECONDS:
                reported = time.monotonic()
                waiting = ", ".join(sorted(set(cluster.names) - set(ready)))
                print(f"leveret cluster waits for {waiting} (logs: {cluster.directory}/*.log)", file=sys.stderr)
            time.sleep(POLL_SECONDS)
        for name in cluster.names:
            print(cluster.ready_line(name), flush=True)
        print("leveret cluster ready", flush=True)
        while True:
            self._look()
            time.sleep(POLL_SECONDS * 5)

    def _look(self) -> None:
        cluster = self._cluster
        for name in cluster.names:
            if (how := cluster.end_of(name)) is not None:
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


def run_cluster(directory: Path, files: Sequence[Path] = ()) -> int:
    """Until Ctrl-C, SIGTERM, or the end of the terminal unless that is ignored (nohup).

    A shell that starts this in the background has SIGINT ignored; whoever sends it all the same wants an end.
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
            except KeyboardInterrupt:  # a second one: at once
                cluster.kill()


def ask_to_start(directory: Path, name: str) -> int:
    """Ask the cluster that runs there to start a node again, and wait until that accepts clients."""
    if not _is_run(directory):
        print(f"no cluster runs in {directory}: make cluster CLUSTER_DIR={directory}", file=sys.stderr)
        return 1
    cluster = LocalCluster(directory)
    file, asked = directory / f"{name}.pid", directory / f"{name}.start"
    before = file.read_text()
    if _is_process(before):
        print(f"leveret node {name} runs already, pid {before}", file=sys.stderr)
        return 1
    asked.touch()
    while asked.exists() or not cluster.accepts(name):
        if not _is_run(directory):
            asked.unlink(missing_ok=True)
            print(f"the cluster in {directory} was stopped", file=sys.stderr)
            return 1
        if not asked.exists() and not _is_process(file.read_text()):
            print(f"leveret node {name} ended; it wrote:\n{end_of(cluster.log(name))}", file=sys.stderr)
            return 1
        time.sleep(POLL_SECONDS)
    print(f"leveret node {name} ready amqp://{LOOPBACK}:{cluster.port(name)}/ pid {file.read_text()}", flush=True)
    return 0


def _is_run(directory: Path) -> bool:
    """Whether a cluster runs in a directory: its lock is held."""
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _is_process(pid: str) -> bool:
    """Whether it is there, and not only not yet waited for."""
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
