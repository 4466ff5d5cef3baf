"""Publishers that are held for want of room: what acknowledgements, others and the broker notice of it.

    python benchmarks/blocked.py [--quick] [--clients raw,pika] [own-same | own-other | many | stall] ...

`own-same`, `own-other`: one connection publishes 100 MiB into a queue with a limit of 1 MiB and consumes from it, on
the same channel or on another. Each acknowledgement makes room for one more delivery; the time until that comes is
compared with a run without a limit. `many`: 500 connections are held while one consumer takes slowly: who gets how
much, and what held connections cost. `stall`: as `own-same` without consuming, with a temp limit of 32 MiB: the
connection is ended with 506, and all that was confirmed is there.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import shlex
import struct
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from brokers import LOOPBACK, Running, machine, rss_kb, started
from pamqp import commands
from raw_client import RawClient, publish_octets

SERVE = f"{shlex.quote(sys.executable)} -m leveret serve --management off --memory --listen {LOOPBACK}:{{port}}"
KIB, MIB = 1024, 1024**2
LIMITED = """
[[address-setting]]
match = "q"
memory-limit = "1MiB"
cursor = "vm"
"""
STALLING = (
    LIMITED
    + """
[system-usage]
memory = 0
store = 0
temp = "32MiB"
[flow]
max-stall = "3s"
"""
)
BODY, PREFETCH = 10 * KIB, 10
PUBLISHES, CONSUMES = 1, 2  # channels
FRAME = struct.Struct(">BHI")
TAG = struct.Struct(">Q")
DELIVER, ACK, NACK = 60 << 16 | 60, 60 << 16 | 80, 60 << 16 | 120
CLOSE = 10 << 16 | 50
ACK_FRAME = struct.Struct(">BHIIQBB")
#: Nothing comes for so long: something is stuck.
TIMEOUT_S = 60.0


@dataclass(slots=True)
class Seen:
    """What one run saw. Seconds."""

    acks: list[float] = field(default_factory=list)  # from an acknowledgement to the delivery that it made room for
    confirmed: int = 0
    in_order: bool = True
    delivered: int = 0
    closed: tuple[int, str] | None = None
    seconds: float = 0.0
    rss_max_kb: int = 0
    rss_before_kb: int = 0


def p99(values: list[float]) -> float:
    """Milliseconds."""
    return sorted(values)[int(len(values) * 0.99)] * 1000 if values else 0.0


class OneConnection:
    """Publishes as fast as its socket takes it, acknowledges each delivery as it comes; one thread, no waiting."""

    def __init__(self, broker: Running, *, octets: int, consumes_on: int | None) -> None:
        self._client = RawClient(broker.port)
        self._client.handshake()
        self._client.send(commands.Queue.Declare(queue="q", durable=True))
        self._client.expect(commands.Queue.DeclareOk)
        self._client.send(commands.Confirm.Select())
        self._client.expect(commands.Confirm.SelectOk)
        self._consumes_on = consumes_on
        if consumes_on is not None:
            if consumes_on != PUBLISHES:
                self._client.send(commands.Channel.Open(), channel=consumes_on)
                self._client.expect(commands.Channel.OpenOk)
            self._client.send(commands.Basic.Qos(prefetch_count=PREFETCH), channel=consumes_on)
            self._client.expect(commands.Basic.QosOk)
            self._client.send(commands.Basic.Consume(queue="q", consumer_tag="c"), channel=consumes_on)
            self._client.expect(commands.Basic.ConsumeOk)
        self._pid = broker.pid
        self._message = publish_octets("", "q", bytes(BODY))
        self._count = octets // BODY
        self._to_send = self._count
        self._acked_at: dict[int, float] = {}
        self._received = b""
        self.seen = Seen(rss_before_kb=rss_kb(broker.pid))

    def run(self) -> Seen:
        """Until all is confirmed and delivered, or the connection is closed."""
        sock, seen = self._client.socket, self.seen
        sock.setblocking(False)
        selector = selectors.DefaultSelector()
        selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
        pending = bytearray()
        begin = last = looked = time.monotonic()
        events = selectors.EVENT_READ | selectors.EVENT_WRITE
        while seen.closed is None and not self._is_done():
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if pending or self._to_send else 0)
            if wanted != events:
                selector.modify(sock, events := wanted)
            for _, ready in selector.select(1.0):
                if ready & selectors.EVENT_READ:
                    data = sock.recv(262144)
                    if not data:
                        seen.closed = seen.closed or (0, "without a goodbye")
                        break
                    last = time.monotonic()
                    pending += self._take(data)
                if ready & selectors.EVENT_WRITE:
                    if len(pending) < len(self._message) and self._to_send:
                        pending += self._message
                        self._to_send -= 1
                    if pending:
                        try:
                            sent = sock.send(pending)
                        except (BrokenPipeError, ConnectionResetError):
                            continue  # what it said last is still to be read
                        except BlockingIOError:
                            continue
                        del pending[:sent]
            now = time.monotonic()
            if now - looked > 0.05:
                looked = now
                seen.rss_max_kb = max(seen.rss_max_kb, rss_kb(self._pid))
            if now - last > TIMEOUT_S:
                raise SystemExit(
                    f"nothing came for {TIMEOUT_S:g} s: {seen.confirmed} confirmed, {seen.delivered} delivered"
                )
        seen.seconds = time.monotonic() - begin
        self._client.finish()
        return seen

    def _is_done(self) -> bool:
        seen = self.seen
        return seen.confirmed == self._count and (self._consumes_on is None or seen.delivered == self._count)

    def _take(self, data: bytes) -> bytes:
        """Handle what came. Returns acknowledgements to send."""
        data = self._received + data
        position, now, seen = 0, time.monotonic(), self.seen
        acks: list[bytes] = []
        while len(data) - position >= 8:
            kind, channel, size = FRAME.unpack_from(data, position)
            end = position + size + 8
            if end > len(data):
                break
            if kind == 1:
                index = int.from_bytes(data[position + 7 : position + 11], "big")
                if index == DELIVER:
                    at = position + 12 + data[position + 11]
                    (tag,) = TAG.unpack_from(data, at)
                    seen.delivered += 1
                    since = self._acked_at.pop(tag - PREFETCH, None)
                    if since is not None:
                        seen.acks.append(now - since)
                    acks.append(ACK_FRAME.pack(1, channel, 13, ACK, tag, 0, 0xCE))
                    self._acked_at[tag] = now
                elif index in (ACK, NACK):
                    (tag,) = TAG.unpack_from(data, position + 11)
                    seen.in_order = seen.in_order and tag > seen.confirmed and index == ACK
                    seen.confirmed = tag
                elif index == CLOSE:
                    code = int.from_bytes(data[position + 11 : position + 13], "big")
                    length = data[position + 13]
                    seen.closed = (code, data[position + 14 : position + 14 + length].decode())
            position = end
        self._received = data[position:]
        return b"".join(acks)


class OnePikaConnection:
    """The same with pika's BlockingConnection, which handles what comes between two publishes."""

    def __init__(self, broker: Running, *, octets: int, consumes_on: int | None) -> None:
        import pika

        self._connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        self._publishes = self._connection.channel()
        self._publishes.queue_declare("q", durable=True)
        self._consumes = self._publishes if consumes_on == PUBLISHES else self._connection.channel()
        self._consumes.basic_qos(prefetch_count=PREFETCH)
        self._consumes.basic_consume("q", self._delivered)
        self._count = octets // BODY
        self._pid = broker.pid
        self._acked_at: dict[int, float] = {}
        self.seen = Seen(rss_before_kb=rss_kb(broker.pid))

    def _delivered(self, channel: object, method: object, properties: object, body: bytes) -> None:
        now, tag = time.monotonic(), method.delivery_tag  # type: ignore[attr-defined]
        self.seen.delivered += 1
        since = self._acked_at.pop(tag - PREFETCH, None)
        if since is not None:
            self.seen.acks.append(now - since)
        self._consumes.basic_ack(tag)
        self._acked_at[tag] = now

    def run(self) -> Seen:
        seen, begin = self.seen, time.monotonic()
        for number in range(self._count):
            self._publishes.basic_publish("", "q", bytes(BODY))
            if number % 4 == 0:
                self._connection.process_data_events(0)
            if number % 100 == 0:
                seen.rss_max_kb = max(seen.rss_max_kb, rss_kb(self._pid))
        last, before = time.monotonic(), -1
        while seen.delivered < self._count:
            self._connection.process_data_events(1)
            if seen.delivered != before:
                last, before = time.monotonic(), seen.delivered
            if time.monotonic() - last > TIMEOUT_S:
                raise SystemExit(f"nothing came for {TIMEOUT_S:g} s: {seen.delivered} delivered")
        seen.confirmed = self._count  # none asked for: this client would wait for each before the next
        seen.seconds = time.monotonic() - begin
        self._connection.close()
        return seen


