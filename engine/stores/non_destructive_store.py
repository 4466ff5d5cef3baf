"""The store of a non-destructive queue: messages in memory, and ids and sizes of messages that are only in the journal.

The ids of both interleave, because transient and changed messages stay in memory. When memory exceeds the queue's
share, the oldest other messages leave it. Consumers read them back in windows.
Source: address-settings page 3.4, 5.8; queues page F.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice

from ..messages.message import UNLIMITED, Envelopes, Message, body_octets_of, each_of, id_of
from .last_value_store import Key
from .memory_budget import OVERHEAD
from .paged_index import PagedEntry, PagedIndex, stretches
from .paged_run import IN_JOURNAL, Part, messages_of
from .read_windows import SCANNING, Reader, ReadWindows
from .sorted_list import SortedList
from .storage import StoreOwner, can_page_out, share_of_log
from .store import Dropped, Removed, Scanned, StoreInMemory

#: Maximum octets of new messages between two comparisons of memory with the share.
MEASURE_OCTETS = 1024 * 1024
#: Keys of last values, beyond twice the number of messages, at which unused keys are removed.
SPARE_KEYS = 1000


class NonDestructiveStore(StoreInMemory):
    """An `EvictableStore` and `Log` with all messages in order of ids, even those that are put back or put last.

    `memory_octets`: octets of the messages in memory. `key_of`: a function from a message to its last-value key (None:
    it has none); None: not a last-value queue.
    """

    _messages: SortedList[Message]

    def __init__(self, owner: StoreOwner, key_of: Callable[[Message], Key | None] | None = None) -> None:
        super().__init__(owner)
        self._storage = owner.storage
        self.expiring = False
        self._key_of = key_of
        self.paged_index = PagedIndex()
        self.windows = ReadWindows(owner.storage)  # messages of `paged_index` that were read back
        self._start_memory()

    def _start_memory(self) -> None:
        self._messages = SortedList((), id_of)
        self.memory_octets = 0
        self._measure_at = 0  # octets in memory at which to compare them with the share
        self._body_octets: int | None = None  # octets of bodies in memory; None: not counted yet
        self._by_key: dict[Key, int] = {}  # id of the newest message of each key
        self._first_ids: dict[int, int] = {}  # id of a message -> id of its first publish, if that differs

    # -- contents -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._messages) + len(self.paged_index)

    @property
    def is_deep(self) -> bool:
        return len(self.paged_index) > 0

    has_tail = is_deep

    @property
    def body_octets(self) -> int:
        if self._body_octets is None:  # O(messages in memory), once
            self._body_octets = sum(map(body_octets_of, self._messages))
        return self._body_octets + self.paged_index.body_octets

    @property
    def held_octets(self) -> int:
        return self.memory_octets

    def paged_parts(self) -> list[Part | Message]:
        return self.paged_index.parts()

    def paged_sizes(self, parts: Iterable[Part | Message]) -> Iterable[tuple[int, int, bool]]:
        return ((len(self.paged_index), self.paged_index.content_octets, True),)

    def has(self, id_: int) -> bool:
        """Whether the message with this id is here, in memory or not."""
        return id_ in self.paged_index or any(message.id == id_ for message in self._messages.after(id_ - 1, 1))

    # -- in -----------------------------------------------------------------------------------------------------------

    def append_run(self, first_id: int, envelopes: Envelopes, contents: Sequence[bytes]) -> None:
        for id_, (content, envelope) in enumerate(zip(contents, each_of(envelopes)), first_id):
            self.append(Message(id_, content, envelope))

    def append(self, message: Message) -> Message | PagedEntry | None:
        older = self._supersede(message)  # the newer value comes to the end, so that all consumers see it
        if older is not message:
            self._put(message)
            self._measure()
        return older

    def put_last(self, message: Message) -> Message | PagedEntry | None:
        return self.append(message)  # by its id

    def put_back(self, messages: list[Message]) -> tuple[list[Message], int]:
        for message in messages:
            self._put(message)
        return [], 0

    def _put(self, message: Message) -> None:
        self._messages.add(message)
        self.memory_octets += len(message.content) + OVERHEAD
        if self._body_octets is not None:
            self._body_octets += message.body_octets

    def _supersede(self, message: Message) -> Message | PagedEntry | None:
        """Keep only the newer of a new message and the one here with its key. Returns the older one, if any."""
        key = None if self._key_of is None else self._key_of(message)
        if key is None:
            return None
        known_id = self._by_key.get(key, 0)
        if self._first_ids.get(known_id, known_id) > message.first_id and self.has(known_id):
            return message
        self._by_key[key] = message.id
        self._first_ids.pop(known_id, None)
        if message.first_id != message.id:
            self._first_ids[message.id] = message.first_id
        older = self.take_id(known_id)
        if older is None and len(self._by_key) > 2 * len(self) + SPARE_KEYS:
            self._by_key = {key: id_ for key, id_ in self._by_key.items() if id_ == message.id or self.has(id_)}
            newest = set(self._by_key.values())
            self._first_ids = {id_: first_id for id_, first_id in self._first_ids.items() if id_ in newest}
        return older

    def read_keys_and_octets(self, counts_octets: bool) -> tuple[int, list[Message | PagedEntry]]:
        """After a restart, read all contents once if keys or octets are needed. Raises: Unreadable.

        Returns the octets that were read, if they are counted, and the removed messages: older values of a key.
        """
        if self._key_of is None and not counts_octets:
            return 0, []
        paged_index, windows, last, octets = self.paged_index, self.windows, 0, 0
        older: list[int] = []
        while paged_index and last < paged_index.last_id:
            self.fill(None, last)
            for message in windows.all(None):
                older += self._note_key(message)
                if counts_octets:
                    paged_index.set_content_octets(message.id, len(message.content))
                    octets += len(message.content)
                last = message.id
        windows.forget(None)
        for message in self._messages:
            older += self._note_key(message)
        return octets, [gone for id_ in older if (gone := self.take_id(id_)) is not None]

    def _note_key(self, message: Message) -> tuple[int, ...]:
        """Note a message's key. Returns the ids of messages that a newer one with this key replaces: one or none."""
        key = None if self._key_of is None else self._key_of(message)
        if key is None:
            return ()
        known_id = self._by_key.get(key, 0)
        if known_id == message.id:
            return ()
        if self._first_ids.get(known_id, known_id) > message.first_id:
            return (message.id,)
        self._by_key[key] = message.id
        if message.first_id != message.id:
            self._first_ids[message.id] = message.first_id
        return (known_id,) if known_id else ()

    # -- memory -------------------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        """Page out the oldest messages if memory exceeds the share. Called for a new message in memory."""
        if self.memory_octets < self._measure_at:
            return
        share, step = share_of_log(self._owner), MEASURE_OCTETS
        if share is not None:
            if self.memory_octets > share:
                self._page_out_oldest(share // 2)
            step = min(step, share // 4)
        self._measure_at = self.memory_octets + max(step, self.memory_octets // 8)

    def _page_out_oldest(self, octets: int) -> None:
        """Page out the oldest messages, until these octets are left. Messages that the journal does not have stay."""
        leaving: list[Message] = []
        staying: list[Message] = []
        while self._messages and self.memory_octets > octets:
            message = self._messages.popleft()
            if can_page_out(self._owner, message):
                leaving.append(message)
                self._count_out(message)
            else:
                staying.append(message)
        self._messages.extendleft(reversed(staying))
        self.paged_index.add(leaving)

    def _count_out(self, message: Message) -> None:
        self.memory_octets -= len(message.content) + OVERHEAD
        if self._body_octets is not None:
            self._body_octets -= message.body_octets

    # -- the head -----------------------------------------------------------------------------------------------------

    @property
    def head_is_paged(self) -> bool:
        """Whether the oldest message is only in the journal."""
        if not self.paged_index:
            return False
        return not self._messages or self.paged_index.first_id < self._messages[0].id

    @property
    def next_expiry_ns(self) -> int:
        if self.head_is_paged:
            return self.paged_index.first_expires_ns
        return self._messages[0].expires_ns if self._messages else 0

    def take_head(self) -> Message | PagedEntry:
        """Take the oldest message; there must be one."""
        if self.head_is_paged:
            return self.paged_index.take_first()
        message = self._messages.popleft()
        self._count_out(message)
        return message

    def read_head(self, id_: int, count: int = UNLIMITED) -> Message:
        """Read a message that is only in the journal, with later ones, up to `count` in all. Raises: Unreadable."""
        message = self.windows.find(None, id_)
        if message is None:
            self.fill(None, id_ - 1, count)
            message = self.windows.find(None, id_)
            assert message is not None
        return message

    def first_alive(self, now_ns: int) -> int | None:
        """The id of the oldest message that has not expired; None: there is none."""
        if not 0 < self.next_expiry_ns <= now_ns:
            return (self.paged_index.first_id if self.head_is_paged else self._messages[0].id) if len(self) else None
        in_memory = ((message.id, message.expires_ns) for message in self._messages)
        return next(
            (id_ for id_, due_ns in merge(in_memory, self.paged_index.expiries()) if not 0 < due_ns <= now_ns), None
        )

    def head(self, now_ns: int) -> Message | None:
        """The oldest message that has not expired, which stays. Raises: Unreadable."""
        id_ = self.first_alive(now_ns)
        if id_ is None:
            return None
        first = self._messages.after(id_ - 1, 1)
        return first[0] if first and first[0].id == id_ else self.read_head(id_, 1)

    # -- reading for consumers ----------------------------------------------------------------------------------------

    def fill(self, reader: Reader | None, after: int, count: int = UNLIMITED) -> None:
        """`Log.fill`, at most `count` messages. The reader None reads at the head."""
        pager = self._storage.pager
        assert pager is not None

        def read(count_max: int, octets: int) -> dict[int, Message]:
            ids = self.paged_index.after(after, min(count, count_max), octets)
            return {message.id: message for message in messages_of(ids, pager.load(ids))}

        next_ids = self.paged_index.after(after, 1)
        if next_ids:
            self.windows.fill(reader, next_ids[0], read)
        else:
            self.windows.forget(reader)

    def forget(self, reader: Reader) -> None:
        self.windows.forget(reader)

    def after(self, id_: int, count: int) -> list[Message]:
        """Up to `count` messages in memory with ids above `id_`."""
        return self._messages.after(id_, count)

    def between(self, id_: int, count: int, read_back: Callable[[int], Message | None]) -> Iterator[Message]:
        """Up to `count` messages with ids above `id_`, in memory and paged out. Ends where `read_back` returns None."""
        in_memory = iter(self._messages.after(id_, count))
        message = next(in_memory, None)
        for paged in self.paged_index.after(id_, count):
            while message is not None and message.id < paged:
                yield message
                message = next(in_memory, None)
            found = read_back(paged)
            if found is None:
                return
            yield found
        while message is not None:
            yield message
            message = next(in_memory, None)

    # -- out ----------------------------------------------------------------------------------------------------------

    def take_id(self, id_: int) -> Message | PagedEntry | None:
        """Take the message with this id, but do not read its content; None: there is none."""
        for message in self._messages.take((id_,)):
            self._count_out(message)
            return message
        return self.paged_index.take(id_)

    def evict_head(self, count: int, *, with_content: bool) -> Removed:
        gone = Removed([], [])
        for _ in range(min(count, len(self))):
            self._remove_head(gone, with_content)
        return gone

    def expire(self, now_ns: int, *, with_content: bool, count_max: int, octets_max: int) -> Removed:
        gone, octets = Removed([], []), 0
        while (
            0 < self.next_expiry_ns <= now_ns
            and len(gone.messages) + len(gone.unread) < count_max
            and (octets < octets_max or not with_content)
        ):
            octets += self._remove_head(gone, with_content)
        return gone

    def _remove_head(self, gone: Removed, with_content: bool) -> int:
        """Move the oldest message to `gone`. Returns the octets of its content; 0: it was not read."""
        message = self.read_head(self.paged_index.first_id) if with_content and self.head_is_paged else None
        head = self.take_head()
        if isinstance(head, Message):
            found = head
        elif message is None:
            gone.unread.append(head)
            return 0
        else:
            found = Message(head.id, message.content, message.envelope)
            found.expires_ns = head.expires_ns
            gone.recounted += len(found.content) - head.octets
        gone.messages.append(found)
        return len(found.content)

    def drop_all(self) -> Dropped:
        octets = self.paged_index.content_octets
        gone = self.paged_index.take_all()
        runs = list(stretches(gone))
        parts: list[Sequence[int]] = [gone] if len(runs) * 4 > len(gone) else [*runs]
        messages = self._messages
        self.windows.clear()
        self._start_memory()
        return Dropped(messages, [(ids, IN_JOURNAL) for ids in parts if ids], [], octets)

    # -- selection, browsing, replay ----------------------------------------------------------------------------------

    def position_of(self, message: Message) -> int:
        return message.id

    def scan(self, after: int, count: int) -> Scanned:
        missing: list[int] = []

        def read_back(id_: int) -> Message | None:
            message = self.windows.find(SCANNING, id_)
            if message is None:
                missing.append(id_)
            else:
                message.expires_ns = self.paged_index.expires_ns(id_)
            return message

        found = [(message.id, message) for message in islice(self.between(after, count, read_back), count)]
        return Scanned(found, bool(missing))

    def load_at(self, after: int, count: int) -> None:
        self.fill(SCANNING, after, count)

    def take_at(self, positions: Sequence[int]) -> Removed:
        gone = Removed([], [])  # paged-out contents are not read
        for id_ in sorted(set(positions)):
            one = self.take_id(id_)
            if isinstance(one, Message):
                gone.messages.append(one)
            elif one is not None:
                gone.unread.append(one)
        return gone
