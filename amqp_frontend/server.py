"""The only file of this room that waits: sockets, read and sent without a task switch a message.

A connection is one task: wait until readable, read what is there, handle it, end the turn, send. Sending is done by
whoever's turn made the octets; a writer task exists only while a socket is full.
Source: performance page 4; ruling 4.
"""

import errno
import functools
import logging
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import trio

from ..engine import Broker
from .certificate_names import user_name
from .half_open import HalfOpen, NoPlace
from .options import FrontendOptions
from .peers import is_listed, peer_of, proxied
from .proxy_protocol import SIZE_MAX, ProxyFault, read_header
from .sasl import Peer
from .session import AmqpSession
from .tls import PIECE, TlsFault, TlsTransport
from .turn import handle_bytes

logger = logging.getLogger("leveret.amqp")

READ_SIZE = 128 * 1024
BACKLOG = 1024
ACCEPTS_A_TURN = 64
#: After these, accepting is tried again a little later: the process is out of something.
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_EXHAUSTED_PAUSE_S = 0.1
#: So many descriptors have come back when it is worth a line that there are enough.
_FREE_AGAIN = 8
#: SO_LINGER on, zero seconds: closing resets the connection.
_LINGER_NOTHING = struct.pack("ii", 1, 0)


class Runtime(Protocol):
    """What a frontend gets from the composition root."""

    broker: Broker

    def end_turn(self) -> None:
        """Dispatch and flush what a turn left; what does not fit into it is done soon after."""