CLIENTS: dict[str, type[OneConnection] | type[OnePikaConnection]] = {"raw": OneConnection, "pika": OnePikaConnection}


def serving(config: str) -> str:
    """A command line with this configuration in a file that stays."""
    handle, path = tempfile.mkstemp(suffix=".toml", prefix="leveret-blocked-")
    with os.fdopen(handle, "w") as file:
        file.write(config)
    return f"{SERVE} --config {shlex.quote(path)}"


def own(client: str, consumes_on: int, octets: int) -> dict[str, object]:
    """One connection that publishes and consumes, without a limit and with one."""
    runs: dict[str, Seen] = {}
    for name, config in (("free", ""), ("limited", LIMITED)):
        with started(serving(config)) as broker:
            runs[name] = CLIENTS[client](broker, octets=octets, consumes_on=consumes_on).run()
    free, limited = runs["free"], runs["limited"]
    return {
        "client": client,
        "ack_to_delivery_p99_ms_free": round(p99(free.acks), 2),
        "ack_to_delivery_p99_ms_limited": round(p99(limited.acks), 2),
        "ratio": round(p99(limited.acks) / p99(free.acks), 2) if free.acks else None,
        "confirmed": limited.confirmed,
        "confirms_in_order": limited.in_order,
        "delivered": limited.delivered,
        "seconds_free": round(free.seconds, 2),
        "seconds_limited": round(limited.seconds, 2),
        "rss_growth_mib_free": (free.rss_max_kb - free.rss_before_kb) // KIB,
        "rss_growth_mib_limited": (limited.rss_max_kb - limited.rss_before_kb) // KIB,
        "closed": limited.closed,
    }


