"""The store of a queue: the messages that are ready, wherever they are, in memory or in the journal or the temp store.

Nobody outside `stores/` asks what kind of store a queue has: what a kind does in its own way is a verb that it
overrides. Kinds: `PlainStore`, `LeveledStore`, `LastValueStore`, `KeptStore`, `StreamStore`; see `kinds.make_store`.

A position says where in the order of a scan a message stands: its level, the highest first, and its id. In the highest
level, which is the only one of most queues, it is the id itself; readers compare positions and pass them back. It goes
on standing for its place when its message is gone. Source: queues page F.2, F.6.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import ClassVar, NamedTuple, Protocol

from ..messages.message import Envelope, Message
from ..messages.mixed import Envelopes
from .memory_cap import UNLIMITED, MemoryCap
from .paged_places import Left
from .paged_run import Part

#: What makes positions of one level higher than all of the level above it.
LEVEL_STEP = 1 << 64
#: What `load_at` reads from the journal at once.
WINDOW_MESSAGES, WINDOW_OCTETS = 1000, 1024 * 1024

#: Takes new messages that follow each other: first id, envelope, blobs. Returns how many of them it took.
HandOver = Callable[[int, Envelope, Sequence[bytes]], int]


class Ready(Protocol):
    """Messages in memory that left a store."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Message]: ...

    def pop(self) -> Message:
        """Any of them: so that memory is given back in slices."""


class Removed(NamedTuple):
    """What left a store."""

    messages: list[Message]  # with content, in order of delivery
    unread: list[Left]  # their contents stayed in the journal (kept stores only)
    recounted: int = 0  # octets by which blobs of `messages` exceed what was counted for them when they came


class Dropped(NamedTuple):
    """All of a store."""

    ready: Ready  # what was in memory
    runs: list[tuple[Sequence[int], Envelope]]  # ids that were paged out, with the envelope that events name
    paged: list[Message]  # messages that stood in the tail as they are
    paged_octets: int | None  # of the blobs of `runs`, as a kept queue counted them; None: all that was paged out

    @property
    def paged_count(self) -> int:
        """How many were not ready in memory."""
        return sum(len(ids) for ids, _ in self.runs) + len(self.paged)


class Scanned(NamedTuple):
    """What a scan saw."""

    found: list[tuple[int, Message]]  # position, message; nothing was taken
    missing: bool  # what comes next is paged out and was not read: `load_at` the last position, then ask again


