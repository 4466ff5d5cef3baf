"""The interfaces of stores, by capability. A store has the ready messages of one queue.

Every store is a `Store`. Single messages can leave an `EvictableStore`; a stream drops whole segments instead.
Consumers take messages out of a `ConsumableStore`, and read a `Log` without taking messages out. A `TailedStore` has a
tail of paged-out messages. A queue has an attribute for each of these interfaces but `Log` (`Queue.use_store`). Code
outside `stores/` does not ask for the class of a store.

A position is a message's place in the order of scans: its level, the highest first, and its id. In the highest level,
the only one of most queues, the position is the id; in a stream it is the offset plus one. Readers compare positions
and pass them back. A position stays valid after its message has left. Source: queues page F.2, F.6.
"""

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import ClassVar, NamedTuple, Protocol

from ...settings.slotted import slotted
from ..messages.message import Envelope, Envelopes, Message
from .paged_index import PagedEntry
from .paged_run import Part
from .read_windows import Reader
from .storage import NO_OWNER, StoreOwner

#: The distance between the positions of two levels.
LEVEL_STEP = 1 << 64


class Freeable(Protocol):
    """Messages in memory, which can be freed in slices."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Message]: ...

    def pop(self) -> Message:
        """Remove any message."""


@slotted
class Removed:
    """The messages that one call has removed from a store, in memory or read from the journal, and unread ones."""

    messages: list[Message]  # those with content; dropped ones in order of delivery
    unread: list[PagedEntry]  # those whose content was not read from the journal (of non-destructive stores)
    recounted: int = 0  # octets by which contents that were read exceed what was counted for them


class Dropped(NamedTuple):
    """All messages of a store."""

    ready: Freeable  # messages in memory
    runs: list[tuple[Sequence[int], Envelope]]  # ids of paged-out messages, with the envelope for events
    paged: list[Message]  # messages that were in the tail as objects
    paged_octets: int | None  # octets of `runs` that a meter counts; None: those of all paged-out messages

    @property
    def paged_count(self) -> int:
        """The number of messages that were in the tail."""
        return sum(len(ids) for ids, _ in self.runs) + len(self.paged)


class Scanned(NamedTuple):
    """The result of a scan."""

    found: list[tuple[int, Message]]  # (position, message); the messages stay in the store
    missing: bool  # the next message is paged out: call `load_at` with the last position, then scan again


class Scannable(Protocol):
    """Messages that can be read from any position."""

    def position_of(self, message: Message) -> int:
        """The position of a message of this store, delivered or not, in the order of scans."""

    def scan(self, after: int, count: int) -> Scanned:
        """Return up to `count` messages after the position `after` (0: from the head), which stay in the store.

        They are in order of positions, which is the order of delivery except after `put_first` and
        `put_last`. A reader does not see messages that are later put before its position (`put_back`, `put_first`, an
        old id by `put_last`, a higher level): the callers of these methods tell the readers. Expired messages are
        included until they are taken. A message read from the journal is a copy; `take_at` returns the message itself.
        """

    def load_at(self, after: int, count: int) -> None:
        """Replace the window of scans by paged-out messages after `after`. Raises: Unreadable."""


class Store(Scannable, Protocol):
    """The store of any queue."""

    @property
    def expiring(self) -> bool:
        """Whether the store has ever had messages that expire."""

    # -- contents -----------------------------------------------------------------------------------------------------

    @property
    def level_max(self) -> int:
        """The highest level of priority. Higher priorities count as this level."""

    def __len__(self) -> int:
        """The number of ready messages, in memory and paged out."""

    def __iter__(self) -> Iterator[Message]:
        """The messages in memory, in order of delivery."""

    @property
    def ready(self) -> Sized:
        """The messages in memory, read-only. `if store.ready` is cheap."""

    @property
    def has_tail(self) -> bool:
        """Whether there are paged-out messages besides those in memory. As cheap as `ready`."""

    @property
    def in_memory(self) -> int:
        """The number of messages in memory. They come before all paged-out ones, except in a `Log`."""

    @property
    def is_deep(self) -> bool:
        """Whether messages, or (in a last-value store) their contents, are paged out."""

    @property
    def held_octets(self) -> int:
        """The approximate memory of the messages in memory, in octets. O(messages)."""

    @property
    def body_octets(self) -> int:
        """Octets of all ready bodies; 0 in stores that do not count them: streams, tailed stores with one level."""

    @property
    def next_expiry_ns(self) -> int:
        """The earliest expiry among the heads of the levels (monotonic ns); 0: none expires."""

    def paged_parts(self) -> list[Part | Message]:
        """A snapshot of the paged-out messages."""

    def paged_sizes(self, parts: Iterable[Part | Message]) -> Iterable[tuple[int, int, bool]]:
        """For a meter, (messages, octets of contents, whether they survive a restart) of each of `paged_parts`."""

    @property
    def first_offset(self) -> int | None:
        """The offset of a stream's oldest message, or of the next one if it is empty; None: not a stream."""

    # -- in and out ----------------------------------------------------------------------------------------------------

    def new_message(self, id_: int, content: bytes, envelope: Envelope) -> Message:
        """Make the kind of message object that this store needs."""

    def drop_all(self) -> Dropped:
        """Remove all messages without reading them, and return the memory to the budget."""

    def leave_owner(self) -> None:
        """Drop the reference to a deleted queue, so that both are freed without the garbage collector."""


