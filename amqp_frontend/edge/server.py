"""The AMQP frontend as a server: it listens, accepts connections or turns them away, and stops.

Of the frontend only this folder has code that waits. Source: performance page 4; ruling 4.
"""

import errno
import functools
import logging
import socket
from collections.abc import Callable, Sequence

import trio

from ..options import FrontendOptions
from ..peer.login import Peer
from .admission import Admission, NoSlot, is_beyond
from .arrival import Arrival
from .endpoint import Endpoint, Runtime
from .poller import Poller, poller_of_this_run
from .proxy_protocol import is_listed, peer_of
from .tls import TlsTransport

logger = logging.getLogger("leveret.amqp")

BACKLOG = 1024
#: Connections accepted in one round. Each has its first turn, with its login, in the next round: about 0.3 ms (with TLS
#: some milliseconds), for which other connections wait.
ACCEPTS_A_TURN, TLS_ACCEPTS_A_TURN = 16, 4
#: Errors of a process that lacks descriptors, buffers or memory: accepting is tried again after a pause.
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_EXHAUSTED_PAUSE_S = 0.1
#: Maximum wait for the last close-ok, in seconds: of a broker that stops, and of a node that leads no longer.
STOP_TIMEOUT_S, RESIGN_TIMEOUT_S = 3.0, 1.0

#: Connections that were accepted elsewhere.
Arrivals = trio.MemoryReceiveChannel[Arrival]


