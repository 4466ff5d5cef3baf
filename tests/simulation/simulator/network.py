"""Connections between clients and the broker: octets that take their time, come in pieces, stop coming, or end.

The broker's end is a `SimulatedSocket`, what the frontend takes for a socket; the client's end is a `Link`, which calls
back. Octets of one direction never overtake each other; those of different connections do.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any, Protocol

import trio

from .loop import SECOND, now_ns
from .schedule import Schedule

#: What fits into the buffers between the broker and a client that does not read.
BUFFER = 64 * 1024
#: Far from any descriptor of this process: trio may be told that one is closing.
FIRST_DESCRIPTOR = 10_000_000
_FOREVER = 1 << 62

#: Octets that a client got, and when (ns).
Watch = Callable[[bytes, int], object]


class Peer(Protocol):
    """The client's side of a link."""

    def received(self, data: bytes) -> None:
        """Octets from the broker."""

    def disconnected(self) -> None:
        """The connection is over; nothing comes any more."""


class Weather:
    """How the network is: times in ns, chances in [0, 1]."""

    def __init__(self) -> None:
        self.latency_ns = 50_000
        self.jitter_ns = 200_000
        self.cut = 0.05  # a piece of what was sent comes later
        self.short_read = 0.05  # the broker reads less than there is
        self.short_write = 0.05  # the kernel takes less than it could
        self.factor = 1  # of the times

    def calm(self) -> None:
        """The storm is over."""
        self.factor = 1


#: The address of peers on the broker's own machine.
HERE = "127.0.0.1"
#: States of a connection, as TCP_INFO has them on Linux.
_ESTABLISHED, _CLOSE_WAIT = 1, 8


class SimulatedSocket:
    """The broker's end of a link. It never blocks: `readable` and `writable` wait."""

    family = socket.AF_INET

    def __init__(self, link: Link, descriptor: int) -> None:
        self._link = link
        self._descriptor = descriptor
        self._arrived = bytearray()
        self._ended = False  # the peer sends nothing more
        self._broken: int | None = None  # errno
        self._reader: trio.lowlevel.Task | None = None
        self._writer: trio.lowlevel.Task | None = None
        self.resets = False
        self.site: str | None = None  # of the client; None: it comes without one
        self.address = HERE  # of the client

    # -- what the frontend calls --------------------------------------------------------------------------------------

    def fileno(self) -> int:
        return self._descriptor

    def setblocking(self, flag: bool) -> None:
        pass

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 5672

    def getsockopt(self, level: int, option: int, size: int = 0) -> bytes:
        """See `socket.socket`: the state of the connection, as far as the system that the broker runs on knows it."""
        has_ended = self._ended or self._broken is not None
        return bytes([_CLOSE_WAIT if has_ended else _ESTABLISHED])

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        if option == socket.SO_LINGER:
            self.resets = True

    def recv(self, size: int) -> bytes:
        self._check()
        arrived = self._arrived
        if not arrived:
            if self._ended:
                return b""
            raise BlockingIOError
        size = self._link.read_size(min(size, len(arrived)))
        data = bytes(arrived[:size])
        del arrived[:size]
        return data

    def recv_into(self, buffer: memoryview) -> int:
        data = self.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def send(self, data: bytes | memoryview) -> int:
        self._check()
        size = self._link.write_size(len(data))
        if not size and len(data):
            raise BlockingIOError
        self._link.to_client(bytes(data[:size]))
        return size

    @property
    def is_connected(self) -> bool:
        """Whether the client is there, as far as the broker's system knows."""
        return self._descriptor >= 0 and not self._ended and self._broken is None

    @property
    def has_unread(self) -> bool:
        """Whether there is something that the broker did not read."""
        return bool(self._arrived)

    def sendmsg(self, buffers: Sequence[bytes | memoryview]) -> int:
        return self.send(b"".join(buffers))

    def close(self) -> None:
        if self._descriptor < 0:
            return
        self._descriptor = -1
        self._wake()
        self._link.closed_by_broker(resets=self.resets)

    def _check(self) -> None:
        if self._descriptor < 0:
            raise OSError(errno.EBADF, "closed")
        if self._broken is not None:
            raise OSError(self._broken, "broken")

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def readable(self) -> None:
        """Until `recv` would not block. Raises: ClosedResourceError."""
        while not (self._arrived or self._ended or self._broken is not None):
            if self._descriptor < 0:
                raise trio.ClosedResourceError
            assert self._reader is None
            self._reader = trio.lowlevel.current_task()

            def abort(_: Any) -> trio.lowlevel.Abort:
                self._reader = None
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)
        await trio.lowlevel.checkpoint()  # as through the system: others' turns come between

    async def writable(self) -> None:
        """Until `send` would not block. Raises: ClosedResourceError."""
        while self._link.is_full and self._broken is None:
            if self._descriptor < 0:
                raise trio.ClosedResourceError
            assert self._writer is None
            self._writer = trio.lowlevel.current_task()

            def abort(_: Any) -> trio.lowlevel.Abort:
                self._writer = None
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)
        await trio.lowlevel.checkpoint()

    # -- what the link calls ------------------------------------------------------------------------------------------

    def arrive(self, data: bytes) -> None:
        """Octets from the client; empty: it will send nothing more."""
        if self._descriptor < 0:
            return
        if data:
            self._arrived += data
        else:
            self._ended = True
        self._wake_reader()

    def break_(self, error: int) -> None:
        """The connection was reset."""
        if self._descriptor >= 0 and self._broken is None:
            self._broken = error
            self._arrived.clear()
            self._wake()

    def has_room(self) -> None:
        """The client has read something."""
        task, self._writer = self._writer, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def _wake_reader(self) -> None:
        task, self._reader = self._reader, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def _wake(self) -> None:
        self._wake_reader()
        self.has_room()


