"""A client beside others: it publishes at a steady pace, and notes how long each message takes to come back.

It runs in a process of its own. Latencies are measured from the moment of sending, and it sends whatever has not come
back yet; so a broker that stands still for a second is seen by all messages of that second.
"""

from __future__ import annotations

import multiprocessing
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TextIO

from pamqp import commands, frame, header
from raw_client import RawClient

C = commands
#: Between two messages.
INTERVAL_NS = 2_000_000
#: How long the last messages are waited for.
LAST_SECONDS_MAX = 60.0
RETURNED, KEPT = "probe.returned", "probe.kept"
_FRAME_HEAD = struct.Struct(">BHI")
_ACK = struct.Struct(">HHQB")
_METHOD, _BODY = 1, 3
_BASIC, _BASIC_ACK = 60, 80


@dataclass(slots=True)
class Samples:
    """(when it was sent, how long it took), nanoseconds of the monotonic clock. `confirms`: of persistent messages.

    `work`: the same of deliveries, but what it took is the time that the broker's thread had a processor meanwhile: the
    part of others' jobs that the message waited for, however busy the machine is (to a tick of the scheduler: 4 ms).
    """

    deliveries: list[tuple[int, int]] = field(default_factory=list)
    work: list[tuple[int, int]] = field(default_factory=list)
    confirms: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class Latency:
    """Milliseconds."""

    count: int
    p50: float
    p99: float
    max: float


def latency_between(samples: list[tuple[int, int]], begin_ns: int, end_ns: int) -> Latency:
    """Of the messages that were sent, or on their way, between these times."""
    taken = sorted(took for sent, took in samples if sent < end_ns and sent + took >= begin_ns)
    if not taken:
        return Latency(0, 0.0, 0.0, 0.0)

    def at(part: float) -> float:
        return round(taken[min(len(taken) - 1, int(part * len(taken)))] / 1e6, 2)

    return Latency(len(taken), at(0.5), at(0.99), at(1.0))


class Probe:
    """A probe that runs; `samples` after it was stopped."""

    def __init__(self) -> None:
        self.samples = Samples()


@contextmanager
def probing(port: int, pid: int, *, confirms: bool, interval_ns: int = INTERVAL_NS) -> Iterator[Probe]:
    """Run a probe meanwhile. `confirms`: it publishes persistent messages as well, and waits for their confirms."""
    context = multiprocessing.get_context("spawn")  # a fork would hold the job's sockets open
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(there, port, pid, confirms, interval_ns), daemon=True)
    process.start()
    probe = Probe()
    here.recv()  # it is logged in
    try:
        yield probe
        here.send("stop")
        probe.samples = here.recv()
    finally:
        process.terminate()
        process.join()


def _run(pipe: Connection, port: int, pid: int, confirms: bool, interval_ns: int) -> None:
    client = RawClient(port)
    client.handshake()
    client.send(C.Queue.Declare(queue=RETURNED, exclusive=True))
    client.expect(C.Queue.DeclareOk)
    client.send(C.Basic.Consume(queue=RETURNED, consumer_tag="probe", no_ack=True))
    client.expect(C.Basic.ConsumeOk)
    confirmed: RawClient | None = None
    if (
        confirms
    ):  # a connection of its own: one that publishes persistent messages is not read while the journal is behind
        confirmed = RawClient(port)
        confirmed.handshake()
        confirmed.send(C.Queue.Declare(queue=KEPT, durable=True))
        confirmed.expect(C.Queue.DeclareOk)
        confirmed.send(C.Confirm.Select())
        confirmed.expect(C.Confirm.SelectOk)
    pipe.send("ready")
    with open(f"/proc/{pid}/task/{pid}/schedstat") as schedstat:  # the first thread is the broker's
        pacer = _Pacer(client.socket, schedstat, None if confirmed is None else confirmed.socket, interval_ns)
        pipe.send(pacer.run(pipe))


