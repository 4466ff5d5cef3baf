"""A list of items in order of ids. A look-up by id takes O(log n); a change also moves the items of one block.

A deque is faster at its ends, but slow in the middle. Source: queues page F.2.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Generic, TypeVar

T = TypeVar("T")
#: Number of items in a block. Insertions by id may fill a block up to twice this number; then it is split.
BLOCK = 512


class SortedList(Generic[T]):
    """Items in blocks. At its ends it has methods of a deque. `id_of`: the id of an item, or the lowest of its ids.

    Ids must rise; otherwise only the methods for the ends may be used.
    """

    __slots__ = ("_blocks", "_count", "_first_of", "_id_of")

    def __init__(self, items: Iterable[T], id_of: Callable[[T], int]) -> None:
        self._id_of = id_of
        self._first_of: Callable[[list[T]], int] = lambda block: id_of(block[0])
        self._blocks: list[list[T]] = []  # none is empty
        self._count = 0
        self.extend(items)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._blocks)

    def __getitem__(self, end: int) -> T:
        """The first (0) or the last (-1) item."""
        return self._blocks[end][end]

    # -- at its ends --------------------------------------------------------------------------------------------------

    def append(self, item: T) -> None:
        blocks = self._blocks
        if blocks and len(blocks[-1]) < BLOCK:
            blocks[-1].append(item)
        else:
            blocks.append([item])
        self._count += 1

    def extend(self, items: Iterable[T]) -> None:
        rest = iter(items)
        blocks = self._blocks
        if blocks and len(blocks[-1]) < BLOCK:
            more = list(islice(rest, BLOCK - len(blocks[-1])))
            blocks[-1] += more
            self._count += len(more)
        while block := list(islice(rest, BLOCK)):
            blocks.append(block)
            self._count += len(block)

    def appendleft(self, item: T) -> None:
        self.extendleft((item,))

    def extendleft(self, items: Iterable[T]) -> None:
        """Insert items at the head one by one, which reverses their order."""
        blocks = self._blocks
        for item in items:
            if not blocks or len(blocks[0]) >= BLOCK:
                blocks.insert(0, [])
            blocks[0].insert(0, item)
            self._count += 1

    def popleft(self) -> T:
        """Remove and return the first item; there must be one."""
        block = self._blocks[0]
        item = block.pop(0)
        self._count -= 1
        if not block:
            del self._blocks[0]
        return item

    def pop(self) -> T:
        """Remove and return the last item; there must be one."""
        block = self._blocks[-1]
        item = block.pop()
        self._count -= 1
        if not block:
            self._blocks.pop()
        return item

    def clear(self) -> None:
        self._blocks.clear()
        self._count = 0

    # -- by ids -------------------------------------------------------------------------------------------------------

    def reaching(self, id_: int) -> Iterator[T]:
        """The last item with an id up to `id_`, if there is one, and all later items."""
        at = self._block_of(id_)
        if at < len(self._blocks):
            block = self._blocks[at]
            yield from islice(block, max(bisect_right(block, id_, key=self._id_of) - 1, 0), None)
            yield from chain.from_iterable(islice(self._blocks, at + 1, None))

    def remove(self, item: T) -> None:
        """Remove an item, whose id no other item has."""
        self.take((self._id_of(item),))

    def take(self, ids: Sequence[int]) -> list[T]:
        """Remove and return the items with these rising ids. Ids without an item are ignored."""
        id_of, taken = self._id_of, list[T]()

        def without(block: list[T], some: Sequence[int]) -> list[T]:
            for id_ in some:
                at = bisect_left(block, id_, key=id_of)
                if at < len(block) and id_of(block[at]) == id_:
                    taken.append(block.pop(at))
            return block

        self.change(ids, without)
        return taken

    def after(self, id_: int, count: int) -> list[T]:
        """Up to `count` items with ids above `id_`."""
        found = list(islice(self.reaching(id_), count + 1))
        if found and self._id_of(found[0]) <= id_:
            del found[0]
        return found[:count]

    def add(self, item: T) -> None:
        """Insert an item by its id. Cheap at the end."""
        if self._blocks and self._id_of(self._blocks[-1][-1]) > self._id_of(item):
            self.insert((item,))
        else:
            self.append(item)

    def insert(self, items: Iterable[T]) -> None:
        """Insert items by their ids."""
        id_of = self._id_of
        by_id = {id_of(item): item for item in items}

        def with_more(block: list[T], some: Sequence[int]) -> list[T]:
            for id_ in some:
                insort(block, by_id[id_], key=id_of)
            return block

        self.change(sorted(by_id), with_more)

    def change(self, ids: Sequence[int], changed: Callable[[list[T], Sequence[int]], list[T]]) -> None:
        """Replace the blocks to which these rising ids belong.

        `changed(block, ids)`: the items that replace a block, which it may modify. `ids`: those that fall into the
        block.
        """
        blocks = self._blocks
        start = 0
        while start < len(ids):
            at = self._block_of(ids[start])
            stop = len(ids)
            if at + 1 < len(blocks):
                stop = max(bisect_left(ids, self._first_of(blocks[at + 1]), start), start + 1)
            before = blocks[at] if blocks else []
            self._count -= len(before)
            after = changed(before, ids[start:stop])
            self._count += len(after)
            blocks[at : at + 1] = _in_blocks(after)
            start = stop

    def _block_of(self, id_: int) -> int:
        """The index of the block that has an id, or would have it."""
        return max(bisect_right(self._blocks, id_, key=self._first_of) - 1, 0)


def _in_blocks(items: list[T]) -> list[list[T]]:
    if len(items) <= 2 * BLOCK:
        return [items] if items else []
    return [items[start : start + BLOCK] for start in range(0, len(items), BLOCK)]
