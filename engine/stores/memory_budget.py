"""The memory budget for the ready messages of all stores with a tail.

A store is granted octets in portions, and requests more when it has used them. When a request exceeds the budget, the
octets of messages that have left other stores are subtracted, at most once while each store requests once. Then the
largest store pages out its last messages, if it is more than twice as large as the requesting one; otherwise the new
messages of the requesting one are paged out, unless it is `SMALL`. Source: queues page F.1 (linked RAM), F.7.
"""

from typing import TYPE_CHECKING

from ..messages.message import content_of

if TYPE_CHECKING:
    from .store import Freeable
    from .tailed_store import TailedStore

#: Octets of memory of a message in addition to its content.
OVERHEAD = 200
#: Minimum grant in octets, or the store's share of half of the budget if that is less.
FLOOR = 64 * 1024
#: A store with at most this many octets gets a grant even beyond the limit, because paging it out would gain little.
SMALL = 16 * 1024
#: Minimum octets that the largest store pages out at once, unless half of its charge or a slice of messages is less.
TAKE_MIN = 1024 * 1024
#: Maximum messages, and octets, paged out in one slice (about 5 ms).
PAGE_OUT_MAX, PAGE_OUT_OCTETS = 2000, 4 * 1024 * 1024
_NOTHING = (0, 0, 0)


def held_octets(messages: "Freeable") -> int:
    """The approximate memory of messages, in octets."""
    return sum(map(len, map(content_of, messages))) + OVERHEAD * len(messages)


class MemoryBudget:
    """The budget of a broker with a pager. `memory`, an argument of methods, is its present limit in octets."""

    def __init__(self) -> None:
        #: (charge, octets, messages) of each store: its octets with the unused part of its grant; and its octets and
        #: messages when they were last measured.
        self._charges: dict[TailedStore, tuple[int, int, int]] = {}
        self.total = 0  # the sum of all charges
        self._requests = 0  # since the charges of all stores were last updated
        self._largest: TailedStore | None = None  # the largest store at the last search
        self._charge_max = 0  # an upper limit of all charges

    def request(self, store: "TailedStore", octets: int, memory: int) -> bool:
        """Grant `octets` or more to a store that has used up its grant. Returns whether it was granted.

        O(1) if no message has left the store since the last request; else O(ready), amortized O(1). Beyond the budget
        also O(stores + messages paged out).
        """
        charge, _, count = self._charges.get(store, _NOTHING)
        held = charge - store.share.quota if store.in_memory == count + store.share.came_in else store.held_octets
        self._charge(store, held, 0)
        self._requests += 1
        floor = min(FLOOR, memory // (2 * len(self._charges)))
        wanted = max(held // 2, floor, octets)
        if memory - self.total < wanted and self._requests > len(self._charges):
            self._update_others(store, floor)
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

    def charge_window(self, store: "TailedStore", octets: int, memory: int) -> None:
        """Charge a deep store for its window of loaded messages. Then the largest store may page out."""
        charge, held, count = self._charges.get(store, _NOTHING)
        if charge < octets:
            self._charges[store] = (octets, held, count)
            self._charge_max = max(self._charge_max, octets)
            self.total += octets - charge
            missing = self.total - memory
            if missing > 0:
                self._take_from_largest(store, octets, missing)

    def note_paged_out(self, store: "TailedStore", octets: int, grant: int) -> None:
        """Subtract the octets that a store without a grant has paged out, and grant it `grant` octets."""
        charge, held, _ = self._charges[store]
        self._charges[store] = (charge - octets + grant, max(held - octets, 0), store.in_memory)
        self._charge_max = max(self._charge_max, charge - octets + grant)
        self.total += grant - octets
        store.share.grant(grant)

    def charge_of(self, store: "TailedStore") -> int:
        """The octets that a store may have until its next request."""
        return self._charges.get(store, _NOTHING)[0]

    def forget(self, store: "TailedStore") -> None:
        """Remove a store that was deleted or is empty."""
        if store in self._charges:
            self.total -= self._charges.pop(store)[0]
            if store is self._largest:
                self._largest = None

    def _charge(self, store: "TailedStore", held: int, grant: int) -> None:
        self.total += held + grant - self._charges.get(store, _NOTHING)[0]
        self._charges[store] = (held + grant, held, store.in_memory)
        self._charge_max = max(self._charge_max, held + grant)
        store.share.grant(grant)

    def _update_others(self, requester: "TailedStore", floor: int) -> None:
        """Lower the charges of other stores that messages have left. The size of these is estimated by the mean.

        O(stores).
        """
        self._requests = 0
        for store, (charge, held, count) in list(self._charges.items()):
            now = store.in_memory
            if store is requester:
                continue
            if not now:
                self.forget(store)
                store.share.grant(0)
            elif now < count:
                estimate = held * now // count
                if estimate + floor < charge:
                    self._charge(store, estimate, floor)

    def _take_from_largest(self, requester: "TailedStore", held: int, missing: int) -> None:
        """Page out messages of the largest store, unless the requester is at least half as large.

        O(stores + messages paged out).
        """
        if self._charge_max <= 2 * held:
            return  # saves a search of all stores for each request, if many have similar sizes
        charges, largest = self._charges, self._largest
        if largest is None or largest is requester or charges.get(largest, _NOTHING)[0] < max(2 * held, 2 * missing):
            largest = max(charges, key=lambda one: charges[one][0])
            self._charge_max = charges[largest][0]
        self._largest = largest
        charge, measured, _ = charges[largest]
        if largest is requester or charge <= 2 * held:
            return
        freed = largest.page_out(min(max(missing, TAKE_MIN), charge // 2), PAGE_OUT_MAX)
        if not freed:
            self._largest = None
        if not largest.in_memory:
            self.forget(largest)
            largest.share.grant(0)
        else:
            charges[largest] = (charge - freed, max(measured - freed, 0), largest.in_memory)
            self.total -= freed
