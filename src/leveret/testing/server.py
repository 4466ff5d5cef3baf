"""The AMQP frontend of the test broker: the broker's own sessions, with hooks for faults and recordings.

A fault gets protocol events before the session (`on_event`), confirms before they are written (`on_confirms`), octets
before they are sent (`on_send`). It can also forbid, limit and delay the reads and writes of an endpoint.
"""

import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import trio
from pamqp import commands

from ..amqp_frontend.edge.arrival import Arrival
from ..amqp_frontend.edge.endpoint import Endpoint
from ..amqp_frontend.edge.server import Server
from ..amqp_frontend.edge.tls import TlsTransport
from ..amqp_frontend.flow.steps import Step
from ..amqp_frontend.options import FrontendOptions
from ..amqp_frontend.peer.channel import Channel
from ..amqp_frontend.peer.login import Peer
from ..amqp_frontend.session.confirming import Confirming
from ..amqp_frontend.session.handling import handle_bytes
from ..amqp_frontend.session.session import AmqpSession, generated_name
from ..amqp_frontend.wire.events import AcksReceived, MixedReceived, ProtocolEvent, PublishReceived
from ..amqp_frontend.wire.frames import Connection
from ..amqp_frontend.wire.layout import FRAME_OVERHEAD, PROTOCOL_HEADER
from ..amqp_frontend.wire.states import ChannelState
from ..engine import Client, Clock, Deadlines, Queue, SessionFailed, errors

if TYPE_CHECKING:
    from .runtime import WatchedRuntime

logger = logging.getLogger("leveret.testing")

#: (tag, multiple, is_ack) of each confirm.
Confirms = list[tuple[int, bool, bool]]

#: Maximum seconds in which a stopping test broker waits for close-ok: many clients of tests have ended or do not read.
STOP_TIMEOUT_S = 0.3


class WatchedConnection(Connection):
    """A frame reader that passes events to the faults in force."""

    __slots__ = ("_endpoint",)

    def __init__(self, endpoint: "WatchedEndpoint") -> None:
        super().__init__()
        self._endpoint = endpoint

    def events(self) -> Iterator[ProtocolEvent]:
        """See `Connection`. While faults that use hooks are in force, runs are split into events of one message."""
        endpoint = self._endpoint
        faults = endpoint.runtime.faults
        for event in super().events():
            if not faults:
                yield event
                continue
            for one in single_events(event):
                kept = faults.on_event(endpoint, one)
                if kept is not None:
                    yield kept


class WatchedConfirming(Confirming):
    """Confirms that are passed to the faults in force."""

    #: Set when the session is complete; None after its end.
    endpoint: "WatchedEndpoint | None" = None

    def send_due(self) -> None:
        endpoint = self.endpoint
        if endpoint is None or not endpoint.runtime.faults:
            super().send_due()
            return
        for channel in self.channels:
            confirms = channel.session.confirms
            if confirms is not None and channel.state is ChannelState.OPEN:
                self.send(channel, endpoint.runtime.faults.on_confirms(endpoint, channel, confirms.take()))
        self.channels.clear()


class WatchedSession(AmqpSession):
    """A session that passes events and confirms to the faults in force."""

    confirming_type = WatchedConfirming

    def __init__(
        self,
        endpoint: "WatchedEndpoint",
        options: FrontendOptions,
        peer: Peer,
        *,
        clock: Clock | None,
        deadlines: Deadlines | None,
    ) -> None:
        super().__init__(
            endpoint.runtime.broker,
            options,
            peer,
            endpoint.flush,
            clock=clock,
            deadlines=deadlines,
            connection=WatchedConnection(endpoint),
        )
        self._watch(endpoint)
        if endpoint.runtime.clock.is_virtual:
            self.output.on_session_failed = self._session_failed

    def _watch(self, endpoint: "WatchedEndpoint | None") -> None:
        self.endpoint = endpoint
        assert isinstance(self.confirming, WatchedConfirming)
        self.confirming.endpoint = endpoint

    def _session_failed(self, effect: SessionFailed) -> None:
        if isinstance(effect.error, errors.AcknowledgementTimedOut) and self.endpoint is not None:
            logger.warning(
                "virtual time was moved past the consumer time-out (%g s) of %s: it holds a delivery that it has not "
                "settled, and its channel is closed; settle it before, or set consumer-timeout = -1 in [broker]",
                effect.error.timeout_ms / 1000,
                self.endpoint.name,
            )
        self.closing.session_failed(effect)

    def make_name(self, prefix: str) -> str:
        name = generated_name(prefix)
        if self.endpoint is not None and self.endpoint.runtime.tap is not None:
            self.endpoint.runtime.tap.named(self, name)
        return name

    def handle_end(self) -> None:
        """See `AmqpSession`. Breaks reference cycles."""
        super().handle_end()
        self._watch(None)


