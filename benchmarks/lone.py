"""A message that comes alone: what it costs at 20, 200 and 2,000 a second, part by part, beside RabbitMQ.

    python benchmarks/lone.py [--rounds 3] [--seconds 3] [--paces 20,200,2000] [--only relay,autoack,acked,stored]
        [--baseline CMD] [--rabbitmq] [--calls]

`relay`: no broker, one read and one send a message: `epoll` alone is the floor of the kernel and of Python's calls,
`trio` waits as endpoints do without a poller, `poller` as they do with it. `autoack`, `acked` (acknowledged one by one,
confirmed) and `stored` (the same, persistent, in durable queues; each broker as it is installed, on one disk): 1 KiB
from one connection to another. CPU is of the whole broker, in microseconds a message, user and system; brokers take
turns. `--calls` runs each once more under strace, and prints its system calls a message. `stored` also measures what
the disk takes for a write and an fdatasync at that pace.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import generator
import trio
import wake_ups
from brokers import LEVERET, LOOPBACK, Running, started

ACKED = ("--ack", "1", "--confirm", "200", "--prefetch", "100")
LOADS = {"autoack": (), "acked": ACKED, "stored": (*ACKED, "--persistent", "--durable")}
RELAYS = ("epoll", "trio", "poller")
STORED = f"{sys.executable} -m leveret serve --management off --data {{data}} --listen {LOOPBACK}:{{port}}"
#: Seconds until strace has attached to all threads.
_PAUSE_S = 0.3


def cpu_us(pid: int) -> tuple[float, float]:
    """User and system time of a process; ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / tick * 1e6, int(fields[12]) / tick * 1e6


class Figures:
    """The rounds of one subject."""

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self.p50: list[float] = []
        self.user = self.system = 0.0

    def line(self) -> str:
        low, middle, high = min(self.cpu), statistics.median(self.cpu), max(self.cpu)
        share = f", {self.user / (self.user + self.system):.0%} user" if self.user + self.system else ""
        p50 = f", p50 {statistics.median(self.p50):.0f} us" if self.p50 else ""
        return f"{middle:6.1f} us ({low:.1f} to {high:.1f}){share}{p50}"


def run_load(broker: Running, flags: tuple[str, ...], pace: int, seconds: float, figures: Figures | None) -> int:
    """Returns: the number of messages."""
    user, system = cpu_us(broker.pid)
    length = ("--rate", str(pace), "--time", f"{seconds:.1f}", "--size", "1024")
    found = generator.call([*flags, *length, "--port", str(broker.port), "--pid", str(broker.pid)])
    if figures is not None:
        after = cpu_us(broker.pid)
        figures.user += after[0] - user
        figures.system += after[1] - system
        figures.cpu.append(found["run_us_per_msg"])
        figures.p50.append((found["confirm_us"] if "--confirm" in flags else found["latency_us"])["p50"])
    return int(found["delivered"])


def calls(broker: Running, flags: tuple[str, ...], pace: int, seconds: float) -> str:
    """System calls a message, most first."""
    with tempfile.NamedTemporaryFile() as file:
        command = ["strace", "-f", "-c", "-o", file.name, "-p", str(broker.pid)]
        tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(_PAUSE_S)
        messages = run_load(broker, flags, pace, seconds, None)
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
        rows = [line.split() for line in Path(file.name).read_text().splitlines() if re.match(r"\s*\d", line)]
    counted = sorted(((int(row[3]) / messages, row[-1]) for row in rows if row[-1] != "total"), reverse=True)
    return ", ".join(f"{name} {count:.2f}" for count, name in counted if count >= 0.05)


def disk_p50_us(pace: int, seconds: float) -> float:
    """Of a write of 1 KiB at the end of a file and its fdatasync."""
    taken = []
    with tempfile.TemporaryFile() as file:
        for _ in range(int(pace * seconds)):
            begin = time.perf_counter()
            os.write(file.fileno(), bytes(1024))
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - begin) * 1e6)
            time.sleep(max(0.0, 1 / pace - (time.perf_counter() - begin)))
    return statistics.median(taken)


def measure_relays(pace: int, options: argparse.Namespace) -> None:
    figures: dict[str, Figures] = defaultdict(Figures)
    wake_ups.CLIENT = re.sub(r"1 / \d+", f"1 / {pace}", wake_ups.CLIENT)
    for _ in range(options.rounds):
        for name in RELAYS:
            cpu = trio.run(wake_ups.measure, wake_ups.WAYS[name], int(pace * options.seconds))
            figures[name].cpu.append(cpu)
    for name, one in figures.items():
        print(f"{pace:5}/s relay    {name:18} {one.line()}", flush=True)


def measure_brokers(load: str, options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        subjects: dict[str, tuple[Running, tuple[str, ...]]] = {}
        command = STORED if load == "stored" else LEVERET
        subjects["leveret"] = (stack.enter_context(started(command)), LOADS[load])
        if options.baseline:
            subjects["baseline"] = (stack.enter_context(started(options.baseline)), LOADS[load])
        if options.rabbitmq:
            from leveret.interop.brokers.peers import rabbitmq

            peer = stack.enter_context(rabbitmq())
            rabbit = Running("rabbitmq", peer.port, peer.pid)
            subjects["rabbitmq"] = (rabbit, LOADS[load])
            if load == "stored":
                subjects["rabbitmq quorum"] = (rabbit, (*LOADS[load], "--queue-type", "quorum"))
        for pace in options.paces:
            figures: dict[str, Figures] = defaultdict(Figures)
            for _ in range(options.rounds):
                for name, (broker, flags) in subjects.items():
                    run_load(broker, flags, pace, options.seconds, figures[name])
            for name, one in figures.items():
                print(f"{pace:5}/s {load:8} {name:18} {one.line()}", flush=True)
                if options.calls:
                    print(f"{'':17}{calls(*subjects[name], pace, options.seconds)}", flush=True)
            if load == "stored":
                print(f"{pace:5}/s disk     {'write, fdatasync':18} p50 {disk_p50_us(pace, 2):.0f} us", flush=True)


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--paces", type=lambda text: [int(one) for one in text.split(",")], default=[20, 200, 2000])
    parser.add_argument("--only", type=lambda text: text.split(","), default=["relay", *LOADS])
    parser.add_argument("--baseline", metavar="CMD", help="an older tree, as for compare.py; {data} for stored")
    parser.add_argument("--rabbitmq", action="store_true")
    parser.add_argument("--calls", action="store_true", help="needs strace")
    options = parser.parse_args()
    generator.build()
    for load in options.only:
        if load == "relay":
            for pace in options.paces:
                measure_relays(pace, options)
        else:
            measure_brokers(load, options)


if __name__ == "__main__":
    main()
