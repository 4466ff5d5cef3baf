"""Nodes of a cluster as real processes on loopback, with a real etcd; and publishers that keep books."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pika
from etcd_servers import EtcdServers, etcd_servers
from node_forge import ForgedProcess, forge
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPError
from wires import Wire

from leveret.__main__ import main
from leveret.cluster.agreement.view import View
from leveret.cluster.coordinator.errors import CoordinatorError
from leveret.cluster.coordinator.gateway import Gateway
from leveret.cluster.coordinator.keys import Keys
from leveret.interop.wire.loopback import free_ports

Result = TypeVar("Result")

#: Seconds after which something that is waited for counts as missing, on a machine that others use.
PATIENCE_S = 60.0
#: Seconds between two looks at a fact.
LOOK_S = 0.05
NAMES = ("a", "b", "c")
#: Keys of [cluster]: the shortest lease that there may be.
SHORT_LEASE = 'lease = "2s"\nsuspend-after = "1500ms"'
#: How a connection of pika fails, or ends.
LOST = (AMQPError, AMQPConnectorException, OSError)


def others(name: str) -> tuple[str, ...]:
    """The names of the other nodes."""
    return tuple(one for one in NAMES if one != name)


def until(look: Callable[[], Result | None], what: str, patience_s: float = PATIENCE_S) -> Result:
    """What `look` gives as soon as it is true. Raises: AssertionError after a while."""
    pause, end = threading.Event(), time.monotonic() + patience_s
    while not (found := look()):
        assert time.monotonic() < end, f"{what}: not within {patience_s:g} s"
        pause.wait(LOOK_S)
    return found


class ClusterNodes:
    """Nodes by name, each with its own directory. A node that was ended can be started again.

    `places`: where a node's data are, if not in the directory. `extra`: keys of one node, behind those of all.
    `commands`: of nodes that are started in the long way, what stands before the command, as `("faketime", "+10m")`.
    """

    def __init__(
        self,
        directory: Path,
        etcd: EtcdServers,
        names: tuple[str, ...] = NAMES,
        keys: str = SHORT_LEASE,
        *,
        cluster: str = "t",
        has_wires: bool = False,
    ) -> None:
        self.directory = directory
        self.cluster = cluster
        self.etcd = etcd
        self.names = names
        self.keys = keys
        ports = free_ports(3 * len(names))
        self.links = dict(zip(names, ports))
        self.ports = dict(zip(names, ports[len(names) :]))
        self.metrics = dict(zip(names, ports[2 * len(names) :]))
        self._gateway = Gateway(etcd.access())
        self.processes: dict[str, subprocess.Popen[str] | ForgedProcess] = {}
        self.places: dict[str, Path] = {}
        self.extra: dict[str, str] = {}
        self.commands: dict[str, tuple[str, ...]] = {}
        self.journal = ""  # more keys of [journal]
        self.listen: dict[str, tuple[str, ...]] = {}  # more addresses of AMQP
        self.console_listen: dict[str, str] = {}
        self.rest_s = 1.5  # seconds for which a blow stops something
        #: What the other nodes reach a node's link by, and a node reaches etcd by; empty without `has_wires`.
        self.link_wires = {name: Wire(port, self.pids) for name, port in self.links.items()} if has_wires else {}
        etcd_ports = [int(endpoint.rpartition(":")[2]) for endpoint in etcd.endpoints]
        self.etcd_wires = {name: [Wire(port) for port in etcd_ports] for name in names} if has_wires else {}

    # -- life -------------------------------------------------------------------------------------------------------

    def data(self, name: str) -> Path:
        """The directory of a node's journal."""
        return self.places.get(name, self.directory / name) / "data"

    def start(self, name: str, *, waits: bool = True) -> None:
        """Start a node; `waits` until it accepts clients."""
        place = self.directory / name
        place.mkdir(exist_ok=True)
        links = {one: wire.port for one, wire in self.link_wires.items()} or self.links
        nodes = ", ".join(f'"{one}=127.0.0.1:{port}"' for one, port in links.items())
        members = [f"http://127.0.0.1:{wire.port}" for wire in self.etcd_wires.get(name, ())] or self.etcd.endpoints
        endpoints = ", ".join(f'"{one}"' for one in members)
        (place / "leveret.toml").write_text(
            f'[cluster]\nname = "{self.cluster}"\nnode = "{name}"\nnodes = [{nodes}]\n'
            f'listen = "127.0.0.1:{self.links[name]}"\netcd = [{endpoints}]\n'
            f"{self.keys}\n[journal]\nreserve = 0\n{self.journal}\n"
            f'[management]\nlisten = "{self.console_listen.get(name, "127.0.0.1:0")}"\n'
            f'metrics = "127.0.0.1:{self.metrics[name]}"\n'
            f"{self.extra.get(name, '')}\n"
        )
        arguments = ["serve", "--data", str(self.data(name)), "--config", str(place / "leveret.toml")]
        arguments += ["--listen", f"127.0.0.1:{self.ports[name]}", "--log-level", os.environ.get("CLUSTER_LOG", "info")]
        arguments += [word for address in self.listen.get(name, ()) for word in ("--listen", address)]
        process: subprocess.Popen[str] | ForgedProcess
        if name in self.commands:
            command = [*self.commands[name], sys.executable, "-m", "leveret", *arguments]
            with (place / "log").open("a") as log:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=place)
        else:
            process = forge().start(arguments, place / "log", place)
        self.processes[name] = process
        if waits:
            self.await_ready(name)

    def await_ready(self, name: str) -> None:
        """Wait until a node accepts clients."""
        output = self.processes[name].stdout
        assert output is not None
        line = output.readline()
        assert line.startswith("leveret ready "), (line, self.log(name))

    def start_all(self) -> None:
        """Start all nodes, and wait until one leads."""
        for name in self.names:
            self.start(name, waits=False)
        for name in self.names:
            self.await_ready(name)
        self.leader()

    def log(self, name: str) -> str:
        """What a node logged."""
        return (self.directory / name / "log").read_text()

    def kill(self, name: str) -> None:
        """As a power cut does."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a node."""
        self.processes[name].send_signal(number)

    def stop(self, name: str) -> int:
        """Stop a node in order. Returns its exit code."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(PATIENCE_S)

    def pids(self) -> dict[str, int]:
        """Of the nodes that run."""
        return {name: process.pid for name, process in list(self.processes.items())}

    def close(self) -> None:
        """Kill all."""
        self._gateway.close()
        for name in list(self.processes):
            self.signal(name, signal.SIGCONT)
            self.kill(name)
        for wire in (*self.link_wires.values(), *(wire for of_node in self.etcd_wires.values() for wire in of_node)):
            wire.close()

    def wires(self, name: str, *, link: bool = True, etcd: bool = True) -> list[Wire]:
        """The wires of one node: to its link, and from it to etcd."""
        return [*([self.link_wires[name]] if link else []), *(self.etcd_wires[name] if etcd else [])]

    # -- what etcd says -----------------------------------------------------------------------------------------------

    def view(self) -> View | None:
        """The keys of the cluster; None: etcd does not answer now."""
        keys = Keys(self.cluster)
        try:
            answer = self._gateway.read("/v3/kv/range", keys.range)
        except CoordinatorError:
            return None
        return keys.view(int(answer["header"]["revision"]), answer.get("kvs", []))

    def console(self, name: str) -> str:
        """URL of a node's console, as it registered it."""

        def look() -> str | None:
            view = self.view()
            node = None if view is None else view.node_named(name)
            return None if node is None else dict(node.addresses).get("http")

        return f"http://{until(look, f'the console of {name}')}"

    def leader(self, *, but: str | None = None) -> str:
        """The node that leads; waits until one does, and not `but`."""

        def look() -> str | None:
            view = self.view()
            name = None if view is None or view.leader is None else view.leader.name
            if name is None or name == but or name not in self.processes:
                return None
            return name if f"{name} leads, in term {view.leader.term}" in self.log(name) else None  # type: ignore[union-attr]

        return until(look, "a leader")

    def in_sync(self) -> frozenset[str]:
        """Names of the nodes of the in-sync set that are registered."""
        view = self.view()
        if view is None or view.insync is None:
            return frozenset()
        return frozenset(node.name for node in view.nodes if node.node_id in view.insync.nodes)

    def await_in_sync(self, *names: str) -> None:
        """Wait until these nodes are in sync: all, if none is named."""
        wanted = frozenset(names or self.names)
        until(lambda: wanted <= self.in_sync(), f"{sorted(wanted)} in sync")

    # -- clients ------------------------------------------------------------------------------------------------------

    def connect(self, name: str, **parameters: object) -> pika.BlockingConnection:
        """A connection through a node; waits until it is served."""
        given = pika.ConnectionParameters(
            "127.0.0.1", self.ports[name], socket_timeout=PATIENCE_S, stack_timeout=PATIENCE_S,
            blocked_connection_timeout=PATIENCE_S, **parameters,
        )  # fmt: skip
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return pika.BlockingConnection(given)
            except LOST:
                assert time.monotonic() < end, f"no connection through {name}:\n{self.log(name)}"
                threading.Event().wait(LOOK_S)

    @contextmanager
    def channel(self, name: str) -> Iterator[pika.channel.Channel]:
        """A channel through a node."""
        connection = self.connect(name)
        try:
            yield connection.channel()
        finally:
            with suppress(*LOST):
                connection.close()


