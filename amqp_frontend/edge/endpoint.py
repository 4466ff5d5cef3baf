"""One accepted socket with its session, without a task switch for each message.

A connection is one task, and a turn one call: read, handle, end the turn, send. Turns are taken without the task (see
poller.py); it continues when a turn leaves work that has to wait. A turn sends all octets that it produced, also those
for other connections. A writer task exists only while a socket is full.
Source: performance page 4; ruling 4.
"""

import logging
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from ...engine import Broker, Queue
from ..flow.steps import Step
from ..flow.throttle import SLICE_S, throttle_wait_of
from ..peer.login import Peer
from ..peer.output import REPLIES_MAX
from ..session.handling import handle_bytes
from ..session.session import AmqpSession
from ..wire.large_body import LargeBody
from ..wire.large_output import Gathered
from ..wire.states import ConnectionState
from .admission import NoSlot
from .arrival import Arrival, TerminatedTls
from .introduction import note_tls, read_proxy_header, receive_some, shake_hands
from .proxy_protocol import ProxyFault, proxied
from .tls import PIECE, TlsFault, TlsTransport

if TYPE_CHECKING:
    from .server import Server

logger = logging.getLogger("leveret.amqp")

DONE, STALLED = Step.DONE, Step.STALLED

#: Octets of one read from a peer, and from one that sends large bodies.
READ_SIZE, LARGE_READ_SIZE = 128 * 1024, 512 * 1024
#: Linux: states (first octet of TCP_INFO) of a TCP connection that was reset, or whose other end has closed.
_CLOSED_BY_PEER = (7, 8)
#: Linux: octets in TCP_INFO that count what the peer has acknowledged, and what has come from it.
_TCP_COUNTS = slice(120, 136)
#: Seconds between two checks whether a peer that is not read is still connected.
CHECK_S = 5.0
#: SO_LINGER on, zero seconds: closing resets the connection.
_LINGER_NOTHING = struct.pack("ii", 1, 0)


class Pause(NamedTuple):
    """The reason why turns pause and the connection's task continues.

    is_unfinished: requests of the peer are not finished. is_stalled: too many answers are not sent yet. congested: the
    congested queue that the peer published into. is_end: the peer has ended the connection. is_suspended: the broker
    is suspended.
    """

    is_unfinished: bool = False
    is_stalled: bool = False
    congested: Queue | None = None
    is_end: bool = False
    is_suspended: bool = False


ENDED, SUSPENDED = Pause(is_end=True), Pause(is_suspended=True)


class Runtime(Protocol):
    """Services that a frontend gets from the composition root. Attributes: see serving/runtime.py."""

    broker: Broker
    suspended: trio.Event | None
    is_silent: bool
    has_resigned: bool
    on_suspend: list[Callable[[], object]]
    on_resign: list[Callable[[], object]]
    divert: Callable[[Arrival], object] | None
    check_standstill: Callable[[], object] | None

    def end_turn(self) -> None:
        """Dispatch and flush after a turn; unfinished work continues soon after."""

    async def wait_while_suspended(self) -> None:
        """Return when clients may be read and sent to."""


