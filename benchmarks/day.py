"""A day in a small company: 40 connections, 300 messages a second in bursts, 30 queues, RPC, heartbeats, a page open.

    python benchmarks/day.py [--seconds 120] [--scale 1] [--only leveret,rabbitmq]

RabbitMQ and Leveret one after the other, each with its data on disk. `--scale` multiplies messages, requests and
connections. 10 of 30 queues are durable: their messages are persistent and confirmed. A fifth of the connections
publish, in bursts of up to 20; half of them consume, acknowledging each message; two serve requests, a tenth ask (a
reply queue for each asker); the rest have heartbeats only. A page of the console is asked for every five seconds: the
overview, and the first page of queues. CPU of the broker's process, in percent of a core and microseconds a message;
latencies from write to read, in milliseconds. Exit status 1: a message or an answer is missing, never a time.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import os
import random
import select
import statistics
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from brokers import LOOPBACK, Running, free_port, rss_kb, started
from console_size import LOGIN
from pamqp import base, body, commands, frame, header, heartbeat
from raw_client import RawClient

from leveret.interop.tools.brokers import http_broker

QUEUES, DURABLE = 30, 10
MESSAGES_PER_S, REQUESTS_PER_S, CONNECTIONS = 300, 20, 40
BURST_MAX, PREFETCH, HEARTBEAT_S, PAGE_S, LATE_S = 20, 20, 10, 5.0, 20.0
PAGES = ("/api/overview", "/api/queues?page=1&page_size=100&name=&use_regex=false&pagination=true")
TICKS_PER_S: float = os.sysconf("SC_CLK_TCK")
STAMP = struct.Struct(">Q")
DELIVER = commands.Basic.Deliver


class Missing(Exception):
    """What did not arrive."""


class Member(RawClient):
    """A connection with heartbeats. `on_message` gets each delivery and its body."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.handshake()
        self.on_message: Callable[[DELIVER, header.ContentHeader, bytes], object] = lambda *_: None
        self._delivery: list[object] = []

    def handshake(self, vhost: str = "/") -> None:
        self.write(b"AMQP\0\0\x09\x01")
        self.expect(commands.Connection.Start)
        self.send(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), channel=0)
        tune = self.expect(commands.Connection.Tune)
        self.send(commands.Connection.TuneOk(tune.channel_max, tune.frame_max, HEARTBEAT_S), channel=0)
        self.send(commands.Connection.Open(vhost), channel=0)
        self.expect(commands.Connection.OpenOk)
        self.send(commands.Channel.Open())
        self.expect(commands.Channel.OpenOk)

    def call(self, method: base.Frame, answer: type[base.Frame]) -> None:
        self.send(method)
        self.expect(answer)

    def publish(self, key: str, content: bytes, *, persistent: bool = False, reply_to: str | None = None) -> None:
        properties = commands.Basic.Properties(delivery_mode=2 if persistent else 1, reply_to=reply_to)
        parts = (
            commands.Basic.Publish(routing_key=key),
            header.ContentHeader(body_size=len(content), properties=properties),
        )
        self.write(b"".join(frame.marshal(one, 1) for one in (*parts, body.ContentBody(content))))

    def beat(self) -> None:
        self.write(frame.marshal(heartbeat.Heartbeat(), 0))

    def receive(self) -> None:
        """Read once, and handle all that is whole."""
        data = self.socket.recv(65536)
        if not data:
            raise Missing("the broker closed a connection")
        self._received += data
        while len(self._received) >= 7 and len(self._received) >= 8 + int.from_bytes(self._received[3:7], "big"):
            size, _, found = frame.unmarshal(self._received)
            self._received = self._received[size:]
            if isinstance(found, commands.Connection.Close | commands.Channel.Close):
                raise Missing(f"{found.name}: {found.reply_text}")
            if isinstance(found, DELIVER | header.ContentHeader):
                self._delivery.append(found)
            elif isinstance(found, body.ContentBody):
                deliver, head = self._delivery
                self._delivery = []
                self.on_message(deliver, head, found.value)  # type: ignore[arg-type]


def stamped(size: int) -> bytes:
    return STAMP.pack(time.monotonic_ns()) + bytes(size)


