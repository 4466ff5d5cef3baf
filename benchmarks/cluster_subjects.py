"""What benchmarks/cluster.py measures: Leveret, one node and a cluster of three; three of RabbitMQ, three of NATS."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import generator
from confirming import ConfirmingPublisher
from jetstream_load import check_client, make_stream, run_load

from leveret.interop.brokers.jetstream import jetstream_cluster
from leveret.interop.brokers.local_cluster import NAMES, LocalCluster
from leveret.interop.brokers.peers import durable_leveret, rabbitmq_cluster

WINDOW = 200
RATE_PACED = 500
MESSAGE = ("--props", "rich", "--unique", "--size", "1024", "--persistent", "--durable", "--queue-type", "quorum")
WINDOWED = (*MESSAGE, "--confirm", str(WINDOW), "--ack", "1", "--prefetch", "200", "--drain-timeout", "30")
PACED = (
    *MESSAGE,
    "--confirm",
    "1",
    "--rate",
    str(RATE_PACED),
    "--ack",
    "1",
    "--prefetch",
    "200",
    "--drain-timeout",
    "30",
)
#: Messages of one run of the generator that fills queues.
FILL_COUNT = 100_000
IN_SYNC_SECONDS_MAX = 180.0
#: Of Linux: the clock of all threads of a process, by the scheduler.
PROCESS_CLOCK = 2


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, in nanoseconds' steps; 0 if it is gone. Source: clock_getcpuclockid(3)."""
    try:
        return time.clock_gettime(~pid << 3 | PROCESS_CLOCK)
    except OSError:
        return 0.0


def wake_ups(pid: int) -> int:
    """How often threads of a process went to sleep; of those that are there now."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        lines = (task / "status").read_text().splitlines()
        found += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return found


class Subject:
    """Something that is measured. `nodes`: names, the one that leads first."""

    name = ""
    stops_max = 1_000  # of its leader: RabbitMQ needs a minute for each to see it
    ready = 0  # messages that wait in it

    def nodes(self) -> list[str]:
        """Names of the nodes, the leader first."""
        raise NotImplementedError

    def port(self, node: str) -> int:
        """For clients of AMQP."""
        raise NotImplementedError

    def pid(self, node: str) -> int:
        """Process of a node."""
        raise NotImplementedError

    def console_port(self, node: str) -> int:
        """For clients of the HTTP API; 0: it is not measured."""
        return 0

    def others(self) -> list[int]:
        """Processes that are no node."""
        return []

    def start(self, node: str) -> None:
        """Start a node that was killed."""
        raise NotImplementedError

    def await_in_sync(self) -> None:
        """Wait until all nodes have what is confirmed."""

    def run(self, node: str, pids: Iterable[int], *, count: int = 0, paced_s: float = 0.0) -> Mapping[str, Any]:
        """Messages through a node: `count` with the window, or paced. Returns what the generator prints."""
        flags = [*PACED, "--time", f"{paced_s:g}"] if paced_s else [*WINDOWED, "--count", str(count)]
        return generator.call([*flags, "--port", str(self.port(node)), *(f"--pid={pid}" for pid in pids)])


class Single(Subject):
    """One node of Leveret."""

    name = "single"

    def __init__(self, stack: ExitStack) -> None:
        self._peer = stack.enter_context(durable_leveret())

    def nodes(self) -> list[str]:
        return ["single"]

    def port(self, node: str) -> int:
        return self._peer.port

    def pid(self, node: str) -> int:
        return self._peer.pid


class Cluster(Subject):
    """Three nodes of Leveret and three members of etcd."""

    name = "cluster"

    def __init__(self, stack: ExitStack, kind: type[LocalCluster] = LocalCluster) -> None:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leveret-bench-")))
        self.local = kind(directory)
        stack.callback(self.local.kill)
        self.local.start()
        self.local.await_clients()
        self.local.await_in_sync()

    def nodes(self) -> list[str]:
        return self.local.leader_first()

    def port(self, node: str) -> int:
        return self.local.port(node)

    def pid(self, node: str) -> int:
        return self.local.process(node).pid

    def console_port(self, node: str) -> int:
        return int(self.local._ports[f"{node}-console"])

    def others(self) -> list[int]:
        return [process.pid for process in self.local._members.values()]

    def start(self, node: str) -> None:
        self.local.wait_until(lambda: not self.local.is_running(node), f"{node} has ended")
        self.local.start_node(node)

    def await_in_sync(self) -> None:
        self.local.await_in_sync()

    def hand_over(self) -> None:
        """As an operator does it."""
        self.local.ctl(NAMES[0], "handover")


class RabbitMQ(Subject):
    """Three nodes of RabbitMQ. A queue's leader is the node that its declaring client is connected to."""

    name = "rabbitmq"
    stops_max = 3

    def __init__(self, stack: ExitStack) -> None:
        self._peers = {str(peer.port): peer for peer in stack.enter_context(rabbitmq_cluster())}

    def nodes(self) -> list[str]:
        return list(self._peers)

    def port(self, node: str) -> int:
        return self._peers[node].port

    def pid(self, node: str) -> int:
        processes = self._peers[node].processes
        assert processes is not None
        return processes.process.pid

    def start(self, node: str) -> None:
        processes = self._peers[node].processes
        assert processes is not None
        while not processes.has_ended():
            time.sleep(0.02)
        processes.start_again()


class JetStream(Subject):
    """Three servers of NATS. A client is connected to the leader of its stream."""

    name = "jetstream"

    def __init__(self, stack: ExitStack) -> None:
        check_client()
        self._peers = {str(peer.port): peer for peer in stack.enter_context(jetstream_cluster())}
        self._stream = "measured"
        leader = str(make_stream([peer.port for peer in self._peers.values()], self._stream))
        self._names = [leader, *(name for name in self._peers if name != leader)]

    def nodes(self) -> list[str]:
        return self._names

    def port(self, node: str) -> int:
        return int(node)

    def pid(self, node: str) -> int:
        return self._peers[node].pid

    def run(self, node: str, pids: Iterable[int], *, count: int = 0, paced_s: float = 0.0) -> Mapping[str, Any]:
        if paced_s:
            return run_load(int(node), self._stream, window=1, seconds=paced_s, rate=RATE_PACED)
        return run_load(int(node), self._stream, window=WINDOW, count=count)


@contextmanager
def publishing(subject: Subject, nodes: list[str]) -> Iterator[ConfirmingPublisher]:
    """A publisher with a connection to the leader first, then to whichever node answers."""
    queue = f"confirmed.{time.monotonic_ns()}"
    with ConfirmingPublisher([subject.port(node) for node in nodes], queue) as publisher:
        yield publisher


def fill(subject: Subject, node: str, ready: int) -> None:
    """Let so many messages wait in durable queues; those of earlier questions are still there."""
    flags = (*MESSAGE, "--mode", "publish", "--confirm", str(WINDOW), "--keep", "--port", str(subject.port(node)))
    while subject.ready < ready:
        count = min(FILL_COUNT, ready - subject.ready)
        generator.call([*flags, "--queue-name", f"ready.{time.monotonic_ns()}", "--count", str(count)])
        subject.ready += count
