"""What ready messages may take in memory, those of all stores with a tail together.

A store is granted so many octets at a time and asks for more when it has used them; what it gave out meanwhile is
noticed when somebody wants more than there is. Then the largest store pages its last messages out, or, where that is
the one that asks, the next ones. Source: queues page F.1 (linked RAM), F.7.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import Protocol

from ..messages.message import Message
from .memory_cap import LEAVING_MAX

#: What a message costs beside its octets.
OVERHEAD = 200
#: A store may always have so much, or its part of one half of all if that is less.
FLOOR = 64 * 1024
#: Less than this is not worth paging out.
SMALL = 16 * 1024
#: The largest store gives so much at once, unless that were half of what it has, or more messages than a slice.
TAKE_MIN = 1024 * 1024
#: An allowance that is never used up.
UNLIMITED = 1 << 62
_NOTHING = (0, 0, 0)
_BLOB = attrgetter("blob")


class Messages(Protocol):
    """Some of them."""

    def __iter__(self) -> Iterator[Message]: ...

    def __len__(self) -> int: ...


def held_octets(messages: Messages) -> int:
    """What they take in memory, about."""
    return sum(map(len, map(_BLOB, messages))) + OVERHEAD * len(messages)


class Debtor(Protocol):
    """A store, as the budget sees it. Hashable."""

    #: What of its grant is not used up.
    quota: int
    #: Messages that came in since then, each of which used some of it.
    came_in: int

    def grant(self, octets: int) -> None:
        """So many octets may become ready before the store asks for more."""

    @property
    def in_memory(self) -> int:
        """How many messages are ready in memory."""

    @property
    def held_octets(self) -> int:
        """What these take."""

    def page_out(self, octets: int, count_max: int = UNLIMITED) -> int:
        """Free so many octets, with so many messages at most; returns how many octets that were."""


class MemoryBudget:
    """Of a broker that has a pager; `memory` is always its limit in octets, which may change."""

    __slots__ = ("_asked", "_charges", "_charge_max", "_largest", "total")

    def __init__(self) -> None:
        #: What each holds at most before it asks again; and how much that was for how many, when it was looked at.
        self._charges: dict[Debtor, tuple[int, int, int]] = {}
        self.total = 0  # octets, of all of them
        self._asked = 0  # since all charges were looked at
        self._largest: Debtor | None = None  # when it was last looked for
        self._charge_max = 0  # no charge is larger; the largest may be smaller by now

    def allows(self, store: Debtor, octets: int, memory: int) -> bool:
        """Whether a store that has used up its allowance gets one of so many octets or more.

        O(1) if it has given nothing out since it was asked last. Else O(ready), amortized O(1).
        """
        charge, _, count = self._charges.get(store, _NOTHING)
        held = charge - store.quota if store.in_memory == count + store.came_in else store.held_octets
        self._charge(store, held, 0)
        self._asked += 1
        floor = min(FLOOR, memory // (2 * len(self._charges)))
        wanted = max(held // 2, floor, octets)
        if memory - self.total < wanted and self._asked > len(self._charges):
            self._look_at_others(store, floor)
        missing = wanted - (memory - self.total)
        if missing > 0:
            self._take_from_largest(store, held, missing)
        grant = min(wanted, memory - self.total)
        if grant < octets or grant < min(wanted, floor):
            if held + octets > SMALL:
                return False
            grant = max(grant, octets)
        self._charge(store, held, grant)
        return True

    def charge_window(self, store: Debtor, octets: int, memory: int) -> None:
        """A deep store loads messages, up to so many octets at a time; another may have to page out."""
        charge, held, count = self._charges.get(store, _NOTHING)
        if charge < octets:
            self._charges[store] = (octets, held, count)
            self._charge_max = max(self._charge_max, octets)
            self.total += octets - charge
            missing = self.total - memory
            if missing > 0:
                self._take_from_largest(store, octets, missing)

    def gave(self, store: Debtor, octets: int, grant: int) -> None:
        """A store that was not allowed more has paged so many octets out, and gets this much for it."""
        charge, held, _ = self._charges[store]
        self._charges[store] = (charge - octets + grant, max(held - octets, 0), store.in_memory)
        self._charge_max = max(self._charge_max, charge - octets + grant)
        self.total += grant - octets
        store.grant(grant)

    def charge_of(self, store: Debtor) -> int:
        """Octets that a store may take before it asks."""
        return self._charges.get(store, _NOTHING)[0]

    def forget(self, store: Debtor) -> None:
        """It is gone, or holds nothing."""
        if store in self._charges:
            self.total -= self._charges.pop(store)[0]
            if store is self._largest:
                self._largest = None

    def _charge(self, store: Debtor, held: int, grant: int) -> None:
        self.total += held + grant - self._charges.get(store, _NOTHING)[0]
        self._charges[store] = (held + grant, held, store.in_memory)
        self._charge_max = max(self._charge_max, held + grant)
        store.grant(grant)

    def _look_at_others(self, asker: Debtor, floor: int) -> None:
        """What have they given out? By count, at the size that theirs had. O(stores)."""
        self._asked = 0
        for store, (charge, held, count) in list(self._charges.items()):
            now = store.in_memory
            if store is asker:
                continue
            if not now:
                self.forget(store)
                store.grant(0)
            elif now < count:
                estimate = held * now // count
                if estimate + floor < charge:
                    self._charge(store, estimate, floor)

    def _take_from_largest(self, asker: Debtor, held: int, missing: int) -> None:
        """The largest makes room, unless it is about as large as the one that asks. O(what leaves), mostly."""
        if self._charge_max <= 2 * held:
            return  # as it is with many stores that grow alike: no look at all of them for each
        charges, largest = self._charges, self._largest
        if largest is None or largest is asker or charges.get(largest, _NOTHING)[0] < max(2 * held, 2 * missing):
            largest = max(charges, key=lambda one: charges[one][0])
            self._charge_max = charges[largest][0]
        self._largest = largest
        charge, looked_at, _ = charges[largest]
        if largest is asker or charge <= 2 * held:
            return
        freed = largest.page_out(min(max(missing, TAKE_MIN), charge // 2), LEAVING_MAX)
        if not freed:
            self._largest = None
        if not largest.in_memory:
            self.forget(largest)
            largest.grant(0)
        else:
            charges[largest] = (charge - freed, max(looked_at - freed, 0), largest.in_memory)
            self.total -= freed
