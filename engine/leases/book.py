"""The leases of a leased queue with their ends, and the lifetimes of messages that expire out of order.

Nothing here survives a restart. Source: queues page A.5, C.2 ("not logged").
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from ..messages.message import Message
from .table import LeaseTable


class LeaseBook:
    """`leases`: leased messages. `slots`: messages that are gone (at most once) but still take room in the backlog.

    `cancels`: by message id, how often a message was given back; without entries of 0.
    """

    __slots__ = ("_leased_lifetimes", "_lifetimes", "cancels", "has_own_lifetimes", "leases", "slots")

    def __init__(self, period_ns: int) -> None:
        """`period_ns`: duration of a lease; 0: leases do not end by time."""
        self.leases = LeaseTable(period_ns)
        self.slots = LeaseTable(period_ns)
        self.cancels: dict[int, int] = {}
        self._leased_lifetimes: list[tuple[int, int]] = []  # heap of (monotonic ns, id)
        self._lifetimes: list[tuple[int, int, int]] = []  # heap of (monotonic ns, id, position) of ready messages
        self.has_own_lifetimes = False  # True once a message may expire before one that came earlier

    def __len__(self) -> int:
        """The number of leases and slots."""
        return len(self.leases) + len(self.slots)

    def end(self, messages: Sequence[Message]) -> Sequence[Message]:
        """End leases and slots. Returns the messages that were leased, without those of slots."""
        slots = self.slots
        if len(slots):
            freed = [message for message in messages if slots.by_id.get(message.id) is message]
            if freed:
                slots.end(freed)
                messages = [message for message in messages if message.id in self.leases.by_id]
        self.leases.end(messages)
        return messages

    def change_period(self, period_ns: int, now_ns: int) -> None:
        self.leases.change_period(period_ns, now_ns)
        self.slots.change_period(period_ns, now_ns)

    # -- lifetimes of messages ----------------------------------------------------------------------------------------

    def expect(self, due_ns: int, id_: int, position: int) -> None:
        """Note when a ready message expires (monotonic ns): it may not be at the head then."""
        self.has_own_lifetimes = True
        heappush(self._lifetimes, (due_ns, id_, position))

    def forget_lifetimes(self) -> None:
        """Forget the lifetimes of ready messages: their positions changed, and the caller notes them again."""
        self._lifetimes.clear()
        self.has_own_lifetimes = False

    def expect_leased(self, due_ns: int, id_: int) -> None:
        """Note when a message expires (monotonic ns) even if it is leased then."""
        heappush(self._leased_lifetimes, (due_ns, id_))

    def expired(self, now_ns: int, count: int) -> list[int]:
        """Remove and return up to `count` positions of ready messages that expired; some may be gone already."""
        found: list[int] = []
        heap = self._lifetimes
        while heap and heap[0][0] <= now_ns and len(found) < count:
            found.append(heappop(heap)[2])
        return found

    def expired_leases(self, now_ns: int, count: int) -> list[Message]:
        """Up to `count` leased messages that have expired; their lifetimes are forgotten."""
        found: dict[int, Message] = {}  # one that was leased twice is in the heap twice
        heap = self._leased_lifetimes
        while heap and heap[0][0] <= now_ns and len(found) < count:
            message = self.leases.by_id.get(heappop(heap)[1])
            if message is not None and 0 < message.expires_ns <= now_ns:
                found[message.id] = message
        return list(found.values())

    def next_ns(self) -> int:
        """When the next lease, slot or lifetime ends (monotonic ns); 0: none does."""
        heap = self._leased_lifetimes
        while heap and heap[0][1] not in self.leases.by_id:
            heappop(heap)
        times = [self.leases.next_ns(), self.slots.next_ns()]
        times += [one[0][0] for one in (heap, self._lifetimes) if one]
        return min((time for time in times if time), default=0)
