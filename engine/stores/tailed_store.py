"""The common base of stores whose messages consumers take out: messages in memory, and a tail behind them.

When the messages in memory exceed their share, further ones stay in the journal; transient messages go to the temp
store. Source: queues page F; rulings 5, 16; docs/deep-queues.md.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter

from ..messages.levels import ONE_LEVEL, Levels
from ..messages.message import Envelope, Message
from ..messages.mixed import Envelopes, each_of
from .memory_budget import held_octets
from .paged_run import Part, octets_paged
from .ready import LeveledReady
from .scanning import Level, Scanner, is_beyond
from .sorted_list import SortedList
from .storage import NOBODY
from .store import LEVEL_STEP, Dropped, Removed, Scanned
from .tail_paging import HIGH_OCTETS, SLICE_OCTETS, TailPaging

#: `take` adds up the sizes first if messages of the first one's size would need less than this many times the room.
LIKELY = 4

_CONTENT = attrgetter("content")
_ID: Callable[[Message], int] = attrgetter("id")


class TailedStore(TailPaging):
    """Messages in memory (`ready`) by level, and the tail. See `Store`."""

    __slots__ = ()

    @property
    def pageable(self) -> "TailedStore | None":
        return self

    @property
    def levels(self) -> Levels:
        """The mapping of priorities to levels."""
        return ONE_LEVEL

    @property
    def level_max(self) -> int:
        return self.levels.top

    # -- implemented by each kind -------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def body_octets(self) -> int: ...

    @abstractmethod
    def _empty_ready(self) -> Level | LeveledReady: ...

    @abstractmethod
    def _merge(self, messages: list[Message]) -> int:
        """Insert messages (ids falling) into memory by their ids. Returns the number of messages before them."""

    def _level_number(self, message: Message) -> int:
        """The index of a message's level in `_levels`."""
        return self.levels.of(message.envelope.summary.priority)

    def _reach(self, level: int, id_: int) -> None:
        """Prepare a level for access at an id: a deque that is long up to there becomes `SortedList`. O(n), once."""
        here = self._levels()[level]
        if self._scanner.is_sorted and is_beyond(here, id_):
            self._set_level(level, SortedList(here, _ID))

    def _loosen(self) -> None:
        """Note that messages of a level may not be in order of ids."""
        self._scanner.is_sorted = False
        for level, here in enumerate(self._levels()):
            if isinstance(here, SortedList):
                self._set_level(level, deque(here))

    @property
    @abstractmethod
    def counts_octets(self) -> bool:
        """Whether `body_octets` includes paged-out messages."""

    def take_over(self, other: "TailedStore") -> None:
        """Take all messages from another store with the same levels. O(messages in memory)."""
        self._tail, other._tail = other._tail, None
        self.has_tail, other.has_tail = other.has_tail, False
        if self._tail is not None:
            if self.counts_octets:
                self._tail.count_octets()
            else:
                self._tail.octets = None
        self.ready.extend(other.ready)
        self._scanner, self.expiring, self.may_page = other._scanner, other.expiring, other.may_page
        self.cap, self._is_metered, self._is_unsettled = other.cap, other._is_metered, other._is_unsettled
        other.drop_all()

    # -- contents -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        tail = self._tail
        return len(self.ready) if tail is None else len(self.ready) + len(tail)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.ready)

    @property
    def is_deep(self) -> bool:
        return self._tail is not None

    @property
    def next_expiry_ns(self) -> int:
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
        return [] if self._tail is None else self._tail.parts()

    def paged_sizes(self, parts: Iterable[Part | Message]) -> Iterable[tuple[int, int, bool]]:
        for part in parts:
            if not isinstance(part, Message):
                are_stored = part.location is None or self._owner.stores(part.envelope)
                yield len(part.ids), octets_paged(part.sizes[:], part.location), are_stored

    @property
    def first_offset(self) -> int | None:
        return None

    def expect_expiry(self) -> None:
        self.expiring = True

    # -- in -----------------------------------------------------------------------------------------------------------

    def new_message(self, id_: int, content: bytes, envelope: Envelope) -> Message:
        return Message(id_, content, envelope)

    def append_run(self, first_id: int, envelopes: Envelopes, contents: Sequence[bytes]) -> None:
        if self._tail is not None:
            self._extend_tail(self._tail, first_id, envelopes, contents)
        elif (self._storage.pager is not None or self.cap is not None) and not self._is_granted(
            sum(map(len, contents)), len(contents)
        ):
            self._extend_tail(self._begin_tail(), first_id, envelopes, contents)
        else:
            self.ready.extend(map(Message, range(first_id, first_id + len(contents)), contents, each_of(envelopes)))

    def append(self, message: Message) -> Message | None:
        if self._tail is not None:
            self._append_to_tail(self._tail, message)
        elif (self._storage.pager is not None or self.cap is not None) and not self._is_granted(
            len(message.content), 1
        ):
            self._append_to_tail(self._begin_tail(), message)
        else:
            self.ready.append(message)
        return None

    def put_back(self, messages: list[Message]) -> tuple[list[Message], int]:
        if self._tail is not None:
            messages = self._put_into_tail(self._tail, messages)
        for message in messages:
            self._reach(self._level_number(message), message.id)
        passed = self._merge(messages)
        if self._storage.pager is not None and self.may_page:
            self.quota -= held_octets(messages)
            self.came_in += len(messages)
        self._is_unsettled = self.cap is not None
        return [], passed

    def put_first(self, message: Message) -> Message | None:
        tail = self._tail
        here = self._levels()[self._level_number(message)]
        if tail is not None or (here and here[0].id < message.id):
            self._loosen()
        if tail is not None and (level := tail.level_of(message.envelope)) < tail.floor:
            tail.put_back(level, (self._item_of(tail, message),))
        else:
            self.ready.appendleft(message)
            self._is_unsettled = self.cap is not None
        return None

    def put_last(self, message: Message) -> Message | None:
        tail = self._tail
        here = self._levels()[self._level_number(message)]
        if tail is not None or (here and here[-1].id > message.id):
            self._loosen()
        if tail is not None and (level := tail.level_of(message.envelope)) <= tail.floor:
            tail.put_last(level, self._item_of(tail, message))
        else:
            self.ready.append(message)
            self._is_unsettled = self.cap is not None
        return None

    # -- out ----------------------------------------------------------------------------------------------------------

    def take(self, limit: int, room: int) -> list[Message]:
        ready = self.ready
        popleft = ready.popleft
        if limit <= 1 or not ready:
            return [popleft()] if ready and limit else []
        count = min(limit, len(ready))
        if len(ready[0].content) * count < LIKELY * room and self.head_octets(count) < room:
            if count == len(ready) and type(ready) is deque:
                everything = list(ready)
                ready.clear()
                return everything
            return [popleft() for _ in range(count)]
        taken: list[Message] = []
        append = taken.append
        for _ in range(count):
            message = popleft()
            append(message)
            room -= len(message.content)
            if room <= 0:
                break
        return taken

    def head_octets(self, count: int) -> int:
        return sum(map(len, map(_CONTENT, islice(self.ready, count))))

    def evict_head(self, count: int, *, with_content: bool) -> Removed:
        ready = self.ready
        while len(ready) < count and self._tail is not None:
            self.load(count - len(ready), SLICE_OCTETS)
        return Removed([ready.popleft() for _ in range(min(count, len(ready)))], [])

    def expire(self, now_ns: int, *, with_content: bool, count_max: int, octets_max: int) -> Removed:
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

    def drop_all(self) -> Dropped:
        ready, self.ready = self.ready, self._empty_ready()
        runs: list[tuple[Sequence[int], Envelope]] = []
        paged: list[Message] = []
        for part in self.paged_parts():
            if isinstance(part, Message):
                paged.append(part)
                continue
            runs.append((part.ids, part.envelope))
            if part.location is not None:
                self._storage.temp.release(part.location, sum(part.sizes[:]))
        self._tail = None
        self.has_tail = False
        self._scanner = Scanner()
        self._storage.memory.forget(self)
        self.quota = self.came_in = 0
        return Dropped(ready, runs, paged, None)

    def leave_owner(self) -> None:
        self._owner = NOBODY

    # -- selection, browsing, replay ----------------------------------------------------------------------------------

    @abstractmethod
    def position_of(self, message: Message) -> int:
        pass

    def scan(self, after: int, count: int) -> Scanned:
        self._reach_at(after)
        return self._scanner.scan(self._levels(), self._tail, after, count)

    def positions(self, after: int, count: int) -> list[int]:
        """The positions of up to `count` messages after a position (0: from the head), in the order of a scan.

        Reads no files.
        """
        self._reach_at(after)
        return self._scanner.positions(self._levels(), self._tail, after, count)

    def _reach_at(self, position: int) -> None:
        rank, id_ = divmod(position, LEVEL_STEP)
        if rank < len(self._levels()):
            self._reach(len(self._levels()) - 1 - rank, id_)

    def load_at(self, after: int, count: int) -> None:
        if self._tail is not None:
            self._reach_at(after)
            pager = self._storage.pager
            budget = HIGH_OCTETS if pager is None else pager.budget()
            self._scanner.load(self._owner, budget, self._levels(), self._tail, after, count)

    def take_at(self, positions: Sequence[int]) -> Removed:
        count = len(self._levels())
        wanted: dict[int, list[int]] = {}
        for position in sorted(set(positions)):
            rank, id_ = divmod(position, LEVEL_STEP)
            wanted.setdefault(count - 1 - rank, []).append(id_)
        found: list[Message] = []
        for level, ids in wanted.items():
            self._reach(level, ids[-1])
            taken = self._scanner.take(self._levels()[level], ids)
            self._left_levels(taken)
            found += taken
            if self._tail is not None and len(taken) < len(ids):
                found += self._brought(self._tail.take_ids(level, ids))
        self._scanner.forget(found)
        return Removed(found, [])
