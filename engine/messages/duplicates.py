"""Duplicate detection: a message whose id was seen before at its address is not routed again.

Source: address-settings page 3.6 (id-cache-size, persist-id-cache).
"""

from collections import deque
from collections.abc import Iterable
from hashlib import blake2b

from .content import DUPLICATE_IDS
from .field_table import FieldTable

#: Characters of an id; longer ones are known by their hash, so that clients cannot fill the memory with them.
LENGTH_MAX = 128


class IdCache:
    """The last `size` duplicate ids of one address, oldest forgotten first.

    Each has the number of the first message that came with it; 0: the journal does not have that message.
    `characters`: of all ids that are remembered.
    """

    __slots__ = ("_numbers", "_order", "characters", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.characters = 0
        self._numbers: dict[str, int] = {}
        self._order: deque[str] = deque()  # beside it: to take the oldest out of a dictionary is not O(1)

    def __contains__(self, id_: str | None) -> bool:
        return id_ in self._numbers

    def remember(self, id_: str, number: int) -> None:
        """An id that is not among them is from now on, the newest."""
        self._numbers[id_] = number
        self._order.append(id_)
        self.characters += len(id_)
        while len(self._order) > self.size:
            oldest = self._order.popleft()
            self.characters -= len(oldest)
            del self._numbers[oldest]

    def __len__(self) -> int:
        return len(self._order)

    def number_of(self, id_: str) -> int:
        """Of the message that brought it; 0: the journal does not have it, or the id is forgotten."""
        return self._numbers.get(id_, 0)

    def ids(self) -> list[str]:
        """All of them, oldest first."""
        return list(self._order)

    def restore(self, numbered: Iterable[tuple[str, int]]) -> None:
        """What was remembered before a restart, oldest first."""
        for id_, number in numbered:
            self.remember(id_, number)


def duplicate_id(headers: FieldTable, *, asked_for: bool) -> str | None:
    """A message's id, or None. The plugin's header `x-deduplication-id` counts only where somebody `asked_for` it."""
    for name in DUPLICATE_IDS if asked_for else DUPLICATE_IDS[:1]:
        field = headers.get(name)
        if field is not None:
            text = repr(field.comparable())
            if len(text) <= LENGTH_MAX:
                return text
            return "blake2b:" + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()
    return None
