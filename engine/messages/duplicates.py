"""Duplicate detection: a message is dropped if its address knows the message's duplicate id.

Source: address-settings page 3.6 (id-cache-size, persist-id-cache).
"""

from collections import deque
from hashlib import blake2b

from .content import DUPLICATE_IDS
from .field_table import FieldTable

#: Maximum length of a stored id, in characters. Longer ids are stored as hashes, which limits the memory.
LENGTH_MAX = 128


class IdCache:
    """The last `size` duplicate ids of one address, each with the id of its first message.

    A message id of 0: the message is not in the journal. `characters`: total length of the stored ids.
    """

    __slots__ = ("_message_ids", "_order", "characters", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.characters = 0
        self._message_ids: dict[str, int] = {}
        self._order: deque[str] = deque()  # the oldest key of a dict is not found in O(1)

    def __contains__(self, id_: str | None) -> bool:
        return id_ in self._message_ids

    def remember(self, id_: str, message_id: int) -> None:
        """Store an id that is not stored yet. Drops the oldest if there are too many."""
        self._message_ids[id_] = message_id
        self._order.append(id_)
        self.characters += len(id_)
        self.resize(self.size)

    def resize(self, size: int) -> None:
        """Store at most so many ids. Drops the oldest of those that are too many."""
        self.size = size
        while len(self._order) > size:
            oldest = self._order.popleft()
            self.characters -= len(oldest)
            del self._message_ids[oldest]

    def __len__(self) -> int:
        return len(self._order)

    def message_id_of(self, id_: str) -> int:
        """The id of the first message with this duplicate id; 0: it is not in the journal, or the id is not stored."""
        return self._message_ids.get(id_, 0)

    def ids(self) -> list[str]:
        """The stored ids, oldest first."""
        return list(self._order)


def duplicate_id(headers: FieldTable, *, with_plugin_header: bool) -> str | None:
    """A message's duplicate id, or None. `with_plugin_header`: also accept RabbitMQ's x-deduplication-id."""
    for name in DUPLICATE_IDS if with_plugin_header else DUPLICATE_IDS[:1]:
        field = headers.get(name)
        if field is not None:
            text = repr(field.comparable())
            if len(text) <= LENGTH_MAX:
                return text
            return "blake2b:" + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()
    return None
