"""Routing at scale beside RabbitMQ: many bindings, a new routing key in each message, a reply queue for each request.

    python benchmarks/rpc.py [--bindings 100000] [--rounds 3] [--seconds 4] [--only direct,topic,headers,rpc,rpc-100]
        [--rabbitmq] [--out benchmarks/results/rpc.json]
    python benchmarks/rpc.py --quick

The first part is about exchanges that have `--bindings` bindings to 100 queues: CPU of the broker for each binding, for
a message whose routing key (for headers: whose header) no message had before, half of which match, and for one with a
key that is known. The second is RPC as many clients do it: 1,000 requests a second, each of which declares a queue,
binds it, consumes, publishes to it, has its answer and deletes the queue, beside steady publishers of 2,000 messages a
second on the same exchange; without requests, and with them. CPU is of the whole process of the broker, user and
system, in microseconds; latencies are of the steady messages, from write to read, in milliseconds. The brokers take
turns.
Exit status 1: an answer or a steady message is missing, never a time.
"""

from __future__ import annotations

import argparse
import json
import select
import statistics
import struct
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from brokers import LEVERET, BrokerFailed, Running, machine, portable, started
from pamqp import base, commands, frame, header
from raw_client import RawClient, Unexpected, publish_octets

KINDS = ("direct", "topic", "headers")
QUEUES = 100
HEADER_SETS = 1_000  # distinct ones, whatever the number of bindings
#: Messages of one run. Headers are few: RabbitMQ looks at each binding for each message.
MESSAGES = {"direct": 10_000, "topic": 10_000, "headers": 200}
#: As many as asked for, and so few that a broker which needs milliseconds for each keeps up.
REQUESTS_PER_S, STEADY_PER_S = {"rpc": 1_000, "rpc-100": 100}, 2_000
OUTSTANDING_MAX = 200  # requests without an answer: those of a broker that cannot keep up wait
KEYS = 400
TIMEOUT_S = 300.0
Costs = dict[str, float]


class Missing(Exception):
    """Messages did not arrive."""