class Endpoint:
    """A socket and its session. `transport`: the socket itself, or TLS over it.

    `wait_readable`, `wait_writable` and `handle` can be replaced (the test broker).
    """

    __slots__ = ("_first", "_gathers", "_has_ended", "_is_proxied", "_moved", "_must_shake_hands", "_pending",
                 "_reads_directly", "_server", "_tls", "_writing", "drained", "scope", "session", "socket", "throttled",
                 "transport", "unblocked")  # fmt: skip

    def __init__(
        self, server: "Server", sock: socket.socket, peer: Peer, tls: TlsTransport | None, is_proxied: bool
    ) -> None:
        self._server = server
        self.socket = sock
        self._tls = tls
        self._is_proxied = is_proxied
        self._must_shake_hands, self._first = tls is not None, b""
        self.transport: socket.socket | TlsTransport = tls or sock
        self.session = self._make_session(peer)
        self.session.closing.on_login = self._answered
        self.scope = trio.CancelScope()
        self._pending: bytes | memoryview | Gathered | None = None  # output taken from the session, not sent yet
        self._gathers = tls is None and hasattr(sock, "sendmsg")
        self._reads_directly = tls is None and hasattr(sock, "recv_into")
        self._writing = False
        self.drained: trio.Event | None = None
        self.unblocked: trio.CancelScope | None = None
        self.throttled: trio.Event | None = None  # set while the peer is throttled by a congested queue
        self._has_ended = False
        self._moved: tuple[int, bytes | int] = (0, 0)  # see `_is_moving`

    wait_readable = staticmethod(trio.lowlevel.wait_readable)
    wait_writable = staticmethod(trio.lowlevel.wait_writable)
    handle = staticmethod(handle_bytes)

    def _make_session(self, peer: Peer) -> AmqpSession:
        return AmqpSession(self._server.runtime.broker, self._server.options(), peer, self.flush)

    def take_over(self, terminated: TerminatedTls) -> None:
        """Note that the peer's TLS ends elsewhere, or that its handshake is over: the next octets are AMQP."""
        self._must_shake_hands, self._first = False, terminated.first
        note_tls(self.session, terminated.protocol, terminated.cipher, terminated.certificate)

    def _answered(self, is_logged_in: bool) -> None:
        """Note that the peer has logged in, or was refused and stays connected for a while."""
        half_open = self._server.admission.half_open
        if is_logged_in:
            half_open.note_logged_in(self)
        else:
            half_open.note_refused(self)

    def flush(self) -> None:
        """Send as much as the kernel takes. Does not wait and does not raise."""
        session = self.session
        if not self._writing:
            try:
                if self._send_all():
                    session.output_sent()
                    # Answers that pile up wait for the disk, whose progress flushes again.
                    if self.drained is not None and not session.output.is_stalled:
                        self._continue_drained()
                else:
                    self._writing = True
                    self._server.nursery.start_soon(self._write)
            except Exception:
                # A broker error, perhaps in another connection's turn: this connection ends, the others continue.
                logger.exception("%s: internal error", session.login.peer.name)
                session.closing.abort = session.closing.finished = True
        if session.closing.finished and (session.closing.is_final or not self._writing):
            self.scope.cancel()
        if self.unblocked is not None and not self._must_wait():
            self.unblocked.cancel()
        if self.throttled is not None and session.connection.state is not ConnectionState.RUNNING:
            self.throttled.set()  # read the peer's close

    def _send_all(self) -> bool:
        """Send the pending octets, then the session's. Returns: whether all was sent; False: the socket is full."""
        while True:
            data = self._pending
            if data is None:
                out = self.session.take_output()
                if not out:
                    return True
                if self._gathers and self.session.output.is_large:
                    data = Gathered(out)
                else:
                    data = b"".join(out)
            rest: bytes | memoryview | Gathered | None = None
            try:
                connection_info = self.session.login.connection_info
                connection_info.writes += 1
                if isinstance(data, Gathered):
                    before = data.sent
                    try:
                        rest = None if data.send(self.socket) else data  # the unsent rest
                    finally:  # the kernel may take a part, and nothing more
                        connection_info.octets_out += data.sent - before
                else:
                    sent = self.transport.send(data)
                    connection_info.octets_out += sent
                    rest = memoryview(data)[sent:] if sent < len(data) else None
            except BlockingIOError:
                rest = data
            except OSError:
                self._pending = None  # the peer is gone; reading will fail too
                self.session.closing.finished = True
                return True
            if rest is not None:
                self._pending = rest
                return False
            if self._pending is None:
                return True
            self._pending = None

    def _continue_drained(self) -> None:
        """Continue the peer's unfinished work: the answers that had piled up are sent."""
        if self.drained is not None:
            self.drained.set()
            self.drained = None

    async def _write(self) -> None:
        """The writer task: send until the socket has taken all output."""
        session, runtime = self.session, self._server.runtime
        try:
            while self.socket.fileno() >= 0:  # the reader may have closed it before this task ran
                await self.wait_writable(self.socket)
                if runtime.check_standstill is not None:
                    runtime.check_standstill()
                if runtime.is_silent:
                    await runtime.wait_while_suspended()
                elif self._send_all():
                    break
        except (OSError, trio.ClosedResourceError):
            session.closing.finished = True
        except Exception:
            logger.exception("%s: internal error", session.login.peer.name)
            session.closing.abort = session.closing.finished = True
        self._writing = False
        self._continue_drained()
        if session.closing.finished:
            self.scope.cancel()
        else:
            session.output_sent()
            runtime.end_turn()

    def suspend(self) -> None:
        """Send nothing while the broker is suspended: the writer task waits. A turn checks for it before it reads."""
        if not self._writing:
            self._writing = True
            self._server.nursery.start_soon(self._write)

    def resign(self) -> None:
        """The broker has ended: drop its output, and send connection.close without its engine.

        If a frame was sent in part, the peer could not understand the close: its socket is closed at once.
        """
        session = self.session
        if self._pending is None:
            session.resign()
        else:
            session.detach()
            session.closing.abort = session.closing.finished = True
        self.flush()

    async def serve(self) -> None:
        """Read until the connection ends, for any reason, then clean up."""
        session = self.session
        try:
            with self.scope:
                await trio.lowlevel.checkpoint_if_cancelled()  # the connection may have lost its slot already
                await self._read()
        except NoSlot as refusal:
            logger.warning("%s: refused: %s", session.login.peer.name, refusal)
        except ProxyFault as fault:
            logger.warning("%s: refused: PROXY header: %s", session.login.peer.name, fault)
        except TlsFault as fault:
            logger.warning("%s: TLS: %s", session.login.peer.name, fault)
        except (OSError, trio.ClosedResourceError):
            pass
        except Exception:
            logger.exception("%s: internal error", session.login.peer.name)  # a broker error; others continue
        finally:
            try:
                session.handle_end()
                self._server.runtime.end_turn()
            except Exception:
                logger.exception("%s: internal error while cleaning up", session.login.peer.name)
            self.close()
            self._server.forget(self)

    async def _read(self) -> None:
        """Read and handle, turn after turn, until the peer is gone or the session has ended."""
        closing, runtime = self.session.closing, self._server.runtime
        data = await self._first_octets()
        await runtime.wait_while_suspended()
        pause = self._handle(data) if data and not closing.finished else None  # the broker may have ended meanwhile
        while not closing.finished:
            if pause is None:
                pause = await self._take_turns()
            if pause.is_suspended:
                await runtime.wait_while_suspended()
            elif pause.is_end:
                break
            elif not closing.finished:
                if pause.is_unfinished:
                    await self._catch_up(pause.is_stalled)
                    if self._has_ended:
                        break
                if pause.congested is not None:
                    await self._throttle_publisher(pause.congested)
            pause = None

    def _take_turns(self) -> Awaitable[Pause]:
        """Take a turn whenever the peer has sent octets, until one needs this task."""
        poller = self._server.poller  # awaited directly, because a coroutine in between takes 230 octets
        return self._turns_through_trio() if poller is None else poller.until(self.socket.fileno(), self._turn)

    async def _turns_through_trio(self) -> Pause:
        while True:
            await self.wait_readable(self.socket.fileno())
            if (pause := self._turn()) is not None:
                return pause

    def _turn(self) -> Pause | None:
        """Read once, handle it, end the broker's turn, send. Raises: OSError, TlsFault.

        Returns: the reason for the task to continue; None: wait for more octets.
        """
        runtime = self._server.runtime
        if runtime.check_standstill is not None:  # only at a node of a cluster
            runtime.check_standstill()
        if runtime.suspended is not None:
            return SUSPENDED
        large = self.session.connection.incomplete.direct
        try:
            if large is None or not self._reads_directly:
                data = self.transport.recv(READ_SIZE)
                if not data:
                    return ENDED
            elif (more := self._read_large(large)) is None:
                return ENDED
            else:
                data = more
        except BlockingIOError:
            return None
        return self._handle(data)

    def _handle(self, data: bytes) -> Pause | None:
        """Handle the octets of one read, end the broker's turn and send. Returns: as `_turn`."""
        session = self.session
        closing, output, journal = session.closing, session.output, session.journal
        connection_info = session.login.connection_info
        connection_info.octets_in += len(data)
        connection_info.reads += 1
        step = self.handle(session, data)
        congested = session.broker.context.turn.congested
        self._server.runtime.end_turn()  # sends the output of this and other connections
        is_stalled = step is STALLED or output.reply_size > REPLIES_MAX  # also if the answers are sent by now
        if output.parts or closing.finished:
            self.flush()
        is_unfinished = step is not DONE or is_stalled or (journal.has_published and journal.is_throttled)
        if is_unfinished or congested is not None or closing.finished:
            return Pause(is_unfinished, is_stalled, congested)
        return None

    def _read_large(self, large: LargeBody) -> bytes | None:
        """Read into the buffer of a large body, and when that is full, the octets after it.

        Returns: the octets after the body; None at the end of the stream. Raises: BlockingIOError, OSError.
        """
        room = large.room
        if not len(room):
            return self.transport.recv(READ_SIZE) or None
        count = self.socket.recv_into(room)
        large.filled += count
        self.session.login.connection_info.octets_in += count
        if count < len(room):
            return b"" if count else None
        try:
            return self.transport.recv(LARGE_READ_SIZE)
        except BlockingIOError:
            return b""

    async def _first_octets(self) -> bytes:
        """The first octets of AMQP, after a PROXY header and the TLS handshake; empty if none came with these.

        Raises: ProxyFault, TlsFault, NoSlot, OSError.
        """
        session, tls = self.session, self._tls if self._must_shake_hands else None
        data, self._first = self._first, b""
        if self._is_proxied:
            data = await self._read_proxy_header()
        while not data and not session.closing.finished:
            await self.wait_readable(self.socket.fileno())
            with suppress(BlockingIOError):
                data = self.transport.recv(READ_SIZE) if tls is None else self.socket.recv(PIECE)
                session.closing.finished |= not data  # a load balancer's health check; not logged
        if session.closing.finished:
            return b""
        session.heartbeat.has_received = True
        self._server.admission.half_open.note_begun(self)
        if tls is not None:
            data = await shake_hands(self.socket, tls, data, partial(receive_some, self.socket, self.wait_readable))
            note_tls(session, tls.protocol, tls.cipher, tls.certificate)
        return data

    async def _read_proxy_header(self) -> bytes:
        """Returns: the octets after the header."""
        header, data = await read_proxy_header(partial(receive_some, self.socket, self.wait_readable))
        if header is None:
            self.session.closing.finished = True  # as in `_first_octets`
            return b""
        login = self.session.login
        login.peer = proxied(login.peer, header)
        if header.source is not None:
            self._server.note_proxied(self)
        return data

    async def _catch_up(self, is_stalled: bool) -> None:
        """Finish the peer's requests before it is read again.

        is_stalled: answers have piled up. Otherwise the journal refuses or delays publishes, or the requests exceeded
        one turn.
        """
        session, runtime = self.session, self._server.runtime
        backlog, broker = session.backlog, session.broker.context
        while not session.closing.finished:
            if self._has_ended and backlog.parking.channels and not backlog.parking.waits_for_alarm:
                return  # the peer is gone: its parked publishes need not wait for room
            data = b""
            if is_stalled and (self._writing or session.journal.is_waiting):
                await self._wait_until_drained()
            elif not is_stalled and self._must_wait():
                data = await self._wait_until_unblocked()
            elif is_stalled or backlog.has_more:
                broker.interrupted += 1
                try:
                    await trio.lowlevel.checkpoint()  # lets other connections have a turn
                finally:
                    broker.interrupted -= 1
            else:
                return
            await runtime.wait_while_suspended()
            step = self.handle(session, data)
            runtime.end_turn()
            is_stalled = step is STALLED or session.output.is_stalled
            self.flush()

    async def _wait_until_drained(self) -> None:
        """Wait until the peer has taken its answers. It is not read meanwhile: octets that move show that it lives."""
        heartbeat = self.session.heartbeat
        self.drained = trio.Event()
        self._moved = self._count_moved()
        heartbeat.note_unread(self._is_moving)
        try:
            await self.drained.wait()
        finally:
            heartbeat.note_read()

    def _is_moving(self) -> bool:
        """Whether octets have moved on the connection since the last call, in either direction.

        Also if the answers wait for the journal: then the broker neither sends nor reads.
        """
        before, self._moved = self._moved, self._count_moved()
        return self._moved != before or self.session.journal.is_waiting

    def _count_moved(self) -> tuple[int, bytes | int]:
        """Counts that change when octets move: those sent, and those that the system has received and not delivered."""
        sock = self.socket
        counts: bytes | int = 0
        try:
            if sys.platform == "linux" and sock.family in (socket.AF_INET, socket.AF_INET6):
                counts = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_COUNTS.stop)[_TCP_COUNTS]
            else:
                counts = len(sock.recv(READ_SIZE, socket.MSG_PEEK))
        except OSError:
            pass  # nothing is unread; or the connection is gone, which sending notices
        return self.session.login.connection_info.octets_out, counts

    async def _throttle_publisher(self, queue: Queue) -> None:
        """Throttle a peer that published into a congested queue, until the queue has room, or its consumers no
        longer make any."""
        session = self.session
        wait = throttle_wait_of(queue, session.login.client)
        if wait is None:
            return
        try:
            while session.connection.state is ConnectionState.RUNNING:
                self.throttled = trio.Event()
                wait.begin_slice(self.throttled.set)
                with trio.move_on_after(SLICE_S):
                    await self.throttled.wait()
                if not wait.end_slice():
                    break
        finally:
            wait.end()
            self.throttled = None

    def _must_wait(self) -> bool:
        """Whether the peer's work cannot continue before the journal, a queue or an alarm allows it."""
        session = self.session
        backlog = session.backlog
        return session.journal.is_throttled or (backlog.is_waiting and not backlog.has_more)

    async def _wait_until_unblocked(self) -> bytes:
        """Wait until publishes are accepted again, or octets arrive. Returns: the octets."""
        backlog, journal = self.session.backlog, self.session.journal
        data = b""
        with trio.CancelScope() as self.unblocked:
            if backlog.parking.is_full and not self._has_ended:
                await self._wait_while_stalled()
            elif self._has_ended or backlog.unfinished is not None or journal.is_throttled:
                await trio.sleep_forever()
            else:
                await self.wait_readable(self.socket.fileno())
                try:
                    data = self.transport.recv(READ_SIZE)
                    self._has_ended = not data
                    connection_info = self.session.login.connection_info
                    connection_info.octets_in += len(data)
                    connection_info.reads += 1
                except BlockingIOError:
                    pass
        self.unblocked = None
        return data

    async def _wait_while_stalled(self) -> None:
        """Check every `CHECK_S` seconds whether a peer that is not read is still connected (queues page E.5, STALLED).

        Returns when it is disconnected. Publishes parked by an alarm are nevertheless published after the alarm.
        """
        while True:
            with trio.move_on_after(CHECK_S):
                await trio.sleep_forever()
            if not self.session.backlog.parking.waits_for_alarm and self._is_disconnected():
                self._has_ended = self.session.closing.finished = True
                return

    def _is_disconnected(self) -> bool:
        """Whether the peer is gone. Without TCP_INFO, its close shows only if it has no unread octets before it."""
        sock = self.socket
        try:
            if hasattr(socket, "TCP_INFO") and sock.family in (socket.AF_INET, socket.AF_INET6):
                return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in _CLOSED_BY_PEER
            return not sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def make_room(self, why: str) -> None:
        """Close the socket at once, because another connection needs its slot."""
        self.session.closing.give_up(f"dropped: {why}")
        self.close()
        self.scope.cancel()

    def close(self) -> None:
        """Close the socket, if it is still open."""
        if self.socket.fileno() < 0:
            return
        try:
            if self.session.closing.abort:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOTHING)
            elif self._tls is not None:
                self._tls.answer_close()
            trio.lowlevel.notify_closing(self.socket)
            if self._server.poller is not None:
                self._server.poller.forget(self.socket.fileno())
            self.socket.close()
        except OSError:
            pass
