"""The cost of routes at scale: new routing keys, millions of bindings, short-lived reply queues.

    python benchmarks/routes.py [--sizes 20000,100000,1000000] [--seconds 4] [--rounds 3] [--out FILE]

The first part is the engine alone, one process for each kind of exchange and number of bindings. The second is a broker
process: a publisher of 20,000 messages per second with 400 routing keys on a topic exchange, alone and with 1,000 reply
queues per second that another connection declares, writes to and deletes. The cost of a message is then the CPU of
both, less that of the reply queues alone. CPU in microseconds, user and system.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from brokers import LEVERET, machine, rss_kb, started
from pamqp import commands, frame
from raw_client import RawClient, publish_octets

from leveret.engine import Broker, ManualClock, User, VirtualHost
from leveret.engine.exchanges.routed import Routed
from leveret.engine.messages.content import NATIVE, encode_header, scan_properties
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.messages.message import Envelope
from leveret.serving.collector import THRESHOLDS

KINDS = ("default", "direct", "topic", "headers")
USER = User("guest")
QUEUES = 1_000
DEFAULT_MAX = 100_000  # queues, which take more memory than bindings
HEADER_SETS = 100  # distinct ones, whatever the number of bindings
LOOKUPS = 2_000
PUBLISHED_PER_S, REPLIES_PER_S, TICKS_PER_S = 20_000, 1_000, 50
CHURNS = ("default", "bound", "wildcard")


class Web:
    """A virtual host with one exchange that has `count` bindings."""

    def __init__(self) -> None:
        self.broker = Broker(ManualClock())
        self.client = self.broker.connections.open("/", USER, name="bench", flush=lambda: None)
        self.vhost: VirtualHost = self.broker.virtual_hosts["/"]

    def fill(self, kind: str, count: int) -> None:
        """The default exchange gets queues, others bindings to a thousand of them."""
        if kind == "default":
            for number in range(count):
                self.vhost.queues.declare(f"q{number}", client=self.client)
            return
        for number in range(QUEUES):
            self.vhost.queues.declare(f"q{number}", client=self.client)
        bind = partial(self.vhost.bindings.add, "queue")
        for number in range(count):
            queue = f"q{number % QUEUES}"
            if kind == "headers":
                bind(queue, "amq.headers", f"{number}", _conditions(number % HEADER_SETS))
            elif kind == "topic":
                bind(queue, "amq.topic", (f"user.{number}.*", f"*.{number}.#", f"#.{number}.end")[number % 3], {})
            else:
                bind(queue, "amq.direct", f"key.{number}", {})

    def new_key_us(self, kind: str, count: int) -> float:
        """One look-up of a new key, of which half match. Headers: one message."""
        chance, vhost = random.Random(1), self.vhost
        if kind == "headers":
            tries = max(5, min(LOOKUPS, 20_000_000 // count))
            exchange = vhost.exchanges["amq.headers"]
            numbers = [chance.randrange(HEADER_SETS) for _ in range(tries)]
            contents = [NATIVE.join(encode_header(0, {"headers": _conditions(number)}), b"") for number in numbers]
            facts = scan_properties(NATIVE.split(contents[0])[0][12:])
            messages = [Routed(("",), Envelope("amq.headers", "", facts), content) for content in contents]
            return _us(lambda: [vhost.router.reach(exchange, message) for message in messages], tries)
        name = "" if kind == "default" else f"amq.{kind}"
        form = {"default": "q{}", "direct": "key.{}", "topic": "user.{}.end"}[kind]
        tries = max(20, min(LOOKUPS, 200_000_000 // count))
        keys = [form.format(chance.randrange(2 * count)) for _ in range(tries)]
        return _us(lambda: [vhost.router.route(name, key, USER) for key in keys], len(keys))

    def bind_elsewhere_us(self) -> float:
        """One more binding for a queue that has 20,000, to another exchange."""
        for number in range(20_000):
            self.vhost.bindings.add("queue", "q0", "amq.direct", f"mine.{number}", {})

        def bind() -> None:
            for number in range(500):
                self.vhost.bindings.add("queue", "q0", "amq.topic", f"mine.{number}", {})

        return _us(bind, 500)

    def delete_us(self) -> float:
        """Deleting that queue, per binding."""
        held = len(self.vhost.queues["q0"].incoming)
        return _us(lambda: self.vhost.queues.delete("q0", self.client), held)


def _conditions(number: int) -> FieldTable:
    return {"region": Field("I", number // 10), "kind": Field("I", number % 10)}


def _us(work: Callable[[], object], count: int) -> float:
    start = time.process_time_ns()
    work()
    return (time.process_time_ns() - start) / 1000 / count


def measure(kind: str, count: int) -> dict[str, float]:
    """Figures of one kind and number."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    empty = Web()
    empty.fill(kind, 0)
    before_kb = rss_kb(os.getpid())
    web = Web()
    figures = {"fill_us": _us(lambda: web.fill(kind, count), count)}
    figures["bytes_each"] = (rss_kb(os.getpid()) - before_kb) * 1024 / count
    figures["new_key_us"] = web.new_key_us(kind, count)
    if kind == "direct":
        figures["bind_elsewhere_us"] = web.bind_elsewhere_us()
        figures["delete_us_a_binding"] = web.delete_us()
    return figures


