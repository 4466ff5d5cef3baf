"""Messages with mixed delays through a real socket: how late is each, and does a long delay block a short one?

    python benchmarks/delays.py [--count 100000] [--seconds 20] [--out benchmarks/results/delays.json]

Every message is published with `x-delay`, drawn from 0.1 s to `--seconds`, and carries the time at which it is due by
this machine's monotonic clock; a consumer that does nothing else notes when the octets arrived. Exit status 1: one
arrived early, twice or not at all. Lateness is printed, with the share that came within 20 ms.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

from brokers import LEVERET, Running, machine, started
from pamqp import commands, frame, header
from raw_client import RawClient

QUEUE = "delays"
DUE = struct.Struct(">QQ")  # due (monotonic ns), number
FRAME_HEAD = struct.Struct(">BHI")
BODY_HEAD = b"\x03\x00\x01\x00\x00\x00\x10"
RUN = 50
WITHIN_NS = 20_000_000


class Watcher(RawClient):
    """Consumes, and notes when octets arrive."""

    def __init__(self, port: int, count: int) -> None:
        super().__init__(port)
        self._count = count
        self.reads: list[tuple[int, bytes]] = []

    def start(self) -> None:
        """Declare and consume."""
        self.handshake()
        self.send(commands.Queue.Declare(queue=QUEUE))
        self.expect(commands.Queue.DeclareOk)
        self.send(commands.Basic.Consume(queue=QUEUE, no_ack=True))
        self.expect(commands.Basic.ConsumeOk)

    def watch(self) -> None:
        """Read until all have arrived; nothing is parsed meanwhile."""
        self.reads.append((time.monotonic_ns(), self._received))
        tail, missing = self._received, self._count
        while missing > 0:
            octets = self._socket.recv(1 << 20)
            self.reads.append((time.monotonic_ns(), octets))
            if not octets:
                return
            missing -= (tail + octets).count(BODY_HEAD)
            tail = octets[1 - len(BODY_HEAD) :]

    def bodies(self) -> list[tuple[int, int, int]]:
        """(arrived, due, number) of all bodies so far."""
        stream = b"".join(octets for _, octets in self.reads)
        found = []
        position = ended = 0
        index = -1
        while position + FRAME_HEAD.size <= len(stream):
            kind, _, size = FRAME_HEAD.unpack_from(stream, position)
            stop = position + FRAME_HEAD.size + size + 1
            if stop > len(stream):
                break
            while ended < stop:
                index += 1
                ended += len(self.reads[index][1])
            if kind == 3:
                due, number = DUE.unpack_from(stream, position + FRAME_HEAD.size)
                found.append((self.reads[index][0], due, number))
            position = stop
        return found


def publish(broker: Running, count: int, seconds: float) -> None:
    """All of them, as fast as the broker confirms, since messages in a socket buffer are not delayed yet."""
    client = RawClient(broker.port)
    client.handshake()
    client.send(commands.Confirm.Select())
    client.expect(commands.Confirm.SelectOk)
    chance = random.Random(1)
    method = frame.marshal(commands.Basic.Publish(routing_key=QUEUE), 1)
    for first in range(0, count, RUN):
        parts = []
        for number in range(first, min(first + RUN, count)):
            delay_ms = chance.randrange(100, int(seconds * 1000))
            properties = commands.Basic.Properties(headers={"x-delay": delay_ms})
            parts += [
                method,
                frame.marshal(header.ContentHeader(body_size=DUE.size, properties=properties), 1),
                BODY_HEAD,
                DUE.pack(time.monotonic_ns() + delay_ms * 1_000_000, number),
                b"\xce",
            ]
        client.write(b"".join(parts))
        while client.expect(commands.Basic.Ack).delivery_tag < min(first + RUN, count):
            pass
    client.send(commands.Channel.Close(200, "", 0, 0))
    client.expect(commands.Channel.CloseOk)
    client.finish()


def measure(count: int, seconds: float) -> dict[str, Any]:
    """Lateness in milliseconds. Raises: AssertionError: a message arrived early, twice or not at all."""
    with started(LEVERET) as broker:
        watcher = Watcher(broker.port, count)
        watcher.start()
        thread = threading.Thread(target=publish, args=(broker, count, seconds))
        thread.start()
        watcher.watch()
        thread.join()
    came = watcher.bodies()
    assert len({number for _, _, number in came}) == len(came) == count, f"{len(came)} of {count} came"
    late = sorted(at - due for at, due, _ in came)
    assert late[0] >= 0, f"one came {-late[0]} ns early"
    return {
        "count": count,
        "p50_ms": late[count // 2] / 1e6,
        "p99_ms": late[count * 99 // 100] / 1e6,
        "max_ms": late[-1] / 1e6,
        "within_20_ms": sum(one <= WITHIN_NS for one in late) / count,
    }


def main() -> int:
    """Print and perhaps write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    try:
        results = measure(options.count, options.seconds)
    except AssertionError as error:
        print(f"FAILED {error}", file=sys.stderr)
        return 1
    print(
        f"{results['count']:,} delayed messages: p50 {results['p50_ms']:.2f} ms late, p99 {results['p99_ms']:.2f}, "
        f"worst {results['max_ms']:.2f}; {results['within_20_ms']:.2%} within 20 ms"
    )
    if options.out is not None:
        options.out.write_text(json.dumps({"machine": machine(), **results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
