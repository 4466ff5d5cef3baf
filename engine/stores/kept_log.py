"""The messages of a non-destructive queue: those in memory, and the places of those that only the journal has.

The two stand in each other's gaps: what only memory has (transient, or changed since) stays there, wherever it is.
Source: queues page F.
"""

from collections.abc import Callable, Iterator
from heapq import merge

from ..messages.message import Message
from .kept_ready import KeptReady
from .kept_windows import WINDOW_MESSAGES, Windows
from .paged_message import body_size
from .paged_places import Left, PagedPlaces
from .surroundings import Surroundings

#: What a message in memory costs beside its octets.
OVERHEAD = 200


class KeptLog(KeptReady):
    """Counts all of them; as a list it has those in memory. `memory_octets`: what these take."""

    __slots__ = ("_body_octets", "memory_octets", "places", "windows")

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__()
        self.places = PagedPlaces()
        self.windows = Windows(surroundings)  # what of these was read back
        self.memory_octets = 0
        self._body_octets: int | None = None  # of those in memory, from the moment that somebody asks

    def __len__(self) -> int:
        return super().__len__() + len(self.places)

    @property
    def memory_count(self) -> int:
        """How many are in memory."""
        return super().__len__()

    @property
    def body_octets(self) -> int:
        """Octets of all bodies. O(messages in memory), once."""
        if self._body_octets is None:
            self._body_octets = sum(map(body_size, self))
        return self._body_octets + self.places.body_octets

    def has(self, id_: int) -> bool:
        """See `KeptReady`; wherever it is."""
        return super().has(id_) or id_ in self.places

    # -- memory -------------------------------------------------------------------------------------------------------

    def append(self, message: Message) -> None:
        """See `KeptReady`."""
        if self._messages and self._messages[-1].id > message.id:
            super().append(message)
        else:
            self._messages.append(message)
        self.memory_octets += len(message.blob) + OVERHEAD
        if self._body_octets is not None:
            self._body_octets += body_size(message)

    appendleft = append

    def popleft(self) -> Message:
        """See `KeptReady`."""
        message = super().popleft()
        self._count_out(message)
        return message

    def pop(self) -> Message:
        """See `KeptReady`."""
        message = super().pop()
        self._count_out(message)
        return message

    def take(self, id_: int) -> Message | None:
        """See `KeptReady`; None also when only the journal has it."""
        message = super().take(id_)
        if message is not None:
            self._count_out(message)
        return message

    def _count_out(self, message: Message) -> None:
        self.memory_octets -= len(message.blob) + OVERHEAD
        if self._body_octets is not None:
            self._body_octets -= body_size(message)

    def page_out(self, octets: int, can_leave: Callable[[Message], bool]) -> None:
        """Leave the oldest that can to the journal, until what is in memory takes no more than so many octets."""
        leaving: list[Message] = []
        staying: list[Message] = []
        stop = self._head
        for message in self:
            if self.memory_octets <= octets:
                break
            stop += 1
            if can_leave(message):
                leaving.append(message)
                self._count_out(message)
            else:
                staying.append(message)
        self._messages[:stop] = staying
        self._head = 0
        self.places.add(leaving)

    def load_all(self) -> None:
        """Everything back into memory, which has to have room for it. Raises: Unreadable."""
        while self.places:
            self.windows.fill(None, self.places, 0)
            for message in self.windows.all(None):
                if (left := self.places.take(message.id)) is not None:
                    message.expires_ns = left.expires_ns
                    self.append(message)
        self.windows.clear()

    # -- the head -----------------------------------------------------------------------------------------------------

    @property
    def head_is_paged(self) -> bool:
        """Whether only the journal has the oldest of all."""
        if not self.places:
            return False
        return not self.memory_count or self.places.first_id < self._messages[self._head].id

    @property
    def head_expires_ns(self) -> int:
        """When the oldest of all expires; 0: never, or there is none."""
        if self.head_is_paged:
            return self.places.first_expires_ns
        return self._messages[self._head].expires_ns if self.memory_count else 0

    def take_head(self) -> Message | Left:
        """Take the oldest of all out; there must be one."""
        return self.places.take_first() if self.head_is_paged else self.popleft()

    def read_head(self, id_: int, count: int = WINDOW_MESSAGES) -> Message:
        """One of the oldest, which only the journal has, at once; with it are read up to `count` in all, for the next.

        Raises: Unreadable.
        """
        message = self.windows.find(None, id_)
        if message is None:
            self.windows.fill(None, self.places, id_ - 1, count)
            message = self.windows.find(None, id_)
            assert message is not None
        return message

    def first_alive(self, now_ns: int) -> int | None:
        """The id of the oldest, those not counted at the head that have expired by then."""
        if not 0 < self.head_expires_ns <= now_ns:
            return (self.places.first_id if self.head_is_paged else self._messages[self._head].id) if self else None
        here = ((message.id, message.expires_ns) for message in self)
        return next((id_ for id_, due_ns in merge(here, self.places.expiries()) if not 0 < due_ns <= now_ns), None)

    def between(self, id_: int, count: int, read_back: Callable[[int], Message | None]) -> Iterator[Message]:
        """Up to `count` messages behind `id_`, wherever they are; ends before one that was not read back."""
        here = iter(self.after(id_, count))
        message = next(here, None)
        for paged in self.places.after(id_, count):
            while message is not None and message.id < paged:
                yield message
                message = next(here, None)
            found = read_back(paged)
            if found is None:
                return
            yield found
        while message is not None:
            yield message
            message = next(here, None)