class Endpoint:
    """One accepted socket with its session. What it waits by and hands reads to can be replaced (the test broker).


    `transport` is what data are read from and sent to: the socket itself, or TLS over it.
    """

    __slots__ = (
        "_has_ended",
        "_is_proxied",
        "_pending",
        "_server",
        "_tls",
        "_writing",
        "drained",
        "scope",
        "session",
        "socket",
        "transport",
        "unblocked",
    )

    def __init__(
        self, server: "Server", sock: socket.socket, peer: Peer, tls: TlsTransport | None, is_proxied: bool
    ) -> None:
        self._server = server
        self.socket = sock
        self._tls = tls
        self._is_proxied = is_proxied
        self.transport: socket.socket | TlsTransport = tls or sock
        self.session = self._make_session(peer)
        self.session.closing.on_login = self._answered
        self.scope = trio.CancelScope()
        self._pending: bytes | memoryview | None = None  # taken from the session, not yet taken by the kernel
        self._writing = False
        self.drained: trio.Event | None = None
        self.unblocked: trio.CancelScope | None = None
        self._has_ended = False

    wait_readable = staticmethod(trio.lowlevel.wait_readable)
    wait_writable = staticmethod(trio.lowlevel.wait_writable)
    handle = staticmethod(handle_bytes)

    def _make_session(self, peer: Peer) -> AmqpSession:
        return AmqpSession(self._server.runtime.broker, self._server.options(), peer, self.flush)

    def _answered(self, is_in: bool) -> None:
        """The peer's login was."""
        half_open = self._server.half_open
        if is_in:
            half_open.has_logged_in(self)
        else:
            half_open.was_refused(self)

    def flush(self) -> None:
        """Send what there is, as far as the kernel takes it; never waits, never fails."""
        session = self.session
        if not self._writing:
            try:
                if self._send_all():
                    session.output_sent()
                else:
                    self._writing = True
                    self._server.nursery.start_soon(self._write)
            except Exception:
                # Our own fault, perhaps in somebody else's turn: this connection ends, the others go on.
                logger.exception("%s: internal error", session.login.peer.name)
                session.closing.abort = session.closing.finished = True
        if session.closing.finished and not self._writing:
            self.scope.cancel()
        if self.unblocked is not None and not session.backlog.must_wait and not session.journal.is_behind:
            self.unblocked.cancel()

    def _send_all(self) -> bool:
        """Send what was left over, then what the session has: all of it (True) or till the socket is full (False)."""
        while True:
            data = self._pending
            if data is None:
                out = self.session.take_output()
                if not out:
                    return True
                data = b"".join(out) if len(out) > 1 else out[0]
            try:
                sent = self.transport.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._pending = None  # the peer is gone; its reader finds out too
                self.session.closing.finished = True
                return True
            if sent < len(data):
                self._pending = memoryview(data)[sent:]
                return False
            if self._pending is None:
                return True
            self._pending = None

    async def _write(self) -> None:
        """Exists while the socket is full."""
        session = self.session
        try:
            while self.socket.fileno() >= 0:  # the reader may have closed it before this task came to run
                await self.wait_writable(self.socket)
                if self._send_all():
                    break
        except (OSError, trio.ClosedResourceError):
            session.closing.finished = True
        except Exception:
            logger.exception("%s: internal error", session.login.peer.name)
            session.closing.abort = session.closing.finished = True
        self._writing = False
        if self.drained is not None:
            self.drained.set()
            self.drained = None
        if session.closing.finished:
            self.scope.cancel()
        else:
            session.output_sent()
            self._server.runtime.end_turn()

    async def serve(self) -> None:
        """Read until the end, whatever it is."""
        sock, session = self.socket, self.session
        fd = sock.fileno()
        recv, wait_readable, end_turn = self.transport.recv, self.wait_readable, self._server.runtime.end_turn
        handle = self.handle
        try:
            with self.scope:
                await trio.lowlevel.checkpoint_if_cancelled()  # it may have made room before it came to run
                data = await self._introduction()
                while not session.closing.finished:
                    if not data:
                        await wait_readable(fd)
                        try:
                            data = recv(READ_SIZE)
                        except BlockingIOError:
                            continue
                        if not data:
                            break
                    handle(session, data)
                    data = b""  # not held while waiting
                    end_turn()  # sends what this and other connections got
                    stalled = session.output.is_stalled
                    if session.output.is_pending or session.closing.finished:
                        self.flush()
                    if stalled or session.backlog.is_waiting or session.backlog.is_cut or session.journal.is_behind:
                        await self._catch_up(stalled)
                        if self._has_ended:
                            break
        except NoPlace as refusal:
            logger.warning("%s: refused: %s", session.login.peer.name, refusal)
        except ProxyFault as fault:
            logger.warning("%s: refused: PROXY header: %s", session.login.peer.name, fault)
        except TlsFault as fault:
            logger.warning("%s: TLS: %s", session.login.peer.name, fault)
        except (OSError, trio.ClosedResourceError):
            pass
        except Exception:
            logger.exception("%s: internal error", session.login.peer.name)  # ours; the other connections go on
        finally:
            try:
                session.handle_end()
                end_turn()
            except Exception:
                logger.exception("%s: internal error while cleaning up", session.login.peer.name)
            self.close()
            self._server.forget(self)

    async def _introduction(self) -> bytes:
        """What comes before AMQP (PROXY header, TLS handshake) and the first octets of that; under time limits.

        Returns: those octets, if any came with the handshake. Raises: ProxyFault, TlsFault, NoPlace, OSError.
        """
        session = self.session
        patience_ms = session.options.first_octet_timeout_ms
        with trio.move_on_after(patience_ms / 1000) as patience:
            data = await self._read_proxy_header() if self._is_proxied else b""
            if not data and not session.closing.finished:
                data = await self._read_some(PIECE if self._tls is not None else READ_SIZE)
                if not data:
                    session.closing.finished = True  # a balancer's look whether we are there; not worth a line
        if patience.cancelled_caught:
            session.closing.drop(f"nothing came within {patience_ms} ms")
        if session.closing.finished:
            return b""
        self._server.half_open.has_begun(self)
        return data if self._tls is None else await self._shake_hands(self._tls, data)

    async def _read_proxy_header(self) -> bytes:
        data = b""
        while (header := read_header(data)) is None:
            more = await self._read_some(SIZE_MAX)
            if not more:
                if data:
                    raise ProxyFault(f"cut short after {len(data)} octets")
                self.session.closing.finished = True  # as in `_introduction`
                return b""
            data += more
        session = self.session
        session.login.peer = proxied(session.login.peer, header)
        if header.source is not None:
            self._server.has_come_from(self)
        return data[header.size :]

    async def _shake_hands(self, tls: TlsTransport, data: bytes) -> bytes:
        session = self.session
        is_over = False
        while not is_over:
            data = data or await self._read_some(PIECE)
            if not data:
                raise TlsFault(f"handshake: cut short after {tls.handshake_octets} octets")
            is_over = tls.handshake(data)
            data = b""
            while not tls.flush():
                await trio.lowlevel.wait_writable(self.socket)
        certificate, options = tls.certificate, session.options
        name = certificate and user_name(
            certificate, options.ssl_cert_login_from, options.ssl_cert_login_san_type, options.ssl_cert_login_san_index
        )
        session.login.peer = replace(session.login.peer, is_secured=True, certified_name=name or None)
        logger.debug("%s: %s, certificate of %r", session.login.peer.name, tls.description, name)
        return tls.early_data()

    async def _read_some(self, size: int) -> bytes:
        """The next octets of the socket, empty at its end."""
        while True:
            await self.wait_readable(self.socket.fileno())
            try:
                return self.socket.recv(size)
            except BlockingIOError:
                pass

    async def _catch_up(self, stalled: bool) -> None:
        """The peer is not read before all is done that it asked for.

        `stalled`: it does not read the answers. Else the journal does not take a publish now, or cannot keep up; or
        there was too much to do for one turn.
        """
        session = self.session
        backlog = session.backlog
        while not session.closing.finished:
            data = b""
            if stalled and self._writing:
                self.drained = trio.Event()
                await self.drained.wait()
            elif not stalled and (backlog.blocked is not None or backlog.is_committing or session.journal.is_behind):
                data = await self._wait_until_unblocked()
            elif stalled or backlog.has_more:
                await trio.lowlevel.checkpoint()  # others' turns come between
            else:
                return
            self.handle(session, data)
            self._server.runtime.end_turn()
            stalled = session.output.is_stalled
            self.flush()

    async def _wait_until_unblocked(self) -> bytes:
        """Until publishes are taken again, or more came of which some may pass. Returns what came."""
        session = self.session
        data = b""
        with trio.CancelScope() as self.unblocked:
            if session.backlog.blocked is None or session.backlog.is_full or self._has_ended:
                await trio.sleep_forever()
            await self.wait_readable(self.socket.fileno())
            try:
                data = self.transport.recv(READ_SIZE)
                self._has_ended = not data
            except BlockingIOError:
                pass
        self.unblocked = None
        return data

    def make_room(self, why: str) -> None:
        """Somebody else needs what this connection takes: its descriptor comes back at once."""
        self.session.closing.drop(why)
        self.close()
        self.scope.cancel()

    def close(self) -> None:
        """The socket, if it still is open."""
        if self.socket.fileno() < 0:
            return
        try:
            if self.session.closing.abort:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOTHING)
            elif self._tls is not None:
                self._tls.say_goodbye()
            trio.lowlevel.notify_closing(self.socket)
            self.socket.close()
        except OSError:
            pass


