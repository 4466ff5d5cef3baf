"""The windows of a non-destructive queue: messages read back for each consumer, and one window for the head.

Together they stay within their share of memory, except that each may have one message. Source: queues page, F.2, F.7.
"""

from collections.abc import Sequence
from typing import Protocol

from ..messages.message import Message
from .paged_index import PagedIndex
from .paged_run import messages_of
from .storage import Storage

#: Maximum messages, and octets, of a window.
WINDOW_MESSAGES, WINDOW_OCTETS = 1000, 1024 * 1024


class Reader(Protocol):
    """A consumer. Hashable."""

    def credit(self) -> int:
        """The number of messages that may be delivered to it now; 0 or less: none."""


class Scanning:
    """The reader of all scans. Without credit, its window is the first to be dropped."""

    __slots__ = ()

    def credit(self) -> int:
        return 0


SCANNING = Scanning()


class Window:
    """Messages by id, with the octets of their contents."""

    __slots__ = ("messages", "octets")

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = {message.id: message for message in messages}
        self.octets = sum(len(message.content) for message in messages)


class ReadWindows:
    """The windows by reader; None: the head. Readers may share a window, so messages are delivered as copies."""

    __slots__ = ("_storage", "_windows")

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._windows: dict[Reader | None, Window] = {}

    @property
    def octets(self) -> int:
        """Octets of all windows. O(windows)."""
        return sum({id(window): window.octets for window in self._windows.values()}.values())

    def find(self, reader: Reader | None, id_: int) -> Message | None:
        """A message in this reader's window; None: it is not there."""
        window = self._windows.get(reader)
        return None if window is None else window.messages.get(id_)

    def all(self, reader: Reader | None) -> list[Message]:
        """All messages in this reader's window, ids rising."""
        window = self._windows.get(reader)
        return [] if window is None else list(window.messages.values())

    def forget(self, reader: Reader | None) -> None:
        """Drop the window of a reader, if it has one."""
        self._windows.pop(reader, None)

    def clear(self) -> None:
        """Drop all windows."""
        self._windows.clear()

    def fill(self, reader: Reader | None, paged_index: PagedIndex, id_: int, count: int = WINDOW_MESSAGES) -> None:
        """Fill a reader's window with up to `count` messages after `id_`, or share the window of another reader.

        Raises: Unreadable.
        """
        pager = self._storage.pager
        assert pager is not None
        self._windows.pop(reader, None)
        next_ids = paged_index.after(id_, 1)
        if not next_ids:
            return
        for window in self._windows.values():
            if next_ids[0] in window.messages:
                self._windows[reader] = window
                return
        share = pager.budget() // 2  # messages that never left memory have the other half
        if self.octets + WINDOW_OCTETS > share:
            for other in [one for one in self._windows if one is None or one.credit() <= 0]:
                del self._windows[other]
        octets = min(WINDOW_OCTETS, share - self.octets)
        ids = paged_index.after(id_, count, octets)
        self._windows[reader] = Window(messages_of(ids, pager.load(ids)))
