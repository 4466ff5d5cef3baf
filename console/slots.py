"""Slots for connections of one kind of listener. A newcomer may take the slot of a waiting connection. Pure.

A waiting connection costs only a socket, so the oldest one is closed for a newcomer: one of the newcomer's own address
if that has used its share, otherwise one of the address with the most. Connections that are served or stream keep their
slots; they are few. Source: management page 20.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class NoSlot(Exception):
    """No slot is free, and none can be taken; the message is for the log."""


class Slot:
    """The slot of one connection. `end`: closes the connection when another one takes the slot."""

    __slots__ = ("_slots", "end", "origin")

    def __init__(self, slots: "Slots", origin: str, end: Callable[[], None]) -> None:
        self._slots = slots
        self.origin = origin
        self.end = end

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Keep the slot while the connection is served."""
        self._slots.move(self, is_waiting=False)
        try:
            yield
        finally:
            self._slots.move(self, is_waiting=True)

    def leave(self) -> None:
        """The connection has ended. Idempotent."""
        self._slots.forget(self)


class Slots:
    """All slots. `share`: maximum of one address, except for this machine and listed proxies."""

    def __init__(self, share: int) -> None:
        self._share = share
        self._waiting: dict[Slot, None] = {}  # in the order in which they began to wait
        self._working: dict[Slot, None] = {}

    def enter(self, origin: str, end: Callable[[], None], *, slots: int, is_shared: bool) -> Slot:
        """A slot for a newcomer, possibly taken from another connection. `is_shared`: many clients use this address.

        Raises: NoSlot.
        """
        everybody = [*self._waiting, *self._working]
        mine = sum(one.origin == origin for one in everybody)
        if mine >= self._share and not is_shared:
            self._take(origin, f"{mine} connections from {origin} are at work")
        elif len(everybody) >= slots:
            counts: dict[str, int] = {}
            for one in self._waiting:
                counts[one.origin] = counts.get(one.origin, 0) + 1
            self._take(max(counts, key=counts.__getitem__, default=""), f"{len(everybody)} connections are at work")
        slot = Slot(self, origin, end)
        self._waiting[slot] = None
        return slot

    def _take(self, origin: str, why: str) -> None:
        oldest = next((one for one in self._waiting if one.origin == origin), None)
        if oldest is None:
            raise NoSlot(why)
        del self._waiting[oldest]
        oldest.end()

    def move(self, slot: Slot, *, is_waiting: bool) -> None:
        """The connection begins to wait, or to be served. Ignored if it has lost its slot."""
        here, there = (self._working, self._waiting) if is_waiting else (self._waiting, self._working)
        if slot in here:
            del here[slot]
            there[slot] = None

    def forget(self, slot: Slot) -> None:
        """Remove a connection that has ended. Idempotent."""
        self._waiting.pop(slot, None)
        self._working.pop(slot, None)
