"""The duplicate ids of one address, as records bring them: in any order, some of them more than once."""

from collections.abc import Iterator
from operator import itemgetter

from ..format.heap import IdsSeen

#: So many more than are remembered may gather before the oldest are left out.
SPARE = 1000


class RecoveredIds:
    """Whose message is newer was seen later: a checkpoint repeats old ids behind new ones."""

    __slots__ = ("_numbers", "_size")

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, seen: IdsSeen) -> None:
        """What a record says. Not more is kept than twice what the address remembered, and a little."""
        numbers, self._size = self._numbers, seen.size
        for id_, number in seen.ids:
            if number > numbers.get(id_, 0):
                numbers[id_] = number
        if len(numbers) > 2 * self._size + SPARE:
            self._numbers = dict(self.newest(self._size))

    def newest(self, count: int) -> Iterator[tuple[str, int]]:
        """The last `count` with the ids of their messages, oldest first."""
        rising = sorted(self._numbers.items(), key=itemgetter(1))
        yield from rising[max(0, len(rising) - count) :]