class Server:
    """Listeners and connections of the AMQP frontend."""

    endpoint_type = Endpoint

    def __init__(self, runtime: Runtime, options: Callable[[], FrontendOptions], nursery: trio.Nursery) -> None:
        self.runtime = runtime
        self.options = options  # asked for each connection: a reload shows at the next one
        self.nursery = nursery
        self.endpoints: dict[Endpoint, None] = {}
        self.half_open: HalfOpen[Endpoint] = HalfOpen()
        self.no_endpoints: trio.Event | None = None
        self._is_short = False  # of descriptors: said once, until it is over

    async def accept_from(self, listener: socket.socket, *, is_tls: bool) -> None:
        """Accept for ever. More connections than allowed, or too many not logged in: closed at once, one log line."""
        while True:
            await trio.lowlevel.wait_readable(listener)
            for _ in range(ACCEPTS_A_TURN):
                try:
                    sock, address = listener.accept()
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno in _EXHAUSTED:
                        self._note_short(f"{error.strerror}; tried again until there is room")
                        await trio.sleep(_EXHAUSTED_PAUSE_S)
                    break
                await self._accepted(sock, address, is_tls)

    async def _accepted(self, sock: socket.socket, address: object, is_tls: bool) -> None:
        options = self.options()
        is_beyond = options.descriptor_max is not None and sock.fileno() >= options.descriptor_max
        shortage = self._shortage(sock, options)
        try:
            peer = peer_of(address, sock.getsockname())
            sock.setblocking(False)
            if sock.family != getattr(socket, "AF_UNIX", None):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            sock.close()
            return
        is_proxied = bool(options.proxy_protocol_from) and is_listed(address, options.proxy_protocol_from)
        is_trusted = peer.is_loopback or is_proxied
        try:
            await self._find_room(peer, is_trusted, options, is_short=bool(shortage))
        except NoPlace as refused:
            sock.close()
            if not shortage:
                logger.warning("%s: refused: %s", peer.name, refused)
            elif is_beyond:
                self._note_short(shortage)
            else:
                logger.warning("%s: refused: %s", peer.name, shortage)
            return
        except trio.Cancelled:
            sock.close()
            raise
        if is_beyond:  # whoever made room had a descriptor below the limit
            moved = sock.dup()
            sock.close()
            sock = moved
        tls = None
        if is_tls:
            assert options.tls is not None, "a TLS listener without a certificate"
            tls = TlsTransport(sock, options.tls, functools.partial(sock.shutdown, socket.SHUT_RD))
        endpoint = self.endpoint_type(self, sock, peer, tls, is_proxied)
        self._enter(endpoint, is_trusted)
        self.endpoints[endpoint] = None
        self.nursery.start_soon(endpoint.serve)

    def _shortage(self, sock: socket.socket, options: FrontendOptions) -> str:
        """Why another connection is one too many, whoever it is; empty: it is not."""
        descriptor_max = options.descriptor_max
        if descriptor_max is not None and sock.fileno() >= descriptor_max:
            return f"{descriptor_max} descriptors are in use, the rest is for the broker's files"
        if descriptor_max is None or sock.fileno() < descriptor_max - _FREE_AGAIN:
            self._note_short("")
        if options.connections_max and len(self.endpoints) >= options.connections_max:
            return f"{options.connections_max} connections are open"
        return ""

    def _note_short(self, why: str) -> None:
        """No connection can be accepted, or (no reason) one was."""
        if why and not self._is_short:
            logger.error("no more connections are accepted: %s", why)
        elif self._is_short and not why:
            logger.warning("connections are accepted again")
        self._is_short = bool(why)

    async def _find_room(self, peer: Peer, is_trusted: bool, options: FrontendOptions, *, is_short: bool) -> None:
        """As `_make_room`; who is no stranger waits a little for it, and those behind, in the listener's backlog, too.

        Raises: NoPlace.
        """
        try:
            self._make_room(peer, is_trusted, options, is_short=is_short)
        except NoPlace as refused:
            if refused.wait_ns is None:
                raise
            await trio.sleep(refused.wait_ns / 1e9)
            self._make_room(peer, is_trusted, options, is_short=is_short)

    def _make_room(self, peer: Peer, is_trusted: bool, options: FrontendOptions, *, is_short: bool = False) -> None:
        """See that there is a place among those that are not logged in, who make room if anything is short.

        They have at most half of the descriptors that connections have: the rest is for those who do log in.
        Raises: NoPlace.
        """
        places = options.half_open_max
        if options.descriptor_max is not None:
            places = min(places, max(options.descriptor_max // 2, 1))
        if is_short:
            places = min(places, len(self.half_open))
        lost = self.half_open.make_room(peer.origin, is_trusted=is_trusted, now_ns=_now_ns(), places=places)
        if lost is not None:
            self.endpoints.pop(lost, None)
            lost.make_room(f"{len(self.half_open) + 1} connections are not logged in, and this one made room")

    def _enter(self, endpoint: Endpoint, is_trusted: bool) -> None:
        self.half_open.enter(endpoint, endpoint.session.login.peer.origin, is_trusted=is_trusted, now_ns=_now_ns())

    def has_come_from(self, endpoint: Endpoint) -> None:
        """A proxy has said who it is: what it takes, it takes of that address's share. Raises: NoPlace."""
        self.half_open.leave(endpoint)
        peer = endpoint.session.login.peer
        self._make_room(peer, peer.is_loopback, endpoint.session.options)
        self._enter(endpoint, peer.is_loopback)

    def forget(self, endpoint: Endpoint) -> None:
        """A connection is over."""
        self.endpoints.pop(endpoint, None)
        self.half_open.leave(endpoint)
        if not self.endpoints and self.no_endpoints is not None:
            self.no_endpoints.set()

    async def stop(self, patience_s: float) -> None:
        """Say goodbye to all, and wait a little for their answers."""
        for endpoint in list(self.endpoints):
            endpoint.session.closing.stop()
        self.runtime.end_turn()
        if self.endpoints:
            self.no_endpoints = trio.Event()
            with trio.move_on_after(patience_s):
                await self.no_endpoints.wait()


def _now_ns() -> int:
    """Of the clock by which this room waits."""
    return int(trio.current_time() * 1e9)


#: How long a stopping broker waits for the last close-ok.
STOP_PATIENCE_S = 3.0


async def serve(
    runtime: Runtime,
    listeners: list[socket.socket],
    options: Callable[[], FrontendOptions] = FrontendOptions,
    *,
    tls_listeners: Sequence[socket.socket] = (),
    stopping: trio.Event,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve AMQP 0-9-1 on bound and listening sockets until `stopping` is set.

    On `tls_listeners` it is spoken over TLS; then there must be `options().tls`.
    This is what the entry point `amqp` in the group `leveret.frontends` names; see docs/frontends.md.
    """
    async with trio.open_nursery() as nursery:
        server = Server(runtime, options, nursery)
        async with trio.open_nursery() as accepting:
            for listener in (*listeners, *tls_listeners):
                listener.setblocking(False)
                accepting.start_soon(functools.partial(server.accept_from, listener, is_tls=listener in tls_listeners))
            task_status.started()
            await stopping.wait()
            accepting.cancel_scope.cancel()
        await server.stop(STOP_PATIENCE_S)
        nursery.cancel_scope.cancel()
