"""Consumers with filters on deep queues: starvation, memory, others beside them, and what arrivals cost.

    python benchmarks/selecting.py [--count 1000000] [--memory 256MiB] [--out benchmarks/results/selecting.json]

Seed 003's question: a consumer whose selector takes only the last message of a deep queue gets it, wherever that is.
Exit status 1: it got another one, or none; never a time.
"""

from __future__ import annotations

import argparse
import json
import shlex
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
from blocked import cpu_seconds
from brokers import Running, machine, rss_kb, started
from filters import body
from pamqp import commands, frame, header
from pamqp.common import FieldTable
from raw_client import RawClient

QUEUE = "deep"
BATCH = 2000
#: Of how many messages one is wanted by the second kind of filter.
SELDOM = 1000
CONSUMERS = 50
ARRIVALS = 20_000


def content(octets: bytes, headers: dict[str, Any], mode: int) -> bytes:
    """A publish to the queue, as frames."""
    properties = commands.Basic.Properties(delivery_mode=mode, headers=headers)
    parts = [frame.marshal(commands.Basic.Publish(routing_key=QUEUE), 1)]
    parts.append(frame.marshal(header.ContentHeader(body_size=len(octets), properties=properties), 1))
    return b"".join(parts) + struct.pack(">BHI", 3, 1, len(octets)) + octets + b"\xce"


def fill(broker: Running, count: int, *, mode: int = 2) -> float:
    """Publish JSON of 1 KiB with confirms, and one message more that is wanted. Returns seconds."""
    client = RawClient(broker.port, deadline_seconds=120)
    client.handshake()
    client.send(commands.Queue.Declare(queue=QUEUE, durable=True))
    client.expect(commands.Queue.DeclareOk)
    client.send(commands.Confirm.Select())
    client.expect(commands.Confirm.SelectOk)
    octets = body()
    others = content(octets, {"wanted": 0}, mode)
    seldom = content(octets.replace(b'"side": "buy"', b'"side": "now"'), {"wanted": 0}, mode)
    start = time.monotonic()
    for first in range(0, count, BATCH):
        size = min(BATCH, count - first)
        numbers = range(first, first + size)
        client.write(b"".join(seldom if number % SELDOM == SELDOM - 1 else others for number in numbers))
        _confirmed(client, first + size)
    if mode == 2:
        client.write(content(octets.replace(b'"side": "buy"', b'"side": "end"'), {"wanted": 1}, mode))
        _confirmed(client, count + 1)
    took = time.monotonic() - start
    client.finish()
    return took


def _confirmed(client: RawClient, last: int) -> None:
    while (ack := client.expect(commands.Basic.Ack)).delivery_tag != last:
        assert ack.delivery_tag < last


def subscribe(broker: Running, key: str, text: str, *, prefetch: int, clients: int = 1) -> list[RawClient]:
    """Consumers with a filter, each on a connection of its own. `{}` in the text is its number."""
    found = []
    for number in range(clients):
        client = RawClient(broker.port, deadline_seconds=600)
        client.handshake()
        client.send(commands.Basic.Qos(prefetch_count=prefetch))
        client.expect(commands.Basic.QosOk)
        arguments: FieldTable = {key: text.replace("{}", str(number))} if text else {}
        client.send(commands.Basic.Consume(queue=QUEUE, arguments=arguments, nowait=True))
        found.append(client)
    return found


