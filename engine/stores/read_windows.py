"""The windows of a `Log`: paged-out messages that were read back for each consumer.

Those of one log together stay within its share of memory, but each may have one message. Source: queues page, F.2, F.7.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from ..messages.message import Message
from .storage import Storage

#: Maximum messages, and octets, of a window.
WINDOW_MESSAGES, WINDOW_OCTETS = 1000, 1024 * 1024


class Reader(Protocol):
    """A consumer. Hashable."""

    def credit(self) -> int:
        """The number of messages that may be delivered to it now; none if 0 or below."""


class Scanning:
    """The reader of all scans. It has no credit, so its window may be dropped for others."""

    def credit(self) -> int:
        return 0


SCANNING = Scanning()


class Window:
    """Messages by position, in order, with the octets of their contents."""

    __slots__ = ("messages", "octets")

    def __init__(self, messages: Mapping[int, Message]) -> None:
        self.messages = messages
        self.octets = sum(len(message.content) for message in messages.values())


class ReadWindows:
    """The windows by reader. The reader None reads at the head. Readers may share a window, because they get copies."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._windows: dict[Reader | None, Window] = {}

    @property
    def octets(self) -> int:
        """Octets of all windows. O(windows)."""
        return sum({id(window): window.octets for window in self._windows.values()}.values())

    def find(self, reader: Reader | None, position: int) -> Message | None:
        """The message at a position in this reader's window; None: it is not there."""
        window = self._windows.get(reader)
        return None if window is None else window.messages.get(position)

    def find_run(self, reader: Reader | None, position: int, count: int) -> list[Message]:
        """Up to `count` messages at consecutive positions in this reader's window."""
        window = self._windows.get(reader)
        found: list[Message] = []
        if window is not None:
            for at in range(position, position + count):
                message = window.messages.get(at)
                if message is None:
                    break
                found.append(message)
        return found

    def all(self, reader: Reader | None) -> list[Message]:
        """All messages in this reader's window, in order."""
        window = self._windows.get(reader)
        return [] if window is None else list(window.messages.values())

    def forget(self, reader: Reader | None) -> None:
        self._windows.pop(reader, None)

    def clear(self) -> None:
        self._windows.clear()

    def fill(self, reader: Reader | None, position: int, read: Callable[[int, int], Mapping[int, Message]]) -> None:
        """Fill a reader's window, beginning with the message at a position, or share a window that has this message.

        `read(count, octets)`: reads this message and later ones, up to these limits. Raises: Unreadable.
        """
        pager = self._storage.pager
        assert pager is not None
        self._windows.pop(reader, None)
        for window in self._windows.values():
            if position in window.messages:
                self._windows[reader] = window
                return
        share = pager.budget() // 2  # messages in memory have the other half
        if self.octets + WINDOW_OCTETS > share:
            for other in [one for one in self._windows if one is None or one.credit() <= 0]:
                del self._windows[other]
        self._windows[reader] = Window(read(WINDOW_MESSAGES, min(WINDOW_OCTETS, share - self.octets)))