def stall(octets: int) -> dict[str, object]:
    """Nobody consumes: the connection ends, and what was confirmed is there."""
    with started(serving(STALLING)) as broker:
        seen = OneConnection(broker, octets=octets, consumes_on=None).run()
        client = RawClient(broker.port)
        client.handshake()
        client.send(commands.Queue.Declare(queue="q", passive=True))
        there = client.expect(commands.Queue.DeclareOk).message_count
        client.finish()
    return {"confirmed": seen.confirmed, "there": there, "closed": seen.closed, "seconds": round(seen.seconds, 2)}


def many(connections: int, each: int) -> dict[str, object]:
    """Connections that are held while one consumer takes slowly."""
    body = bytes(KIB)
    message = publish_octets("", "q", body)
    with started(serving(LIMITED)) as broker:
        filler = RawClient(broker.port)
        filler.handshake()
        filler.send(commands.Queue.Declare(queue="q", durable=True))
        filler.expect(commands.Queue.DeclareOk)
        filler.write(message * 1024)
        held = []
        for _ in range(connections):
            client = RawClient(broker.port)
            client.handshake()
            client.send(commands.Confirm.Select())
            client.expect(commands.Confirm.SelectOk)
            client.write(message * each)
            held.append(client)
        time.sleep(1.0)
        begin_cpu, begin = cpu_seconds(broker.pid), time.monotonic()
        time.sleep(5.0)
        idle_cpu = (cpu_seconds(broker.pid) - begin_cpu) / (time.monotonic() - begin)
        accepted = [0] * connections
        done = threading.Event()

        def listen() -> None:
            selector = selectors.DefaultSelector()
            rest: dict[int, bytes] = {}
            for number, client in enumerate(held):
                client.socket.setblocking(False)
                selector.register(client.socket, selectors.EVENT_READ, number)
                rest[number] = client._received
            while not done.is_set():
                for key, _ in selector.select(0.2):
                    data = rest[key.data] + key.fileobj.recv(65536)  # type: ignore[union-attr]
                    while len(data) >= 21:
                        (accepted[key.data],) = TAG.unpack_from(data, 11)
                        data = data[21:]
                    rest[key.data] = data

        listener = threading.Thread(target=listen)
        listener.start()
        consumer = RawClient(broker.port)
        consumer.handshake()
        consumer.send(commands.Basic.Qos(prefetch_count=20))
        consumer.expect(commands.Basic.QosOk)
        consumer.send(commands.Basic.Consume(queue="q", consumer_tag="c", nowait=True))
        spreads: list[int] = []
        total, taken = connections * each + 1024, 0
        waiting: deque[int] = deque()
        while taken < total:
            for _ in consumer.receive_bodies():
                taken += 1
                waiting.append(taken)
            if waiting:
                consumer.send(commands.Basic.Ack(delivery_tag=waiting[-1], multiple=True))
                waiting.clear()
            if taken % 20 == 0:
                now = list(accepted)
                if max(now) < each:
                    spreads.append(max(now) - min(now))
        time.sleep(0.5)
        done.set()
        listener.join()
    return {
        "connections": connections,
        "messages_each": each,
        "all_accepted": all(one == each for one in accepted),
        "spread_max": max(spreads, default=0),
        "cpu_while_held": round(idle_cpu, 4),
    }


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", nargs="*", metavar="RUN", help="own-same, own-other, many, stall (all)")
    parser.add_argument("--clients", default="raw,pika", help="of the runs with one connection")
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, to see that it runs")
    given = parser.parse_args()
    octets = (10 if given.quick else 100) * MIB
    found: dict[str, object] = {"machine": machine()}
    for run in given.runs or ("own-same", "own-other", "many", "stall"):
        if run == "many":
            found[run] = many(*((50, 30) if given.quick else (500, 100)))
        elif run == "stall":
            found[run] = stall(100 * MIB)
        else:
            channel = PUBLISHES if run == "own-same" else CONSUMES
            found[run] = [own(client, channel, octets) for client in given.clients.split(",")]
        print(json.dumps({run: found[run]}), flush=True)


if __name__ == "__main__":
    try:
        main()
    except (TimeoutError, ConnectionError) as error:
        raise SystemExit(f"failed: {error!r}") from error
