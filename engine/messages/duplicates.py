"""Duplicate detection: a message is not routed if its address has seen the message's id before.

Source: address-settings page 3.6 (id-cache-size, persist-id-cache).
"""

from collections import deque
from collections.abc import Iterable
from hashlib import blake2b

from .content import DUPLICATE_IDS
from .field_table import FieldTable

#: Maximum length of a stored id, in characters. Longer ids are stored as hashes: clients must not fill the memory.
LENGTH_MAX = 128


class IdCache:
    """The last `size` duplicate ids of one address. A new id evicts the oldest.

    Each id has the number of the first message that carried it; 0: that message is not in the journal.
    `characters`: total length of the stored ids.
    """

    __slots__ = ("_numbers", "_order", "characters", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.characters = 0
        self._numbers: dict[str, int] = {}
        self._order: deque[str] = deque()  # finding the oldest key of a dictionary is not O(1)

    def __contains__(self, id_: str | None) -> bool:
        return id_ in self._numbers

    def remember(self, id_: str, number: int) -> None:
        """Store a new id as the newest. It must not be stored yet."""
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
        """The number of the message that carried the id; 0: it is not in the journal, or the id is not stored."""
        return self._numbers.get(id_, 0)

    def ids(self) -> list[str]:
        """The stored ids, oldest first."""
        return list(self._order)

    def restore(self, numbered: Iterable[tuple[str, int]]) -> None:
        """Store the ids that were stored before a restart, given oldest first."""
        for id_, number in numbered:
            self.remember(id_, number)


def duplicate_id(headers: FieldTable, *, asked_for: bool) -> str | None:
    """A message's duplicate id, or None. `asked_for`: also accept the RabbitMQ plugin's header `x-deduplication-id`."""
    for name in DUPLICATE_IDS if asked_for else DUPLICATE_IDS[:1]:
        field = headers.get(name)
        if field is not None:
            text = repr(field.comparable())
            if len(text) <= LENGTH_MAX:
                return text
            return "blake2b:" + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()
    return None
