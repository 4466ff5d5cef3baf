"""The memory cap of one queue, beyond which its messages are paged out, in addition to the common memory budget.

Its limits are those of the queue, its address and the broker. If no message is in memory and a consumer waits, one
message is read back even beyond the cap. Source: queues page E.1 (cursorMemoryHighWaterMark), E.4 (row 9), F.7;
address-settings page 3.3 (PAGE).
"""

from collections.abc import Sequence
from typing import Protocol

from ..messages.message import UNLIMITED

#: Maximum messages, and octets, paged out in one slice (about 5 ms).
PAGE_OUT_MAX, PAGE_OUT_OCTETS = 2000, 4 * 1024 * 1024
#: Messages are read back when 1/`FREE_PART` of each limit is free, so that whole slices are read.
FREE_PART = 4


class MemoryBound(Protocol):
    """A limit on messages in memory, ready or unacknowledged: in messages if `in_messages`, else in octets.

    `message_octets_min`: a smaller message counts as this many octets. `room`: the rest of `limit`; below 0 the limit
    is exceeded.
    """

    in_messages: bool
    message_octets_min: int

    @property
    def limit(self) -> int: ...

    @property
    def room(self) -> int: ...


class MemoryCap:
    """The limits on the memory of one queue, at least one."""

    __slots__ = ("_bounds",)

    def __init__(self, bounds: Sequence[MemoryBound]) -> None:
        self._bounds = tuple(bounds)

    @property
    def is_met(self) -> bool:
        """Whether no bound is exceeded."""
        for bound in self._bounds:  # noqa: SIM110 - `all` takes twice as long
            if bound.room < 0:
                return False
        return True

    @property
    def octets(self) -> int:
        """The smallest limit in octets; `UNLIMITED` if there is none."""
        return min((bound.limit for bound in self._bounds if not bound.in_messages), default=UNLIMITED)

    def room(self) -> tuple[int, int]:
        """The messages and octets that may be added to memory; at least 0."""
        count = octets = UNLIMITED
        for bound in self._bounds:
            room = max(0, bound.room)
            if bound.in_messages:
                count = min(count, room)
            else:
                octets = min(octets, room)
                if bound.message_octets_min:
                    count = min(count, room // bound.message_octets_min)
        return count, octets

    def excess(self) -> tuple[int, int]:
        """The messages and octets to page out; when either is reached, call again. (0, 0): none."""
        count = octets = 0
        for bound in self._bounds:
            excess = -bound.room
            if excess <= 0:
                continue
            if bound.in_messages:
                count, octets = max(count, excess), UNLIMITED
            else:
                count = max(count, -(-excess // bound.message_octets_min) if bound.message_octets_min else PAGE_OUT_MAX)
                octets = max(octets, excess)
        return count, octets

    def has_room_to_load(self, size: int) -> bool:
        """Whether there is room to read back messages of about `size` octets."""
        for bound in self._bounds:
            least = 1 if bound.in_messages else max(size, bound.message_octets_min)
            if bound.room < max(least, bound.limit // FREE_PART):
                return False
        return True