@contextmanager
def peak_kb(pid: int) -> Iterator[list[int]]:
    """The largest resident size meanwhile."""
    highest = [rss_kb(pid)]
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.02):
            highest[0] = max(highest[0], rss_kb(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield highest
    finally:
        is_over.set()
        thread.join()


@contextmanager
def round_trips(broker: Running) -> Iterator[list[float]]:
    """Milliseconds of publishes that another client gets back from a queue of its own, one after the other."""
    times: list[float] = []
    is_over = threading.Event()

    def ping() -> None:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        name = channel.queue_declare("", exclusive=True).method.queue
        while not is_over.is_set():
            start = time.monotonic()
            channel.basic_publish("", name, b"x")
            while channel.basic_get(name, auto_ack=True)[0] is None:
                pass
            times.append((time.monotonic() - start) * 1000)
            time.sleep(0.002)
        connection.close()

    thread = threading.Thread(target=ping)
    thread.start()
    try:
        yield times
    finally:
        is_over.set()
        thread.join()


def only_the_last(broker: Running, key: str, text: str) -> dict[str, float]:
    """The first delivery to a consumer that takes only the last message: seconds, memory, and others beside it."""
    before_kb, cpu = rss_kb(broker.pid), cpu_seconds(broker.pid)
    with peak_kb(broker.pid) as highest, round_trips(broker) as times:
        start = time.monotonic()
        (client,) = subscribe(broker, key, text, prefetch=1)
        client.expect(commands.Basic.Deliver)
        took = time.monotonic() - start
    client.send(commands.Channel.Close(200, "", 0, 0))
    client.expect(commands.Channel.CloseOk)
    client.finish()
    times.sort()
    return {
        "s": took,
        "cpu_s": cpu_seconds(broker.pid) - cpu,
        "grew_mib": (highest[0] - before_kb) / 1024,
        "round_trip_median_ms": times[len(times) // 2],
        "round_trip_max_ms": times[-1],
    }


def one_in_a_thousand(broker: Running, count: int) -> dict[str, float]:
    """All that a filter takes which takes one message of a thousand, acknowledged one by one."""
    wanted = count // SELDOM
    start = last = time.monotonic()
    longest = 0.0
    (client,) = subscribe(broker, "x-filter", "/side = 'now'", prefetch=100)
    for _ in range(wanted):
        tag = client.expect(commands.Basic.Deliver).delivery_tag
        now = time.monotonic()
        longest, last = max(longest, now - last), now
        client.send(commands.Basic.Ack(delivery_tag=tag))
    took = time.monotonic() - start
    client.send(commands.Channel.Close(200, "", 0, 0))
    client.wait_for(commands.Channel.CloseOk)
    client.finish()
    return {"messages": wanted, "s": took, "longest_pause_s": longest}


def arrivals(command: str, text: str, clients: int) -> float:
    """Microseconds of the broker's CPU for a message that arrives, and that none of the consumers takes."""
    with started(command) as broker:
        fill(broker, 0, mode=1)
        consumers = subscribe(broker, "x-filter", text, prefetch=10, clients=clients if text else 0)
        fill(broker, ARRIVALS // 10, mode=1)
        before = cpu_seconds(broker.pid)
        fill(broker, ARRIVALS, mode=1)
        took = cpu_seconds(broker.pid) - before
        for client in consumers:
            client.finish()
    return took / ARRIVALS * 1e6


def measure(count: int, memory: str) -> dict[str, Any]:
    """All figures."""
    results: dict[str, Any] = {"count": count, "memory": memory}
    serve = f"{shlex.quote(sys.executable)} -m leveret serve --management off"
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "deep.toml"
        config.write_text(f'[limits]\nmemory = "{memory}"\n')
        command = f"{serve} --data {directory}/data --config {config} --listen 127.0.0.1:{{port}}"
        with started(command) as broker:
            empty_kb = rss_kb(broker.pid)
            results["fill_s"] = fill(broker, count)
            results["rss_beyond_empty_mib"] = (rss_kb(broker.pid) - empty_kb) / 1024
            results["selector, only the last"] = only_the_last(broker, "x-selector", "wanted = 1")
            results["filter, only the last"] = only_the_last(broker, "x-filter", "/side = 'end' AND /price > 100")
            results["filter, one in a thousand"] = one_in_a_thousand(broker, count)
    memory_only = f"{serve} --memory --listen 127.0.0.1:{{port}}"
    results["arrival, no consumer"] = arrivals(memory_only, "", 0)
    results["arrival, one filter"] = arrivals(memory_only, "/price > 1000", 1)
    results["arrival, fifty consumers, one filter"] = arrivals(memory_only, "/price > 1000", CONSUMERS)
    results["arrival, fifty filters"] = arrivals(memory_only, "/price > 1000{}", CONSUMERS)
    results["machine"] = machine()
    return results


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--memory", default="256MiB")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results = measure(arguments.count, arguments.memory)
    for name, found in results.items():
        if isinstance(found, dict):
            print(f"{name:38}", "  ".join(f"{key} {value}" for key, value in found.items()))
        else:
            print(f"{name:38}", found)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