class WatchedSocket:
    """A socket that counts reads and writes, and passes them to the faults in force."""

    def __init__(self, sock: socket.socket, runtime: "WatchedRuntime") -> None:
        self._socket = sock
        self._runtime = runtime
        self.endpoint: WatchedEndpoint | None = None

    @property
    def family(self) -> int:
        return self._socket.family

    def fileno(self) -> int:
        return self._socket.fileno()

    def recv(self, size: int, flags: int = 0) -> bytes:
        """See `socket.socket`. With flags it only looks at octets: no fault applies."""
        if flags:
            return self._socket.recv(size, flags)
        runtime = self._runtime
        runtime.note_activity()
        if runtime.faults and self.endpoint is not None:
            size = runtime.faults.read_size(self.endpoint, size)
        return self._socket.recv(size)

    def send(self, data: bytes | memoryview) -> int:
        """See `socket.socket`. A fault may send a part only, and end the connection after it (ECONNRESET)."""
        runtime = self._runtime
        allowed, is_last = len(data), False
        if runtime.faults and self.endpoint is not None:
            allowed, is_last = runtime.faults.on_send(self.endpoint, data)
            if not allowed and not is_last:
                raise BlockingIOError
        sent = self._socket.send(memoryview(data)[:allowed]) if allowed else 0
        runtime.note_sent()
        if is_last:
            raise ConnectionResetError(errno.ECONNRESET, "cut off by a fault")
        return sent

    def getsockopt(self, level: int, option: int, size: int = 0) -> int | bytes:
        return self._socket.getsockopt(level, option, size)

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        self._socket.setsockopt(level, option, value)

    def close(self) -> None:
        self._runtime.note_activity()
        self._socket.close()


class WatchedEndpoint(Endpoint):
    """One accepted connection of the test broker."""

    __slots__ = ("runtime", "number", "tapped")

    def __init__(
        self, server: "WatchedServer", sock: socket.socket, peer: Peer, tls: TlsTransport | None, is_proxied: bool
    ) -> None:
        self.runtime = server.runtime
        self.number = server.next_number()
        self.tapped = b""  # the handshake so far, for a recording
        watched = WatchedSocket(sock, self.runtime)
        super().__init__(server, cast(socket.socket, watched), peer, tls, is_proxied)
        watched.endpoint = self

    def _make_session(self, peer: Peer) -> AmqpSession:
        runtime = self.runtime
        is_real = not (runtime.clock.is_virtual and runtime.options.virtual_heartbeats)
        return WatchedSession(
            self,
            self._server.options(),
            peer,
            clock=runtime.system_clock if is_real else None,
            deadlines=runtime.system_deadlines if is_real else None,
        )

    @property
    def client(self) -> Client | None:
        """The engine's client; None: before the login, or after the client's end."""
        client = self.session.login.client
        return None if client is None or client.closed else client

    @property
    def name(self) -> str:
        """The name that the client gave its connection, or its remote address."""
        given = self.session.login.client_properties.get("connection_name")
        return str(given.text) if given is not None and isinstance(given.value, bytes) else self.session.login.peer.name

    @property
    def is_sending(self) -> bool:
        """Whether octets wait for the socket."""
        return self._writing

    def open_channels(self) -> list[Channel]:
        """The open channels, by number."""
        channels = self.session.connection.channels
        found = (channels[number] for number in sorted(channels))
        return [one for one in found if isinstance(one, Channel) and one.state is ChannelState.OPEN]

    def abort(self) -> None:
        """Reset the connection without a closing handshake."""
        self.session.closing.abort = self.session.closing.finished = True
        self.scope.cancel()

    # -- overrides for faults and recordings ------------------------------------------------------------------------

    async def wait_readable(self, fd: int) -> None:  # type: ignore[override]
        """Wait until the socket is readable and no fault forbids to read."""
        faults = self.runtime.faults
        await self._wait(partial(trio.lowlevel.wait_readable, fd), faults.may_read, faults.read_delay_s)

    async def wait_writable(self, sock: socket.socket) -> None:  # type: ignore[override]
        """Wait until the socket is writable and no fault forbids to write."""
        faults = self.runtime.faults
        await self._wait(partial(trio.lowlevel.wait_writable, sock), faults.may_write, faults.write_delay_s)

    async def _wait(
        self,
        wait: Callable[[], Awaitable[None]],
        may: Callable[["WatchedEndpoint"], bool],
        delay_s: Callable[["WatchedEndpoint"], float],
    ) -> None:
        faults = self.runtime.faults
        while True:
            while faults and not may(self):
                await faults.changed()
            await wait()
            if not faults:
                return
            if may(self):
                if (pause_s := delay_s(self)) > 0:
                    await trio.sleep(pause_s)
                return

    async def _throttle_publisher(self, queue: Queue) -> None:
        """No effect: a test broker is quiet (clock.py) only when it has read all input of clients."""

    def handle(self, session: AmqpSession, data: bytes) -> Step:
        """Handle the data of one read."""
        tap = self.runtime.tap
        if tap is None or not data:
            return handle_bytes(session, data)
        was_open = session.login.client is not None
        if was_open:
            tap.received(session, data)
        else:
            self.tapped += data
        step = handle_bytes(session, data)
        if not was_open and session.login.client is not None:
            tap.opened(session)
            rest, self.tapped = input_after_open(self.tapped), b""
            if rest:
                tap.received(session, rest)
        return step


