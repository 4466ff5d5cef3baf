"""Acknowledgements of messages that a leased queue does not have yet. Source: queues page C.6.

One of a message that never came is remembered for a time (DeferredAckExpiration). One of a message that is here, but
not active yet or waiting for its time, has no end: it holds until the message is.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable
from struct import Struct

#: Of one queue; what is beyond is refused. All of them stand in its record in the journal.
DEFERRED_MAX = 10_000
_ENTRY = Struct("<qq")


class DeferredAcks:
    """By message id, until when (wall ms; 0: until the message is active, or due)."""

    __slots__ = ("_inactive", "_until_ms")

    def __init__(self, octets: bytes = b"") -> None:
        """`octets`: as `to_octets` made them."""
        self._until_ms: dict[int, int] = dict(_ENTRY.iter_unpack(octets[: len(octets) // _ENTRY.size * _ENTRY.size]))
        self._inactive: list[int] = []  # ids, rising: of messages behind those that are active

    def __len__(self) -> int:
        return len(self._until_ms)

    def to_octets(self) -> bytes:
        """For the journal."""
        return b"".join(_ENTRY.pack(*entry) for entry in self._until_ms.items())

    def add(self, id_: int, until_ms: int) -> bool:
        """Remember one. Returns whether there was room."""
        if len(self._until_ms) >= DEFERRED_MAX and id_ not in self._until_ms:
            return False
        self._until_ms[id_] = until_ms
        return True

    def keep(self, id_: int) -> None:
        """The message is here, but not active: there is no end to it any more."""
        self._until_ms[id_] = 0
        if id_ not in self._inactive:
            insort(self._inactive, id_)

    def among(self, ids: Iterable[int]) -> list[int]:
        """Those of these messages that were acknowledged."""
        if isinstance(ids, range) and len(ids) > len(self._until_ms):
            return sorted(id_ for id_ in self._until_ms if id_ in ids)
        return [id_ for id_ in ids if id_ in self._until_ms]

    def entered(self, end: int) -> list[int]:
        """Those of inactive messages up to this id. They are no longer taken for inactive."""
        count = bisect_right(self._inactive, end)
        found, self._inactive[:count] = self._inactive[:count], []
        return found

    def forget(self, ids: Iterable[int]) -> None:
        """They have had their effect."""
        for id_ in ids:
            self._until_ms.pop(id_, None)

    def prune(self, now_ms: int) -> None:
        """Forget those whose time is over."""
        over = [id_ for id_, until_ms in self._until_ms.items() if 0 < until_ms <= now_ms]
        self.forget(over)