class Server:
    """Listeners and connections of the AMQP frontend."""

    endpoint_type = Endpoint

    def __init__(self, runtime: Runtime, options: Callable[[], FrontendOptions], nursery: trio.Nursery) -> None:
        self.runtime = runtime
        self.options = options  # called for each connection, so that new ones see a reload
        self.nursery = nursery
        self.endpoints: dict[Endpoint, None] = {}
        self.admission: Admission[Endpoint] = Admission()
        self.poller: Poller | None = None  # None: endpoints wait through trio
        self.no_endpoints: trio.Event | None = None
        runtime.on_suspend.append(self._suspend)
        runtime.on_resign.append(self._resign)

    async def accept_from(self, listener: socket.socket, *, is_tls: bool) -> None:
        """Accept connections until cancelled. Those beyond a limit are closed, with a log line each; in a shortage of
        descriptors, with one line for all.
        """
        at_once = TLS_ACCEPTS_A_TURN if is_tls else ACCEPTS_A_TURN
        while True:
            await trio.lowlevel.wait_readable(listener)
            for _ in range(at_once):
                try:
                    sock, address = listener.accept()
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno in _EXHAUSTED:
                        self.admission.note_short(f"{error.strerror}; tried again until there is room")
                        await trio.sleep(_EXHAUSTED_PAUSE_S)
                    break
                await self._accepted(Arrival(sock, address, is_tls))

    async def take_arrivals(self, arrivals: Arrivals) -> None:
        """Serve connections that were accepted elsewhere, until cancelled."""
        async for arrival in arrivals:
            await self._accepted(arrival)

    async def _accepted(self, arrival: Arrival) -> None:
        divert = self.runtime.divert
        if divert is not None and self.runtime.is_silent:
            divert(arrival)
            return
        sock, address, options = arrival.socket, arrival.address, self.options()
        shortage = self.admission.shortage(sock.fileno(), len(self.endpoints), options)
        try:
            peer = peer_of(address, arrival.local or sock.getsockname())
            sock.setblocking(False)
            if sock.family in (socket.AF_INET, socket.AF_INET6):  # a socket pair of a link has no such option
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            sock.close()
            return
        is_proxied = bool(options.proxy_protocol_from) and is_listed(address, options.proxy_protocol_from)
        is_trusted = peer.is_loopback or is_proxied
        try:
            await self._find_room(peer, is_trusted, options, is_short=bool(shortage))
        except NoSlot as refused:
            self._turn_away(sock, peer, shortage or str(refused), is_beyond=is_beyond(sock.fileno(), options))
            return
        except trio.Cancelled:
            sock.close()
            raise
        terminated = arrival.tls
        tls = None if terminated is None else terminated.transport
        if tls is None and is_beyond(sock.fileno(), options):  # a connection with a lower descriptor was closed
            moved = sock.dup()
            sock.close()
            sock = moved
        if self.runtime.has_resigned:
            sock.close()  # the broker has ended, and records nothing
            return
        if arrival.is_tls:
            assert options.tls is not None, "a TLS listener without a certificate"
            tls = TlsTransport(sock, options.tls, functools.partial(sock.shutdown, socket.SHUT_RD))
        endpoint = self.endpoint_type(self, sock, peer, tls, is_proxied and terminated is None)
        login = endpoint.session.login
        login.connection_info.node, login.site = arrival.node or options.node, arrival.site
        if terminated is not None:
            endpoint.take_over(terminated)
        self._enter(endpoint, is_trusted)
        self.endpoints[endpoint] = None
        self.nursery.start_soon(endpoint.serve)

    def _turn_away(self, sock: socket.socket, peer: Peer, why: str, *, is_beyond: bool) -> None:
        sock.close()
        if is_beyond:
            self.admission.note_short(why)
        else:
            logger.warning("%s: refused: %s", peer.name, why)

    async def _find_room(self, peer: Peer, is_trusted: bool, options: FrontendOptions, *, is_short: bool) -> None:
        """Like `_make_room`, but a known peer waits a little for a slot, and so do the peers behind it in the
        backlog.

        Raises: NoSlot.
        """
        try:
            self._make_room(peer, is_trusted, options, is_short=is_short)
        except NoSlot as refused:
            if refused.wait_ns is None:
                raise
            await trio.sleep(refused.wait_ns / 1e9)
            self._make_room(peer, is_trusted, options, is_short=is_short)

    def _make_room(self, peer: Peer, is_trusted: bool, options: FrontendOptions, *, is_short: bool = False) -> None:
        """Close a connection for a newcomer, unless there is room. Raises: NoSlot."""
        admission = self.admission
        lost = admission.make_room(peer, is_trusted=is_trusted, options=options, is_short=is_short, now_ns=_now_ns())
        if lost is not None:
            self.endpoints.pop(lost, None)
            lost.make_room(f"{len(admission.half_open) + 1} connections are not logged in, and this one made room")

    def _enter(self, endpoint: Endpoint, is_trusted: bool) -> None:
        origin = endpoint.session.login.peer.origin
        self.admission.half_open.enter(endpoint, origin, is_trusted=is_trusted, now_ns=_now_ns())

    def note_proxied(self, endpoint: Endpoint) -> None:
        """Count the connection towards the share of the address that a proxy named. Raises: NoSlot."""
        self.admission.half_open.leave(endpoint)
        peer = endpoint.session.login.peer
        self._make_room(peer, peer.is_loopback, endpoint.session.options)
        self._enter(endpoint, peer.is_loopback)

    def forget(self, endpoint: Endpoint) -> None:
        """Remove a connection that has ended."""
        self.endpoints.pop(endpoint, None)
        self.admission.half_open.leave(endpoint)
        if not self.endpoints and self.no_endpoints is not None:
            self.no_endpoints.set()

    def _suspend(self) -> None:
        for endpoint in self.endpoints:
            endpoint.suspend()

    def _resign(self) -> None:
        for endpoint in list(self.endpoints):
            endpoint.resign()

    async def stop(self, timeout_s: float) -> None:
        """Close all connections, and wait up to `timeout_s` seconds for their answers.

        If the broker has ended, they were closed before (`_resign`), and the wait is at most `RESIGN_TIMEOUT_S`.
        """
        if self.runtime.has_resigned:
            timeout_s = min(timeout_s, RESIGN_TIMEOUT_S)
        else:
            self.runtime.broker.context.is_stopping = True
            for endpoint in list(self.endpoints):
                endpoint.session.closing.stop()
            self.runtime.end_turn()
        if self.endpoints:
            self.no_endpoints = trio.Event()
            with trio.move_on_after(timeout_s):
                await self.no_endpoints.wait()


def _now_ns() -> int:
    """Time of the loop's clock: the machine's, whatever a test has patched."""
    return int(trio.current_time() * 1e9)


async def serve(
    runtime: Runtime,
    listeners: list[socket.socket],
    options: Callable[[], FrontendOptions] = FrontendOptions,
    *,
    tls_listeners: Sequence[socket.socket] = (),
    arrivals: Arrivals | None = None,
    stopping: trio.Event,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve AMQP 0-9-1 on bound and listening sockets until `stopping` is set.

    Connections of `tls_listeners` use TLS; they require `options().tls`. `arrivals`: connections accepted elsewhere.
    The entry point `amqp` in the group `leveret.frontends` names this function; see docs/frontends.md.
    """
    async with trio.open_nursery() as nursery:
        server = Server(runtime, options, nursery)
        server.poller = poller_of_this_run()
        async with trio.open_nursery() as accepting:
            for listener in (*listeners, *tls_listeners):
                listener.setblocking(False)
                accepting.start_soon(functools.partial(server.accept_from, listener, is_tls=listener in tls_listeners))
            if arrivals is not None:
                accepting.start_soon(server.take_arrivals, arrivals)
            task_status.started()
            await stopping.wait()
            accepting.cancel_scope.cancel()
        await server.stop(STOP_TIMEOUT_S)
        nursery.cancel_scope.cancel()