class EvictableStore(Store, Protocol):
    """A store whose messages leave one by one: they expire, are dropped or replaced, or are taken from a position.

    Ids of new messages rise.
    """

    #: The caller sets it for messages that expire, new or requeued; the store sets it for those that it loads.
    expiring: bool

    # -- in -----------------------------------------------------------------------------------------------------------

    def append_run(self, first_id: int, envelopes: Envelopes, contents: Sequence[bytes]) -> None:
        """Append new messages with consecutive ids, of which none expires, has a group or replaces another. O(run)."""

    def append(self, message: Message) -> Message | PagedEntry | None:
        """Append a new message to its level. In a store of last values it may replace an older one, or be replaced.

        Returns the replaced message; None: there is none.
        """

    def put_back(self, messages: list[Message]) -> tuple[list[Message], int]:
        """Requeue delivered messages (ids falling) in order of ids. O(messages + those before them).

        Returns the messages that were dropped for a newer value, and the number of messages that were passed.
        """

    def put_last(self, message: Message) -> Message | PagedEntry | None:
        """Put a message at the end of its level, whatever its id (in a non-destructive store at its place by id).

        Without a tail it comes into memory even without room. Returns the replaced message, as `append` does.
        """

    # -- out ----------------------------------------------------------------------------------------------------------

    def evict_head(self, count: int, *, with_content: bool) -> Removed:
        """Take up to `count` messages from the head. `with_content`: non-destructive stores read contents only then.

        Raises: Unreadable.
        """

    def expire(self, now_ns: int, *, with_content: bool, count_max: int, octets_max: int) -> Removed:
        """Take about `count_max` expired messages from the heads of the levels; those behind a live head stay.

        `next_expiry_ns` tells whether there are more. `octets_max`: limit of the octets that a non-destructive store
        reads (`with_content`). Raises: Unreadable.
        """

    def take_at(self, positions: Sequence[int]) -> Removed:
        """Take the messages at these positions, in memory or paged out. Positions without a message are ignored.

        Raises: Unreadable.
        """


class ConsumableStore(EvictableStore, Protocol):
    """A store that consumers take messages out of, from its head."""

    def put_first(self, message: Message) -> Message | PagedEntry | None:
        """Put a message at the head of its level, whatever its id. Returns the replaced message, as `append` does."""

    def take(self, limit: int, room: int) -> list[Message]:
        """Take up to `limit` messages in memory from the head, until `room` octets are used; at least one, if any."""

    def head_octets(self, count: int) -> int:
        """Octets of contents of the first `count` messages in memory."""


class Log(Protocol):
    """Messages that consumers read without taking them out, each from its position.

    Paged-out messages are read back into a window for each consumer.
    """

    def fill(self, reader: Reader, after: int) -> None:
        """Fill a reader's window with paged-out messages after a position, if there are any. Raises: Unreadable."""

    def forget(self, reader: Reader) -> None:
        """Drop the window of a reader, if it has one."""


class StoreInMemory:
    """The common part of the stores that have their messages in memory in one collection, which is `_messages`."""

    first_offset: ClassVar[int | None] = None
    level_max: ClassVar[int] = 0

    __slots__ = ("_messages", "_owner")

    _messages: Freeable

    def __init__(self, owner: StoreOwner) -> None:
        self._owner = owner

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    @property
    def ready(self) -> Sized:
        return self._messages

    @property
    def in_memory(self) -> int:
        return len(self._messages)

    def leave_owner(self) -> None:
        self._owner = NO_OWNER

    def new_message(self, id_: int, content: bytes, envelope: Envelope) -> Message:
        return Message(id_, content, envelope)


def ids_in(store: Store) -> list[int]:
    """The ids of all messages of a store, in memory or paged out. O(messages)."""
    ids = [message.id for message in store]
    for part in store.paged_parts():
        if isinstance(part, Message):
            ids.append(part.id)
        else:
            ids += part.ids
    return ids
