"""What one queue may have in memory, beside what all queues together may: beyond it its messages are paged out.

The limits themselves are its own, its address's or the broker's; each is a `Bound`, which knows what is used of it,
messages that are out included. If nothing is ready and a consumer waits, one message is read back however much is out.
Source: queues page E.1 (cursorMemoryHighWaterMark), E.4 (row 9), F.7; address-settings page 3.3 (PAGE).
"""

from collections.abc import Sequence
from typing import Protocol

#: Messages that leave memory in one slice (about 5 ms), and octets of them.
LEAVING_MAX, LEAVING_OCTETS = 2000, 4 * 1024 * 1024
#: What is paged out is read back when this part of the limit is free, so that it comes in slices.
FREE_PART = 4


class Bound(Protocol):
    """One limit: in messages, if it is `in_messages`, else in octets. A message counts for at least `each`."""

    in_messages: bool
    each: int

    @property
    def limit(self) -> int:
        """How much may be used of it."""

    @property
    def room(self) -> int:
        """What is not used; below 0: too much is."""


class MemoryCap:
    """All bounds of one queue; there is at least one."""

    __slots__ = ("_bounds",)

    def __init__(self, bounds: Sequence[Bound]) -> None:
        self._bounds = tuple(bounds)

    @property
    def is_kept(self) -> bool:
        """Whether what is in memory is not too much, with all that has been counted."""
        for bound in self._bounds:  # noqa: SIM110 - `all` takes twice as long
            if bound.room < 0:
                return False
        return True

    @property
    def octets(self) -> int:
        """The smallest limit in octets; very many where there is none."""
        return min((bound.limit for bound in self._bounds if not bound.in_messages), default=UNLIMITED)

    def room(self) -> tuple[int, int]:
        """How many messages and octets more may be in memory; neither is below 0."""
        count = octets = UNLIMITED
        for bound in self._bounds:
            room = max(0, bound.room)
            if bound.in_messages:
                count = min(count, room)
            else:
                octets = min(octets, room)
                if bound.each:
                    count = min(count, room // bound.each)
        return count, octets

    def excess(self) -> tuple[int, int]:
        """How many messages and octets have to leave: when either have, ask again. (0, 0): none."""
        count = octets = 0
        for bound in self._bounds:
            excess = -bound.room
            if excess <= 0:
                continue
            if bound.in_messages:
                count, octets = max(count, excess), UNLIMITED
            else:
                count = max(count, -(-excess // bound.each) if bound.each else LEAVING_MAX)
                octets = max(octets, excess)
        return count, octets

    def invites(self, size: int) -> bool:
        """Whether there is so much room that a slice of messages of about `size` octets should be read back."""
        for bound in self._bounds:
            least = 1 if bound.in_messages else max(size, bound.each)
            if bound.room < max(least, bound.limit // FREE_PART):
                return False
        return True


#: More than there ever is.
UNLIMITED = 1 << 62