class WatchedServer(Server):
    """The listener and the connections of a test broker. The listener can be removed and replaced."""

    endpoint_type = WatchedEndpoint  # type: ignore[assignment]
    runtime: "WatchedRuntime"

    def __init__(
        self, runtime: "WatchedRuntime", options: Callable[[], FrontendOptions], nursery: trio.Nursery
    ) -> None:
        super().__init__(runtime, options, nursery)
        self.endpoints: dict[WatchedEndpoint, None] = {}  # type: ignore[assignment]
        self._accepting: trio.CancelScope | None = None
        self._number = 0

    def next_number(self) -> int:
        """The next number of a connection, from 1."""
        self._number += 1
        return self._number

    def listen(self, listener: socket.socket) -> None:
        """Accept connections from this listener."""
        listener.setblocking(False)
        self._accepting = trio.CancelScope()
        self.nursery.start_soon(self._accept, listener, self._accepting)

    def stop_listening(self) -> None:
        """Stop accepting."""
        if self._accepting is not None:
            self._accepting.cancel()
            self._accepting = None

    async def _accept(self, listener: socket.socket, scope: trio.CancelScope) -> None:
        with scope:
            try:
                await self.accept_from(listener, is_tls=False)
            except trio.ClosedResourceError:
                pass  # removed by a fault

    async def _accepted(self, arrival: Arrival) -> None:
        self.runtime.note_activity()
        await super()._accepted(arrival)

    def forget(self, endpoint: Endpoint) -> None:
        self.runtime.note_activity()
        if self.runtime.tap is not None:
            self.runtime.tap.closed(endpoint.session)
        super().forget(endpoint)

    def drop_all(self) -> None:
        """Reset every connection, logged in or not."""
        for endpoint in list(self.endpoints):
            endpoint.abort()
        self.endpoints.clear()

    async def close_all(self) -> None:
        """Close as a stopping broker does: connection.close 320, and a short wait for the answers.

        A connection to which a fault forbids to write is reset at once.
        """
        for endpoint in list(self.endpoints):
            if not self.runtime.faults.may_write(endpoint):
                endpoint.abort()
        await self.stop(STOP_TIMEOUT_S)
        self.drop_all()


def single_events(event: ProtocolEvent) -> Iterator[ProtocolEvent]:
    """A run of publishes or acks as events of one message each."""
    if isinstance(event, MixedReceived):
        for kind, content in zip(event.kinds, event.contents):
            yield PublishReceived(event.channel, kind, [content])
    elif isinstance(event, PublishReceived) and len(event.contents) > 1:
        for content in event.contents:
            yield PublishReceived(event.channel, event.kind, [content])
    elif isinstance(event, AcksReceived) and len(event.tags) + len(event.up_to) > 1:
        for tag in event.tags:
            yield AcksReceived(event.channel, [tag], [])
        for tag in event.up_to:
            yield AcksReceived(event.channel, [], [tag])
    else:
        yield event


def frames_of(data: bytes | memoryview) -> Iterator[tuple[int, int, int]]:
    """(offset, offset of its end, method index or -1) of each frame whose head is in the data, whole or not."""
    position = 0
    while position + FRAME_OVERHEAD <= len(data):
        end = position + FRAME_OVERHEAD + int.from_bytes(data[position + 3 : position + 7], "big")
        is_method = data[position] == 1
        yield position, end, int.from_bytes(data[position + 7 : position + 11], "big") if is_method else -1
        position = end


def input_after_open(handshake: bytes) -> bytes:
    """The input after a client's connection.open."""
    rest = handshake[len(PROTOCOL_HEADER) :]
    return next((rest[end:] for _, end, index in frames_of(rest) if index == commands.Connection.Open.index), b"")