class _Pacer:
    """Sends and reads until it is told to stop, and until everything is back."""

    def __init__(
        self, sock: socket.socket, schedstat: TextIO, confirmed: socket.socket | None, interval_ns: int
    ) -> None:
        self._socket = sock
        self._interval_ns = interval_ns
        self._confirmed_socket = confirmed
        self._schedstat = schedstat
        self._work: dict[int, int] = {}  # of the broker, when each was sent
        self._samples = Samples()
        self._returning = 0
        self._unconfirmed: list[int] = []
        self._confirmed = 0  # so many of them
        self._buffers = {sock: b""} if confirmed is None else {sock: b"", confirmed: b""}
        self._head = _publish_head(1, RETURNED, persistent=False)
        self._kept = _publish_head(1, KEPT, persistent=True) + _body(1, bytes(8))

    def run(self, pipe: Connection) -> Samples:
        next_ns = time.monotonic_ns()
        until_ns: int | None = None
        while True:
            now = time.monotonic_ns()
            if until_ns is None and now >= next_ns:
                self._send(now)
                next_ns = max(next_ns + self._interval_ns, now)
            if until_ns is not None and (self._is_done or now > until_ns):
                return self._samples
            watched: list[socket.socket | Connection] = [*self._buffers, pipe]
            ready, _, _ = select.select(watched, [], [], max(0, next_ns - now) / 1e9 if until_ns is None else 1.0)
            for sock in self._buffers:
                if sock in ready:
                    self._read(sock, sock.recv(65536), time.monotonic_ns())
            if pipe in ready:
                pipe.recv()
                until_ns = time.monotonic_ns() + int(LAST_SECONDS_MAX * 1e9)

    @property
    def _is_done(self) -> bool:
        return not self._returning and self._confirmed == len(self._unconfirmed)

    def _send(self, now: int) -> None:
        self._returning += 1
        self._work[now] = self._worked_ns()
        self._socket.sendall(self._head + _body(1, now.to_bytes(8)))
        if self._confirmed_socket is not None:
            self._unconfirmed.append(now)
            self._confirmed_socket.sendall(self._kept)

    def _worked_ns(self) -> int:
        self._schedstat.seek(0)
        return int(self._schedstat.read().split()[0])

    def _read(self, sock: socket.socket, data: bytes, now: int) -> None:
        if not data:
            raise ConnectionError("the broker closed the probe's connection")
        buffer = self._buffers[sock] + data
        position = 0
        while len(buffer) - position >= 8:
            kind, _, size = _FRAME_HEAD.unpack_from(buffer, position)
            if len(buffer) - position < 8 + size:
                break
            start = position + 7
            if kind == _BODY:
                sent = int.from_bytes(buffer[start : start + 8])
                self._samples.deliveries.append((sent, now - sent))
                self._samples.work.append((sent, self._worked_ns() - self._work.pop(sent)))
                self._returning -= 1
            elif kind == _METHOD and buffer[start : start + 4] == struct.pack(">HH", _BASIC, _BASIC_ACK):
                self._confirm(_ACK.unpack_from(buffer, start)[2], now)
            position += 8 + size
        self._buffers[sock] = buffer[position:]

    def _confirm(self, tag: int, now: int) -> None:
        for sent in self._unconfirmed[self._confirmed : tag]:
            self._samples.confirms.append((sent, now - sent))
        self._confirmed = max(self._confirmed, tag)


def _publish_head(channel: int, queue: str, *, persistent: bool) -> bytes:
    properties = C.Basic.Properties(delivery_mode=2 if persistent else 1)
    method = frame.marshal(C.Basic.Publish(routing_key=queue), channel)
    return method + frame.marshal(header.ContentHeader(body_size=8, properties=properties), channel)


def _body(channel: int, octets: bytes) -> bytes:
    return _FRAME_HEAD.pack(_BODY, channel, len(octets)) + octets + b"\xce"
