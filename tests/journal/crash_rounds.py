"""kill -9 at any moment under load, thousands of times: is every confirmed message there once, and nothing acked back?

    python tests/journal/crash_rounds.py [--rounds 2000 | --seconds 60] [--seed N] [--fsync commit]

Each round starts a broker on the same directory, looks at what is there, loads it, and kills it. The client models what
it may know: a message is *sure* when it was confirmed, *gone* when it was acknowledged before a publish that was
confirmed (records are in order), and *open* otherwise: it may be there or not. Durable queues `a` and `b` get each
message through a durable exchange; messages are numbered. Exit status 1 with the seed when a rule is broken.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pamqp import commands, frame, header

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from raw_client import RawClient, Unexpected

QUEUES = ("a", "b")
BURST_MAX = 60


class Broken(Exception):
    """A rule was broken; says which."""


class Truth:
    """What a client may know of each (queue, number)."""

    def __init__(self) -> None:
        self.next_number = 1
        self.sure: set[int] = set()  # confirmed
        self.sent: set[int] = set()  # published
        self.been: dict[str, set[int]] = {queue: set() for queue in QUEUES}  # confirmed, or seen in the queue, ever
        self.acked: dict[str, set[int]] = {queue: set() for queue in QUEUES}  # an ack was sent
        self.gone: dict[str, set[int]] = {queue: set() for queue in QUEUES}  # that ack is durable

    def look_at(self, queue: str, found: Counter[int]) -> None:
        """Compare with what a restarted broker holds, and know from then on. Raises: Broken."""
        twice = [number for number, count in found.items() if count > 1]
        if twice:
            raise Broken(f"{queue}: {twice[:5]} are there more than once")
        there = set(found)
        if lost := self.sure - self.acked[queue] - there:
            raise Broken(f"{queue}: {len(lost)} confirmed messages are lost, such as {sorted(lost)[:5]}")
        if back := there & self.gone[queue]:
            raise Broken(f"{queue}: {len(back)} acknowledged messages are back, such as {sorted(back)[:5]}")
        if strange := there - self.sent:
            raise Broken(f"{queue}: {sorted(strange)[:5]} were never published")
        self.been[queue] |= there
        self.gone[queue] |= self.sent - there
        self.acked[queue] = self.sent - there

    def all_seen(self) -> None:
        """After a look at every queue: whatever is there is durable now, and what never arrived counts as gone."""
        self.sure = set(self.sent)


class Client(RawClient):
    """Publishes with confirms, consumes and acknowledges, and notes what it may know."""

    def __init__(self, port: int, truth: Truth, chance: random.Random) -> None:
        super().__init__(port)
        self._truth = truth
        self._chance = chance
        self._tag = 0  # of the last publish
        self._numbers: dict[int, int] = {}  # publish tag -> number
        self._acks_before: dict[int, list[tuple[str, int]]] = {}  # publish tag -> acks sent since the one before
        self._acks: list[tuple[str, int]] = []
        self._held: list[tuple[int, str, int]] = []  # (delivery tag, queue, number)

    def declare(self) -> None:
        """Idempotent."""
        self.handshake()
        self.send(commands.Exchange.Declare(exchange="e", exchange_type="fanout", durable=True))
        self.expect(commands.Exchange.DeclareOk)
        for queue in QUEUES:
            self.send(commands.Queue.Declare(queue=queue, durable=True))
            self.expect(commands.Queue.DeclareOk)
            self.send(commands.Queue.Bind(queue=queue, exchange="e", routing_key=""))
            self.expect(commands.Queue.BindOk)

    def drain(self, queue: str) -> Counter[int]:
        """Numbers of everything in a queue, which stays there."""
        self.send(commands.Queue.Declare(queue=queue, passive=True))
        count = self.expect(commands.Queue.DeclareOk).message_count
        self.send(commands.Basic.Consume(queue=queue, consumer_tag="look", nowait=True))
        found: Counter[int] = Counter()
        for _ in range(count):
            self.expect(commands.Basic.Deliver)
            self._next_frame()
            body: Any = self._next_frame()
            found[int(body.value)] += 1
        self.send(commands.Basic.Cancel(consumer_tag="look"))
        self.expect(commands.Basic.CancelOk)
        self.send(commands.Basic.Nack(delivery_tag=0, multiple=True, requeue=True))
        return found

    def start(self) -> None:
        """Confirms and consumers."""
        self.send(commands.Confirm.Select())
        self.expect(commands.Confirm.SelectOk)
        self.send(commands.Basic.Qos(prefetch_count=200))
        self.expect(commands.Basic.QosOk)
        for queue in QUEUES:
            self.send(commands.Basic.Consume(queue=queue, consumer_tag=queue, nowait=True))

    def step(self) -> None:
        """Publish some, acknowledge some, read what there is."""
        chance, truth = self._chance, self._truth
        octets = b""
        for _ in range(chance.randrange(BURST_MAX)):
            number = truth.next_number
            truth.next_number += 1
            self._tag += 1
            self._numbers[self._tag] = number
            self._acks_before[self._tag], self._acks = self._acks, []
            truth.sent.add(number)
            body = b"%d" % number
            octets += frame.marshal(commands.Basic.Publish(exchange="e"), 1)
            octets += frame.marshal(
                header.ContentHeader(body_size=len(body), properties=commands.Basic.Properties(delivery_mode=2)), 1
            )
            octets += b"\x03\x00\x01" + len(body).to_bytes(4, "big") + body + b"\xce"
        chance.shuffle(self._held)
        for _ in range(min(len(self._held), chance.randrange(4 * BURST_MAX))):
            tag, queue, number = self._held.pop()
            truth.acked[queue].add(number)
            self._acks.append((queue, number))
            octets += frame.marshal(commands.Basic.Ack(delivery_tag=tag), 1)
        self.write(octets)
        self.read_what_is_there()

    def read_what_is_there(self) -> None:
        """Confirms and deliveries that have come."""
        while select.select([self._socket], [], [], 0)[0] or self._has_frame():
            received: Any = self._next_frame()
            if isinstance(received, commands.Basic.Ack):
                self._confirmed(received.delivery_tag, multiple=received.multiple)
            elif isinstance(received, commands.Basic.Deliver):
                self._next_frame()
                body: Any = self._next_frame()
                number = int(body.value)
                self._held.append((received.delivery_tag, received.consumer_tag, number))
            elif isinstance(received, commands.Basic.Nack):
                raise Broken("a publish was refused")

    def _has_frame(self) -> bool:
        data = self._received
        return len(data) >= 7 and len(data) >= int.from_bytes(data[3:7], "big") + 8

    def _confirmed(self, tag: int, *, multiple: bool) -> None:
        done = [one for one in self._numbers if one <= tag] if multiple else [tag]
        for one in done:
            number = self._numbers.pop(one)
            self._truth.sure.add(number)
            for queue in QUEUES:
                self._truth.been[queue].add(number)
        for one in [one for one in self._acks_before if one <= max(done)]:  # recorded before this publish
            for queue, number in self._acks_before.pop(one):
                self._truth.gone[queue].add(number)


def serve(directory: str, fsync: str) -> tuple[subprocess.Popen[str], int]:
    """A broker on that directory: its process and port."""
    config = Path(directory) / "leveret.toml"
    config.write_text(f'[journal]\nfsync = "{fsync}"\nsegment-size = "256KiB"\n')
    process = subprocess.Popen(
        [sys.executable, "-m", "leveret", "serve", "--listen", "127.0.0.1:0", "--data", f"{directory}/data"]
        + ["--config", str(config), "--log-level", "warning"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    ready = re.search(r":(\d+)/$", process.stdout.readline().strip())
    if ready is None:
        raise Broken("the broker did not start")
    return process, int(ready[1])


def one_round(directory: str, fsync: str, truth: Truth, chance: random.Random) -> None:
    """Start, look, load, kill. Raises: Broken."""
    process, port = serve(directory, fsync)
    try:
        client = Client(port, truth, chance)
        client.declare()
        for queue in QUEUES:
            truth.look_at(queue, client.drain(queue))
        truth.all_seen()
        client.start()
        until = time.monotonic() + chance.random() * 0.4
        while time.monotonic() < until:
            client.step()
        if chance.random() < 0.3:
            client.write(b"\x01\x00\x01\x00\x00")  # half a frame, too
    finally:
        os.kill(process.pid, signal.SIGKILL if chance.random() < 0.95 else signal.SIGTERM)
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


def main() -> int:
    """Rounds until the count or the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--fsync", choices=("commit", "interval", "never"), default="commit")
    options = parser.parse_args()
    chance, truth = random.Random(options.seed), Truth()
    end = time.monotonic() + options.seconds
    rounds = 0
    with tempfile.TemporaryDirectory() as directory:
        try:
            while rounds < options.rounds and time.monotonic() < end:
                one_round(directory, options.fsync, truth, chance)
                rounds += 1
        except (Broken, ConnectionError, Unexpected) as error:
            print(f"FAILED in round {rounds}, seed {options.seed}: {error}", file=sys.stderr)
            return 1
    print(f"{rounds} kills, seed {options.seed}: {len(truth.sent):,} messages published, nothing lost, nothing back")
    return 0


if __name__ == "__main__":
    sys.exit(main())
