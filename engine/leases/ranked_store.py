"""The store of a leased queue with priorities or barriers: messages by rank, the highest first, all of them in memory.

The rank of a ready message takes 8 octets beside it. A message outside the store has its position.
Source: queues page A.3 (Priority: an unsigned long, so -1 is the highest; NULL and values that are not numbers
come last), A.9, F.4.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from math import isnan
from typing import ClassVar

from ...expressions.language import Expression
from ..delivery.filters import MessageSubject
from ..messages.message import Envelope, Envelopes, Message, each_of, id_of
from ..stores.memory_budget import held_octets
from ..stores.paged_run import Part
from ..stores.storage import StoreOwner
from ..stores.store import LEVEL_STEP, Dropped, Removed, Scanned, StoreInMemory

#: The highest rank; ranks begin at 0. The position of a message of the highest rank is its id.
RANK_MAX = 2**64 - 1
#: The lowest value of a long.
LOWEST = -(2**63)
#: Messages in a block, at most.
BLOCK_MAX = 1024


class RankedMessage(Message):
    """A message outside its store: new, or taken out. `position`: its position in the queue."""

    stays_in_memory: ClassVar[bool] = True

    __slots__ = ("position",)

    position: int


def ranked(message: Message, position: int) -> RankedMessage:
    """A copy of a message with its position."""
    found = RankedMessage(message.id, message.content, message.envelope, message.holder, message.deliveries)
    found.expires_ns, found.uncounted = message.expires_ns, message.uncounted
    found.position = position
    return found


def position_at(rank: int, id_: int) -> int:
    return (RANK_MAX - rank) * LEVEL_STEP + id_


def rank_of(priority: Expression, message: Message) -> int:
    """The rank, from 0 to `RANK_MAX`; 0 for a value that is no number.

    Fractions are cut off. Negative numbers count from the top, as in C. Of a list the first value counts.
    """
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


class Block:
    """Messages in order of positions. `levels`: `position // LEVEL_STEP` of each message, rising."""

    __slots__ = ("levels", "messages")

    def __init__(self, levels: "array[int]", messages: list[Message]) -> None:
        self.levels = levels
        self.messages = messages

    def position(self, index: int) -> int:
        return self.levels[index] * LEVEL_STEP + self.messages[index].id

    def index_of(self, position: int) -> int:
        """The number of messages before a position."""
        level, id_ = divmod(position, LEVEL_STEP)
        first = bisect_left(self.levels, level)
        if first == len(self.levels) or self.levels[first] != level:
            return first
        return bisect_left(self.messages, id_, first, bisect_right(self.levels, level, first), key=id_of)

    def split(self, at: int) -> "Block":
        """Split off the messages from index `at` on. Both blocks take only the memory that they need."""
        behind = Block(self.levels[at:], self.messages[at:])
        self.levels, self.messages = self.levels[:at], self.messages[:at]
        return behind


def _last_position(block: Block) -> int:
    return block.position(-1)


class RankedReady:
    """Messages in order of positions. `popleft`, `pop`, and `add` at the end are cheap; the rest is O(block)."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._head = 0  # number of messages taken out of the first block, which still lists them
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        if not self._blocks:
            return iter(())
        rest = (block.messages for block in self._blocks[1:])
        return chain(islice(self._blocks[0].messages, self._head, None), *rest)

    def add(self, message: Message, position: int) -> None:
        self._trim()
        blocks = self._blocks
        self._count += 1
        if not blocks:
            blocks.append(Block(array("Q"), []))
        at = len(blocks) - 1
        if at and _last_position(blocks[at - 1]) > position:
            at = bisect_left(blocks, position, key=_last_position)
        block = blocks[at]
        index = block.index_of(position)
        is_last = index == len(block.messages)
        block.levels.insert(index, position // LEVEL_STEP)
        block.messages.insert(index, message)
        if len(block.messages) > BLOCK_MAX:
            blocks.insert(at + 1, block.split(BLOCK_MAX if is_last and at == len(blocks) - 1 else BLOCK_MAX // 2))

    @property
    def first(self) -> Message:
        """The first message; there must be one."""
        return self._blocks[0].messages[self._head]

    def popleft(self) -> RankedMessage:
        """Remove and return the first message."""
        block = self._blocks[0]
        message = ranked(block.messages[self._head], block.position(self._head))
        self._head += 1
        self._count -= 1
        if self._head == len(block.messages):
            del self._blocks[0]
            self._head = 0
        return message

    def pop(self) -> Message:
        """Remove and return the last message."""
        block = self._blocks[-1]
        message = block.messages.pop()
        block.levels.pop()
        self._count -= 1
        if not block.messages or (len(self._blocks) == 1 and self._head == len(block.messages)):
            self._blocks.pop()
            self._head = self._head if self._blocks else 0
        return message

    def take(self, position: int) -> RankedMessage | None:
        """Remove and return the message at a position; None: there is none."""
        self._trim()
        at = bisect_left(self._blocks, position, key=_last_position)
        if at == len(self._blocks):
            return None
        block = self._blocks[at]
        index = block.index_of(position)
        if block.position(index) != position:
            return None
        block.levels.pop(index)
        message = ranked(block.messages.pop(index), position)
        self._count -= 1
        if not block.messages:
            del self._blocks[at]
        return message

    def after(self, position: int) -> Iterator[tuple[int, Message]]:
        self._trim()
        at = bisect_right(self._blocks, position, key=_last_position)
        for block in self._blocks[at:]:
            start = block.index_of(position + 1)
            for index in range(start, len(block.messages)):
                yield block.position(index), block.messages[index]

    def _trim(self) -> None:
        if self._head:
            block = self._blocks[0]
            del block.messages[: self._head], block.levels[: self._head]
            self._head = 0


class RankedStore(StoreInMemory):
    """A `ConsumableStore` that takes and returns `RankedMessage`s. The stored objects themselves have no position."""

    has_tail: ClassVar[bool] = False
    is_deep: ClassVar[bool] = False
    body_octets: ClassVar[int] = 0  # leased queues have no limit on the octets of bodies

    _messages: RankedReady

    def __init__(self, owner: StoreOwner) -> None:
        super().__init__(owner)
        self._messages = RankedReady()
        self.expiring = False

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def held_octets(self) -> int:
        return held_octets(self._messages)

    @property
    def next_expiry_ns(self) -> int:
        """See `Store`. The lease book has the lifetimes of messages behind the head."""
        return self._messages.first.expires_ns if len(self._messages) else 0

    def paged_parts(self) -> list[Part | Message]:
        return []

    def paged_sizes(self, parts: Iterable[Part | Message]) -> Iterable[tuple[int, int, bool]]:
        return ()

    def new_message(self, id_: int, content: bytes, envelope: Envelope) -> Message:
        """A message of the highest rank."""
        return ranked(Message(id_, content, envelope), id_)

    # -- in -----------------------------------------------------------------------------------------------------------

    def append_run(self, first_id: int, envelopes: Envelopes, contents: Sequence[bytes]) -> None:
        for id_, (content, envelope) in enumerate(zip(contents, each_of(envelopes)), first_id):
            self.append(self._owner.message_for(id_, content, envelope))

    def append(self, message: Message) -> Message | None:
        stored = Message(message.id, message.content, message.envelope, message.holder, message.deliveries)
        stored.expires_ns, stored.uncounted = message.expires_ns, message.uncounted
        self._messages.add(stored, self.position_of(message))
        return None

    def put_back(self, messages: list[Message]) -> tuple[list[Message], int]:
        for message in messages:
            self.append(message)
        return [], 0

    put_first = put_last = append  # the position follows from rank and id

    # -- out ----------------------------------------------------------------------------------------------------------

    def take(self, limit: int, room: int) -> list[Message]:
        taken: list[Message] = []
        while len(taken) < limit and len(self._messages) and (room > 0 or not taken):
            taken.append(self._messages.popleft())
            room -= len(taken[-1].content)
        return taken

    def head_octets(self, count: int) -> int:
        return sum(len(message.content) for message in islice(self._messages, count))

    def evict_head(self, count: int, *, with_content: bool) -> Removed:
        return Removed([self._messages.popleft() for _ in range(min(count, len(self._messages)))], [])

    def expire(self, now_ns: int, *, with_content: bool, count_max: int, octets_max: int) -> Removed:
        gone: list[Message] = []
        while len(gone) < count_max and 0 < self.next_expiry_ns <= now_ns:
            gone.append(self._messages.popleft())
        return Removed(gone, [])

    def drop_all(self) -> Dropped:
        stored, self._messages = self._messages, RankedReady()
        return Dropped(stored, [], [], 0)

    # -- selection, browsing, replay ----------------------------------------------------------------------------------

    def position_of(self, message: Message) -> int:
        """See `Store`. O(messages) for a stored message; its queue asks only for messages outside the store."""
        if isinstance(message, RankedMessage):
            return message.position
        return next(position for position, one in self._messages.after(-1) if one is message)

    def scan(self, after: int, count: int) -> Scanned:
        return Scanned(list(islice(self._messages.after(after), count)), False)

    def load_at(self, after: int, count: int) -> None:
        pass

    def take_at(self, positions: Sequence[int]) -> Removed:
        taken = (self._messages.take(position) for position in sorted(set(positions)))
        return Removed([message for message in taken if message is not None], [])
