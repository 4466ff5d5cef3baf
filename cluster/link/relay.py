"""Octets from one stream to another, both ways; and a stream as a socket for what uses no stream."""

import socket
from collections.abc import Awaitable, Callable
from functools import partial

import trio

#: Octets of one read.
RELAY_SIZE = 128 * 1024
#: Seconds for which the other direction may go on when one has ended and cannot say so (TLS has no half of a close).
GRACE_S = 2.0


def as_socket(stream: trio.abc.Stream) -> tuple[socket.socket, Callable[[], Awaitable[None]] | None]:
    """A stream's own socket, which it gives up; or one of a pair, and what passes octets between the other and a stream
    with TLS, for a task. The socket does not block.
    """
    if isinstance(stream, trio.SocketStream):
        own = socket.socket(fileno=stream.socket.detach())
        own.setblocking(False)
        return own, None
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return ours, partial(_relay_and_close, stream, trio.SocketStream(trio.socket.from_stdlib_socket(theirs)))


async def _relay_and_close(stream: trio.abc.Stream, theirs: trio.SocketStream) -> None:
    """Relay; then the user of the other socket of the pair reads the end, also when the stream broke."""
    try:
        await relay(stream, theirs)
    finally:
        theirs.socket.close()


async def relay(one: trio.abc.Stream, other: trio.abc.Stream, *, first: bytes = b"", early: bytes = b"") -> None:
    """Pass octets in both directions until both have ended, or one broke; then sockets without TLS are closed.

    Backpressure: no direction is read before the octets of the last read are taken. The end of one direction is passed
    on as such, if the stream has halves. first: octets already read of `one`; early: of `other`.
    """
    if isinstance(one, trio.SocketStream) and isinstance(other, trio.SocketStream):
        with as_socket(one)[0] as here, as_socket(other)[0] as there:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_pass_on, here, there, first, nursery.cancel_scope)
                nursery.start_soon(_pass_on, there, here, early, nursery.cancel_scope)
        return
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_pass_octets, one, other, first, nursery.cancel_scope)
        nursery.start_soon(_pass_octets, other, one, early, nursery.cancel_scope)


async def _pass_on(source: socket.socket, sink: socket.socket, data: bytes, scope: trio.CancelScope) -> None:
    """Pass octets on without streams: they try before they wait, and go round the event loop after each send."""
    try:
        while True:
            while data:
                try:
                    data = data[sink.send(data) :]
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(sink)
            await trio.lowlevel.wait_readable(source)
            try:
                data = source.recv(RELAY_SIZE)
            except BlockingIOError:
                continue
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
    except OSError:
        scope.cancel()


async def _pass_octets(
    source: trio.abc.Stream, sink: trio.abc.Stream, data: bytes | bytearray, scope: trio.CancelScope
) -> None:
    """Pass octets on if one of the streams speaks TLS."""
    try:
        if data:
            await sink.send_all(data)
        while data := await source.receive_some(RELAY_SIZE):
            await sink.send_all(data)
        if isinstance(sink, trio.abc.HalfCloseableStream):
            await sink.send_eof()
        else:
            scope.deadline = min(scope.deadline, trio.current_time() + GRACE_S)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        scope.cancel()
