"""What a message costs in a deep queue whose consumers have filters and give some of their messages back.

    python benchmarks/returning.py [--count 40000] [--memory 4MiB] [--kinds classic,leased] [--ways none,nack,close]
        [--out benchmarks/results/returning.json]
    python benchmarks/returning.py --quick

The filter takes two messages of three; the others stay among those that come back. Of what it takes one message in ten
comes back once: by a nack (`nack`), by a nack with a redelivery delay (`delay`), or with all that another consumer has
out whose channel closes (`close`); or nothing does (`none`). The broker's CPU is read for each tenth of what is
settled, in microseconds a message: flat, or where it rises. `[limits] memory` decides how much is in the journal alone.
Exit status 1: a message was lost, or came twice though nobody gave it back; never a time.
"""

from __future__ import annotations

import argparse
import json
import shlex
import struct
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from blocked import cpu_seconds
from brokers import BrokerFailed, Running, machine, portable, started
from generator import CheckFailed
from pamqp import commands, frame, header
from raw_client import RawClient, Unexpected

QUEUE = "deep"
SIZE = 256
BATCH = 2000
PREFETCH = 20
DELAY_MS = 50
PIECES = 10
ONE_IN = 10
PRIORITIES = 5
#: How a queue is declared -> its arguments.
QUEUES: dict[str, dict[str, Any]] = {
    "classic": {},
    "leased": {"x-queue-type": "amps", "x-max-per-subscription-backlog": PREFETCH},
    "priority": {"x-max-priority": PRIORITIES},
    "quorum": {"x-queue-type": "quorum"},
}
WAYS = ("none", "nack", "delay", "close")
CONFIG = """
[limits]
memory = "{memory}"
[[address-setting]]
match = "#"
max-delivery-attempts = -1
redelivery-delay = "{delay}ms"
"""


def publish(number: int) -> bytes:
    """A message, as frames: one of three is `other`."""
    headers: Any = {"kind": "other" if number % 3 == 2 else "wanted"}
    properties = commands.Basic.Properties(delivery_mode=2, headers=headers, priority=number % PRIORITIES)
    body = b"%016d" % number + bytes(SIZE - 16)
    method = frame.marshal(commands.Basic.Publish(routing_key=QUEUE), 1)
    head = frame.marshal(header.ContentHeader(body_size=SIZE, properties=properties), 1)
    return method + head + struct.pack(">BHI", 3, 1, SIZE) + body + b"\xce"


def fill(broker: Running, arguments: dict[str, Any], count: int) -> None:
    """Declare, and publish with confirms."""
    client = RawClient(broker.port, deadline_seconds=120)
    client.handshake()
    client.send(commands.Queue.Declare(queue=QUEUE, durable=True, arguments=arguments))
    client.expect(commands.Queue.DeclareOk)
    client.send(commands.Confirm.Select())
    client.expect(commands.Confirm.SelectOk)
    for first in range(0, count, BATCH):
        last = min(first + BATCH, count)
        client.write(b"".join(map(publish, range(first, last))))
        while (ack := client.expect(commands.Basic.Ack)).delivery_tag != last:
            assert ack.delivery_tag < last
    client.finish()


