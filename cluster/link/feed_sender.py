"""Sends a follower what its feed has in memory: at once, in the calling thread, as much as the socket accepts.

So a block of the journal is sent by the thread that wrote it, before its fsync. If a task of the event loop sent it,
that would cost more, and be later. The link's task sends what the socket does not accept, and what has to be read from
files.
"""

import socket
import threading
from collections.abc import Callable, Sequence
from enum import Enum, auto

from .feed import Feed, Position
from .frames import Needs, Unlink, encode


class Pending(Enum):
    """What the link's task has to do next."""

    NOTHING = auto()
    SOCKET = auto()  # wait until the socket is writable
    FILES = auto()  # read octets from the files
    LOST = auto()  # end the link: the connection is lost


class FeedSender:
    """Sends a feed to a follower's socket. `wake`: called, in any thread, when the link's task has to act.

    Any thread may call the methods. None of them waits for the follower.
    """

    def __init__(self, sock: socket.socket, feed: Feed, wake: Callable[[], object], first: bytes) -> None:
        self._socket = sock
        self._feed = feed
        self._wake = wake
        self._lock = threading.Lock()  # of all below, and of the feed
        self._unsent: list[bytes | memoryview] = [first]  # is sent before everything else
        self._beacon = b""  # the newest one, if it is not sent yet
        self._pending = Pending.NOTHING
        self.sent = 0  # octets

    def written(self, base_lsn: int, offset: int, octets: bytes | bytearray | memoryview) -> None:
        """Send octets that the journal's writer appended."""
        with self._lock:
            self._feed.written(base_lsn, offset, octets)
            self._send()

    def put(self, message: Unlink | Needs) -> None:
        """Send `Unlink` as `Feed.put` says, and `Needs` before all octets that are written later."""
        with self._lock:
            if isinstance(message, Needs):
                self._unsent.append(encode(message))  # behind the feed, octets from the files could overtake it
            else:
                self._feed.put(message)
            self._send()

    def beacon(self, octets: bytes, orders: bytes = b"") -> None:
        """Send a beacon and, behind it, orders. It replaces a beacon that is not sent yet."""
        with self._lock:
            self._beacon = octets
            if orders:
                self._unsent += (octets, orders)
                self._beacon = b""
            self._send()

    def skip_to(self, tail: Position) -> None:
        """See `Feed.skip_to`."""
        with self._lock:
            self._feed.skip_to(tail)

    def was_read(self, end: Position, frames: bytes) -> None:
        """Send frames with the octets up to `end`, which were read from the files."""
        with self._lock:
            self._feed.was_read(end)
            self._unsent.append(frames)

    def send_pending(self) -> tuple[Pending, tuple[Position, Position] | None]:
        """Send what can be sent. Returns what the link's task has to do, and the range that it has to read."""
        with self._lock:
            if self._pending is not Pending.LOST:
                self._pending = Pending.NOTHING
                self._send(is_task=True)
            return self._pending, self._feed.to_read

    def close(self) -> None:
        """Send nothing more, and close the socket."""
        with self._lock:
            self._pending = Pending.LOST
            self._socket.close()

    def _send(self, *, is_task: bool = False) -> None:
        if self._pending is not Pending.NOTHING:
            return  # the link's task sends
        self._pending = self._send_on()
        if self._pending is not Pending.NOTHING and not is_task:
            self._wake()

    def _send_on(self) -> Pending:
        """Send until nothing is left, or the link's task has to act."""
        while True:
            parts = self._unsent
            if not parts and self._beacon:
                parts, self._beacon = [self._beacon], b""
            if not parts:
                parts = self._feed.take_frames()
            if not parts:
                return Pending.NOTHING if self._feed.to_read is None else Pending.FILES
            try:
                sent = self._socket.sendmsg(parts)
                self.sent += sent
                self._unsent = _behind(parts, sent)
            except BlockingIOError:
                self._unsent = parts
            except OSError:
                return Pending.LOST
            if self._unsent:
                return Pending.SOCKET


def _behind(parts: Sequence[bytes | memoryview], sent: int) -> list[bytes | memoryview]:
    """The parts without their first `sent` octets."""
    for index, part in enumerate(parts):
        if sent < len(part):
            return [memoryview(part)[sent:], *parts[index + 1 :]]
        sent -= len(part)
    return []
