"""Limits the connections of one kind of listener: those of each address, and those of all addresses together.

A new connection from an address that has used up its share takes the slot of an idle connection of that address. Else,
if no slot is free, it takes one of the address with the most idle connections. Of the connections of that address the
one that has been idle longest loses its slot.
Connections that are served, or stream, keep their slots. Source: management page 20.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class NoSlot(Exception):
    """The share of the address, or all slots, are taken by connections that are not idle. The text is for the log."""


class Slot:
    """The slot of one connection. `end`: called to close the connection when another one takes the slot."""

    __slots__ = ("_slots", "end", "origin")

    def __init__(self, slots: "Slots", origin: str, end: Callable[[], None]) -> None:
        self._slots = slots
        self.origin = origin
        self.end = end

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Keep the slot while the connection is served."""
        self._slots.move(self, is_idle=False)
        try:
            yield
        finally:
            self._slots.move(self, is_idle=True)

    def leave(self) -> None:
        """Give the slot up, when the connection has ended. Idempotent."""
        self._slots.forget(self)


class Slots:
    """The slots of one kind of listener. `share`: maximum slots of one address."""

    def __init__(self, share: int) -> None:
        self._share = share
        self._idle: dict[Slot, None] = {}  # the longest idle one first
        self._busy: dict[Slot, None] = {}

    def enter(self, origin: str, end: Callable[[], None], *, slots: int, is_shared: bool) -> Slot:
        """A slot for a new connection, perhaps taken from an idle one. `slots`: maximum of all addresses together.

        `is_shared`: many clients use this address (this machine, or a listed proxy), so its share is not limited.
        Raises: NoSlot.
        """
        taken = [*self._idle, *self._busy]
        of_origin = sum(one.origin == origin for one in taken)
        if of_origin >= self._share and not is_shared:
            self._take(origin, f"{of_origin} connections from {origin} are at work")
        elif len(taken) >= slots:
            counts: dict[str, int] = {}
            for one in self._idle:
                counts[one.origin] = counts.get(one.origin, 0) + 1
            self._take(max(counts, key=counts.__getitem__, default=""), f"{len(taken)} connections are at work")
        slot = Slot(self, origin, end)
        self._idle[slot] = None
        return slot

    def _take(self, origin: str, why: str) -> None:
        oldest = next((one for one in self._idle if one.origin == origin), None)
        if oldest is None:
            raise NoSlot(why)
        del self._idle[oldest]
        oldest.end()

    def move(self, slot: Slot, *, is_idle: bool) -> None:
        """Note that a connection becomes idle, or busy. Ignored if it has lost its slot."""
        former, new = (self._busy, self._idle) if is_idle else (self._idle, self._busy)
        if slot in former:
            del former[slot]
            new[slot] = None

    def forget(self, slot: Slot) -> None:
        """Remove the slot of a connection that has ended. Idempotent."""
        self._idle.pop(slot, None)
        self._busy.pop(slot, None)
