"""The memory that one store may have: its grant of the broker's memory budget, and the cap of its queue.

`memory_budget.py` decides which store pages out, `TailedStore.page_out` which of its messages. Beyond its cap a queue
pages out in any case. The cap is made of the limits of the queue, its address and the broker. If no message is in
memory and a consumer waits, one message is read back even beyond the cap. Source: queues page E.1
(cursorMemoryHighWaterMark), E.4 (row 9), F.7; address-settings page 3.3 (PAGE).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ..messages.message import UNLIMITED, Message
from .memory_budget import OVERHEAD, PAGE_OUT_MAX, TAKE_MIN, held_octets
from .storage import Storage

if TYPE_CHECKING:
    from .tailed_store import TailedStore

#: Messages are read back when 1/`FREE_PART` of each limit is free, so that whole slices are read.
FREE_PART = 4


class MemoryShare:
    """The memory share of one store.

    `quota`: the rest of its grant in octets; below 0: requeued messages exceed it. `came_in`: messages added since the
    grant. `cap`: the memory cap of the queue; None: there is none. `may_page`: the queue's rules permit paging.
    `needs_cap_check`: the next `TailedStore.enforce_quota` compares the memory with the cap.
    """

    __slots__ = ("_storage", "came_in", "cap", "may_page", "needs_cap_check", "quota")

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.quota = self.came_in = 0
        self.cap: MemoryCap | None = None
        self.may_page = True
        self.needs_cap_check = False

    def take_over(self, other: "MemoryShare") -> None:
        """Take over the limits of another share, not its grant."""
        self.may_page, self.cap, self.needs_cap_check = other.may_page, other.cap, other.needs_cap_check

    def set_may_page(self, allowed: bool) -> None:
        if allowed and not self.may_page:
            self.quota, self.came_in = 0, -UNLIMITED  # not counted so far: the next request measures the store
        self.may_page = allowed

    def request_cap_check(self) -> None:
        """Compare the memory with the cap at the next `TailedStore.enforce_quota`."""
        self.needs_cap_check = self.cap is not None

    @property
    def is_within_cap(self) -> bool:
        """Whether memory does not exceed the cap."""
        return self.cap is None or not self.may_page or self.cap.is_met

    # -- new and requeued messages ------------------------------------------------------------------------------------

    def reserve(self, store: "TailedStore", octets: int, count: int) -> bool:
        """Whether `count` more messages may be in memory; if so, they are counted. Called only with a pager or a cap.

        The owner's meter has already counted the messages. Amortized O(count).
        """
        if not self.is_within_cap:
            return False
        octets += OVERHEAD * count
        if octets > self.quota:
            pager = self._storage.pager
            if not self.may_page or pager is None:
                self.quota = UNLIMITED
            elif not self._storage.memory.request(store, octets, pager.memory):
                return False
        self.quota -= octets
        self.came_in += count
        return True

    def reserve_above_tail(self, store: "TailedStore", message: Message) -> bool:
        """Like `reserve`, for a message that is delivered before those of the tail, because of its level.

        If the store counts its octets, it makes no request to the budget while the charge suffices.
        """
        if not self.is_within_cap:
            return False
        octets, counted = len(message.content) + OVERHEAD, store.levels.content_octets
        if counted is not None and counted + OVERHEAD * len(store.ready) + octets <= self._storage.memory.charge_of(
            store
        ):
            self.quota = max(self.quota - octets, 0)
            return True
        return self.reserve(store, len(message.content), 1)

    def returned(self, messages: list[Message]) -> None:
        """Count requeued messages, which are in memory even if they exceed the quota."""
        if self._storage.pager is not None and self.may_page:
            self.quota -= held_octets(messages)
            self.came_in += len(messages)
        self.request_cap_check()

    # -- the budget ---------------------------------------------------------------------------------------------------

    def grant(self, octets: int) -> None:
        """Set the octets that may become ready until the next request."""
        self.quota, self.came_in = octets, 0

    def reduce(self, store: "TailedStore") -> None:
        """Page out the last messages, because requeued ones exceed the quota, and to make room for further ones."""
        excess = -self.quota
        pager, memory = self._storage.pager, self._storage.memory
        if not self.may_page or pager is None:
            self.quota = UNLIMITED
        elif not memory.request(store, 0, pager.memory):
            freed = store.page_out(excess + min(TAKE_MIN, pager.memory // 8))
            # If nothing could be paged out, the grant delays the next attempt.
            memory.note_paged_out(store, freed, max(freed - excess, 0) if freed else TAKE_MIN)

    def release(self, store: "TailedStore") -> None:
        """Return all memory to the budget. The store is empty."""
        self._storage.memory.forget(store)
        self.quota = self.came_in = 0

    # -- loading ------------------------------------------------------------------------------------------------------

    def has_room_to_load(self, size: int) -> bool:
        """Whether the cap has room to load a slice of messages of about `size` octets."""
        return self.cap is None or not self.may_page or self.cap.has_room_to_load(size)


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
