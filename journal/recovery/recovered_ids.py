"""Collects the duplicate ids of one address from records, which may repeat ids and come in any order."""

from collections.abc import Iterator
from operator import itemgetter

from ..format.heap import IdsSeen

#: Ids beyond twice the cache size of the address that may gather before the oldest are dropped.
SPARE = 1000


class RecoveredIds:
    """Duplicate ids in the order of their messages' ids: a checkpoint may repeat old ids after new ones."""

    __slots__ = ("_numbers", "_size")

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, seen: IdsSeen) -> None:
        """Add the ids of a record. Memory is limited to twice the cache size of the address, plus `SPARE`."""
        numbers, self._size = self._numbers, seen.size
        for id_, number in seen.ids:
            if number > numbers.get(id_, 0):
                numbers[id_] = number
        if len(numbers) > 2 * self._size + SPARE:
            self._numbers = dict(self.newest(self._size))

    def newest(self, count: int) -> Iterator[tuple[str, int]]:
        """The newest `count` ids with the ids of their messages, oldest first."""
        rising = sorted(self._numbers.items(), key=itemgetter(1))
        yield from rising[max(0, len(rising) - count) :]
