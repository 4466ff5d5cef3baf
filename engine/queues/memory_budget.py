"""What ready messages may take in memory, all queues together.

A queue is granted so many octets at a time and asks for more when it has used them; what it gave out meanwhile is
noticed when somebody wants more than there is. Then the largest queue leaves its last messages elsewhere, or, where
that is the one that asks, the next ones. Source: seed 003; queues page F.1 (linked RAM), F.7.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..messages.message import Message
from .paging_out import OVERHEAD, page_out

if TYPE_CHECKING:
    from .queue import Queue

#: A queue may always have so much, or its part of one half of all if that is less.
FLOOR = 64 * 1024
#: Less than this is not worth leaving elsewhere.
SMALL = 16 * 1024
#: The largest queue gives so much at once, unless that were half of what it has.
TAKE_MIN = 1024 * 1024
_NOTHING = (0, 0, 0)


def held_octets(messages: Iterable[Message]) -> int:
    """What they take in memory, about."""
    return sum(len(message.blob) + OVERHEAD for message in messages)


class MemoryBudget:
    """Of a broker that has a pager, whose `memory` is the limit."""

    __slots__ = ("_asked", "_charges", "_charge_max", "_largest", "total")

    def __init__(self) -> None:
        #: What each holds at most before it asks again; and how much that was for how many, when it was looked at.
        self._charges: dict[Queue, tuple[int, int, int]] = {}
        self.total = 0  # octets, of all of them
        self._asked = 0  # since all charges were looked at
        self._largest: Queue | None = None  # when it was last looked for
        self._charge_max = 0  # no charge is larger; the largest may be smaller by now

    def allows(self, queue: "Queue", octets: int) -> bool:
        """Whether a queue that has used up its allowance gets one of so many octets or more.

        O(ready), amortized O(1).
        """
        assert queue.broker.pager is not None
        memory = queue.broker.pager.memory
        held = held_octets(queue.ready)
        self._charge(queue, held, 0)
        self._asked += 1
        floor = min(FLOOR, memory // (2 * len(self._charges)))
        wanted = max(held // 2, floor, octets)
        if memory - self.total < wanted and self._asked > len(self._charges):
            self._look_at_others(queue, floor)
        missing = wanted - (memory - self.total)
        if missing > 0:
            self._take_from_largest(queue, held, missing)
        grant = min(wanted, memory - self.total)
        if grant < octets or grant < min(wanted, floor):
            if held + octets > SMALL:
                return False
            grant = max(grant, octets)
        self._charge(queue, held, grant)
        return True

    def charge_window(self, queue: "Queue", octets: int) -> None:
        """A deep queue brings messages back into memory, up to so many octets at a time; another may have to leave."""
        charge, held, count = self._charges.get(queue, _NOTHING)
        if charge < octets:
            assert queue.broker.pager is not None
            self._charges[queue] = (octets, held, count)
            self._charge_max = max(self._charge_max, octets)
            self.total += octets - charge
            missing = self.total - queue.broker.pager.memory
            if missing > 0:
                self._take_from_largest(queue, octets, missing)

    def gave(self, queue: "Queue", octets: int, grant: int) -> None:
        """A queue that was not allowed more has left so many octets elsewhere, and gets this much for it."""
        charge, held, _ = self._charges[queue]
        self._charges[queue] = (charge - octets + grant, max(held - octets, 0), len(queue.ready))
        self._charge_max = max(self._charge_max, charge - octets + grant)
        self.total += grant - octets
        queue.allowance = grant

    def charge_of(self, queue: "Queue") -> int:
        """Octets that a queue may take before it asks."""
        return self._charges.get(queue, _NOTHING)[0]

    def forget(self, queue: "Queue") -> None:
        """It is gone, or holds nothing."""
        if queue in self._charges:
            self.total -= self._charges.pop(queue)[0]
            if queue is self._largest:
                self._largest = None

    def _charge(self, queue: "Queue", held: int, grant: int) -> None:
        self.total += held + grant - self._charges.get(queue, _NOTHING)[0]
        self._charges[queue] = (held + grant, held, len(queue.ready))
        self._charge_max = max(self._charge_max, held + grant)
        queue.allowance = grant

    def _look_at_others(self, asker: "Queue", floor: int) -> None:
        """What have they given out? By count, at the size that theirs had. O(queues)."""
        self._asked = 0
        for queue, (charge, held, count) in list(self._charges.items()):
            now = len(queue.ready)
            if queue is asker:
                continue
            if not now:
                self.forget(queue)
                queue.allowance = 0
            elif now < count:
                estimate = held * now // count
                if estimate + floor < charge:
                    self._charge(queue, estimate, floor)

    def _take_from_largest(self, asker: "Queue", held: int, missing: int) -> None:
        """The largest makes room, unless it is about as large as the one that asks. O(what leaves), mostly."""
        if self._charge_max <= 2 * held:
            return  # as it is with many queues that grow alike: no look at all of them for each
        charges, largest = self._charges, self._largest
        if largest is None or largest is asker or charges.get(largest, _NOTHING)[0] < max(2 * held, 2 * missing):
            largest = max(charges, key=lambda one: charges[one][0])
            self._charge_max = charges[largest][0]
        self._largest = largest
        charge, looked_at, _ = charges[largest]
        if largest is asker or charge <= 2 * held:
            return
        freed = page_out(largest, min(max(missing, TAKE_MIN), charge // 2))
        if not freed:
            self._largest = None
        if not largest.ready:
            self.forget(largest)
            largest.allowance = 0
        else:
            charges[largest] = (charge - freed, max(looked_at - freed, 0), len(largest.ready))
            self.total -= freed
