"""Clients that arrive while this node does not lead: held for a while, passed on to the leader, or handed over here.

The sockets are not read here, only peeked at: whatever serves a client has all its octets.
"""

import errno
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

import trio

from ..amqp_frontend.edge.arrival import Arrival
from .descriptors import descriptor_limits
from .listeners import Listeners

logger = logging.getLogger("leveret.cluster")

#: Clients that are held or passed on at once, at most.
CLIENTS_MAX = 10_000
#: Seconds between two attempts to pass a client on to a leader that refuses it: it may not serve yet.
AGAIN_S = 0.1
#: Seconds for which clients of a leader that is lost stay with it: one that resigns closes them itself.
GRACE_S = 0.5
#: Octets that are looked at to tell what an HTTP client asks for, and seconds in which they must come.
PEEKED, PEEK_S = 64, 5.0
#: What asks for this node, not for the broker.
OWN_PATHS = (b"/metrics", b"/health/", b"/api/health/", b"/api/healthchecks/")
#: So begins what `leveret ctl` sends to the port of AMQP of a node that keeps it waiting, and no client of AMQP.
NODE_REQUEST = b"GET "
_PAUSE_S = 0.1
DRAINED = 64 * 1024


class Service(Enum):
    """What a client came for; the value is the frontend's name."""

    AMQP = "amqp"
    CONSOLE = "console"
    METRICS = "metrics"


class Passing(Enum):
    """How passing a client on ended."""

    SERVED = auto()  # the connection is over
    REFUSED = auto()  # nothing was read from the client, and nothing sent


@dataclass(slots=True, frozen=True)
class Guest:
    """An accepted socket. `address`: as `accept` gives it. `node`, `local`: of an `Arrival` that comes back."""

    socket: socket.socket
    address: object
    service: Service
    is_tls: bool
    node: str = ""
    local: object = None


#: Takes a client to the leader: its socket, its address, the frontend. Returns when that has ended.
PassOn = Callable[[Guest], Awaitable[Passing]]


@dataclass(slots=True, frozen=True)
class Frontends:
    """Where this node's own frontends take connections, while it leads."""

    amqp: trio.MemorySendChannel[Arrival]
    console: trio.MemorySendChannel[Arrival]


class _Accepts:
    """Whether the gate accepts clients. `waiting`: of tasks that wait for one; they are cancelled when it must not."""

    def __init__(self) -> None:
        self.may = trio.Event()
        self.may.set()
        self.waiting: set[trio.CancelScope] = set()

    def stop(self) -> None:
        """Accept none, until `may` is set."""
        if self.may.is_set():
            self.may = trio.Event()
        for scope in self.waiting:
            scope.cancel()


