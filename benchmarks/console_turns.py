"""The longest turn of the event loop with many objects: while nobody asks the console, and while it answers.

    python benchmarks/console_turns.py [--queues 10000] [--connections 2000] [--bindings 50000] [PATH ...]

A broker with console and metrics in this process; each step of each task of its loop is timed in CPU of its thread,
with the garbage collector's part of it. A request is sent and its answer read in another thread, which parses nothing.
"""

from __future__ import annotations

import argparse
import gc
import random
import socket
import time
from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import trio
from raw_client import RawClient

from leveret.engine import Broker, Envelope, Session
from leveret.testing import RunningBroker, start_broker

MS = 1000
IDLE_S = 3.0
ROUNDS = 5
VHOST = "/"
PATHS = (
    "/api/overview",
    "/api/nodes",
    "/api/vhosts",
    "/api/queues?page=1",
    "/api/queues?page=1&sort=message_stats.publish_details.rate",
    "/api/queues?page=1&name=99&use_regex=true",
    "/api/queues",
    "/api/queues?lengths_age=600&lengths_incr=5&page=1&page_size=500",
    "/api/exchanges?page=1",
    "/api/bindings",
    "/api/bindings/%2F",
    "/api/exchanges/%2F/amq.topic/bindings/source",
    "/api/connections?page=1",
    "/api/connections",
    "/api/channels",
    "/api/channels?page=1&sort=name",
    "/api/consumers",
    "/api/definitions",
    "/api/definitions/%2F",
    "/api/leveret/status",
    "/api/leveret/blocked",
    "/api/leveret/search?q=99",
    "/api/leveret/scheduled",
    "/api/leveret/leases",
    "/api/leveret/explain/%2F/queue-00042",
    "/metrics",
    "/metrics/per-object",
    "/metrics/detailed?family=queue_coarse_metrics&family=exchange_bindings&family=exchange_names",
    "/metrics/detailed?family=channel_metrics&family=connection_metrics&family=channel_exchange_metrics",
    "/health/live",
    "/health/ready",
)


@dataclass(eq=False)
class Steps(trio.abc.Instrument):
    """Milliseconds of CPU of the longest step of any task, which task that was, and the collector's part of it.

    by_task: the sum of the steps of each task's name. over: bound in milliseconds -> the longer steps.
    """

    longest: float = 0.0
    whose: str = ""
    collected: float = 0.0
    longest_collection: float = 0.0
    all: float = 0.0
    over: dict[int, int] = field(default_factory=lambda: {5: 0, 10: 0})
    by_task: dict[str, float] = field(default_factory=dict)
    _began: float = 0.0
    _collecting: float = 0.0
    _in_step: float = 0.0

    def forget(self) -> None:
        """Begin anew."""
        self.longest = self.collected = self.longest_collection = self.all = 0.0
        self.whose, self.over, self.by_task = "", dict.fromkeys(self.over, 0), {}

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """See trio."""
        self._in_step = 0.0
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """See trio."""
        took = (time.thread_time() - self._began) * MS
        self.all += took
        self.by_task[task.name] = self.by_task.get(task.name, 0.0) + took
        for bound in self.over:
            self.over[bound] += took > bound
        if took > self.longest:
            self.longest, self.whose, self.collected = took, task.name.rpartition(".")[2], self._in_step

    def collects(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
            return
        took = (time.thread_time() - self._collecting) * MS
        self._in_step += took
        self.longest_collection = max(self.longest_collection, took)


def fill(broker: Broker, session: Session, queues: int, bindings: int) -> None:
    """Queues, every second one with a message, and bindings of them."""
    vhost = broker.virtual_hosts[VHOST]
    numbers = list(range(queues))
    random.Random(1).shuffle(numbers)  # what is declared in the order of its name is sorted for nothing
    for number in numbers:
        name = f"queue-{number:05}"
        vhost.queues.declare(name, client=None, durable=True)
        if number % 2:
            route = vhost.router.route("", name, session.client.user)
            session.publish(route, Envelope("", name), [b"\0" * 14 + b"x" * 100], mandatory=False)
    for number in range(bindings):
        vhost.bindings.add(
            "queue", f"queue-{number % queues:05}", ("amq.topic", "amq.direct")[number % 2], f"key.{number}", {}
        )
    broker.end_turn()


def ask(url: str, path: str) -> tuple[int, int]:
    """Status and length of an answer."""
    address = urlsplit(url)
    login = b64encode(b"guest:guest").decode()
    with socket.create_connection((address.hostname, address.port), timeout=120) as peer:
        head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Basic {login}\r\nconnection: close\r\n\r\n"
        peer.sendall(head.encode())
        begin = peer.recv(65536)
        size = len(begin)
        while data := peer.recv(1 << 20):
            size += len(data)
    return int(begin.split(b" ", 2)[1]), size


def measured(broker: RunningBroker, steps: Steps, path: str, rounds: int = ROUNDS) -> None:
    """Print the longest step of several requests."""
    url = broker.metrics_url if path.startswith(("/metrics", "/health")) else broker.management_url
    ask(url, path)  # what it imports, and what it remembers
    broker.ask(steps.forget)
    for _ in range(rounds):
        status, size = ask(url, path)
    show(f"{path} {status}", steps, rounds, size)


def show(what: str, steps: Steps, rounds: int, size: int = 0) -> None:
    """A line."""
    print(
        f"{what:90.90} {size:10} {steps.all / rounds:9.1f} {steps.longest:8.2f} {steps.collected:8.2f} "
        f"{steps.over[5]:5} {steps.over[10]:5}  {steps.whose}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("paths", nargs="*", metavar="PATH")
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=2_000)
    parser.add_argument("--bindings", type=int, default=50_000)
    given = parser.parse_args()
    with start_broker(management=True) as broker:
        clients = []
        for _ in range(given.connections):
            clients.append(RawClient(broker.port))
            clients[-1].socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            clients[-1].handshake()
        session = broker.ask(lambda: next(iter(next(iter(broker.runtime.broker.connections)).sessions)))
        broker.ask(lambda: fill(broker.runtime.broker, session, given.queues, given.bindings))
        # As `leveret serve` has it, once what was made has become old.
        from leveret.serving import collector

        broker.ask(collector.set_up)
        steps = Steps()
        gc.callbacks.append(steps.collects)
        broker.ask(lambda: trio.lowlevel.add_instrument(steps))
        print(f"{given.queues} queues, {given.connections} connections, {given.bindings} bindings; {ROUNDS} requests")
        print(f"{'':90} {'octets':>10} {'a request':>9} {'longest':>8} {'gc in it':>8} {'>5':>5} {'>10':>5}  task")
        broker.ask(steps.forget)
        time.sleep(IDLE_S)
        show(f"nobody asks, {IDLE_S:.0f} s", steps, 1)
        for path in given.paths or PATHS:
            measured(broker, steps, path)


if __name__ == "__main__":
    main()