def cpu_us(pid: int) -> float:
    """CPU of all threads of a process, by the scheduler's own clock: finer than ticks."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e3


def connected(port: int) -> RawClient:
    """Logged in, with channel 1."""
    client = RawClient(port, deadline_seconds=TIMEOUT_S)
    client.handshake()
    return client


def settle(client: RawClient, queue: str) -> None:
    """Wait until everything sent is handled."""
    client.send(commands.Queue.Declare(queue=queue, passive=True))
    client.wait_for(commands.Queue.DeclareOk)


def _method(method: base.Frame) -> bytes:
    return frame.marshal(method, 1)


# -- many bindings ----------------------------------------------------------------------------------------------------


class Bindings:
    """An exchange of one kind with so many bindings."""

    def __init__(self, broker: Running, kind: str, count: int) -> None:
        self._pid, self._kind, self._count = broker.pid, kind, count
        self._exchange = f"many.{kind}"
        self._serial = 0
        self._client = connected(broker.port)
        self._queues = [f"many.{number}" for number in range(QUEUES)]
        self._client.send(commands.Exchange.Declare(exchange=self._exchange, exchange_type=kind))
        self._client.expect(commands.Exchange.DeclareOk)
        for queue in self._queues:
            self._client.send(commands.Queue.Declare(queue=queue))
            self._client.expect(commands.Queue.DeclareOk)

    def _us(self, octets: bytes, count: int) -> float:
        """CPU for each of what is sent."""
        before = cpu_us(self._pid)
        self._client.write(octets)
        settle(self._client, self._queues[0])
        return (cpu_us(self._pid) - before) / count

    def fill(self) -> float:
        """CPU of a binding."""
        return self._us(b"".join(map(self._binding, range(self._count))), self._count)

    def _binding(self, number: int) -> bytes:
        key = {"direct": f"key.{number}", "topic": f"user.{number}.*", "headers": str(number)}[self._kind]
        arguments = _conditions(number % HEADER_SETS) if self._kind == "headers" else {}
        queue = self._queues[number % QUEUES]
        return _method(
            commands.Queue.Bind(queue=queue, exchange=self._exchange, routing_key=key, arguments=arguments, nowait=True)
        )

    def messages(self, *, are_new: bool) -> float:
        """CPU of a message: half of them match; each has a key or header of its own, or all have the same two."""
        count = min(MESSAGES[self._kind], self._count)
        octets = b""
        for number in range(count):
            place = self._serial * 7919 % self._count if are_new else 1
            # Those that do not match are new by being numbered.
            other = f"none.{self._serial}" if are_new else "none"
            self._serial += 1
            octets += self._message(place, None if number % 2 else other)
        return self._us(octets, count)

    def _message(self, place: int, other: str | None) -> bytes:
        if self._kind == "headers":
            values = {**_conditions(place % HEADER_SETS), "id": self._serial if other is None or other != "none" else 0}
            if other is not None:
                values["kind"] = -1
            properties = commands.Basic.Properties(headers=values, delivery_mode=1)
            method = _method(commands.Basic.Publish(exchange=self._exchange))
            return method + frame.marshal(header.ContentHeader(body_size=0, properties=properties), 1)
        key = other or {"direct": f"key.{place}", "topic": f"user.{place}.end"}[self._kind]
        return publish_octets(self._exchange, key, b"0123456789abcdef")

    def end(self) -> None:
        """Take it all away again."""
        self._client.send(commands.Exchange.Delete(exchange=self._exchange))
        self._client.expect(commands.Exchange.DeleteOk)
        for queue in self._queues:
            self._client.send(commands.Queue.Delete(queue=queue))
            self._client.expect(commands.Queue.DeleteOk)
        self._client.finish()


def _conditions(number: int) -> dict[str, Any]:
    return {"region": number // 10, "kind": number % 10}


def bindings(broker: Running, kind: str, count: int, rounds: int) -> Costs:
    """CPU of each, the median of the rounds."""
    exchange = Bindings(broker, kind, count)
    found: dict[str, list[float]] = {"binding_us": [exchange.fill()]}
    exchange.messages(are_new=False)  # warms up
    for _ in range(rounds):
        found.setdefault("new_key_us", []).append(exchange.messages(are_new=True))
        found.setdefault("known_key_us", []).append(exchange.messages(are_new=False))
    exchange.end()
    return {name: round(statistics.median(values), 2) for name, values in found.items()}


# -- a reply queue for each request -----------------------------------------------------------------------------------


class Steady:
    """A publisher at a steady rate, and a consumer that notes how long each message took."""

    def __init__(self, port: int, seconds: float) -> None:
        self._count = int(STEADY_PER_S * seconds)
        self._sent = 0
        self.delays_ms: list[float] = []
        self.publisher, self.consumer = connected(port), connected(port)
        self.consumer.send(commands.Queue.Declare(queue="steady"))
        self.consumer.expect(commands.Queue.DeclareOk)
        self.consumer.send(commands.Queue.Bind(queue="steady", exchange="amq.topic", routing_key="orders.*"))
        self.consumer.expect(commands.Queue.BindOk)
        self.consumer.send(commands.Basic.Consume(queue="steady", no_ack=True))
        self.consumer.expect(commands.Basic.ConsumeOk)

    @property
    def is_done(self) -> bool:
        """Whether all that is to be sent has arrived."""
        return len(self.delays_ms) == self._count

    def send_due(self, elapsed_s: float) -> None:
        """Send what the clock asks for."""
        due = min(int(elapsed_s * STEADY_PER_S), self._count)
        while self._sent < due:
            body = struct.pack(">Q8x", time.monotonic_ns())
            self.publisher.write(publish_octets("amq.topic", f"orders.{self._sent % KEYS}", body))
            self._sent += 1

    def receive(self) -> None:
        """Read what arrived."""
        bodies = self.consumer.receive_bodies()
        now = time.monotonic_ns()
        self.delays_ms += [(now - struct.unpack_from(">Q", body)[0]) / 1e6 for body in bodies]

    def end(self) -> None:
        """Take it away."""
        self.consumer.send(commands.Queue.Delete(queue="steady"))
        self.consumer.wait_for(commands.Queue.DeleteOk)
        self.consumer.finish()
        self.publisher.finish()


class Asker:
    """Requests, each with a reply queue that lives as long as it."""

    def __init__(self, port: int, seconds: float, per_s: int, first: int) -> None:
        self._per_s = per_s
        self.count = int(per_s * seconds)
        names = [f"reply.{number}" for number in range(first, first + self.count)]
        self._requests = [_request(name) for name in names]
        self._deletes = [_method(commands.Queue.Delete(queue=name, nowait=True)) for name in names]
        self._sent = self.answered = 0
        self.client = connected(port)

    @property
    def is_done(self) -> bool:
        """Whether all have been answered."""
        return self.answered == self.count

    def send_due(self, elapsed_s: float) -> None:
        """Send what the clock asks for, unless too many are on their way."""
        due = min(int(elapsed_s * self._per_s), self.count, self.answered + OUTSTANDING_MAX)
        if self._sent < due:
            self.client.write(b"".join(self._requests[self._sent : due]))
            self._sent = due

    def receive(self) -> None:
        """Read answers; their queues go."""
        answers = len(self.client.receive_bodies())
        if answers:
            self.client.write(b"".join(self._deletes[self.answered : self.answered + answers]))
            self.answered += answers


def _request(name: str) -> bytes:
    methods: list[base.Frame] = [
        commands.Queue.Declare(queue=name, exclusive=True, auto_delete=True, nowait=True),
        commands.Queue.Bind(queue=name, exchange="amq.topic", routing_key=name, nowait=True),
        commands.Basic.Consume(queue=name, consumer_tag=name, no_ack=True, nowait=True),
    ]
    return b"".join(map(_method, methods)) + publish_octets("amq.topic", name, b"answer")


def beside(broker: Running, seconds: float, per_s: int, first: int) -> Costs:
    """Steady publishers for so long, with requests numbered from `first`, or (0 per second) none. Raises: Missing."""
    steady = Steady(broker.port, seconds)
    asker = Asker(broker.port, seconds, per_s, first) if per_s else None
    loads: dict[Any, Steady | Asker] = {steady.consumer: steady}
    if asker is not None:
        loads[asker.client] = asker
    before, start = cpu_us(broker.pid), time.monotonic()
    while not all(load.is_done for load in loads.values()):
        elapsed = time.monotonic() - start
        if elapsed > seconds + TIMEOUT_S:
            answered = "" if asker is None else f", {asker.answered} of {asker.count} answers"
            raise Missing(f"{broker.name}: {len(steady.delays_ms)} steady messages{answered}")
        for load in loads.values():
            load.send_due(elapsed)
        for client in select.select(list(loads), (), (), 0.0005)[0]:
            loads[client].receive()
    if asker is not None:
        asker.client.send(commands.Queue.Declare(queue="", exclusive=True))
        asker.client.wait_for(commands.Queue.DeclareOk)  # all queues are deleted
    took, cpu = time.monotonic() - start, cpu_us(broker.pid) - before
    steady.end()
    if asker is not None:
        asker.client.finish()
    cuts = statistics.quantiles(steady.delays_ms, n=100)
    return {"cpu_us": cpu, "seconds": took, "p50_ms": cuts[49], "p99_ms": cuts[98]}


def rpc(broker: Running, seconds: float, rounds: int, per_s: int) -> Costs:
    """CPU of a request, which rate it had, and the steady messages' delays without and with requests: medians."""
    found: dict[str, list[float]] = {}
    serial = count(0, int(per_s * seconds) + per_s)  # no queue has the name of an earlier one
    beside(broker, min(seconds, 0.5), per_s, next(serial))  # warms up
    for _ in range(rounds):
        alone, both = beside(broker, seconds, 0, 0), beside(broker, seconds, per_s, next(serial))
        requests = int(per_s * seconds)
        for name, value in {
            "steady_us": alone["cpu_us"] / (STEADY_PER_S * seconds),
            "request_us": (both["cpu_us"] - alone["cpu_us"]) / requests,
            "requests_per_s": requests / both["seconds"],
            "alone_p50_ms": alone["p50_ms"],
            "alone_p99_ms": alone["p99_ms"],
            "beside_p50_ms": both["p50_ms"],
            "beside_p99_ms": both["p99_ms"],
        }.items():
            found.setdefault(name, []).append(value)
    return {name: round(statistics.median(values), 3) for name, values in found.items()}