class Link:
    """One connection, as the client has it. `is_open`: nobody has ended it, as far as the client knows."""

    def __init__(
        self, schedule: Schedule, chance: Random, weather: Weather, peer: Peer, descriptor: int, watch: Watch
    ) -> None:
        self._watch = watch
        self._schedule = schedule
        self._chance = chance
        self._weather = weather
        self._peer = peer
        self.socket = SimulatedSocket(self, descriptor)
        self.is_open = True
        self._is_dead = False  # half-open: nothing arrives at either side any more
        self._to_broker_ns = 0  # when the last octets of a direction arrive
        self._to_client_ns = 0
        self._stalled_until_ns = 0  # until then the client reads nothing
        self._slow_until_ns = 0  # until then it reads so many octets a second
        self._speed = 1
        self._until_reset: int | None = None  # octets of the client
        self._is_shut = False  # the client sends nothing more
        self._unread = 0  # octets between the broker and the client

    # -- the client's side --------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """To the broker, in one piece or in several."""
        if not self.is_open or self._is_dead or self._is_shut:
            return
        if self._until_reset is not None:
            data = data[: self._until_reset]
            self._until_reset -= len(data)
        chance, weather = self._chance, self._weather
        while len(data) > 1 and chance.random() < weather.cut:
            at = chance.randrange(1, len(data))
            self._carry_to_broker(data[:at])
            data = data[at:]
        self._carry_to_broker(data)
        if self._until_reset == 0:
            self._schedule.at(self._to_broker_ns, self.reset)

    def close(self) -> None:
        """The client ends the connection: the broker reads what was sent, then the end."""
        if self.is_open:
            self.is_open = False
            if not self._is_dead:
                self._carry_to_broker(b"")

    def reset(self) -> None:
        """The connection is cut: what is under way is lost, both sides see an error."""
        if not self.is_open:
            return
        self.is_open = False
        dead, self._is_dead = self._is_dead, True
        if not dead:
            self._schedule.after(self._delay_ns(), lambda: self.socket.break_(errno.ECONNRESET))
        self._schedule.after(self._delay_ns(), self._peer.disconnected)

    def reset_after(self, octets: int) -> None:
        """It is cut when the client has sent so many more."""
        self._until_reset = octets

    @property
    def is_under_way(self) -> bool:
        """Whether something that the client sent has not arrived."""
        return self._to_broker_ns > now_ns()

    @property
    def unread_by_broker(self) -> int:
        """Octets that the client sent, and that wait to be read."""
        return len(self.socket._arrived)

    @property
    def is_whole(self) -> bool:
        """Whether what either side sends comes to the other; where it does not, heartbeats tell them later."""
        return self.is_open and not (self._is_dead or self._is_shut)

    @property
    def is_idle(self) -> bool:
        """Whether the broker has read all that the client sent, and the client all that the broker sent."""
        return self.is_whole and not self._unread and self._to_broker_ns < now_ns() and not self.socket.has_unread

    def shut(self) -> None:
        """The client says that it sends nothing more."""
        if self.is_open and not self._is_dead and not self._is_shut:
            self._is_shut = True
            self._carry_to_broker(b"")

    def go_dead(self) -> None:
        """Half-open: nothing arrives any more, and nobody is told."""
        self._is_dead = True

    def stall(self, duration_ns: int) -> None:
        """The client reads nothing for so long."""
        self._stalled_until_ns = max(self._stalled_until_ns, now_ns() + duration_ns)

    def delay(self, duration_ns: int) -> None:
        """Nothing of what the client sends arrives for so long."""
        self._to_broker_ns = max(self._to_broker_ns, now_ns() + duration_ns)

    def read_slowly(self, duration_ns: int, speed: int) -> None:
        """For so long the client reads so many octets a second."""
        self._slow_until_ns, self._speed = now_ns() + duration_ns, speed

    def _delay_ns(self) -> int:
        weather = self._weather
        return weather.factor * (weather.latency_ns + int(weather.jitter_ns * self._chance.random()))

    def _carry_to_broker(self, data: bytes) -> None:
        at = self._to_broker_ns = max(self._to_broker_ns, now_ns() + self._delay_ns())
        self._schedule.at(at, lambda: None if self._is_dead else self.socket.arrive(data))

    # -- the broker's side --------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether the broker can send nothing now."""
        return self._unread >= BUFFER

    def read_size(self, size: int) -> int:
        """How much of so many octets a read of the broker gives."""
        chance = self._chance
        return chance.randint(1, size) if chance.random() < self._weather.short_read else size

    def write_size(self, size: int) -> int:
        """How much of so many octets a write of the broker takes."""
        size = min(size, BUFFER - self._unread)
        chance = self._chance
        return chance.randint(0, size) if chance.random() < self._weather.short_write else size

    def to_client(self, data: bytes) -> None:
        """Octets from the broker."""
        self._unread += len(data)
        at = max(self._to_client_ns, now_ns() + self._delay_ns())
        if now_ns() < self._slow_until_ns:
            at += len(data) * SECOND // self._speed
        self._to_client_ns = at
        self._schedule.at(at, lambda: self._deliver(data))

    def _deliver(self, data: bytes) -> None:
        if not self.is_open or self._is_dead:
            return
        now = now_ns()
        if now < self._stalled_until_ns:
            self._to_client_ns = max(self._to_client_ns, self._stalled_until_ns)
            self._schedule.at(self._stalled_until_ns, lambda: self._deliver(data))
            return
        was_full = self.is_full
        self._unread -= len(data)
        self._watch(data, now)
        self._peer.received(data)
        if was_full and not self.is_full:
            self.socket.has_room()

    def closed_by_broker(self, *, resets: bool) -> None:
        """The broker has ended it; what it sent before still arrives."""
        if not self._is_dead:
            at = now_ns() + self._delay_ns() if resets else max(self._to_client_ns, now_ns() + self._delay_ns())
            self._schedule.at(at, self._end)

    def _end(self) -> None:
        if now_ns() < self._stalled_until_ns:
            self._schedule.at(self._stalled_until_ns, self._end)
        elif self.is_open and not self._is_dead:
            self.is_open = False
            self._peer.disconnected()


