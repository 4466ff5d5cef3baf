"""The book of a leased queue: its leases with their ends, and the lifetimes of messages that expire out of order.

Nothing here survives a restart. Source: queues page A.5 ("Timers"), C.2 ("not logged").
"""

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain, repeat

from ..messages.message import Message, deliveries_of, id_of

#: Leases that begin within this time end together, when the last of them does.
TOGETHER_NS = 1_000_000
#: Stale notes are removed when there are this many more notes than twice the running leases.
STALE_MAX = 1000


class LeaseBook:
    """`leases`: leased messages. `slots`: messages that are gone (at most once) but still take room in the backlog.

    `cancels`: message id -> how often the message was given back, if it was.
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

    def __iter__(self) -> Iterator[Message]:
        """The messages of all leases, then those of all slots."""
        return chain(self.leases.by_id.values(), self.slots.by_id.values())

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
        """Note when a ready message expires (monotonic ns), because it may not be at the head then."""
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
        found: dict[int, Message] = {}  # a message that was leased twice is in the heap twice
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


class Ends:
    """Leases that end together. `first_ns`, `due_ns`: the ends of the first and the last of them (monotonic ns)."""

    __slots__ = ("due_ns", "first_ns", "ids")

    def __init__(self, due_ns: int, ids: list[int]) -> None:
        self.first_ns = self.due_ns = due_ns
        self.ids = ids


class LeaseTable:
    """The leased messages of a queue by id, in the order in which their leases end.

    All leases of a queue last equally long, so they end in the order of their beginnings. Leases that began together
    have one note of their end. A lease that ends otherwise leaves its note: the note is skipped at its time, or swept
    out when there are too many such notes. A lease takes the memory of a dictionary entry and 8 octets.
    """

    __slots__ = ("_again", "_ends", "_noted", "_period_ns", "by_id")

    def __init__(self, period_ns: int) -> None:
        """`period_ns`: duration of a lease; 0: leases do not end by time."""
        self._period_ns = period_ns
        self.by_id: dict[int, Message] = {}
        self._ends: deque[Ends] = deque()
        self._noted = 0  # ids in `_ends`
        self._again: dict[int, Ends] = {}  # the valid note of each message that has older, stale notes

    def __len__(self) -> int:
        return len(self.by_id)

    def begin(self, messages: Sequence[Message], now_ns: int) -> int:
        """Begin leases of delivered messages. Returns when they end (monotonic ns); 0: not by time."""
        ids = list(map(id_of, messages))
        self.by_id.update(zip(ids, messages))
        if not self._period_ns:
            return 0
        ends = self._note(ids, now_ns + self._period_ns)
        if max(map(deliveries_of, messages)) > 1:
            self._again.update((one.id, ends) for one in messages if one.deliveries > 1)
        if self._noted > 2 * len(self.by_id) + STALE_MAX:
            self._sweep()
        return ends.due_ns

    def _note(self, ids: list[int], due_ns: int) -> Ends:
        self._noted += len(ids)
        if self._ends and due_ns - self._ends[-1].first_ns < TOGETHER_NS:
            ends = self._ends[-1]
            ends.due_ns = due_ns
            ends.ids += ids
        else:
            ends = Ends(due_ns, ids)
            self._ends.append(ends)
        return ends

    def renew(self, message: Message, now_ns: int) -> int:
        """Renew a lease. Returns when it ends (monotonic ns); 0: not by time."""
        id_ = message.id
        self.by_id[id_] = self.by_id.pop(id_)  # it is the last to end now
        if not self._period_ns:
            return 0
        self._again[id_] = ends = self._note([id_], now_ns + self._period_ns)
        return ends.due_ns

    def end(self, messages: Sequence[Message]) -> bool:
        """End leases. Returns whether all of them were running."""
        ids = list(map(id_of, messages))
        found = list(map(self.by_id.pop, ids, repeat(None)))
        if self._again:
            for id_ in ids:
                self._again.pop(id_, None)
        return None not in found

    def change_period(self, period_ns: int, now_ns: int) -> None:
        """Change the duration of leases, also of running ones, counted from their begin. 0: they do not end by time."""
        before, self._period_ns = self._period_ns, period_ns
        if before and period_ns:
            for ends in self._ends:
                ends.first_ns += period_ns - before
                ends.due_ns += period_ns - before
            return
        self._ends.clear()
        self._again.clear()
        self._noted = 0
        if period_ns and self.by_id:
            self._note(list(self.by_id), now_ns + period_ns)

    def ended(self, now_ns: int, count: int) -> list[Message]:
        """Up to `count` messages whose lease is over. Their notes are removed; the caller ends the leases."""
        found: list[Message] = []
        order, again = iter(self.by_id), self._again
        head = next(order, None)
        while self._ends and self._ends[0].due_ns <= now_ns:
            ends = self._ends[0]
            for at, id_ in enumerate(ends.ids):
                if id_ == head and again.get(id_, ends) is ends:
                    if len(found) == count:
                        del ends.ids[:at]
                        self._noted -= at
                        return found
                    found.append(self.by_id[id_])
                    head = next(order, None)
            self._noted -= len(ends.ids)
            self._ends.popleft()
        return found

    def next_ns(self) -> int:
        """When the next lease ends (monotonic ns); 0: none does by time."""
        head = next(iter(self.by_id), None)
        while self._ends:
            ends = self._ends[0]
            for at, id_ in enumerate(ends.ids):
                if id_ == head and self._again.get(id_, ends) is ends:
                    del ends.ids[:at]
                    self._noted -= at
                    return ends.due_ns
            self._noted -= len(self._ends.popleft().ids)
        return 0

    def by_end(self) -> Iterator[tuple[Message, int]]:
        """Each message and the end of its lease (monotonic ns; 0: not by time), in order of the ends."""
        if not self._period_ns:
            yield from ((message, 0) for message in self.by_id.values())
        for ends, ids in self._running():
            for id_ in ids:
                yield self.by_id[id_], ends.due_ns

    def _running(self) -> Iterator[tuple[Ends, list[int]]]:
        """Each note, in order, with the ids of its running leases; `by_id` has them in the same order.

        No lease may begin or end during the iteration.
        """
        order, again = iter(self.by_id), self._again
        if not again:  # no message has a stale note beside a valid one: ids need not be compared one by one
            for ends in self._ends:
                yield ends, list(filter(self.by_id.__contains__, ends.ids))
            return
        head = next(order, None)
        for ends in self._ends:
            ids: list[int] = []
            for id_ in ends.ids:
                if id_ == head and again.get(id_, ends) is ends:
                    ids.append(id_)
                    head = next(order, None)
            yield ends, ids

    def _sweep(self) -> None:
        kept: deque[Ends] = deque()
        for ends, ids in self._running():
            if ids:
                ends.ids = ids
                kept.append(ends)
        self._ends = kept
        self._noted = len(self.by_id)
