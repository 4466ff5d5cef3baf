"""Relays octets between two streams, both ways, and makes a socket of a stream for code that needs one."""

import socket

import trio

#: The most octets of one read.
RELAY_SIZE = 128 * 1024
#: Seconds for which one direction may continue when the other has ended on a stream that has no half-close, as TLS.
GRACE_S = 2.0


class Relaying:
    """A task to run (call it once), which relays between a stream and one socket of a pair. `close` it in any case."""

    def __init__(self, stream: trio.abc.Stream, theirs: socket.socket) -> None:
        self._stream = stream
        self._theirs = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))

    async def __call__(self) -> None:
        """Relay, then close the socket, so that the other socket of the pair reads an end also if the stream broke."""
        try:
            await relay(self._stream, self._theirs)
        finally:
            self.close()

    def close(self) -> None:
        """Close the socket, also if the task never ran. Idempotent."""
        self._theirs.socket.close()


def as_socket(stream: trio.abc.Stream) -> tuple[socket.socket, Relaying | None]:
    """A non-blocking socket in place of a stream, which must not be used after this. A plain stream gives up its own.

    For a stream with TLS it is one of a pair; the second value relays between the stream and the other one. The caller
    closes both.
    """
    if isinstance(stream, trio.SocketStream):
        own = socket.socket(fileno=stream.socket.detach())
        own.setblocking(False)
        return own, None
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return ours, Relaying(stream, theirs)


async def relay(one: trio.abc.Stream, other: trio.abc.Stream, *, first: bytes = b"", early: bytes = b"") -> None:
    """Relay in both directions until both have ended, or one broke. Plain sockets are closed then.

    Backpressure: a direction is read again only when the octets of its last read are sent. The end of one direction is
    passed on as a half-close, where the stream has that. first: octets already read from `one`; early: from `other`.
    """
    if isinstance(one, trio.SocketStream) and isinstance(other, trio.SocketStream):
        with as_socket(one)[0] as here, as_socket(other)[0] as there:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_relay_sockets, here, there, first, nursery.cancel_scope)
                nursery.start_soon(_relay_sockets, there, here, early, nursery.cancel_scope)
        return
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_relay_streams, one, other, first, nursery.cancel_scope)
        nursery.start_soon(_relay_streams, other, one, early, nursery.cancel_scope)


async def _relay_sockets(source: socket.socket, sink: socket.socket, data: bytes, scope: trio.CancelScope) -> None:
    """Relay one direction between sockets. Streams would be slower: they yield to the event loop after each send."""
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


async def _relay_streams(
    source: trio.abc.Stream, sink: trio.abc.Stream, data: bytes | bytearray, scope: trio.CancelScope
) -> None:
    """Relay one direction between streams, of which at least one has TLS."""
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