class Load:
    """Sends octets at a steady rate over one connection."""

    def __init__(self, port: int) -> None:
        self.client = RawClient(port)
        self.client.handshake()

    def settle(self) -> None:
        """Wait until everything sent is handled."""
        self.client.send(commands.Queue.Declare(queue="sink", passive=True))
        self.client.wait_for(commands.Queue.DeclareOk)


def _replies(how: str, first: int, count: int) -> bytes:
    """Reply queues that are declared, perhaps bound, written to through the default exchange, and deleted."""
    octets = b""
    for number in range(first, first + count):
        name = f"reply.{number}"
        methods: list[Any] = [commands.Queue.Declare(queue=name, nowait=True)]
        if how != "default":
            key = name if how == "bound" else f"{name}.*"
            methods.append(commands.Queue.Bind(queue=name, exchange="amq.topic", routing_key=key, nowait=True))
        octets += b"".join(frame.marshal(method, 1) for method in methods) + publish_octets("", name, b"answer")
        octets += frame.marshal(commands.Queue.Delete(queue=name, nowait=True), 1)
    return octets


def cpu_seconds(pid: int) -> float:
    """CPU of a process's main thread since it began, by the scheduler's own clock: finer than ticks."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def _run(port: int, pid: int, seconds: float, publishes: bool, how: str | None) -> float:
    """CPU seconds of the broker for a load of that duration."""
    publisher, asker = Load(port), Load(port)
    publisher.client.send(commands.Queue.Declare(queue="sink"))
    publisher.client.expect(commands.Queue.DeclareOk)
    publisher.client.send(commands.Queue.Bind(queue="sink", exchange="amq.topic", routing_key="orders.*"))
    publisher.client.expect(commands.Queue.BindOk)
    messages = b"".join(publish_octets("amq.topic", f"orders.{number}", b"0123456789abcdef") for number in range(400))
    ticks = int(seconds * TICKS_PER_S)
    per_tick = REPLIES_PER_S // TICKS_PER_S
    replies = [_replies(how, tick * per_tick, per_tick) if how is not None else b"" for tick in range(ticks)]
    publisher.client.write(messages)
    publisher.settle()
    before, start = cpu_seconds(pid), time.monotonic()
    for tick in range(ticks):
        time.sleep(max(0.0, start + tick / TICKS_PER_S - time.monotonic()))
        if publishes:
            publisher.client.write(messages)
        if how is not None:
            asker.client.write(replies[tick])
    publisher.settle()
    asker.settle()
    used = cpu_seconds(pid) - before
    publisher.client.send(commands.Queue.Delete(queue="sink"))
    publisher.client.expect(commands.Queue.DeleteOk)
    publisher.client.finish()
    asker.client.finish()
    return used


def churn(command: str, seconds: float, rounds: int) -> dict[str, Any]:
    """CPU microseconds per message of the steady publisher, alone and with each kind of reply queues; medians."""
    assert PUBLISHED_PER_S == 400 * TICKS_PER_S
    found: dict[str, list[float]] = {}
    with started(command) as broker:
        _run(broker.port, broker.pid, 0.5, True, "bound")
        for _ in range(rounds):
            alone = _run(broker.port, broker.pid, seconds, True, None)
            idle = _run(broker.port, broker.pid, seconds, False, None)
            found.setdefault("alone", []).append(alone - idle)
            for how in CHURNS:
                only = _run(broker.port, broker.pid, seconds, False, how)
                found.setdefault(f"beside_{how}", []).append(_run(broker.port, broker.pid, seconds, True, how) - only)
                found.setdefault(f"reply_{how}", []).append((only - idle) * PUBLISHED_PER_S / REPLIES_PER_S)
    count = PUBLISHED_PER_S * seconds
    return {name: [round(cpu * 1e6 / count, 2) for cpu in sorted(values)] for name, values in found.items()}


def main() -> int:
    """Print and perhaps write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="20000,100000,1000000")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("KIND", "COUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measure(options.one[0], int(options.one[1]))))
        return 0
    results: dict[str, Any] = {"machine": machine()}
    for kind in filter(None, options.kinds.split(",")):
        for size in map(int, options.sizes.split(",")):
            if kind == "default" and size > DEFAULT_MAX:
                continue
            command = [sys.executable, __file__, "--one", kind, str(size)]
            figures = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            results.setdefault(kind, {})[str(size)] = {name: round(figure, 2) for name, figure in figures.items()}
            shown = ", ".join(f"{name} {figure:,.2f}" for name, figure in figures.items())
            print(f"{kind:8} {size:>9,}: {shown}", flush=True)
    if options.rounds:
        results["churn_us"] = churn(LEVERET, options.seconds, options.rounds)
        for name, values in results["churn_us"].items():
            print(f"{name:16} {statistics.median(values):8.2f} us  ({values[0]} to {values[-1]})")
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