# -- the program ------------------------------------------------------------------------------------------------------


def _brokers(stack: ExitStack, options: argparse.Namespace) -> list[Running]:
    found = [stack.enter_context(started(options.command))]
    if options.baseline:
        found.append(stack.enter_context(started(options.baseline, name="baseline")))
    if options.rabbitmq:
        from leveret.interop.brokers.peers import rabbitmq

        peer = stack.enter_context(rabbitmq())
        found.append(Running("rabbitmq", peer.port, peer.pid))
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bindings", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--only", default=",".join((*KINDS, *REQUESTS_PER_S)))
    parser.add_argument("--command", default=LEVERET, help="start leveret by this instead; {port} is filled in")
    parser.add_argument("--baseline", metavar="CMD", help="also an older tree")
    parser.add_argument("--rabbitmq", action="store_true", help="RabbitMQ, too")
    parser.add_argument("--quick", action="store_true", help="seconds: only that everything arrives")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.bindings, options.rounds, options.seconds = 1_000, 1, 0.3
    return options


def _measured(name: str, broker: Running, options: argparse.Namespace) -> Costs:
    if name in REQUESTS_PER_S:
        return rpc(broker, options.seconds, options.rounds, REQUESTS_PER_S[name])
    return bindings(broker, name, options.bindings, options.rounds)


def main() -> int:
    """Print and perhaps write the figures."""
    options = _options()
    results: dict[str, Any] = {}
    try:
        with ExitStack() as stack:
            brokers = _brokers(stack, options)
            for name in options.only.split(","):
                results[name] = {broker.name: _measured(name, broker, options) for broker in brokers}
                for broker, figures in results[name].items():
                    shown = ", ".join(f"{what} {figure:,.2f}" for what, figure in figures.items())
                    print(f"{name:8} {broker:9} {shown}", flush=True)
    except (BrokerFailed, Missing, Unexpected, OSError) as error:
        print(f"FAILED {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"rpc.py: {error}", file=sys.stderr)
        return 2
    if options.out is not None:
        facts = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "machine": machine(),
            "bindings": options.bindings,
            "rounds": options.rounds,
            "command": portable(["python", "benchmarks/rpc.py", *sys.argv[1:]]),
        }
        options.out.write_text(json.dumps({**facts, **results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
