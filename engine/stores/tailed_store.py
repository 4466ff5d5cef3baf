"""What stores have in common whose messages are taken out by consumers: what is at hand, and a tail behind it.

When what is at hand takes more memory than its share, what comes behind it stays in the journal; transient messages go
to the temp store. Source: queues page F; rulings 5, 16; docs/deep-queues.md.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import ClassVar

from ..messages.message import Envelope, Message
from ..messages.mixed import Envelopes, each_of, stretches_alike
from .memory_budget import OVERHEAD, SMALL, TAKE_MIN, UNLIMITED, held_octets
from .paged_run import Part, Run, Taken
from .paging import is_in_journal, messages_as_paged, runs_of, sink, tell_loaded
from .ready import LeveledReady
from .scanning import Scanner
from .store import LEVEL_STEP, Dropped, HandOver, Removed, Scanned
from .surroundings import NOBODY, Owner
from .tail import Tail

#: A deep store is fed when fewer than this are at hand, up to about so many or so many octets, ...
LOW, HIGH, HIGH_OCTETS = 2000, 6000, 16 * 1024 * 1024
#: ... in slices of this many messages or octets.
SLICE, SLICE_OCTETS = 1000, 4 * 1024 * 1024
#: Messages that are paged out before it is asked whether that was of any use.
PAGE_SLICE = 1000
#: Sizes of messages are added up first if all like the first one would take less than so many times the room.
LIKELY = 4

_BLOB = attrgetter("blob")


class TailedStore(ABC):
    """What is at hand (`ready`), by level, and the tail of what is paged out. See `Store`."""

    keeps: ClassVar[bool] = False

    __slots__ = ("_owner", "_scanner", "_storage", "_tail", "allowance", "came_in", "expiring", "has_tail", "may_page",
                 "ready")  # fmt: skip

    ready: deque[Message] | LeveledReady

    def __init__(self, owner: Owner, ready: deque[Message] | LeveledReady) -> None:
        self._owner = owner
        self._storage = owner.storage
        self.ready = ready
        self._tail: Tail | None = None
        self.has_tail = False  # a plain attribute: each run asks
        self._scanner = Scanner()
        self.allowance = 0
        self.came_in = 0  # see `memory_budget.Debtor`
        self.expiring = False
        self.may_page = True

    # -- what each kind has of its own --------------------------------------------------------------------------------

    @abstractmethod
    def _empty_ready(self) -> deque[Message] | LeveledReady: ...

    @abstractmethod
    def _levels(self) -> Sequence[deque[Message]]:
        """What is at hand, by level."""

    @abstractmethod
    def _merge(self, messages: list[Message]) -> int:
        """Messages (ids falling) to their places at hand. Returns how many stood before them."""

    @abstractmethod
    def _begin_tail(self) -> Tail:
        """From now on messages may be paged out."""

    def _level_of(self, message: Message) -> deque[Message]:
        """Where a message stands at hand."""
        levels = self._levels()
        return levels[min(message.envelope.facts.priority or 0, len(levels) - 1)]

    @abstractmethod
    def _left_levels(self, messages: Sequence[Message]) -> None:
        """Messages were taken out of one of `_levels`."""

    def _is_within_charge(self, message: Message) -> bool:
        """Whether the store takes no more with this message than it was charged; if so, the message is counted."""
        return False

    @property
    @abstractmethod
    def counts_octets(self) -> bool | None:
        """See `Store`."""

    def take_over(self, other: "TailedStore") -> None:
        """Have all that another store of the same levels has, which is empty afterwards. O(messages at hand)."""
        self._tail, other._tail = other._tail, None
        self.has_tail, other.has_tail = other.has_tail, False
        if self._tail is not None:
            if self.counts_octets:
                self._tail.count_octets()
            else:
                self._tail.octets = None
        self.ready.extend(other.ready)
        self._scanner, self.expiring, self.may_page = other._scanner, other.expiring, other.may_page
        other.drop_all()

    # -- what is there ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        tail = self._tail
        return len(self.ready) if tail is None else len(self.ready) + len(tail)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.ready)

    @property
    def at_hand(self) -> int:
        """See `Store`."""
        return len(self.ready)

    @property
    def is_deep(self) -> bool:
        """See `Store`."""
        return self._tail is not None

    @property
    def next_expiry_ns(self) -> int:
        """See `Store`."""
        tail = self._tail
        soonest = 0
        for level, messages in enumerate(self._levels()):
            if messages:
                due_ns = messages[0].expires_ns
            else:
                due_ns = 0 if tail is None else tail.expires_ns(level)
            if due_ns and (not soonest or due_ns < soonest):
                soonest = due_ns
        return soonest

    def paged_parts(self) -> list[Part | Message]:
        """See `Store`."""
        return [] if self._tail is None else self._tail.parts()

    @property
    def first_paged_id(self) -> int | None:
        """See `Store`."""
        return None if self._tail is None else self._tail.first_id

    def expect_expiry(self) -> None:
        """See `Store`."""
        self.expiring = True

    # -- in -----------------------------------------------------------------------------------------------------------

    def new_message(self, id_: int, blob: bytes, envelope: Envelope) -> Message:
        """See `Store`."""
        return Message(id_, blob, envelope)

    def append_run(self, first_id: int, envelopes: Envelopes, blobs: Sequence[bytes]) -> None:
        """See `Store`."""
        if self._tail is not None:
            self._extend_tail(self._tail, first_id, envelopes, blobs)
        elif self._storage.pager is not None and not self._is_granted(sum(map(len, blobs)), len(blobs)):
            self._extend_tail(self._begin_tail(), first_id, envelopes, blobs)
        else:
            self.ready.extend(map(Message, range(first_id, first_id + len(blobs)), blobs, each_of(envelopes)))

    def _extend_tail(self, tail: Tail, first_id: int, envelopes: Envelopes, blobs: Sequence[bytes]) -> None:
        if isinstance(envelopes, Envelope):
            self._extend_tail_alike(tail, first_id, envelopes, blobs)
        elif all(is_in_journal(self._owner, envelope) for envelope in set(envelopes)):
            tail.extend(first_id, [one.framing.body_size(blob) for one, blob in zip(envelopes, blobs)])
        else:
            for start, stop, envelope in stretches_alike(envelopes):
                self._extend_tail_alike(tail, first_id + start, envelope, blobs[start:stop])

    def _extend_tail_alike(self, tail: Tail, first_id: int, envelope: Envelope, blobs: Sequence[bytes]) -> None:
        if is_in_journal(self._owner, envelope):
            tail.extend(first_id, envelope.framing.body_sizes(blobs))
            return
        place = None if self._owner.stores(envelope) else self._storage.temp.spool(blobs)
        if place is not None:
            tail.extend(first_id, list(map(len, blobs)), place=place, envelope=envelope)
            return
        for offset, blob in enumerate(blobs):
            tail.append(Message(first_id + offset, blob, envelope))

    def _is_granted(self, octets: int, count: int) -> bool:
        """Whether so many more may be at hand; if so, they are counted. Only with a pager. Amortized O(count)."""
        octets += OVERHEAD * count
        if octets > self.allowance:
            if not self.may_page:
                self.allowance = UNLIMITED
            else:
                pager = self._storage.pager
                assert pager is not None
                if not self._storage.memory.allows(self, octets, pager.memory):
                    return False
        self.allowance -= octets
        self.came_in += count
        return True

    def append(self, message: Message) -> Message | None:
        """See `Store`."""
        if self._tail is not None:
            self._append_to_tail(self._tail, message)
        elif self._storage.pager is not None and not self._is_granted(len(message.blob), 1):
            self._append_to_tail(self._begin_tail(), message)
        else:
            self.ready.append(message)
        return None

    def _append_to_tail(self, tail: Tail, message: Message) -> None:
        """Transient messages stay in memory where octets of bodies are counted, which the temp store does not know."""
        envelope = message.envelope
        level = tail.level_of(envelope)
        if level > tail.floor:
            if self._is_within_charge(message) or self._is_granted(len(message.blob), 1):
                self.ready.append(message)
                self._forget_empty_tail()
                return
            self._sink_below(tail, level)
        expires = (message.expires_ns,) if message.expires_ns else None
        if message.stays_in_memory or not self.may_page:
            tail.append(message)
        elif is_in_journal(self._owner, envelope):
            tail.extend(message.id, (envelope.framing.body_size(message.blob),), expires, level=level)
        elif (
            tail.octets is None
            and not self._owner.stores(envelope)
            and (place := self._storage.temp.spool((message.blob,))) is not None
        ):
            tail.extend(message.id, (len(message.blob),), expires, place=place, envelope=envelope, level=level)
        else:
            tail.append(message)

    def restore_run(
        self,
        first_id: int,
        sizes: Sequence[int],
        expires: Sequence[int] | None = None,
        *,
        level: int = 0,
        deliveries: int = 0,
    ) -> None:
        """After a restart: messages with consecutive ids that the journal has, at the end of a level.

        `sizes`: octets of bodies; `expires`: monotonic ns each. Only where `may_page`.
        """
        if sizes:
            tail = self._begin_tail() if self._tail is None else self._tail
            tail.extend(first_id, sizes, expires, level=level, deliveries=deliveries)
            self.expiring = self.expiring or expires is not None

    def put_back(self, messages: list[Message]) -> tuple[list[Message], int]:
        """See `Store`."""
        if self._tail is not None:
            messages = self._put_into_tail(self._tail, messages)
        passed = self._merge(messages)
        if self._storage.pager is not None and self.may_page:
            self.allowance -= held_octets(messages)
            self.came_in += len(messages)
        return [], passed

    def _put_into_tail(self, tail: Tail, messages: list[Message]) -> list[Message]:
        """Put messages (ids falling) that stand behind others of the tail to their places; returns the others."""
        before: list[Message] = []
        last_id = -1  # the highest at hand, before the tail's head; looked for when it matters
        for message in messages:
            level = tail.level_of(message.envelope)
            if level == tail.floor and tail.head_id < message.id and last_id < 0:
                last_id = max((one.id for one in self._levels()[level]), default=0)
            if level < tail.floor or (level == tail.floor and tail.head_id < message.id and last_id < message.id):
                tail.insert(message)
            else:
                before.append(message)
        return before

    def put_first(self, message: Message) -> None:
        """See `Store`."""
        tail = self._tail
        here = self._level_of(message)
        if tail is not None or (here and here[0].id < message.id):
            self._scanner.unsorted()
        if tail is not None and tail.level_of(message.envelope) < tail.floor:
            tail.appendleft(message)
        else:
            self.ready.appendleft(message)

    def put_last(self, message: Message) -> None:
        """See `Store`."""
        tail = self._tail
        here = self._level_of(message)
        if tail is not None or (here and here[-1].id > message.id):
            self._scanner.unsorted()
        if tail is not None and tail.level_of(message.envelope) <= tail.floor:
            tail.append(message)
        else:
            self.ready.append(message)

    # -- out ----------------------------------------------------------------------------------------------------------

    def take(self, limit: int, room: int) -> list[Message]:
        """See `Store`."""
        ready = self.ready
        popleft = ready.popleft
        if limit <= 1 or not ready:
            return [popleft()] if ready and limit else []
        count = min(limit, len(ready))
        if len(ready[0].blob) * count < LIKELY * room and self.head_octets(count) < room:
            return [popleft() for _ in range(count)]
        taken: list[Message] = []
        append = taken.append
        for _ in range(count):
            message = popleft()
            append(message)
            room -= len(message.blob)
            if room <= 0:
                break
        return taken

    def head_octets(self, count: int) -> int:
        """See `Store`."""
        return sum(map(len, map(_BLOB, islice(self.ready, count))))

    def evict_head(self, count: int, *, with_content: bool) -> Removed:
        """See `Store`."""
        ready = self.ready
        while len(ready) < count and self._tail is not None:
            self.load()
        return Removed([ready.popleft() for _ in range(min(count, len(ready)))], [])

    def expire(self, now_ns: int, *, with_content: bool, count_max: int, octets_max: int) -> Removed:
        """See `Store`."""
        gone: list[Message] = []
        for level, messages in enumerate(self._levels()):
            if messages and 0 < messages[0].expires_ns <= now_ns:
                taken: list[Message] = []
                while len(gone) + len(taken) < count_max and messages and 0 < messages[0].expires_ns <= now_ns:
                    taken.append(messages.popleft())
                self._left_levels(taken)
                gone += taken
            while not messages and len(gone) < count_max:
                slice_ = self._take_expired(level, now_ns, count_max - len(gone))
                if not slice_:
                    break
                gone += slice_
        return Removed(gone, [])

    def _take_expired(self, level: int, now_ns: int, count_max: int) -> list[Message]:
        """Expired messages out of the tail, from the head of a level on; of many a slice."""
        tail = self._tail
        if tail is None or not 0 < tail.expires_ns(level) <= now_ns:
            return []
        return self._brought(tail.take_expired(level, now_ns, min(count_max, SLICE)))

    def _brought(self, parts: Sequence[Taken | Message]) -> list[Message]:
        """What was taken out of the tail, with contents."""
        found: list[Message] = []
        for part in parts:
            if isinstance(part, Message):
                found.append(part)
            else:
                found += self._loaded(part, part.ids, runs_of(self._storage, part))
        self._forget_empty_tail()
        return found

    def _loaded(self, part: Taken, ids: Sequence[int], runs: Sequence[Run]) -> list[Message]:
        """The last messages of a part, which are in memory from now on."""
        messages = messages_as_paged(self._owner, part, ids, runs)
        tell_loaded(self._owner, part, messages)
        if part.expires is not None:
            self.expiring = True
        return messages

    def _forget_empty_tail(self) -> None:
        if self._tail is not None and not len(self._tail):
            self._tail = None
            self.has_tail = False

    def drop_all(self) -> Dropped:
        """See `Store`."""
        ready, self.ready = self.ready, self._empty_ready()
        runs: list[tuple[Sequence[int], Envelope]] = []
        paged: list[Message] = []
        for part in self.paged_parts():
            if isinstance(part, Message):
                paged.append(part)
                continue
            runs.append((part.ids, part.envelope))
            if part.place is not None:
                self._storage.temp.release(part.place, sum(part.sizes[:]))
        self._tail = None
        self.has_tail = False
        self._scanner = Scanner()
        self._storage.memory.forget(self)
        self.allowance = self.came_in = 0
        return Dropped(ready, runs, paged, 0)

    def leave_owner(self) -> None:
        """See `Store`."""
        self._owner = NOBODY

    # -- memory -------------------------------------------------------------------------------------------------------

    @property
    def held_octets(self) -> int:
        """See `Store`."""
        return held_octets(self.ready)

    def allow_paging(self, allowed: bool) -> None:
        """See `Store`."""
        if allowed and not self.may_page:
            self.allowance, self.came_in = 0, -UNLIMITED  # nobody knows how much that was
        self.may_page = allowed

    def page_out(self, octets: int) -> int:
        """See `Store`."""
        if not self.may_page:
            return 0
        tail = self._begin_tail() if self._tail is None else self._tail
        freed = before = 0
        for level, messages in enumerate(self._levels()):
            while messages and freed < octets:
                taken: list[Message] = []
                size = 0
                while messages and freed + size < octets and len(taken) < PAGE_SLICE:
                    taken.append(messages.pop())
                    size += len(taken[-1].blob) + OVERHEAD
                self._left_levels(taken)
                freed += sink(self._owner, tail, level, taken[::-1])
                if freed == before:
                    return freed  # they cannot be paged out
                before = freed
        self._forget_empty_tail()
        return freed

    def _sink_below(self, tail: Tail, level: int) -> None:
        """A level begins to have a tail: what is ready below it may not come first any more."""
        for below, messages in enumerate(self._levels()[:level]):
            if messages:
                taken = list(messages)
                messages.clear()
                self._left_levels(taken)
                sink(self._owner, tail, below, taken)

    def grant(self, octets: int) -> None:
        """See `memory_budget.Debtor`."""
        self.allowance, self.came_in = octets, 0

    def settle_allowance(self) -> None:
        """See `Store`. Some more than need be is paged out, so that the next one that comes back finds room."""
        if self.allowance >= 0:
            return
        excess = -self.allowance
        pager, memory = self._storage.pager, self._storage.memory
        if not self.may_page or pager is None:
            self.allowance = UNLIMITED
        elif not memory.allows(self, 0, pager.memory):
            freed = self.page_out(excess + min(TAKE_MIN, pager.memory // 8))
            # What cannot leave is not asked again soon.
            memory.gave(self, freed, max(freed - excess, 0) if freed else TAKE_MIN)

    def is_low(self) -> bool:
        """See `Store`."""
        return self._tail is not None and len(self.ready) < LOW

    def wants_more(self, straight: bool, waiting: bool) -> bool:
        """See `Store`."""
        tail, pager = self._tail, self._storage.pager
        if tail is None:
            return False
        if straight:
            return waiting and not self.ready
        assert pager is not None
        octets = min(HIGH_OCTETS, pager.budget())
        if tail.level_max:
            octets //= 2  # the rest of the window is for higher levels that come, which else would have all of it sink
        return len(self.ready) < min(HIGH, max(1, octets // (tail.typical_size() + OVERHEAD)))

    def load(self) -> None:
        """See `Store`."""
        tail, pager = self._tail, self._storage.pager
        if tail is None:
            return
        assert pager is not None
        window = max(pager.budget(), SMALL)
        octets = min(SLICE_OCTETS, window)
        count = min(SLICE, 1 + octets // OVERHEAD)
        self._storage.memory.charge_window(self, min(HIGH_OCTETS, window), pager.memory)
        for part in tail.take(count, octets):
            if isinstance(part, Message):
                self._take_in(part)
            else:
                self.ready.extend(self._loaded(part, part.ids, runs_of(self._storage, part)))
        self._forget_empty_tail()

    def load_straight(self, count: int, octets: int, hand_over: HandOver) -> None:
        """See `Store`."""
        tail = self._tail
        if tail is None:
            return
        for part in tail.take(min(count, SLICE), min(octets, SLICE_OCTETS)):
            if isinstance(part, Message):
                self._take_in(part)
                continue
            ids, runs = part.ids, runs_of(self._storage, part)
            if not self.ready and part.expires is None and not part.deliveries and isinstance(ids, range):
                ids, runs = _hand_straight(hand_over, ids, runs)
            self.ready.extend(self._loaded(part, ids, runs))
        self._forget_empty_tail()

    def _take_in(self, message: Message) -> None:
        """A message that stood in the tail as it is."""
        self.expiring = self.expiring or bool(message.expires_ns)
        self.ready.append(message)

    # -- selection, browsing, replay ----------------------------------------------------------------------------------

    @abstractmethod
    def position_of(self, message: Message) -> int:
        """See `Store`."""

    def scan(self, after: int, count: int) -> Scanned:
        """See `Store`."""
        return self._scanner.scan(self._levels(), self._tail, after, count)

    def load_at(self, after: int, count: int) -> None:
        """See `Store`."""
        if self._tail is not None:
            pager = self._storage.pager
            assert pager is not None
            self._scanner.load(self._owner, pager, self._levels(), self._tail, after, count)

    def take_at(self, positions: Sequence[int]) -> Removed:
        """See `Store`."""
        levels = self._levels()
        wanted: dict[int, list[int]] = {}
        for position in sorted(set(positions)):
            rank, id_ = divmod(position, LEVEL_STEP)
            wanted.setdefault(len(levels) - 1 - rank, []).append(id_)
        found: list[Message] = []
        for level, ids in wanted.items():
            taken = self._scanner.take(levels[level], ids)
            self._left_levels(taken)
            found += taken
            if self._tail is not None and len(taken) < len(ids):
                found += self._brought(self._tail.take_ids(level, ids))
        self._scanner.forget(found)
        return Removed(found, [])


def _hand_straight(hand_over: HandOver, ids: range, runs: Sequence[Run]) -> tuple[range, Sequence[Run]]:
    """Give messages to consumers as if they were new. Returns what they did not take."""
    for at, (envelope, blobs) in enumerate(runs):
        taken = 0 if envelope.facts.is_marked else hand_over(ids.start, envelope, blobs)
        ids = ids[taken:]
        if taken < len(blobs):
            return ids, [(envelope, blobs[taken:]), *runs[at + 1 :]]
    return ids, ()