class Network:
    """Connects clients to whoever listens at the moment. `watch`: is told what clients get."""

    def __init__(self, schedule: Schedule, chance: Random, watch: Watch = lambda data, now_ns: None) -> None:
        self._watch = watch
        self._schedule = schedule
        self._chance = chance
        self.weather = Weather()
        self._descriptors = count(FIRST_DESCRIPTOR)
        self.accept: Callable[[SimulatedSocket], object] | None = None  # None: connections are refused
        self.refused_until_ns = 0
        self.links: list[Link] = []
        self.gone: set[str] = set()  # sites without clients

    def connect(self, peer: Peer, site: str | None = None, address: str = HERE) -> Link | None:
        """A connection, None: refused. `site`, `address`: the peer's."""
        if self.accept is None or now_ns() < self.refused_until_ns or site in self.gone:
            return None
        link = Link(self._schedule, self._chance, self.weather, peer, next(self._descriptors), self._watch)
        self.links = [other for other in self.links if other.is_open]
        self.links.append(link)
        link.socket.site, link.socket.address = site, address
        self.accept(link.socket)
        return link

    def lose_all(self) -> None:
        """The broker's process is gone: its connections are reset, and nobody listens."""
        self.accept = None
        for link in self.links:
            link.reset()
        self.links.clear()