class Drain:
    """A consumer that acknowledges what it takes, after some of it came back."""

    def __init__(self, broker: Running, way: str, wanted: int) -> None:
        self._broker, self._way, self._wanted = broker, way, wanted
        self._client = self._subscribed()
        self._seen: set[int] = set()  # numbers of messages
        self._back: set[int] = set()
        self._settled = 0

    def _subscribed(self) -> RawClient:
        client = RawClient(self._broker.port, deadline_seconds=600)
        client.handshake()
        client.send(commands.Basic.Qos(prefetch_count=PREFETCH))
        client.expect(commands.Basic.QosOk)
        client.send(commands.Basic.Consume(queue=QUEUE, arguments={"x-selector": "kind = 'wanted'"}, nowait=True))
        return client

    def run(self) -> list[float]:
        """Microseconds of the broker's CPU a message, for each piece."""
        pid, piece = self._broker.pid, self._wanted // PIECES
        found: list[float] = []
        before = cpu_seconds(pid)
        while len(found) < PIECES:
            for tag, body in self._deliveries():
                self._settle_one(tag, int(body[:16]))
                if self._settled == piece * (len(found) + 1):
                    now = cpu_seconds(pid)
                    found.append((now - before) / piece * 1e6)
                    before = now
        self._client.finish()
        return found

    def _settle_one(self, tag: int, number: int) -> None:
        if number % 3 == 2 or (number in self._seen and number not in self._back):
            raise CheckFailed(f"message {number} came, and should not")
        self._back.discard(number)
        is_new = number not in self._seen
        self._seen.add(number)
        if is_new and self._way in ("nack", "delay") and len(self._seen) % ONE_IN == 0:
            self._back.add(number)
            self._client.send(commands.Basic.Nack(delivery_tag=tag, requeue=True))
            return
        self._client.send(commands.Basic.Ack(delivery_tag=tag))
        self._settled += 1
        is_much_left = self._settled < self._wanted - 3 * PREFETCH
        if self._way == "close" and is_much_left and self._settled % (PREFETCH * ONE_IN) == 0:
            other = self._subscribed()
            other.expect(commands.Basic.Deliver)
            other.send(commands.Channel.Close(200, "", 0, 0))
            other.wait_for(commands.Channel.CloseOk)
            other.finish()

    def _deliveries(self) -> Iterator[tuple[int, bytes]]:
        tag = self._client.expect(commands.Basic.Deliver).delivery_tag
        yield tag, self._client.expect_body()


@contextmanager
def broker_with(memory: str, delay_ms: int) -> Iterator[Running]:
    """With a journal, and so much memory."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        config.write(CONFIG.format(memory=memory, delay=delay_ms))
        config.flush()
        serve = f"{shlex.quote(sys.executable)} -m leveret serve --management off"
        serve += f" --data {{data}} --config {config.name} --listen 127.0.0.1:{{port}}"
        with started(serve) as broker:
            yield broker


def curve(kind: str, way: str, memory: str, count: int) -> list[float]:
    """One queue, drained once. Raises: CheckFailed."""
    with broker_with(memory, DELAY_MS if way == "delay" else 0) as broker:
        fill(broker, QUEUES[kind], count)
        wanted = count - count // 3
        return Drain(broker, way, wanted - wanted % PIECES).run()


def main() -> int:
    """Print and perhaps write the curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40_000)
    parser.add_argument("--memory", default="4MiB")
    parser.add_argument("--kinds", default="classic,leased", help=f"of {','.join(QUEUES)}")
    parser.add_argument("--ways", default="none,nack,close", help=f"of {','.join(WAYS)}")
    parser.add_argument("--quick", action="store_true", help="seconds: the checks, no figures")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.count, options.memory = 1_500, "64KiB"
        options.kinds, options.ways = ",".join(QUEUES), ",".join(WAYS)
    results: dict[str, Any] = {}
    try:
        for kind in options.kinds.split(","):
            for way in options.ways.split(","):
                found = curve(kind, way, options.memory, options.count)
                results[f"{kind}, {way}"] = [round(cost, 1) for cost in found]
                print(f"{kind:9} {way:6} us a message:", " ".join(f"{cost:6.0f}" for cost in found), flush=True)
    except (BrokerFailed, CheckFailed, Unexpected) as error:
        print(f"FAILED {error}", file=sys.stderr)
        return 1
    if options.out is not None:
        command = portable(["python", "benchmarks/returning.py", *sys.argv[1:]])
        described = {"machine": machine(), "command": command, "memory": options.memory, "count": options.count}
        options.out.write_text(json.dumps({**described, "cpu_us": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
