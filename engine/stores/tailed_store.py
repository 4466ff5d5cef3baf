"""The store of ordinary queues, whose consumers take messages out: messages in memory, and a tail behind them.

When the messages in memory exceed their share, further ones stay in the journal; transient messages go to the temp
store. Messages in memory always come before paged-out ones: before a level pages out, the lower levels in memory are
paged out completely. Source: behaviour page 3.3, 3.5; queues page F; rulings 5, 16; docs/deep-queues.md.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import ClassVar

from ..messages.levels import Levels
from ..messages.message import UNLIMITED, Envelope, Envelopes, Message, content_of, each_of
from .levels import Level, LeveledReady, ManyLevels, OneLevel, ReadyLevels
from .memory_budget import OVERHEAD, PAGE_OUT_MAX, PAGE_OUT_OCTETS, SMALL, held_octets
from .memory_share import MemoryCap, MemoryShare
from .paged_run import HEADER_OCTETS, PagedRun, Part, Run, Taken
from .storage import NO_OWNER, StoreOwner
from .store import LEVEL_STEP, Dropped, Removed, Scanned
from .tail import Tail
from .tail_io import TailIO, runs_of

#: Receives new messages with consecutive ids: first id, envelope, contents. Returns the number that it took.
HandOver = Callable[[int, Envelope, Sequence[bytes]], int]

#: A deep store loads messages when fewer than `LOW` are in memory, up to about `HIGH` messages or `HIGH_OCTETS`, ...
LOW, HIGH, HIGH_OCTETS = 2000, 6000, 16 * 1024 * 1024
#: ... in slices of this many messages or octets.
LOAD_SLICE, LOAD_OCTETS = 1000, 4 * 1024 * 1024
#: Messages paged out before checking whether that freed memory.
PAGE_SLICE = 1000
#: `take` adds up the sizes of all messages if `count` times the first one's size is below this many times the room.
LIKELY = 4


class TailedStore:
    """The store of an ordinary queue. `levels`: messages in memory; `tail`: paged-out ones; `share`: memory limits.

    `tail_io` moves messages from memory to the tail and back. `ready` is `levels.ready`, and `has_tail` whether there
    is a tail: plain attributes, because each run reads them. `counts_octets`: `body_octets` includes paged-out
    messages.
    """

    first_offset: ClassVar[None] = None

    __slots__ = ("_is_single", "_storage", "counts_octets", "expiring", "has_tail", "levels", "ready", "share", "tail",
                 "tail_io")  # fmt: skip

    ready: Level | LeveledReady

    def __init__(self, owner: StoreOwner, levels: ReadyLevels | None = None, *, counts_octets: bool = False) -> None:
        self._storage = owner.storage
        self.levels: ReadyLevels = OneLevel() if levels is None else levels
        self._is_single = levels is None
        self.ready = self.levels.ready
        self.tail: Tail | None = None
        self.has_tail = False
        self.share = MemoryShare(self._storage)
        self.tail_io = TailIO(owner)
        self.counts_octets = counts_octets
        self.expiring = False

    @classmethod
    def of_levels(cls, owner: StoreOwner, levels: Levels, *, counts_octets: bool) -> "TailedStore":
        """An empty store with these levels of priority. `counts_octets`: whether it counts the octets of bodies."""
        if levels.top or counts_octets:
            return cls(owner, ManyLevels(LeveledReady(levels)), counts_octets=counts_octets)
        return cls(owner)

    def converted(self, owner: StoreOwner, *, counts_octets: bool) -> "TailedStore":
        """The store of a queue whose rules changed: this one, or, if `counts_octets` differs, another one with all its
        messages. Then O(messages in memory).
        """
        if self.counts_octets is counts_octets:
            return self
        other = TailedStore.of_levels(owner, self.levels.mapping, counts_octets=counts_octets)
        other.take_over(self)
        return other

    def take_over(self, other: "TailedStore") -> None:
        """Take all messages from another store with the same levels. O(messages in memory)."""
        self.tail, other.tail = other.tail, None
        self.has_tail, other.has_tail = other.has_tail, False
        if self.tail is not None:
            if self.counts_octets:
                self.tail.count_octets()
            else:
                self.tail.octets = None
        self.levels.take_over(other.levels)
        self.share.take_over(other.share)
        self.tail_io.is_metered = other.tail_io.is_metered
        self.expiring = other.expiring
        other.drop_all()

    def leave_owner(self) -> None:
        self.tail_io.owner = NO_OWNER

    # -- contents -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        tail = self.tail
        return len(self.ready) if tail is None else len(self.ready) + len(tail)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.ready)

    @property
    def level_max(self) -> int:
        return self.levels.mapping.top

    @property
    def in_memory(self) -> int:
        return len(self.ready)

    @property
    def is_deep(self) -> bool:
        return self.tail is not None

    @property
    def held_octets(self) -> int:
        return held_octets(self.ready)

    @property
    def body_octets(self) -> int:
        tail, octets = self.tail, self.levels.octets
        if octets is None:
            return 0
        return octets + (0 if tail is None else tail.octets or 0)

    @property
    def next_expiry_ns(self) -> int:
        tail = self.tail
        soonest = 0
        for level, messages in enumerate(self.levels.by_level):
            if messages:
                due_ns = messages[0].expires_ns
            else:
                due_ns = 0 if tail is None else tail.expires_ns(level)
            if due_ns and (not soonest or due_ns < soonest):
                soonest = due_ns
        return soonest

    def paged_parts(self) -> list[Part | Message]:
        return [] if self.tail is None else self.tail.parts()

    def paged_sizes(self, parts: Iterable[Part | Message]) -> Iterable[tuple[int, int, bool]]:
        return self.tail_io.sizes_of(parts)

    # -- in -----------------------------------------------------------------------------------------------------------

    def new_message(self, id_: int, content: bytes, envelope: Envelope) -> Message:
        return Message(id_, content, envelope)

    def append_run(self, first_id: int, envelopes: Envelopes, contents: Sequence[bytes]) -> None:
        if not self._is_single:
            for id_, (content, envelope) in enumerate(zip(contents, each_of(envelopes)), first_id):
                self.append(self.new_message(id_, content, envelope))
        elif self.tail is not None:
            self.tail_io.extend(self.tail, first_id, envelopes, contents)
        elif (self._storage.pager is not None or self.share.cap is not None) and not self.share.reserve(
            self, sum(map(len, contents)), len(contents)
        ):
            self.tail_io.extend(self._begin_tail(), first_id, envelopes, contents)
        else:
            self.ready.extend(map(Message, range(first_id, first_id + len(contents)), contents, each_of(envelopes)))

    def append(self, message: Message) -> Message | None:
        if self.tail is not None:
            self._append_to_tail(self.tail, message)
        elif (self._storage.pager is not None or self.share.cap is not None) and not self.share.reserve(
            self, len(message.content), 1
        ):
            self._append_to_tail(self._begin_tail(), message)
        else:
            self.ready.append(message)
        return None

    def _append_to_tail(self, tail: Tail, message: Message) -> None:
        """Append a message to its level, in memory if it comes before all of the tail and there is room."""
        level = tail.level_of(message.envelope)
        if level > tail.floor:
            if self.share.reserve_above_tail(self, message):
                self.ready.append(message)
                self._forget_empty_tail()
                return
            self._page_out_below(tail, level)
        if message.stays_in_memory or not self.share.may_page:
            tail.append(message)
        else:
            self.tail_io.append(tail, level, message)

    def restore_run(
        self,
        first_id: int,
        sizes: Sequence[int],
        expires: Sequence[int] | None = None,
        *,
        level: int = 0,
        deliveries: int = 0,
    ) -> None:
        """Append messages with consecutive ids to a level, from the journal after a restart.

        `sizes`: octets of each body; `expires`: monotonic ns of each; `deliveries`: delivery count of each. Requires
        `share.may_page`.
        """
        if sizes:
            tail = self._begin_tail() if self.tail is None else self.tail
            tail.extend(first_id, sizes, expires, level=level, deliveries=deliveries)
            self.expiring = self.expiring or expires is not None

    def put_back(self, messages: list[Message]) -> tuple[list[Message], int]:
        levels = self.levels
        levels.forget(messages)
        if self.tail is not None:
            messages = self._put_into_tail(self.tail, messages)
        for message in messages:
            levels.prepare(levels.number_of(message), message.id)
        passed = levels.merge(messages)
        self.ready = levels.ready
        self.share.returned(messages)
        return [], passed

    def _put_into_tail(self, tail: Tail, messages: list[Message]) -> list[Message]:
        """Insert the messages (ids falling) that belong behind others of the tail. Returns: the other messages."""
        before: list[Message] = []
        last_id = -1  # the highest id in memory, before the tail's head; found on first need
        for message in messages:
            level = tail.level_of(message.envelope)
            if level == tail.floor and tail.head_id < message.id and last_id < 0:
                last_id = self.levels.last_id(level)
            if level < tail.floor or (level == tail.floor and tail.head_id < message.id and last_id < message.id):
                tail.insert(level, self._item_of(tail, message))
            else:
                before.append(message)
        return before

    def _item_of(self, tail: Tail, message: Message) -> PagedRun | Message:
        """The tail's item for a message that was in memory: the message itself, or, beyond the cap, a paged-out run."""
        if self.share.is_within_cap:
            return message
        (item,), _ = self.tail_io.page(tail, (message,))
        return item

    def put_first(self, message: Message) -> Message | None:
        tail = self.tail
        self.levels.forget((message,))
        messages = self.levels.by_level[self.levels.number_of(message)]
        if tail is not None or (messages and messages[0].id < message.id):
            self._mark_unsorted()
        if tail is not None and (level := tail.level_of(message.envelope)) < tail.floor:
            tail.put_back(level, (self._item_of(tail, message),))
        else:
            self.ready.appendleft(message)
            self.share.request_cap_check()
        return None

    def put_last(self, message: Message) -> Message | None:
        tail = self.tail
        self.levels.forget((message,))
        messages = self.levels.by_level[self.levels.number_of(message)]
        if tail is not None or (messages and messages[-1].id > message.id):
            self._mark_unsorted()
        if tail is not None and (level := tail.level_of(message.envelope)) <= tail.floor:
            tail.put_last(level, self._item_of(tail, message))
        else:
            self.ready.append(message)
            self.share.request_cap_check()
        return None

    def _mark_unsorted(self) -> None:
        self.levels.mark_unsorted()
        self.ready = self.levels.ready

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
        return sum(map(len, map(content_of, islice(self.ready, count))))

    def evict_head(self, count: int, *, with_content: bool) -> Removed:
        ready = self.ready
        while len(ready) < count and self.tail is not None:
            self.load(count - len(ready), LOAD_OCTETS)
            self.share.request_cap_check()
        return Removed([ready.popleft() for _ in range(min(count, len(ready)))], [])

    def expire(self, now_ns: int, *, with_content: bool, count_max: int, octets_max: int) -> Removed:
        gone: list[Message] = []
        for level, messages in enumerate(self.levels.by_level):
            if messages and 0 < messages[0].expires_ns <= now_ns:
                taken: list[Message] = []
                while len(gone) + len(taken) < count_max and messages and 0 < messages[0].expires_ns <= now_ns:
                    taken.append(messages.popleft())
                self.levels.left(taken)
                gone += taken
            while not messages and len(gone) < count_max:
                slice_ = self._take_expired(level, now_ns, count_max - len(gone))
                if not slice_:
                    break
                gone += slice_
        return Removed(gone, [])

    def _take_expired(self, level: int, now_ns: int, count_max: int) -> list[Message]:
        """Take a slice of expired messages from the head of a level of the tail."""
        tail = self.tail
        if tail is None or not 0 < tail.expires_ns(level) <= now_ns:
            return []
        return self._load_taken(tail.take_expired(level, now_ns, min(count_max, LOAD_SLICE)))

    def drop_all(self) -> Dropped:
        ready = self.levels.take_all()
        self.ready = self.levels.ready
        runs: list[tuple[Sequence[int], Envelope]] = []
        paged: list[Message] = []
        for part in self.paged_parts():
            if isinstance(part, Message):
                paged.append(part)
                continue
            runs.append((part.ids, part.envelope))
            if part.location is not None:
                self._storage.temp.release(part.location, sum(part.sizes[:]))
        self.tail = None
        self.has_tail = False
        self.share.release(self)
        return Dropped(ready, runs, paged, None)

    # -- selection, browsing, replay ----------------------------------------------------------------------------------

    def position_of(self, message: Message) -> int:
        return self.levels.position_of(message)

    def scan(self, after: int, count: int) -> Scanned:
        self._prepare_at(after)
        return self.levels.scan(self.tail, after, count)

    def positions(self, after: int, count: int) -> list[int]:
        """The positions of up to `count` messages after a position (0: from the head), in the order of a scan.

        Reads no files.
        """
        self._prepare_at(after)
        return [position for position, _, _ in self.levels.order(self.tail, after, count)]

    def _prepare_at(self, position: int) -> None:
        rank, id_ = divmod(position, LEVEL_STEP)
        level = self.level_max - rank
        if level >= 0:
            self._prepare(level, id_)

    def _prepare(self, level: int, id_: int) -> None:
        self.levels.prepare(level, id_)
        self.ready = self.levels.ready

    def load_at(self, after: int, count: int) -> None:
        if self.tail is not None:
            self._prepare_at(after)
            pager = self._storage.pager
            budget = HIGH_OCTETS if pager is None else pager.budget()
            window = self.levels.load(self.tail_io.owner, budget, self.tail, after, count)
            default = self.levels.mapping.default
            ids = sorted(one.id for one in window if self.levels.number_of(one) < default) if default else ()
            for part in self.tail.take_ids(default, ids) if ids else ():
                self._add_to_ready(self.tail, default, self._loaded(part))

    def take_at(self, positions: Sequence[int]) -> Removed:
        wanted: dict[int, list[int]] = {}
        for position in sorted(set(positions)):
            rank, id_ = divmod(position, LEVEL_STEP)
            wanted.setdefault(self.level_max - rank, []).append(id_)
        found: list[Message] = []
        for level, ids in wanted.items():
            self._prepare(level, ids[-1])
            taken = self.levels.take(level, ids)
            found += taken
            if self.tail is not None and len(taken) < len(ids):
                found += self._load_taken(self.tail.take_ids(level, ids))
                self.share.request_cap_check()
        return Removed(found, [])

    # -- out of memory ------------------------------------------------------------------------------------------------

    def _begin_tail(self) -> Tail:
        tail = self.tail = Tail(self.levels.mapping)
        self.has_tail = True
        if self.counts_octets:
            tail.count_octets()
        return tail

    def _forget_empty_tail(self) -> None:
        if self.tail is not None and not len(self.tail):
            self.tail = None
            self.has_tail = False
            self.levels.forget_window()

    def limit_memory(self, cap: MemoryCap | None, *, is_metered: bool) -> None:
        """Set the queue's memory cap, which applies in addition to the common budget; None: no cap.

        `is_metered`: the store calls `StoreOwner.paged_out`. The caller calls `enforce_quota` next.
        """
        self.share.cap = cap
        self.share.request_cap_check()
        self.tail_io.is_metered = is_metered

    def page_out(self, octets: int, count_max: int = UNLIMITED) -> int:
        """Page out the last messages in memory, lower levels first, until these octets or this count are reached, or a
        slice frees nothing. Returns the octets freed; 0 if the queue may not page out.
        """
        if not self.share.may_page:
            return 0
        tail = self._begin_tail() if self.tail is None else self.tail
        freed = before = 0
        for level, messages in enumerate(self.levels.by_level):
            while messages and freed < octets and count_max > 0:
                taken: list[Message] = []
                size = 0
                slice_max = min(count_max, PAGE_SLICE)
                while messages and freed + size < octets and len(taken) < slice_max:
                    taken.append(messages.pop())
                    size += len(taken[-1].content) + OVERHEAD
                self.levels.left(taken)
                freed += self.tail_io.page_to_head(tail, level, taken[::-1])
                count_max -= len(taken)
                if freed == before:
                    return freed  # they cannot be paged out
                before = freed
        self._forget_empty_tail()
        return freed

    def _page_out_below(self, tail: Tail, level: int) -> None:
        """Page out all lower levels in memory: the messages of this level come before them, and go to the tail."""
        for below, messages in enumerate(self.levels.by_level[:level]):
            if messages:
                taken = list(messages)
                messages.clear()
                self.levels.left(taken)
                self.tail_io.page_to_head(tail, below, taken)

    def page_again(self) -> bool:
        """Page out messages of the tail that are in memory, as after a disk failure. Returns whether more may wait."""
        tail = self.tail
        if not self.share.may_page:
            return False
        self.share.request_cap_check()
        return tail is not None and tail.page(lambda messages: self.tail_io.page(tail, messages)[0], PAGE_OUT_MAX)

    def enforce_quota(self) -> bool:
        """Page out the last messages if requeued messages exceed the quota, or a new cap requires it.

        Returns: whether there is more to page out.
        """
        share = self.share
        if share.needs_cap_check:
            self._keep_to_cap(share)
        if share.quota < 0:
            share.reduce(self)
        return share.needs_cap_check

    def _keep_to_cap(self, share: MemoryShare) -> None:
        """Page out messages beyond the cap, at most a slice."""
        share.needs_cap_check = False
        count_max, octets_max = PAGE_OUT_MAX, PAGE_OUT_OCTETS
        while share.cap is not None and self.ready:
            count, octets = share.cap.excess()
            if not count:
                return
            if count_max <= 0 or octets_max <= 0:
                share.needs_cap_check = True
                return
            before = len(self.ready)
            freed = self.page_out(min(octets, octets_max), min(count, count_max))
            if not freed:
                return
            count_max -= before - len(self.ready)
            octets_max -= freed

    # -- back into memory ---------------------------------------------------------------------------------------------

    def is_low(self) -> bool:
        """Whether messages are paged out and few are in memory, so that `wants_more` must be checked."""
        return self.tail is not None and len(self.ready) < LOW

    def wants_more(self, is_straight: bool, is_waiting: bool) -> bool:
        """Whether to load more, because memory has fewer messages than consumers may take soon, within its limits.

        `is_straight`: loaded messages go directly to consumers (`load_straight`). `is_waiting`: a consumer waits now,
        which matters only if no message is in memory.
        """
        tail, pager = self.tail, self._storage.pager
        if tail is None:
            return False
        if is_straight or not self.share.has_room_to_load(tail.typical_size() + HEADER_OCTETS):
            return is_waiting and not self.ready
        octets = HIGH_OCTETS if pager is None else min(HIGH_OCTETS, pager.budget())
        if tail.level_max:
            octets //= 2  # leaves room for new messages of higher levels, which would page all of it out
        return len(self.ready) < min(HIGH, max(1, octets // (tail.typical_size() + OVERHEAD)))

    def load(self, wanted: int = 1, wanted_octets: int = 1) -> None:
        """Load a slice of the tail into memory. Reads files. Raises: Unreadable.

        `wanted`, `wanted_octets`: the part that leaves memory at once, so that no cap applies to it; at least a
        message.
        """
        tail, pager, cap = self.tail, self._storage.pager, self.share.cap
        if tail is None:
            return
        window = HIGH_OCTETS if pager is None else max(pager.budget(), SMALL)
        octets = min(LOAD_OCTETS, window)
        count = min(LOAD_SLICE, 1 + octets // OVERHEAD)
        if cap is not None and self.share.may_page:
            room, room_octets = cap.room()
            count, octets = min(count, max(room, wanted)), min(octets, max(room_octets, wanted_octets))
            window = min(window, max(cap.octets, SMALL))
        if pager is not None:
            self._storage.memory.charge_window(self, min(HIGH_OCTETS, window), pager.memory)
        level = tail.floor
        for part in tail.take(count, octets):
            self._add_to_ready(tail, level, self._loaded(part))
        self._forget_empty_tail()

    def load_straight(self, count: int, octets: int, hand_over: HandOver, from_id: int = 0) -> None:
        """Read messages and offer them to `hand_over` as if new. Raises: Unreadable.

        `count`, `octets`: maximum, at most that of a slice; at least one message is read. `from_id`: messages with
        lower ids become ready instead, as do all from the first that `hand_over` does not take.
        """
        tail = self.tail
        if tail is None:
            return
        level = tail.floor
        for part in tail.take(min(count, LOAD_SLICE), min(octets, LOAD_OCTETS)):
            if isinstance(part, Message):
                self._add_to_ready(tail, level, self._loaded(part))
                continue
            ids, runs = part.ids, runs_of(self._storage, part)
            is_plain = not self.ready and part.expires is None and not part.deliveries and not self._is_mixed(level)
            if is_plain and isinstance(ids, range) and ids.start >= from_id:
                ids, runs = _hand_over(hand_over, ids, runs)
            self._add_to_ready(tail, level, self._messages_of(part, ids, runs))
        self._forget_empty_tail()

    def _is_mixed(self, level: int) -> bool:
        """Whether a level of the tail may have messages of a lower one. Where messages without a priority are above
        those of priority 0, a restart puts both into one level: the journal records both as 0.
        """
        return 0 < level == self.levels.mapping.default

    def _add_to_ready(self, tail: Tail, level: int, messages: Sequence[Message]) -> None:
        """Add messages that were loaded from a level of the tail to memory; those of a lower level go back."""
        lower = [one for one in messages if self.levels.number_of(one) < level] if self._is_mixed(level) else ()
        if lower:
            messages = [one for one in messages if self.levels.number_of(one) >= level]
            for message in lower:
                for item in self.tail_io.page(tail, (message,))[0]:
                    tail.insert(self.levels.number_of(message), item)
        self.ready.extend(messages)

    def _loaded(self, part: Taken | Message) -> Sequence[Message]:
        """The messages of a part of the tail, for memory."""
        if isinstance(part, Message):
            self.expiring = self.expiring or bool(part.expires_ns)
            return (part,)
        return self._messages_of(part, part.ids, runs_of(self._storage, part))

    def _load_taken(self, parts: Sequence[Taken | Message]) -> list[Message]:
        """Load the contents of messages that were taken out of the tail."""
        found: list[Message] = []
        for part in parts:
            if isinstance(part, Message):
                found.append(part)
            else:
                found += self._messages_of(part, part.ids, runs_of(self._storage, part))
        self._forget_empty_tail()
        return found

    def _messages_of(self, part: Taken, ids: Sequence[int], runs: Sequence[Run]) -> list[Message]:
        """The last messages of a part, for memory. `ids`, `runs`: their ids and contents."""
        self.expiring = self.expiring or part.expires is not None
        return self.tail_io.loaded(part, ids, runs)


def _hand_over(hand_over: HandOver, ids: range, runs: Sequence[Run]) -> tuple[range, Sequence[Run]]:
    """Offer messages to consumers as if new. Returns: the messages that they did not take."""
    for at, (envelope, contents) in enumerate(runs):
        taken = 0 if envelope.summary.is_marked else hand_over(ids.start, envelope, contents)
        ids = ids[taken:]
        if taken < len(contents):
            return ids, [(envelope, contents[taken:]), *runs[at + 1 :]]
    return ids, ()
