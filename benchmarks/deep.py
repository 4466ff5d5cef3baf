"""Deep queues: memory, first delivery, drain, restart (queues page F.8, rows FB1, FB2, FB4, FB6), and
transient messages of 16 octets, partly in memory and partly in the spool.

    python benchmarks/deep.py [--count 1000000] [--memory 256MiB] [--out benchmarks/results/deep.json]

`make bench-deep` runs it with 10,000,000 (some 12 GB of disk). Exit status 1: memory beyond its bound, a message lost
or out of order; never a time.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import generator
import pika
from brokers import BrokerFailed, Running, machine, rss_kb, started
from pamqp import commands
from raw_client import RawClient

SHALLOW, SHALLOW_ROUNDS = 10_000, 9
SIZE = 1024
QUEUE = "deep"
BEYOND_MIB = 64
STATE_MIB = 4
#: Deliveries of which every tenth is acknowledged; and how long the broker may take to free their memory.
PARKED_MAX = 300_000
SETTLE_S = 12


def load(broker: Running, mode: str, count: int, *flags: str) -> dict[str, Any]:
    """One run of the generator on the queue."""
    where = ["--port", str(broker.port), "--pid", str(broker.pid), "--queue-name", QUEUE, "--count", str(count)]
    return generator.call(["--mode", mode, "--size", str(SIZE), "--persistent", "--durable", "--keep", *where, *flags])


def fill(broker: Running, count: int) -> dict[str, Any]:
    """Publish with confirms; the queue stays."""
    return load(broker, "publish", count, "--confirm", "2000")


def drain(broker: Running, count: int) -> float:
    """Consume with acks; messages per second."""
    return float(load(broker, "consume", count, "--ack", "100", "--prefetch", "1000")["msgs_per_s"])


def first_delivery_ms(broker: Running) -> float:
    """From basic.consume to the first delivery, which a clean close returns uncounted."""
    client = RawClient(broker.port)
    client.handshake()
    client.send(commands.Basic.Qos(prefetch_count=1))
    client.expect(commands.Basic.QosOk)
    start = time.monotonic()
    client.send(commands.Basic.Consume(queue=QUEUE, nowait=True))
    client.expect(commands.Basic.Deliver)
    elapsed = time.monotonic() - start
    client.send(commands.Channel.Close(200, "", 0, 0))
    client.expect(commands.Channel.CloseOk)
    client.finish()
    return elapsed * 1000


def ack_every_tenth(broker: Running, count: int) -> float:
    """Acknowledge every tenth delivery, then close: the others are requeued, uncounted. Returns the additional MiB
    while they are unacknowledged."""
    before_kb = rss_kb(broker.pid)
    client = RawClient(broker.port)
    client.handshake()
    client.send(commands.Basic.Consume(queue=QUEUE, nowait=True))
    for at in range(1, count + 1):
        tag = client.expect(commands.Basic.Deliver).delivery_tag
        if at % 10 == 0:
            client.send(commands.Basic.Ack(delivery_tag=tag))
    out_kb = rss_kb(broker.pid)
    client.send(commands.Channel.Close(200, "", 0, 0))
    client.wait_for(commands.Channel.CloseOk)
    client.finish()
    return (out_kb - before_kb) / 1024


def depth(broker: Running) -> int:
    """The number of ready messages."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    count = int(connection.channel().queue_declare(QUEUE, passive=True).method.message_count)
    connection.close()
    return count


def transient(broker: Running, count: int) -> list[float]:
    """The additional MiB after each quarter of `count` transient messages of 16 octets."""
    where = ["--port", str(broker.port), "--pid", str(broker.pid), "--queue-name", "transient", "--keep"]
    before_kb = rss_kb(broker.pid)
    found = []
    for _ in range(4):
        generator.call(["--mode", "publish", "--size", "16", "--confirm", "2000", "--count", str(count // 4), *where])
        found.append((rss_kb(broker.pid) - before_kb) / 1024)
    return found


def measure(count: int, memory: str) -> dict[str, Any]:
    """All measurements on one journal."""
    results: dict[str, Any] = {"count": count, "memory": memory}
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "deep.toml"
        config.write_text(f'[limits]\nmemory = "{memory}"\n')
        serve = f"{shlex.quote(sys.executable)} -m leveret serve --management off"
        command = f"{serve} --data {directory}/data --config {config} --listen 127.0.0.1:{{port}}"
        with started(command) as broker:
            results["transient_rss_mib"] = transient(broker, count)
        with started(command) as broker:
            empty_kb = rss_kb(broker.pid)
            shallow = []
            for _ in range(SHALLOW_ROUNDS):  # each is a burst of some ten milliseconds
                fill(broker, SHALLOW)
                shallow.append(drain(broker, SHALLOW))
            results["drain_shallow_per_s"] = statistics.median(shallow)
            filled = fill(broker, count)
            results["fill_per_s"], results["fill_cpu_us"] = filled["pub_per_s"], filled["cpu_s_per_M"]
            results["rss_beyond_empty_mib"] = (rss_kb(broker.pid) - empty_kb) / 1024
            results["first_delivery_ms"] = first_delivery_ms(broker)
            before_kb = rss_kb(broker.pid)
            held = min(count // 2, PARKED_MAX)
            results["out_mib"] = ack_every_tenth(broker, held)
            deadline = time.monotonic() + SETTLE_S
            while (growth := (rss_kb(broker.pid) - before_kb) / 1024) > STATE_MIB and time.monotonic() < deadline:
                time.sleep(0.1)
            results["state_growth_mib"] = growth
            left = depth(broker)
            assert left == count - held // 10, f"{left} of {count - held // 10} are there"
            start = time.monotonic()
        results["stop_s"] = time.monotonic() - start
        start = time.monotonic()
        with suppress(BrokerFailed), started(command) as broker:
            results["restart_s"] = time.monotonic() - start
            results["rss_after_restart_mib"] = (rss_kb(broker.pid) - empty_kb) / 1024
            results["first_delivery_after_restart_ms"] = first_delivery_ms(broker)
            os.kill(broker.pid, 9)
            os.waitid(os.P_PID, broker.pid, os.WEXITED | os.WNOWAIT)
        start = time.monotonic()
        with started(command) as broker:
            results["restart_after_kill_s"] = time.monotonic() - start
            assert depth(broker) == left
            results["drain_deep_per_s"] = drain(broker, left)
    return results


def main() -> int:
    """Print and perhaps write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--memory", default="256MiB")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    generator.build()
    results = measure(options.count, options.memory)
    for name, value in results.items():
        print(f"{name:32} {value:,.1f}" if isinstance(value, float) else f"{name:32} {value}")
    if options.out is not None:
        options.out.write_text(json.dumps({"machine": machine(), **results}, indent=1) + "\n")
    bound = int(options.memory.removesuffix("MiB")) + BEYOND_MIB
    is_beyond = max(results["rss_beyond_empty_mib"], *results["transient_rss_mib"]) > bound
    return int(is_beyond or results["state_growth_mib"] > STATE_MIB)


if __name__ == "__main__":
    sys.exit(main())