class Gate:
    """Accepts clients on the process's listeners while no broker of this process does.

    `answer`: answers an HTTP client that asks for this node (metrics, health). `patience_s`: how long a client is held.
    """

    def __init__(
        self, listeners: Listeners, patience_s: Callable[[], float], answer: Callable[[Guest], Awaitable[None]]
    ) -> None:
        self._listeners = listeners
        self._patience_s = patience_s
        self._answer = answer
        self._pass_on: PassOn | None = None  # None: there is no leader
        self.frontends: Frontends | None = None
        self._passing: dict[trio.CancelScope, None] = {}  # of the clients that are with the leader
        self._accepts = _Accepts()
        self._is_closed = False
        self._changed = trio.Event()
        self.clients = 0
        self._nursery: trio.Nursery

    # -- where clients go -------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Hold clients: there is no leader."""
        self._set(None, None)

    def pass_on(self, pass_on: PassOn) -> None:
        """Pass clients on to the leader."""
        self._set(pass_on, None)

    def hand_over(self, frontends: Frontends) -> None:
        """Hand clients to this node's frontends."""
        self._set(None, frontends)

    @asynccontextmanager
    async def lent_listeners(self) -> AsyncIterator[None]:
        """Accept no clients in the block: frontends of this node do, on the same listeners."""
        self._accepts.stop()
        while self._accepts.waiting:
            await trio.lowlevel.checkpoint()
        try:
            yield
        finally:
            self._accepts.may.set()

    def close(self) -> None:
        """Close clients at once, from now on: this node cannot be one of the cluster."""
        self._is_closed = True
        self._set(None, None)

    def _set(self, pass_on: PassOn | None, frontends: Frontends | None) -> None:
        for scope in self._passing:
            scope.deadline = trio.current_time() + GRACE_S
        self._passing = {}
        self._pass_on, self.frontends = pass_on, frontends
        self._changed.set()
        self._changed = trio.Event()

    # -- accepting --------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept until cancelled."""
        listeners = self._listeners
        async with trio.open_nursery() as self._nursery:
            nursery = self._nursery
            for service, of_service in (
                (Service.AMQP, listeners.amqp),
                (Service.CONSOLE, listeners.console),
                (Service.METRICS, listeners.metrics),
            ):
                for listener, address in of_service.items():
                    listener.setblocking(False)
                    nursery.start_soon(partial(self._accept_from, nursery, listener, service, is_tls=address.is_tls))
            task_status.started()

    async def _accept_from(
        self, nursery: trio.Nursery, listener: socket.socket, service: Service, *, is_tls: bool
    ) -> None:
        while True:
            await self._accepts.may.wait()
            if not await self._is_readable(listener):
                continue
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno != errno.ECONNABORTED:
                    logger.warning("a connection could not be accepted: %s", error.strerror or error)
                    await trio.sleep(_PAUSE_S)
                continue
            sock.setblocking(False)
            limit = descriptor_limits().connections
            if self.clients >= CLIENTS_MAX or (limit is not None and sock.fileno() >= limit):
                sock.close()
                continue
            nursery.start_soon(self._place, Guest(sock, address, service, is_tls))

    async def _is_readable(self, listener: socket.socket) -> bool:
        """Wait for a client. False: the listeners are lent."""
        accepts, scope = self._accepts, trio.CancelScope()
        accepts.waiting.add(scope)
        try:
            with scope:
                await trio.lowlevel.wait_readable(listener)
        finally:
            accepts.waiting.discard(scope)
        return not scope.cancel_called

    def take(self, arrival: Arrival, wait: Callable[[], Awaitable[None]]) -> None:
        """A client of a broker that is silent finds its place after `wait`, unless it asks for the node."""
        arrival.socket.setblocking(False)
        guest = Guest(arrival.socket, arrival.address, Service.AMQP, arrival.is_tls, arrival.node, arrival.local)
        self._nursery.start_soon(self._place, guest, wait)

    # -- one client -------------------------------------------------------------------------------------------------

    async def _place(self, guest: Guest, wait: Callable[[], Awaitable[None]] | None = None) -> None:
        """Find a place for a client, and close its socket unless another part has it."""
        self.clients += 1
        is_ours = True
        try:
            if guest.service is Service.METRICS or await _asks_for_node(guest):
                await self._answer(guest)
            else:
                if wait is not None:
                    await wait()
                is_ours = await self._find_place(guest)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client is gone
        finally:
            self.clients -= 1
            if is_ours:
                guest.socket.close()

    async def _find_place(self, guest: Guest) -> bool:
        """Returns whether the socket is still this gate's."""
        until = trio.current_time() + self._patience_s()
        while True:
            changed = self._changed
            if self.frontends is not None:
                frontends = self.frontends
                arrivals = frontends.amqp if guest.service is Service.AMQP else frontends.console
                try:
                    await arrivals.send(Arrival(guest.socket, guest.address, guest.is_tls, guest.node, guest.local))
                except (trio.BrokenResourceError, trio.ClosedResourceError):  # the broker has ended just now
                    if self.frontends is frontends:
                        return True
                    continue
                return False
            pause_s = float("inf")
            if self._pass_on is not None:
                if await self._pass_on_to_leader(guest, self._pass_on):
                    return True
                pause_s = AGAIN_S
            left_s = 0.0 if self._is_closed else until - trio.current_time()
            if left_s <= 0:
                _send_goodbye(guest)
                return True
            with trio.move_on_after(min(pause_s, left_s)):
                await changed.wait()

    async def _pass_on_to_leader(self, guest: Guest, pass_on: PassOn) -> bool:
        """Returns whether the connection is over: its end, or that of the leader."""
        scope = trio.CancelScope()
        passing = self._passing
        passing[scope] = None
        passed = Passing.SERVED
        with scope:
            passed = await pass_on(guest)
        passing.pop(scope, None)
        return passed is Passing.SERVED


async def _asks_for_node(guest: Guest) -> bool:
    """Whether a client asks for this node's metrics, health or state. Of TLS this is not seen: it asks the broker."""
    if guest.is_tls:
        return False
    with trio.move_on_after(PEEK_S):
        while True:
            await trio.lowlevel.wait_readable(guest.socket)
            head = guest.socket.recv(PEEKED, socket.MSG_PEEK)
            if guest.service is Service.AMQP:
                return head.startswith(NODE_REQUEST)
            path = head.partition(b" ")[2]
            if not head or len(path) >= max(map(len, OWN_PATHS)) or b"\n" in head or len(head) >= PEEKED:
                return path.startswith(OWN_PATHS)
            await trio.sleep(_PAUSE_S)  # the rest of its first line is on the way
    return False


#: connection.close with 320, channel 0; and what an HTTP client is told.
_TEXT = b"CONNECTION_FORCED - no node of this cluster leads"
_CLOSE = b"\x00\x0a\x00\x32" + b"\x01\x40" + bytes([len(_TEXT)]) + _TEXT + b"\x00\x00\x00\x00"
GOODBYE = b"\x01\x00\x00" + len(_CLOSE).to_bytes(4, "big") + _CLOSE + b"\xce"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def _send_goodbye(guest: Guest) -> None:
    """Tell a client that was held in vain, as far as its socket takes it."""
    if not guest.is_tls:
        logger.warning("a client was held for as long as patience lasts: no node leads")
        try:
            _drain(guest.socket)  # closing a socket with unread octets resets it, and the peer may lose this answer
            guest.socket.send(GOODBYE if guest.service is Service.AMQP else UNAVAILABLE)
            guest.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def _drain(sock: socket.socket) -> None:
    try:
        while sock.recv(DRAINED):
            pass
    except BlockingIOError:
        pass