@contextmanager
def cluster_nodes(
    directory: Path, *, members: int = 1, keys: str = SHORT_LEASE, has_wires: bool = False
) -> Iterator[ClusterNodes]:
    """Three nodes, which are not started yet, and an etcd that answers; all are killed at the end."""
    (directory / "etcd").mkdir()
    with etcd_servers(directory / "etcd", members) as etcd:
        nodes = ClusterNodes(directory, etcd, keys=keys, has_wires=has_wires)
        try:
            yield nodes
        finally:
            nodes.close()


@contextmanager
def started(nodes: ClusterNodes) -> Iterator[ClusterNodes]:
    """Nodes that are started, and in sync; killed at the end."""
    try:
        nodes.start_all()
        nodes.await_in_sync()
        yield nodes
    finally:
        nodes.close()


def ctl(nodes: ClusterNodes, name: str, *words: str) -> tuple[int, str]:
    """`leveret ctl` at a node: its exit code, and what it printed."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        code = main(["ctl", "--url", f"amqp://guest:guest@127.0.0.1:{nodes.ports[name]}/", *words])
    return code, printed.getvalue()


@dataclass
class Publisher:
    """Publishes numbered persistent messages, one by one, confirmed, through any of some nodes, until it is stopped.

    A message is sent once: without a confirm its fate is open. `confirmed`: numbers, in order. `size`: of a body.
    """

    nodes: ClusterNodes
    through: tuple[str, ...]
    queue: str = "orders"
    confirmed: list[int] = field(default_factory=list)
    sent: int = 0
    longest_gap_s: float = 0.0
    size: int = 0

    def __post_init__(self) -> None:
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._confirmed_at = time.monotonic()

    def __enter__(self) -> "Publisher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Publish no more."""
        self._is_over.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def await_confirms(self, count: int) -> None:
        """Wait until so many more messages are confirmed than now."""
        wanted = len(self.confirmed) + count
        until(lambda: len(self.confirmed) >= wanted, f"{count} confirms through {self.through}")

    def _run(self) -> None:
        turn = 0
        while not self._is_over.is_set():
            name = self.through[turn % len(self.through)]
            turn += 1
            try:
                connection = pika.BlockingConnection(
                    pika.ConnectionParameters(
                        "127.0.0.1", self.nodes.ports[name],
                        socket_timeout=5, stack_timeout=20, heartbeat=10, blocked_connection_timeout=20,
                    )
                )  # fmt: skip
            except LOST:
                self._is_over.wait(LOOK_S)
                continue
            with suppress(*LOST):
                self._publish_on(connection)
            with suppress(*LOST):
                connection.close()

    def _publish_on(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.queue_declare(self.queue, durable=True)
        channel.confirm_delivery()
        while not self._is_over.is_set():
            number = self.sent
            self.sent += 1
            body = str(number).encode().rjust(self.size)
            channel.basic_publish("", self.queue, body, pika.BasicProperties(delivery_mode=2))
            now = time.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now - self._confirmed_at)
            self._confirmed_at = now
            self.confirmed.append(number)


