"""The book of a leased queue: its leases with their ends, and the lifetimes of leased messages and of ready ones that
expire out of order.

Nothing here survives a restart. Source: queues page A.5 ("Timers"), C.2 ("not logged").
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, repeat

from ..messages.message import Message, id_of
from ..stores.store import Store
from .lifetimes import Lifetimes

#: Leases begin at whole multiples of this time (ns), so that many end together.
TOGETHER_NS = 1_000_000


class LeaseBook:
    """The running leases of one queue.

    `leases`: leased messages. `slots`: messages of an at-most-once queue, which left when they were delivered, but
    still take room in the backlog. `cancels`: message id -> number of times that clients gave it back, from 1 on.
    """

    def __init__(self, period_ns: int) -> None:
        """`period_ns`: duration of a lease; 0: leases do not end by time."""
        self.leases = LeaseTable(period_ns)
        self.slots = LeaseTable(period_ns)
        self.cancels: dict[int, int] = {}
        self.leased_lifetimes = Lifetimes()  # by id
        self.lifetimes = Lifetimes()  # of ready messages, by position
        self.has_own_lifetimes = False  # a message may expire before one that came earlier

    def __len__(self) -> int:
        """The number of leases and slots."""
        return len(self.leases) + len(self.slots)

    def __iter__(self) -> Iterator[Message]:
        """The messages of all leases, then those of all slots."""
        return chain(self.leases.by_id.values(), self.slots.by_id.values())

    def end(self, messages: Sequence[Message]) -> Sequence[Message]:
        """End leases and slots, which must be running. Returns the messages of the leases."""
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

    def expect(self, message: Message, store: Store) -> None:
        """Note when a ready message of the queue's store expires, because it may not be at the head then."""
        self.expect_at(message.expires_ns, store.position_of(message), store)

    def expect_at(self, due_ns: int, position: int, store: Store) -> None:
        """As `expect`, for the message at a position."""
        self.has_own_lifetimes = True
        self.lifetimes.add(due_ns, position, len(store), partial(_is_ready, store))

    def forget_lifetimes(self) -> None:
        """Forget the lifetimes of ready messages: their positions changed, and the caller notes them again."""
        self.lifetimes.clear()
        self.has_own_lifetimes = False

    def expect_leased(self, message: Message) -> None:
        """Note when a leased message expires even if it is leased then."""
        by_id = self.leases.by_id
        self.leased_lifetimes.add(message.expires_ns, message.id, len(by_id), by_id.__contains__)

    def forget_leased_lifetimes(self) -> None:
        """Forget all that `expect_leased` noted: whether a lifetime ends a lease has changed."""
        self.leased_lifetimes.clear()

    def expired(self, now_ns: int, count: int) -> list[int]:
        """Remove and return up to `count` positions of ready messages that expired; some may be gone already."""
        return self.lifetimes.due(now_ns, count)

    def expired_leases(self, now_ns: int, count: int) -> list[Message]:
        """Up to `count` leased messages that have expired; their lifetimes are forgotten."""
        ids = self.leased_lifetimes.due(now_ns, count)
        messages = [message for id_ in ids if (message := self.leases.by_id.get(id_)) is not None]
        return [message for message in messages if 0 < message.expires_ns <= now_ns]

    def next_ns(self) -> int:
        """When the next lease, slot or noted lifetime ends (monotonic ns); 0: none does."""
        self.leased_lifetimes.drop_first_gone(self.leases.by_id.__contains__)
        times = [of.next_ns() for of in (self.leases, self.slots, self.leased_lifetimes, self.lifetimes)]
        return min((time for time in times if time), default=0)


def _is_ready(store: Store, position: int) -> bool:
    """Whether the message at a position is in the store, or may be: no file is read."""
    found, missing = store.scan(position - 1, 1)
    return missing or (bool(found) and found[0][0] == position)


class LeaseTable:
    """The leased messages of a queue by id, in the order in which their leases end.

    All leases of a queue have the same period, so they end in the order in which they began. A lease counts from the
    next whole `TOGETHER_NS`, so that leases that began almost at once end together.
    """

    def __init__(self, period_ns: int) -> None:
        """`period_ns`: duration of a lease; 0: leases do not end by time."""
        self._period_ns = period_ns
        self.by_id: dict[int, Message] = {}
        self._begun_ns: dict[int, int] = {}  # in the order of `by_id`; empty if leases do not end by time

    def __len__(self) -> int:
        return len(self.by_id)

    def begin(self, messages: Sequence[Message], now_ns: int) -> int:
        """Begin leases of delivered messages. Returns when they end (monotonic ns); 0: not by time."""
        ids = list(map(id_of, messages))
        self.by_id.update(zip(ids, messages))
        return self._note(ids, now_ns)

    def _note(self, ids: Sequence[int], now_ns: int) -> int:
        """Note the begin of leases. Returns when they end (monotonic ns); 0: not by time."""
        if not self._period_ns:
            return 0
        begun_ns = -(-now_ns // TOGETHER_NS) * TOGETHER_NS
        self._begun_ns.update(dict.fromkeys(ids, begun_ns))
        return begun_ns + self._period_ns

    def renew(self, message: Message, now_ns: int) -> int:
        """Renew a lease. Returns when it ends (monotonic ns); 0: not by time."""
        self.end((message,))
        return self.begin((message,), now_ns)

    def end(self, messages: Sequence[Message]) -> bool:
        """End leases. Returns whether all of them were running."""
        ids = list(map(id_of, messages))
        found = list(map(self.by_id.pop, ids, repeat(None)))
        if self._begun_ns:
            for id_ in ids:
                self._begun_ns.pop(id_, None)
        return None not in found

    def change_period(self, period_ns: int, now_ns: int) -> None:
        """Change the period, also of running leases. 0: they do not end by time. If they did not before, they count
        from now.
        """
        if not self._period_ns:
            self._begun_ns = dict.fromkeys(self.by_id, now_ns) if period_ns else {}
        elif not period_ns:
            self._begun_ns = {}
        self._period_ns = period_ns

    def ended(self, now_ns: int, count: int) -> list[Message]:
        """Up to `count` messages whose lease is over. The caller ends the leases."""
        over: list[Message] = []
        for id_, begun_ns in self._begun_ns.items():
            if begun_ns + self._period_ns > now_ns or len(over) == count:
                break
            over.append(self.by_id[id_])
        return over

    def next_ns(self) -> int:
        """When the next lease ends (monotonic ns); 0: none does by time."""
        begun_ns = next(iter(self._begun_ns.values()), None)
        return 0 if begun_ns is None else begun_ns + self._period_ns

    def by_end(self) -> Iterator[tuple[Message, int]]:
        """Each message and the end of its lease (monotonic ns; 0: not by time), in order of the ends."""
        for id_, message in self.by_id.items():
            yield message, self._begun_ns[id_] + self._period_ns if self._period_ns else 0