class Company:
    """All connections of the day, in one loop."""

    def __init__(self, port: int, scale: float) -> None:
        self.chance = random.Random(1)
        self.scale = scale
        count = round(CONNECTIONS * scale)
        self.members = [Member(port) for _ in range(count)]
        members = iter(self.members)
        self.publishers, consumers, servers, self.askers = (
            list(itertools.islice(members, max(1, round(count * share)))) for share in (0.2, 0.5, 0.05, 0.1)
        )
        self.delays_ms: list[float] = []
        self.answers_ms: list[float] = []
        self.sent = self.asked = 0
        self._number = itertools.count()
        first = self.members[0]
        for queue in range(QUEUES):
            first.call(commands.Queue.Declare(queue=f"work-{queue}", durable=queue < DURABLE), commands.Queue.DeclareOk)
        first.call(commands.Queue.Declare(queue="requests"), commands.Queue.DeclareOk)
        for one in self.publishers:
            one.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        for number, one in enumerate(consumers):
            self._consume(one, [f"work-{queue}" for queue in range(number % QUEUES, QUEUES, len(consumers))])
        for one in servers:
            self._serve(one)
        for one in self.askers:
            one.call(commands.Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True), commands.Basic.ConsumeOk)
            one.on_message = lambda _, __, content: self.answers_ms.append(_since_ms(content))

    def _consume(self, one: Member, queues: list[str]) -> None:
        one.call(commands.Basic.Qos(prefetch_count=PREFETCH), commands.Basic.QosOk)
        for queue in queues:
            one.call(commands.Basic.Consume(queue=queue), commands.Basic.ConsumeOk)

        def took(deliver: DELIVER, _: header.ContentHeader, content: bytes) -> None:
            self.delays_ms.append(_since_ms(content))
            one.send(commands.Basic.Ack(deliver.delivery_tag or 0))

        one.on_message = took

    def _serve(self, one: Member) -> None:
        one.call(commands.Basic.Consume(queue="requests", no_ack=True), commands.Basic.ConsumeOk)
        one.on_message = lambda _, head, content: one.publish(head.properties.reply_to or "", content)

    def _burst(self) -> None:
        """One publisher publishes up to `BURST_MAX` messages, to a queue or two."""
        one = self.chance.choice(self.publishers)
        for _ in range(self.chance.randint(1, BURST_MAX)):
            queue = next(self._number) // 8 % QUEUES
            one.publish(
                f"work-{queue}", stamped(self.chance.choice((200, 500, 1000, 3000))), persistent=queue < DURABLE
            )
            self.sent += 1

    def run(self, seconds: float) -> None:
        """Raises: Missing."""
        start, next_beat = time.monotonic(), 0.0
        while True:
            elapsed = time.monotonic() - start
            while self.sent < min(elapsed, seconds) * MESSAGES_PER_S * self.scale:
                self._burst()
            while self.asked < min(elapsed, seconds) * REQUESTS_PER_S * self.scale:
                self.askers[self.asked % len(self.askers)].publish(
                    "requests", stamped(100), reply_to="amq.rabbitmq.reply-to"
                )
                self.asked += 1
            if elapsed >= next_beat:
                next_beat = elapsed + HEARTBEAT_S / 2
                for one in self.members:
                    one.beat()
            if elapsed >= seconds and len(self.delays_ms) >= self.sent and len(self.answers_ms) >= self.asked:
                return
            if elapsed > seconds + LATE_S:
                raise Missing(f"{len(self.delays_ms)} of {self.sent} messages, {len(self.answers_ms)} of {self.asked}")
            # Bursts are apart: 10 ms is what the next one may be late.
            for ready in select.select(self.members, (), (), 0.01)[0]:
                ready.receive()


def _since_ms(content: bytes) -> float:
    sent_ns: int = STAMP.unpack_from(content)[0]
    return (time.monotonic_ns() - sent_ns) / 1e6


def look(console: int, is_over: threading.Event, looks: list[float]) -> None:
    """A page that is open. `looks`: gets the time of each."""
    while not is_over.wait(PAGE_S):
        connection = http.client.HTTPConnection(LOOPBACK, console, timeout=60)
        for path in PAGES:
            connection.request("GET", path, headers={"authorization": LOGIN})
            connection.getresponse().read()
        connection.close()
        looks.append(time.monotonic())


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def day(broker: Running, console: int, seconds: float, scale: float) -> str:
    """`console`: the port of its HTTP API. Returns: the figures. Raises: Missing."""
    company, is_over, looks = Company(broker.port, scale), threading.Event(), list[float]()
    page = threading.Thread(target=look, args=(console, is_over, looks))
    page.start()
    before, start = cpu_s(broker.pid), time.monotonic()
    try:
        company.run(seconds)
    finally:
        is_over.set()
        page.join()
    took, cpu = time.monotonic() - start, cpu_s(broker.pid) - before
    if len(looks) < seconds / PAGE_S / 2:
        raise Missing(f"{len(looks)} looks at the page")
    messages = company.sent + 2 * company.asked
    cuts = statistics.quantiles(company.delays_ms, n=100)
    return (
        f"{cpu / took:.2%} of a core, {cpu / messages * 1e6:.0f} us a message, {rss_kb(broker.pid) / 1024:.1f} MiB, "
        f"p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.1f} ms, answer {statistics.median(company.answers_ms):.2f} ms"
    )


@contextmanager
def subject(name: str) -> Iterator[tuple[Running, int]]:
    """A broker, and the port of its HTTP API."""
    if name == "rabbitmq":
        with http_broker(name, as_installed=True) as at:
            yield Running(name, at.peer.port, at.peer.pid), at.management
    else:
        console = free_port()
        command = f"{sys.executable} -m leveret serve --data {{data}} --listen {LOOPBACK}:{{port}}"
        with started(f"{command} --management {LOOPBACK}:{console}") as broker:
            yield broker, console


def main() -> int:
    """Run the program; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", type=lambda text: text.split(","), default=["rabbitmq", "leveret"])
    options = parser.parse_args()
    for broker in options.only:
        with subject(broker) as (running, console):
            try:
                print(f"{broker:9} {day(running, console, options.seconds, options.scale)}", flush=True)
            except Missing as missing:
                print(f"FAILED {broker}: {missing}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
