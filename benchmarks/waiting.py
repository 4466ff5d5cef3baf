"""A million scheduled messages: the memory of each, and whether the cost of inserting and firing grows with their
number.

    python benchmarks/waiting.py [--count 1000000] [--out benchmarks/results/waiting.json]

The engine alone, in this process, on a manual clock; each message has a body of 16 octets. Two ways to be scheduled:
published with `x-delay`, and requeued by a consumer with a redelivery delay. The times of a slice at few and at many
messages show the growth, which for a heap is log n.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from brokers import machine, rss_kb

from leveret.engine import Broker, Client, Envelope, ManualClock, Queue, Session, User
from leveret.engine.messages.content import NATIVE, encode_header, scan_properties
from leveret.engine.messages.field_table import Field
from leveret.settings import SettingsRepository, entry

USER = User("guest")
MS = 1_000_000
RUN = 100  # messages of one publish, as in a socket read
BODY = b"0123456789abcdef"
GOAL_BYTES = 400
WAYS = ("publish_delayed", "publish_and_return")


class Stage:
    """A broker with one queue `q`, a session, and a clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        rule = entry("q", redelivery_delay_ms=1000, redelivery_collision_avoidance_factor=1.0, max_delivery_attempts=-1)
        self.broker = Broker(self.clock, settings=SettingsRepository([rule]), chance=random.Random(1).random)
        self.client: Client = self.broker.connections.open("/", USER, name="bench", flush=self._sent)
        self.session: Session = self.client.open_session()
        vhost = self.broker.virtual_hosts["/"]
        vhost.queues.declare("q", client=self.client)
        self.queue: Queue = vhost.queues.named("q")
        self.chance = random.Random(2)

    def _sent(self) -> None:
        self.client.take_outbox()
        self.client.drained()

    def publish_delayed(self, count: int) -> None:
        """With delays between 10 s and 1,000 s."""
        for _ in range(count // RUN):
            contents = []
            for _ in range(RUN):
                delay = Field("I", self.chance.randrange(10_000, 1_000_000))
                contents.append(NATIVE.join(encode_header(len(BODY), {"headers": {"x-delay": delay}}), BODY))
            self._publish(contents)

    def publish_and_return(self, count: int) -> None:
        """Published, delivered, and nacked in runs."""
        header = encode_header(len(BODY))
        for _ in range(count // RUN):
            self._publish([NATIVE.join(header, BODY[:-4] + number.to_bytes(4, "big")) for number in range(RUN)])
            tag = 0
            for _ in range(RUN):
                got = self.session.get(self.queue, no_ack=False)
                assert got is not None
                tag = got[0]
            self.session.reject(tag, multiple=True, requeue=True)

    def _publish(self, contents: list[bytes]) -> None:
        facts = scan_properties(NATIVE.split(contents[0])[0][12:])
        route = self.client.vhost.router.route("", "q", USER)
        self.session.publish(route, Envelope("", "q", facts), contents, mandatory=False)
        self.broker.end_turn()

    def fire(self, count: int) -> None:
        """Let about `count` messages come due, each at its time, and remove them."""
        left = max(0, len(self.queue.scheduled) - count)
        while len(self.queue.scheduled) > left:
            due = self.broker.next_deadline_ns()
            assert due is not None
            self.clock.advance_ns(max(0, due - self.clock.monotonic_ns()))
            self.broker.advance()
            self.broker.end_turn()
            self.queue.store.drop_all()


@contextmanager
def timed(name: str, per: int, figures: dict[str, float]) -> Iterator[None]:
    """CPU microseconds per message."""
    start = time.process_time_ns()
    yield
    figures[name] = (time.process_time_ns() - start) / 1000 / per


def measure(way: str, count: int) -> dict[str, float]:
    """One way: bytes per message, and the times of slices at a hundredth and at all of `count`."""
    stage = Stage()
    fill: Callable[[int], None] = getattr(stage, way)
    few, piece = count // 100, max(RUN, count // 200)
    fill(few)
    figures: dict[str, float] = {}
    with timed("insert_us_at_few", piece, figures):
        fill(piece)
    with timed("fire_us_at_few", piece, figures):
        stage.fire(piece)
    start_kb, held = rss_kb(os.getpid()), len(stage.queue.scheduled)
    fill(count - held - piece)
    with timed("insert_us_at_many", piece, figures):
        fill(piece)
    figures["bytes_a_message"] = (rss_kb(os.getpid()) - start_kb) * 1024 / (len(stage.queue.scheduled) - held)
    with timed("fire_us_at_many", piece, figures):
        stage.fire(piece)
    figures["few"], figures["many"] = float(few), float(count)
    return figures


def main() -> int:
    """Run both ways; returns 1 when a message costs more memory than it may (a bound of our own, not a time)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way is not None:
        print(json.dumps(measure(options.way, options.count)))
        return 0
    results: dict[str, Any] = {"machine": machine(), "count": options.count}
    is_met = True
    for way in WAYS:
        # One process each: the second would reuse memory that the first freed, which would not be counted.
        command = [sys.executable, __file__, "--way", way, "--count", str(options.count)]
        figures = results[way] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        is_met = is_met and figures["bytes_a_message"] <= GOAL_BYTES
        print(
            f"{way:20} {figures['bytes_a_message']:6.0f} B a message (goal <= {GOAL_BYTES}); us a message at "
            f"{int(figures['few']):,} / {int(figures['many']):,}: "
            f"insert {figures['insert_us_at_few']:.2f} / {figures['insert_us_at_many']:.2f}, "
            f"fire {figures['fire_us_at_few']:.2f} / {figures['fire_us_at_many']:.2f}"
        )
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