class Store(Protocol):
    """Ids of new messages rise. All octets are of memory or of bodies, as each verb says."""

    #: Acknowledged messages stay: what is handed out is a copy.
    keeps: ClassVar[bool]
    #: Has had messages that expire. Set by `expect_expiry` and when such a message is loaded; never unset.
    expiring: bool
    #: Octets that may become ready before the store asks for more; below 0: more came back than was granted.
    quota: int
    #: See `limit_memory`.
    cap: MemoryCap | None

    # -- what is there ------------------------------------------------------------------------------------------------

    @property
    def level_max(self) -> int:
        """The highest level of priority; higher priorities count as that."""

    def __len__(self) -> int:
        """How many are ready, wherever they are."""

    def __iter__(self) -> Iterator[Message]:
        """Those in memory, in order of delivery."""

    @property
    def ready(self) -> Sized:
        """Those in memory; not to be changed. Its truth value says at no cost whether there are any."""

    @property
    def has_tail(self) -> bool:
        """Whether more stands behind what is in memory. As cheap to ask as `ready`."""

    @property
    def in_memory(self) -> int:
        """How many are in memory. They stand before all that is paged out, but in kept stores."""

    @property
    def is_deep(self) -> bool:
        """Whether messages are paged out, with only their places in memory."""

    @property
    def body_octets(self) -> int:
        """Octets of all ready bodies. Known only to stores that count them (leveled, kept, last value); else 0."""

    @property
    def next_expiry_ns(self) -> int:
        """When the soonest head expires, by the monotonic clock; 0: none does."""

    def paged_parts(self) -> list[Part | Message]:
        """What is paged out. It stays so while others append and take."""

    def paged_sizes(self, parts: Iterable[Part | Message]) -> Iterable[tuple[int, int, bool]]:
        """Of `paged_parts`, for a meter: how many messages, octets of blobs, whether a restart brings them back."""

    @property
    def first_paged_id(self) -> int | None:
        """The lowest id that is paged out."""

    @property
    def first_offset(self) -> int | None:
        """The offset of a stream's oldest message, or of the next one; None: messages have no offsets."""

    def expect_expiry(self) -> None:
        """Messages that expire come, also through consumers' hands."""

    # -- in -----------------------------------------------------------------------------------------------------------

    def new_message(self, id_: int, blob: bytes, envelope: Envelope) -> Message:
        """The kind of message that stands in this store: where contents may be left, one that can do that."""

    def append_run(self, first_id: int, envelopes: Envelopes, blobs: Sequence[bytes]) -> None:
        """New messages with consecutive ids at the end, none of which expires or is of a group. O(run)."""

    def append(self, message: Message) -> Message | Left | None:
        """A new message at the end of its level; in a last-value store perhaps in an older one's place.

        Returns: the message that had to go for it, which may be the new one itself (last value); else None.
        """

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

        `sizes`: octets of bodies; `expires`: monotonic ns each; `deliveries`: how often each was tried. Only where
        `may_page`.
        """

    def put_back(self, messages: list[Message]) -> tuple[list[Message], int]:
        """Messages (ids falling) that were out, to the places that their ids say. O(messages + those before them).

        Returns: those that had to go because there is a newer value, and how many messages stood before the others.
        """

    def put_first(self, message: Message) -> Message | Left | None:
        """A message at the head of its level, whatever its id says. Returns what had to go for it, as `append` does."""

    def put_last(self, message: Message) -> Message | Left | None:
        """A message at the end of its level, whatever its id says; into memory where that has room or not.

        Returns what had to go for it, as `append` does.
        """

    # -- out ----------------------------------------------------------------------------------------------------------

    def take(self, limit: int, room: int) -> list[Message]:
        """Up to `limit` messages from the head, of those in memory, until `room` octets of blobs are used.

        At least one, if there is any. Nothing is loaded.
        """

    def head_octets(self, count: int) -> int:
        """Octets of blobs of the first `count` messages in memory."""

    def evict_head(self, count: int, *, with_content: bool) -> Removed:
        """Take up to `count` messages from the head, loading what is paged out.

        `with_content`: of a kept store, too, which else reads nothing. Raises: Unreadable.
        """

    def expire(self, now_ns: int, *, with_content: bool, count_max: int, octets_max: int) -> Removed:
        """Take what has expired by then off the heads; those behind a head that lives wait for their turn.

        Of many a slice of about `count_max`: `next_expiry_ns` says whether there is more. `octets_max`: of blobs that a
        kept store reads in one slice, where it reads them (`with_content`). Raises: Unreadable.
        """

    def drop_all(self) -> Dropped:
        """Take everything out, reading nothing. The store may be used again, and holds no memory of the budget."""

    def leave_owner(self) -> None:
        """The queue is gone: the store no longer refers to it, so that both are freed without the collector."""

    # -- memory -------------------------------------------------------------------------------------------------------

    @property
    def held_octets(self) -> int:
        """What messages in memory take in memory, about. O(messages)."""

    @property
    def may_page(self) -> bool:
        """Whether messages may be paged out to a tail."""

    def allow_paging(self, allowed: bool) -> None:
        """Whether the queue lets messages be paged out (not where it counts octets). The kind decides the rest."""

    def page_out(self, octets: int, count_max: int = UNLIMITED) -> int:
        """Page so many octets out, or messages, of those that come last in memory. Returns how many octets that
        freed."""

    def page_again(self) -> bool:
        """What stayed in memory because a disk did not take it may leave now. Returns whether that was a slice."""

    def limit_memory(self, cap: MemoryCap | None, *, is_metered: bool) -> None:
        """What the queue may have in memory beside what all may; None: no such limit. Stores without a tail have none.

        `is_metered`: the owner hears what is paged out, and what comes back. `settle_quota` follows.
        """

    def settle_quota(self) -> bool:
        """If more is ready than was granted, since messages came back: page the last ones out if there is no room.

        Also when there is a new cap. Returns whether that was a slice, and more is to follow.
        """

    def is_low(self) -> bool:
        """Whether messages are paged out and so few are in memory that `wants_more` should be asked."""

    def wants_more(self, straight: bool, waiting: bool) -> bool:
        """Whether more should be loaded: less is in memory than consumers may take soon, within the memory's share.

        `straight`: what consumers want goes straight to them (`load_straight`). `waiting`: somebody waits now, which
        matters while nothing is in memory.
        """

    def load(self, wanted: int = 1, wanted_octets: int = 1) -> None:
        """Bring a slice of what is paged out into memory. Reads files. Raises: Unreadable.

        `wanted`: so many messages and octets, at least one, leave memory at once, so that no cap concerns them.
        """

    def load_straight(self, count: int, octets: int, hand_over: HandOver) -> None:
        """Read up to so many messages and octets, at least one, a slice at most; `hand_over` is offered them as new.

        What it does not take becomes ready, and so does all once something is. Raises: Unreadable.
        """

    @property
    def counts_octets(self) -> bool | None:
        """Whether it counts the octets of all bodies; None: it does as its kind needs (see `kinds.converted`)."""

    # -- selection, browsing, replay ----------------------------------------------------------------------------------

    def position_of(self, message: Message) -> int:
        """Where a message of this store stands in the order of scans; also of one that is out."""

    def scan(self, after: int, count: int) -> Scanned:
        """Up to `count` messages behind the position `after` (0: from the head), taking none.

        In order of levels, then of ids: the order of delivery, except for messages that `put_first` and `put_last`
        placed elsewhere, which a scan finds where their ids stand. What comes to a place before `after` (`put_back`,
        `put_first`, an old id `put_last`, a higher level) is not seen by a reader that goes on from there: whoever puts
        it tells readers whose position is not below `position_of` it. Expired messages are seen until they go.
        A message read from the journal is a picture of the one that is paged out; `take_at` gives the message itself.
        """

    def load_at(self, after: int, count: int) -> None:
        """Read what a scan from `after` on misses into the window, which the next call replaces. Raises: Unreadable."""

    def take_at(self, positions: Sequence[int]) -> Removed:
        """Take the messages at these positions out, wherever they are; those that are gone are passed over.

        Raises: Unreadable.
        """
