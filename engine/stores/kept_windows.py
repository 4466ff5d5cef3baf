"""What is read back of a non-destructive queue: a window for each consumer, and one for what leaves at the head.

Together they take no more than their share, but for one message each. Source: queues page, F.2 and F.7.
"""

from collections.abc import Sequence
from typing import Protocol

from ..messages.message import Message
from .paged_places import PagedPlaces
from .paged_run import messages_of
from .surroundings import Storage

#: What a window takes from the journal at once.
WINDOW_MESSAGES, WINDOW_OCTETS = 1000, 1024 * 1024


class Reader(Protocol):
    """A consumer. Hashable."""

    def credit(self) -> int:
        """How many messages it may be handed now; 0 or less means none."""


class Window:
    """Messages by id, and the octets of their blobs."""

    __slots__ = ("messages", "octets")

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = {message.id: message for message in messages}
        self.octets = sum(len(message.blob) for message in messages)


class Windows:
    """By reader; None: the head. Messages are shared: what is handed out is a copy."""

    __slots__ = ("_storage", "_windows")

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._windows: dict[Reader | None, Window] = {}

    @property
    def octets(self) -> int:
        """What they take. O(windows)."""
        return sum({id(window): window.octets for window in self._windows.values()}.values())

    def find(self, reader: Reader | None, id_: int) -> Message | None:
        """A message that was read back for this reader."""
        window = self._windows.get(reader)
        return None if window is None else window.messages.get(id_)

    def all(self, reader: Reader | None) -> list[Message]:
        """All that was read back for this reader, ids rising."""
        window = self._windows.get(reader)
        return [] if window is None else list(window.messages.values())

    def forget(self, reader: Reader | None) -> None:
        """It wants nothing that only the journal has."""
        self._windows.pop(reader, None)

    def clear(self) -> None:
        """What was read back is gone from the queue."""
        self._windows.clear()

    def fill(self, reader: Reader | None, places: PagedPlaces, id_: int, count: int = WINDOW_MESSAGES) -> None:
        """Read up to `count` of the messages behind `id_` back, unless another reader has them. Raises: Unreadable."""
        pager = self._storage.pager
        assert pager is not None
        self._windows.pop(reader, None)
        next_ids = places.after(id_, 1)
        if not next_ids:
            return
        for window in self._windows.values():
            if next_ids[0] in window.messages:
                self._windows[reader] = window
                return
        share = pager.budget() // 2  # the other half is for what never left memory
        if self.octets + WINDOW_OCTETS > share:
            for other in [one for one in self._windows if one is None or one.credit() <= 0]:
                del self._windows[other]
        octets = min(WINDOW_OCTETS, share - self.octets)
        ids = places.after(id_, count, octets)
        self._windows[reader] = Window(messages_of(ids, pager.load(ids)))
