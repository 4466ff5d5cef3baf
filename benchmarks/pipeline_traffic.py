"""A publisher and a consumer at a steady rate, for hours if needed; the broker may be killed and restarted.

    python benchmarks/pipeline_traffic.py PORT --rate 5000 --until FILE

Publishes with confirms to a durable queue, every other message persistent, until a file appears; consumes, and rejects
one in two hundred once. It reconnects when the broker ends. At the end it prints, for each connection that published,
how many persistent messages it sent, and the last one that was confirmed: a journal is written in order, so that the
earlier ones are there, too.
"""

from __future__ import annotations

import argparse
import json
import random
import select
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pamqp import commands, frame, header
from raw_client import RawClient, Unexpected

TICK_SECONDS = 0.02
UNCONFIRMED_MAX = 20_000
BURST_MAX = 2_000
PREFETCH = 2_000
REJECTED = 0.005
BODY = b"x" * 100
METHOD, DELIVER, CONFIRMED, REFUSED = 1, (60, 60), (60, 80), (60, 120)
CLOSED = {(20, 40), (10, 50)}


@dataclass(slots=True)
class Published:
    """On one connection. Delivery tags count from 1; persistent messages have the even ones."""

    sent: int = 0
    confirmed: int = 0  # the last persistent one's tag
    lowest: int = 1  # tags below it are confirmed
    ahead: set[int] = field(default_factory=set)  # these, too

    @property
    def unconfirmed(self) -> int:
        """The number of unconfirmed messages."""
        return self.sent - (self.lowest - 1) - len(self.ahead)

    def confirm(self, tag: int, *, multiple: bool) -> None:
        """Note a confirm."""
        self.confirmed = max(self.confirmed, tag - tag % 2 if multiple or tag % 2 == 0 else 0)
        if multiple:
            self.lowest = max(self.lowest, tag + 1)
            self.ahead = {one for one in self.ahead if one > tag}
        else:
            self.ahead.add(tag)
        while self.lowest in self.ahead:
            self.ahead.remove(self.lowest)
            self.lowest += 1

    def persistent(self) -> dict[str, int]:
        """The result of this connection."""
        return {"sent": self.sent // 2, "confirmed": self.confirmed // 2}


class Connection(RawClient):
    """Parses only the methods that it needs, so that 20,000 frames per second are cheap."""

    def methods(self) -> list[tuple[int, int, bytes]]:
        """(class, method, arguments) of received methods. Raises: ConnectionError."""
        found = []
        while select.select([self._socket], [], [], 0)[0]:
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionError("closed")
            self._received += data
        data, at = self._received, 0
        while len(data) - at >= 8:
            kind, _, size = struct.unpack_from(">BHI", data, at)
            if len(data) - at < size + 8:
                break
            if kind == METHOD:
                class_, method = struct.unpack_from(">HH", data, at + 7)
                found.append((class_, method, data[at + 11 : at + 7 + size]))
                if (class_, method) in CLOSED:
                    raise SystemExit(f"the broker closed: {found[-1][2]!r}")
            at += size + 8
        self._received = data[at:]
        return found

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()


def message(queue: str, mode: int) -> bytes:
    """A publish, as octets."""
    properties = commands.Basic.Properties(delivery_mode=mode)
    return (
        frame.marshal(commands.Basic.Publish(routing_key=queue), 1)
        + frame.marshal(header.ContentHeader(body_size=len(BODY), properties=properties), 1)
        + b"\x03\x00\x01"
        + len(BODY).to_bytes(4, "big")
        + BODY
        + b"\xce"
    )


class Traffic:
    """`is_stream`: publishes to a stream queue, without a consumer."""

    def __init__(self, port: int, queue: str, *, is_stream: bool) -> None:
        self._port = port
        self._queue = queue
        self._is_stream = is_stream
        self._messages = message(queue, 1), message(queue, 2)
        self._publisher: Connection
        self._consumer: Connection
        self.published: list[Published] = []
        self.sent = 0

    def connect(self) -> None:
        """Open both connections; waits for a broker."""
        while True:
            try:
                self._publisher, self._consumer = Connection(self._port), Connection(self._port)
                self._open()
                return
            except (ConnectionError, Unexpected, TimeoutError):
                time.sleep(TICK_SECONDS)

    def _open(self) -> None:
        self._publisher.handshake()
        arguments: Any = {"x-queue-type": "stream"} if self._is_stream else {}
        self._publisher.send(commands.Queue.Declare(queue=self._queue, durable=True, arguments=arguments))
        self._publisher.expect(commands.Queue.DeclareOk)
        self._publisher.send(commands.Confirm.Select())
        self._publisher.expect(commands.Confirm.SelectOk)
        self.published.append(Published())
        self._consumer.handshake()
        if not self._is_stream:
            self._consumer.send(commands.Basic.Qos(prefetch_count=PREFETCH))
            self._consumer.expect(commands.Basic.QosOk)
            self._consumer.send(commands.Basic.Consume(queue=self._queue, consumer_tag="c", nowait=True))

    def publish(self, count: int) -> None:
        """Publish the messages that are due, within the limit of unconfirmed ones."""
        mine = self.published[-1]
        count = min(count, BURST_MAX, UNCONFIRMED_MAX - mine.unconfirmed)
        if count > 0:
            tags = range(mine.sent + 1, mine.sent + 1 + count)
            mine.sent += count
            self.sent += count
            self._publisher.write(b"".join(self._messages[1 - tag % 2] for tag in tags))

    def read(self, seconds: float) -> None:
        """Read confirms and deliveries that have arrived, or arrive within that time."""
        for connection in select.select([self._publisher, self._consumer], [], [], max(0.0, seconds))[0]:
            if connection is self._publisher:
                for class_, method, arguments in connection.methods():
                    if (class_, method) == CONFIRMED:
                        tag, multiple = struct.unpack_from(">QB", arguments)
                        self.published[-1].confirm(tag, multiple=bool(multiple))
                    elif (class_, method) == REFUSED:
                        raise SystemExit("the broker refused a publish")
            else:
                self._settle([arguments for c, m, arguments in connection.methods() if (c, m) == DELIVER])

    def _settle(self, delivered: list[bytes]) -> None:
        octets, last = b"", 0
        for arguments in delivered:
            tag, redelivered = struct.unpack_from(">QB", arguments, 1 + arguments[0])
            if not redelivered and random.random() < REJECTED:
                octets += frame.marshal(commands.Basic.Reject(delivery_tag=tag, requeue=True), 1)
            else:
                last = tag
        if last:
            octets += frame.marshal(commands.Basic.Ack(delivery_tag=last, multiple=True), 1)
        if octets:
            self._consumer.write(octets)

    def is_settled(self) -> bool:
        """Whether nothing is unconfirmed and nothing waits."""
        if self.published[-1].unconfirmed:
            return False
        if self._is_stream:
            return True
        self._publisher.send(commands.Queue.Declare(queue=self._queue, passive=True))
        return not self._publisher.expect(commands.Queue.DeclareOk).message_count

    def close(self) -> None:
        """Close cleanly, so that acks take effect."""
        for connection in (self._consumer, self._publisher):
            connection.send(commands.Connection.Close(200, "", 0, 0), channel=0)
            connection.expect(commands.Connection.CloseOk)
            connection.finish()


def run(port: int, rate: int, until: Path, queue: str, *, is_stream: bool) -> dict[str, object]:
    """Run until the file appears. Returns the result."""
    traffic = Traffic(port, queue, is_stream=is_stream)
    traffic.connect()
    began = time.monotonic()
    published = 0.0
    is_ending = False
    while True:
        try:
            if is_ending or until.exists():
                published = published or time.monotonic() - began
                is_ending = True
                if traffic.is_settled():
                    traffic.read(0.5)  # the last deliveries
                    if traffic.is_settled():
                        traffic.close()
                        break
            else:
                traffic.publish(int((time.monotonic() - began) * rate) - traffic.sent)
            due = time.monotonic() + TICK_SECONDS
            while (left := due - time.monotonic()) > 0:
                traffic.read(left)
        except (ConnectionError, TimeoutError):
            traffic.connect()
    result = {"sent": traffic.sent, "seconds": round(published, 1), "rate": round(traffic.sent / published)}
    return {**result, "connections": [one.persistent() for one in traffic.published]}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--until", type=Path, required=True)
    parser.add_argument("--queue", default="live")
    parser.add_argument("--stream", action="store_true")
    options = parser.parse_args()
    print(json.dumps(run(options.port, options.rate, options.until, options.queue, is_stream=options.stream)))


if __name__ == "__main__":
    main()
