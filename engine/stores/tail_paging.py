"""Paging of a store's messages out to its tail and back into memory.

The journal records messages when they arrive; other messages go to the temp store. The tail records where they are.
The memory budget limits the messages in memory, and so does the queue's cap, if it has one.
Source: queues page F; rulings 5, 16; docs/deep-queues.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from ..messages.message import Envelope, Message
from ..messages.mixed import Envelopes, stretches_alike
from .memory_budget import OVERHEAD, SMALL, TAKE_MIN, UNLIMITED, held_octets
from .memory_cap import LEAVING_MAX, LEAVING_OCTETS, MemoryCap
from .paged_run import HEADER_OCTETS, Location, PagedRun, Run, Taken, octets_paged
from .paging import is_in_journal, may_spool, messages_as_paged, paged, runs_of, sink, tell_loaded
from .ready import LeveledReady
from .scanning import Level, Scanner
from .storage import Owner
from .tail import Tail

#: Receives new messages with consecutive ids: first id, envelope, contents. Returns the number that it took.
HandOver = Callable[[int, Envelope, Sequence[bytes]], int]

#: A deep store loads messages when fewer than `LOW` are in memory, up to about `HIGH` messages or `HIGH_OCTETS`, ...
LOW, HIGH, HIGH_OCTETS = 2000, 6000, 16 * 1024 * 1024
#: ... in slices of this many messages or octets.
SLICE, SLICE_OCTETS = 1000, 4 * 1024 * 1024
#: Messages paged out before checking whether that freed memory.
PAGE_SLICE = 1000


class TailPaging(ABC):
    """The part of a `TailedStore` that manages the tail and the limits of memory."""

    __slots__ = ("_is_metered", "_is_unsettled", "_owner", "_scanner", "_storage", "_tail", "came_in", "cap",
                 "expiring", "has_tail", "may_page", "quota", "ready")  # fmt: skip

    ready: Level | LeveledReady

    def __init__(self, owner: Owner, ready: Level | LeveledReady) -> None:
        self._owner = owner
        self._storage = owner.storage
        self.ready = ready
        self._tail: Tail | None = None
        self.has_tail = False  # a plain attribute, because each run reads it
        self._scanner = Scanner()
        self.quota = 0
        self.came_in = 0  # see `memory_budget.Debtor`
        self.expiring = False
        self.may_page = True
        self.cap: MemoryCap | None = None
        self._is_metered = False
        self._is_unsettled = False  # memory may exceed the cap

    # -- implemented by each kind -------------------------------------------------------------------------------------

    @abstractmethod
    def _levels(self) -> Sequence[Level]:
        """The messages in memory, by level."""

    @abstractmethod
    def _set_level(self, level: int, messages: Level) -> None:
        """Replace the container of a level's messages in memory."""

    @abstractmethod
    def _left_levels(self, messages: Sequence[Message]) -> None:
        """Called when messages were taken out of one of `_levels`."""

    @abstractmethod
    def _begin_tail(self) -> Tail:
        """Make the tail."""

    def _is_within_charge(self, message: Message) -> bool:
        """Whether this message fits into the store's charge in the memory budget; if so, it is counted."""
        return False

    # -- to the tail --------------------------------------------------------------------------------------------------

    def _extend_tail(self, tail: Tail, first_id: int, envelopes: Envelopes, contents: Sequence[bytes]) -> None:
        if isinstance(envelopes, Envelope):
            self._extend_tail_alike(tail, first_id, envelopes, contents)
        elif all(is_in_journal(self._owner, envelope) for envelope in set(envelopes)):
            sizes = [one.framing.body_size(content) for one, content in zip(envelopes, contents)]
            tail.extend(first_id, sizes)
            self._note_paged(contents, sizes, None, are_stored=True)
        else:
            for start, stop, envelope in stretches_alike(envelopes):
                self._extend_tail_alike(tail, first_id + start, envelope, contents[start:stop])

    def _extend_tail_alike(self, tail: Tail, first_id: int, envelope: Envelope, contents: Sequence[bytes]) -> None:
        owner = self._owner
        if is_in_journal(owner, envelope):
            sizes = envelope.framing.body_sizes(contents)
            tail.extend(first_id, sizes)
            self._note_paged(contents, sizes, None, are_stored=True)
            return
        location = self._storage.temp.spool(contents) if may_spool(owner, envelope) else None
        if location is not None:
            sizes = list(map(len, contents))
            tail.extend(first_id, sizes, location=location, envelope=envelope)
            self._note_paged(contents, sizes, location, are_stored=owner.stores(envelope))
            return
        owner.could_not_page()
        for offset, content in enumerate(contents):
            tail.append(Message(first_id + offset, content, envelope))

    def _note_paged(
        self, contents: Sequence[bytes], sizes: Sequence[int], location: Location | None, *, are_stored: bool
    ) -> None:
        """Report new messages that were paged out at once."""
        if self._is_metered:
            octets = sum(map(len, contents))
            self._owner.paged_out(len(contents), octets, octets_paged(sizes, location), are_stored=are_stored)

    def _append_to_tail(self, tail: Tail, message: Message) -> None:
        """Append a message. Transient ones stay in memory if octets of bodies are counted, because the tail would know
        only the size of spooled contents.
        """
        envelope = message.envelope
        level = tail.level_of(envelope)
        if level > tail.floor:
            if self._is_kept_to and (self._is_within_charge(message) or self._is_granted(len(message.content), 1)):
                self.ready.append(message)
                self._forget_empty_tail()
                return
            self._sink_below(tail, level)
        expires = (message.expires_ns,) if message.expires_ns else None
        if message.stays_in_memory or not self.may_page:
            tail.append(message)
        elif is_in_journal(self._owner, envelope):
            sizes = (envelope.framing.body_size(message.content),)
            tail.extend(message.id, sizes, expires, level=level)
            self._note_paged((message.content,), sizes, None, are_stored=True)
        elif (
            tail.octets is None
            and may_spool(self._owner, envelope)
            and (location := self._storage.temp.spool((message.content,))) is not None
        ):
            sizes = (len(message.content),)
            tail.extend(message.id, sizes, expires, location=location, envelope=envelope, level=level)
            self._note_paged((message.content,), sizes, location, are_stored=self._owner.stores(envelope))
        else:
            self._owner.could_not_page()
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
        """After a restart: append messages of the journal with consecutive ids to a level.

        `sizes`: octets of each body; `expires`: monotonic ns of each; `deliveries`: delivery count of each. Requires
        `may_page`.
        """
        if sizes:
            tail = self._begin_tail() if self._tail is None else self._tail
            tail.extend(first_id, sizes, expires, level=level, deliveries=deliveries)
            self.expiring = self.expiring or expires is not None

    def _put_into_tail(self, tail: Tail, messages: list[Message]) -> list[Message]:
        """Insert those messages (ids falling) that belong behind others of the tail. Returns the other messages."""
        before: list[Message] = []
        last_id = -1  # the highest id in memory, before the tail's head; found on first need
        for message in messages:
            level = tail.level_of(message.envelope)
            if level == tail.floor and tail.head_id < message.id and last_id < 0:
                last_id = self._last_in_memory(level)
            if level < tail.floor or (level == tail.floor and tail.head_id < message.id and last_id < message.id):
                tail.insert(level, self._item_of(tail, message))
            else:
                before.append(message)
        return before

    def _last_in_memory(self, level: int) -> int:
        """The highest id of a level in memory; 0: none."""
        here = self._levels()[level]
        if self._scanner.is_sorted:
            return here[-1].id if here else 0
        return max((one.id for one in here), default=0)

    def _item_of(self, tail: Tail, message: Message) -> PagedRun | Message:
        """The tail's item for a message that was in memory: the message itself, or, beyond the cap, a paged-out run."""
        if self._is_kept_to:
            return message
        (item,), _ = paged(self._owner, tail, (message,), is_metered=self._is_metered)
        return item

    # -- from the tail ------------------------------------------------------------------------------------------------

    def _take_expired(self, level: int, now_ns: int, count_max: int) -> list[Message]:
        """Take a slice of expired messages from the head of a level of the tail."""
        tail = self._tail
        if tail is None or not 0 < tail.expires_ns(level) <= now_ns:
            return []
        return self._brought(tail.take_expired(level, now_ns, min(count_max, SLICE)))

    def _brought(self, parts: Sequence[Taken | Message]) -> list[Message]:
        """Load the contents of messages that were taken out of the tail."""
        found: list[Message] = []
        for part in parts:
            if isinstance(part, Message):
                found.append(part)
            else:
                found += self._loaded(part, part.ids, runs_of(self._storage, part))
        self._forget_empty_tail()
        return found

    def _loaded(self, part: Taken, ids: Sequence[int], runs: Sequence[Run]) -> list[Message]:
        """Make the last messages of a part, which come back into memory, and report them to the owner."""
        messages = messages_as_paged(self._owner, part, ids, runs)
        if self._is_metered and messages:
            count, octets = len(messages), sum([len(one.content) for one in messages])
            counted = octets_paged(part.sizes[-count:], part.location)
            are_stored = part.location is None or self._owner.stores(part.envelope)
            self._owner.paged_out(-count, -octets, -counted, are_stored=are_stored)
        tell_loaded(self._owner, part, messages)
        if part.expires is not None:
            self.expiring = True
        return messages

    def _forget_empty_tail(self) -> None:
        if self._tail is not None and not len(self._tail):
            self._tail = None
            self.has_tail = False

    # -- memory -------------------------------------------------------------------------------------------------------

    @property
    def in_memory(self) -> int:
        return len(self.ready)

    @property
    def held_octets(self) -> int:
        return held_octets(self.ready)

    @property
    def _is_kept_to(self) -> bool:
        """Whether memory does not exceed the cap."""
        return self.cap is None or not self.may_page or self.cap.is_kept

    def _is_granted(self, octets: int, count: int) -> bool:
        """Whether `count` more messages may be in memory; if so, they are counted. Requires a pager or a cap.

        The owner's meter has counted them already. Amortized O(count).
        """
        if not self._is_kept_to:
            return False
        octets += OVERHEAD * count
        if octets > self.quota:
            pager = self._storage.pager
            if not self.may_page or pager is None:
                self.quota = UNLIMITED
            elif not self._storage.memory.allows(self, octets, pager.memory):
                return False
        self.quota -= octets
        self.came_in += count
        return True

    def allow_paging(self, allowed: bool) -> None:
        """Set whether the queue's rules permit paging."""
        if allowed and not self.may_page:
            self.quota, self.came_in = 0, -UNLIMITED  # not counted so far: the budget has to measure the store
        self.may_page = allowed

    def limit_memory(self, cap: MemoryCap | None, *, is_metered: bool) -> None:
        """Set the queue's memory cap, which applies beside the common budget; None: none.

        `is_metered`: the store calls `Owner.paged_out`. The caller calls `settle_quota` next.
        """
        self.cap, self._is_metered = cap, is_metered
        self._is_unsettled = cap is not None

    def page_out(self, octets: int, count_max: int = UNLIMITED) -> int:
        """Page out the last messages in memory, up to this many octets or messages. Returns the octets freed."""
        return self._page_out(octets, count_max) if self.may_page else 0

    def page_again(self) -> bool:
        """Page out messages that stayed in memory because a disk failed. Returns whether there may be more."""
        tail = self._tail
        if not self.may_page:
            return False
        self._is_unsettled = self.cap is not None
        return tail is not None and tail.page(
            lambda messages: paged(self._owner, tail, messages, is_metered=self._is_metered)[0], LEAVING_MAX
        )

    def _page_out(self, octets: int, count: int) -> int:
        """Page out the last messages in memory, lower levels first, up to these octets or this count.

        Returns: the octets freed.
        """
        tail = self._begin_tail() if self._tail is None else self._tail
        freed = before = 0
        for level, messages in enumerate(self._levels()):
            while messages and freed < octets and count > 0:
                taken: list[Message] = []
                size = 0
                slice_max = min(count, PAGE_SLICE)
                while messages and freed + size < octets and len(taken) < slice_max:
                    taken.append(messages.pop())
                    size += len(taken[-1].content) + OVERHEAD
                self._left_levels(taken)
                freed += sink(self._owner, tail, level, taken[::-1], is_metered=self._is_metered)
                count -= len(taken)
                if freed == before:
                    return freed  # they cannot be paged out
                before = freed
        self._forget_empty_tail()
        return freed

    def _sink_below(self, tail: Tail, level: int) -> None:
        """Page out all lower levels in memory, because this level gets messages in the tail, which come before them."""
        for below, messages in enumerate(self._levels()[:level]):
            if messages:
                taken = list(messages)
                messages.clear()
                self._left_levels(taken)
                sink(self._owner, tail, below, taken, is_metered=self._is_metered)

    def grant(self, octets: int) -> None:
        self.quota, self.came_in = octets, 0

    def settle_quota(self) -> bool:
        """Page out the last messages if requeued messages exceed the quota, or a new cap requires it.

        Pages out more than required, so that the next requeued messages find room. Returns: whether there is more to
        page out.
        """
        if self._is_unsettled:
            self._keep_to_cap()
        if self.quota >= 0:
            return self._is_unsettled
        excess = -self.quota
        pager, memory = self._storage.pager, self._storage.memory
        if not self.may_page or pager is None:
            self.quota = UNLIMITED
        elif not memory.allows(self, 0, pager.memory):
            freed = self.page_out(excess + min(TAKE_MIN, pager.memory // 8))
            # If nothing could be paged out, the grant delays the next attempt.
            memory.gave(self, freed, max(freed - excess, 0) if freed else TAKE_MIN)
        return self._is_unsettled

    def _keep_to_cap(self) -> None:
        """Page out messages beyond the cap, at most a slice."""
        self._is_unsettled = False
        cap, count_max, octets_max = self.cap, LEAVING_MAX, LEAVING_OCTETS
        while cap is not None and self.may_page and self.ready:
            count, octets = cap.excess()
            if not count:
                return
            if count_max <= 0 or octets_max <= 0:
                self._is_unsettled = True
                return
            here = len(self.ready)
            freed = self._page_out(min(octets, octets_max), min(count, count_max))
            if not freed:
                return
            count_max -= here - len(self.ready)
            octets_max -= freed

    def is_low(self) -> bool:
        """Whether messages are paged out and few are in memory, so that `wants_more` must be checked."""
        return self._tail is not None and len(self.ready) < LOW

    def wants_more(self, straight: bool, waiting: bool) -> bool:
        """Whether to load more, because memory has fewer messages than consumers may take soon, within its limits.

        `straight`: loaded messages go directly to consumers (`load_straight`). `waiting`: a consumer waits now, which
        matters only if no message is in memory.
        """
        tail, pager = self._tail, self._storage.pager
        if tail is None:
            return False
        if straight:
            return waiting and not self.ready
        if self.cap is not None and self.may_page and not self.cap.invites(tail.typical_size() + HEADER_OCTETS):
            return waiting and not self.ready
        octets = HIGH_OCTETS if pager is None else min(HIGH_OCTETS, pager.budget())
        if tail.level_max:
            octets //= 2  # leaves room for new messages of higher levels, which would page all of it out
        return len(self.ready) < min(HIGH, max(1, octets // (tail.typical_size() + OVERHEAD)))

    def load(self, wanted: int = 1, wanted_octets: int = 1) -> None:
        """Load a slice of the tail into memory. Reads files. Raises: Unreadable.

        `wanted`, `wanted_octets`: the part that leaves memory at once, at least one message, to which no cap applies.
        """
        tail, pager, cap = self._tail, self._storage.pager, self.cap
        if tail is None:
            return
        window = HIGH_OCTETS if pager is None else max(pager.budget(), SMALL)
        octets = min(SLICE_OCTETS, window)
        count = min(SLICE, 1 + octets // OVERHEAD)
        if cap is not None and self.may_page:
            room, room_octets = cap.room()
            count, octets = min(count, max(room, wanted)), min(octets, max(room_octets, wanted_octets))
            window = min(window, max(cap.octets, SMALL))
        if pager is not None:
            self._storage.memory.charge_window(self, min(HIGH_OCTETS, window), pager.memory)
        for part in tail.take(count, octets):
            if isinstance(part, Message):
                self._take_in(part)
            else:
                self.ready.extend(self._loaded(part, part.ids, runs_of(self._storage, part)))
        self._forget_empty_tail()

    def load_straight(self, count: int, octets: int, hand_over: HandOver) -> None:
        """Read up to `count` messages and `octets`, at least one message and at most a slice, and offer them to
        `hand_over` as if new. From the first one that it does not take, they become ready. Raises: Unreadable.
        """
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
        """Append a message that was stored in the tail as an object to memory."""
        self.expiring = self.expiring or bool(message.expires_ns)
        self.ready.append(message)


def _hand_straight(hand_over: HandOver, ids: range, runs: Sequence[Run]) -> tuple[range, Sequence[Run]]:
    """Offer messages to consumers as if new. Returns those that they did not take."""
    for at, (envelope, contents) in enumerate(runs):
        taken = 0 if envelope.summary.is_marked else hand_over(ids.start, envelope, contents)
        ids = ids[taken:]
        if taken < len(contents):
            return ids, [(envelope, contents[taken:]), *runs[at + 1 :]]
    return ids, ()
