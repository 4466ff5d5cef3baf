"""The acknowledgements that a leased queue keeps for messages that are not ready yet. Source: queues page C.6."""

from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Mapping
from struct import Struct

#: Deferred acknowledgements of one queue; more are refused. All of them are written in the queue's journal record.
DEFERRED_MAX = 10_000
_ENTRY = Struct("<qq")


class DeferredAcks:
    """The deferred acknowledgements of one queue, by message id.

    Each is kept until a time (wall ms), or, if its message is in the queue, until that is active or due (0).
    """

    def __init__(self, octets: bytes = b"") -> None:
        """`octets`: as `to_octets` made them."""
        self._until_ms: dict[int, int] = dict(_ENTRY.iter_unpack(octets[: len(octets) // _ENTRY.size * _ENTRY.size]))
        self._inactive: list[int] = []  # ids, rising, of messages behind the active ones

    def __len__(self) -> int:
        return len(self._until_ms)

    def to_octets(self) -> bytes:
        return b"".join(_ENTRY.pack(*entry) for entry in self._until_ms.items())

    def has_room(self, ids: Collection[int]) -> bool:
        """Whether acknowledgements of these messages can be added."""
        return len(self._until_ms) + len(ids) <= DEFERRED_MAX or len(self._until_ms.keys() | ids) <= DEFERRED_MAX

    def add(self, until_ms: Mapping[int, int]) -> None:
        """Add acknowledgements, by id, for which there is room."""
        self._until_ms.update(until_ms)

    def keep(self, id_: int) -> None:
        """Keep an acknowledgement until its message, which is behind the active ones, is active."""
        self._until_ms[id_] = 0
        if id_ not in self._inactive:
            insort(self._inactive, id_)

    def among(self, ids: Iterable[int]) -> list[int]:
        """The ids among these that have a deferred acknowledgement."""
        if isinstance(ids, range) and len(ids) > len(self._until_ms):
            return sorted(id_ for id_ in self._until_ms if id_ in ids)
        return [id_ for id_ in ids if id_ in self._until_ms]

    def entered(self, end: int) -> list[int]:
        """Forget and return the inactive ids up to `end`: their messages are active now."""
        count = bisect_right(self._inactive, end)
        found, self._inactive[:count] = self._inactive[:count], []
        return found

    def forget(self, ids: Iterable[int]) -> None:
        """Remove acknowledgements."""
        for id_ in ids:
            self._until_ms.pop(id_, None)

    def forget_present(self) -> None:
        """Remove the acknowledgements of messages that are in the queue."""
        self.forget([id_ for id_, until_ms in self._until_ms.items() if not until_ms])
        self._inactive.clear()

    def prune(self, now_ms: int) -> None:
        """Remove acknowledgements whose time is over."""
        self.forget([id_ for id_, until_ms in self._until_ms.items() if 0 < until_ms <= now_ms])
