"""The store of a leased queue with priorities or barriers: messages by rank, the highest first, all of them in memory.

Source: queues page A.3 (Priority: an unsigned long, so -1 is the highest; NULL and values that are no number come
last), A.9, F.4.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import islice
from math import isnan
from operator import attrgetter
from typing import ClassVar

from ...expressions.language import Expression
from ..delivery.filters import MessageSubject
from ..messages.message import Envelope, Envelopes, Message, each_of
from ..stores.memory_budget import held_octets
from ..stores.paged_run import Part
from ..stores.sorted_list import SortedList
from ..stores.storage import NO_OWNER, StoreOwner
from ..stores.store import LEVEL_STEP, Dropped, Removed, Scanned

#: The highest rank; ranks begin at 0. The position of a message of the highest rank is its id.
RANK_MAX = 2**64 - 1
#: The lowest value of a long.
LOWEST = -(2**63)


class RankedMessage(Message):
    """A message of a ranked queue. `position`: its position in the order of ranks, then of ids."""

    stays_in_memory: ClassVar[bool] = True

    __slots__ = ("position",)

    position: int


_position_of: Callable[[RankedMessage], int] = attrgetter("position")


def ranked(message: Message, position: int) -> RankedMessage:
    """A copy of a message with its position."""
    found = RankedMessage(message.id, message.content, message.envelope, message.holder, message.deliveries)
    found.expires_ns, found.uncounted = message.expires_ns, message.uncounted
    found.position = position
    return found


def position_at(rank: int, id_: int) -> int:
    return (RANK_MAX - rank) * LEVEL_STEP + id_


def rank_of(priority: Expression, message: Message) -> int:
    """The rank, from 0 to `RANK_MAX`. Fractions are cut off; negative numbers count from the top, as in C."""
    value = priority.value(MessageSubject(message))
    while isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, str):
        try:
            value = float(value) if len(value) < 400 else None
        except ValueError:
            return 0
    if not isinstance(value, int | float) or isnan(value):
        return 0
    return int(min(max(value, LOWEST), RANK_MAX)) % (RANK_MAX + 1) if value < RANK_MAX else RANK_MAX


def is_barrier(barrier: Expression | None, message: Message) -> bool:
    """Whether a message is a barrier by an expression; without one (None) no message is."""
    return barrier is not None and barrier.matches(MessageSubject(message))


class RankedStore:
    """A `TakeableStore` of the `RankedMessage`s that its queue makes."""

    first_offset: ClassVar[None] = None
    level_max: ClassVar[int] = 0
    pageable: ClassVar[None] = None
    has_tail: ClassVar[bool] = False
    is_deep: ClassVar[bool] = False
    body_octets: ClassVar[int] = 0  # leased queues have no limit on the octets of bodies

    __slots__ = ("_here", "_owner", "expiring")

    def __init__(self, owner: StoreOwner) -> None:
        self._owner = owner
        self._here: SortedList[RankedMessage] = SortedList((), _position_of)
        self.expiring = False

    def __len__(self) -> int:
        return len(self._here)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._here)

    @property
    def ready(self) -> Sized:
        return self._here

    @property
    def in_memory(self) -> int:
        return len(self._here)

    @property
    def held_octets(self) -> int:
        return held_octets(self._here)

    @property
    def next_expiry_ns(self) -> int:
        """See `Store`. The lease book has the lifetimes of messages behind the head."""
        return self._here[0].expires_ns if self._here else 0

    def paged_parts(self) -> list[Part | Message]:
        return []

    def paged_sizes(self, parts: Iterable[Part | Message]) -> Iterable[tuple[int, int, bool]]:
        return ()

    def expect_expiry(self) -> None:
        self.expiring = True

    def leave_owner(self) -> None:
        self._owner = NO_OWNER

    def new_message(self, id_: int, content: bytes, envelope: Envelope) -> Message:
        """A message of the highest rank."""
        return ranked(Message(id_, content, envelope), id_)

    # -- in -----------------------------------------------------------------------------------------------------------

    def append_run(self, first_id: int, envelopes: Envelopes, contents: Sequence[bytes]) -> None:
        for id_, (content, envelope) in enumerate(zip(contents, each_of(envelopes)), first_id):
            self.append(self._owner.message_for(id_, content, envelope))

    def append(self, message: Message) -> Message | None:
        assert isinstance(message, RankedMessage)
        self._here.add(message)
        return None

    def put_back(self, messages: list[Message]) -> tuple[list[Message], int]:
        for message in messages:
            self.append(message)
        return [], 0

    def put_first(self, message: Message) -> Message | None:
        """Insert a message at the position of its rank and id."""
        return self.append(message)

    def put_last(self, message: Message) -> Message | None:
        """Insert a message at the position of its rank and id."""
        return self.append(message)

    # -- out ----------------------------------------------------------------------------------------------------------

    def take(self, limit: int, room: int) -> list[Message]:
        taken: list[Message] = []
        while len(taken) < limit and len(self._here) and (room > 0 or not taken):
            taken.append(self._here.popleft())
            room -= len(taken[-1].content)
        return taken

    def head_octets(self, count: int) -> int:
        return sum(len(message.content) for message in islice(self._here, count))

    def evict_head(self, count: int, *, with_content: bool) -> Removed:
        return Removed([self._here.popleft() for _ in range(min(count, len(self._here)))], [])

    def expire(self, now_ns: int, *, with_content: bool, count_max: int, octets_max: int) -> Removed:
        gone: list[Message] = []
        while len(gone) < count_max and 0 < self.next_expiry_ns <= now_ns:
            gone.append(self._here.popleft())
        return Removed(gone, [])

    def drop_all(self) -> Dropped:
        here, self._here = self._here, SortedList((), _position_of)
        return Dropped(here, [], [], 0)

    # -- selection, browsing, replay ----------------------------------------------------------------------------------

    def position_of(self, message: Message) -> int:
        assert isinstance(message, RankedMessage)
        return message.position

    def scan(self, after: int, count: int) -> Scanned:
        return Scanned([(one.position, one) for one in self._here.after(after, count)], False)

    def load_at(self, after: int, count: int) -> None:
        pass

    def take_at(self, positions: Sequence[int]) -> Removed:
        return Removed([*self._here.take(sorted(set(positions)))], [])