def drain(nodes: ClusterNodes, name: str, queue: str = "orders") -> list[tuple[int, bool]]:
    """All messages of a queue, acknowledged: (number, redelivered)."""
    found: list[tuple[int, bool]] = []
    with nodes.channel(name) as channel:
        while (method := (got := channel.basic_get(queue))[0]) is not None:
            found.append((int(got[2]), method.redelivered))
            channel.basic_ack(method.delivery_tag)
        left = channel.queue_declare(queue, durable=True, passive=True).method.message_count
        assert not left, f"{left} messages are in the queue and do not come"
    return found


def assert_each_once(publisher: Publisher, found: list[tuple[int, bool]]) -> None:
    """Every confirmed message is there, and no message twice."""
    numbers = [number for number, _ in found]
    assert len(numbers) == len(set(numbers)), "a message came twice"
    lost = set(publisher.confirmed) - set(numbers)
    assert not lost, f"{len(lost)} confirmed messages are lost, the first is {min(lost)}"


def reasons(log: str) -> list[str]:
    """The lines of a node's log that its part in the cluster wrote."""
    return [line for line in log.splitlines() if "leveret.cluster" in line]


def stretches(numbers: set[int]) -> str:
    """Numbers as stretches: 1-3, 7-7."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{first}-{last}" for first, last in found[:20])
