"""The active messages of a leased queue with a target depth: what stands behind them is in the queue, and nothing else.

Source: queues page A.3 (TargetQueueDepth).
"""

from collections.abc import Iterable

from ..stores.store import Store


class ActiveSet:
    """`end`: the position of the last active message. `count`: active ones, leased or ready."""

    __slots__ = ("_depth", "count", "end", "is_missing")

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self.count = 0
        self.end = 0
        self.is_missing = False  # what comes next has to be read before it is active

    def refill(self, store: Store) -> None:
        """Messages became fewer, or more came: the next ones are active. O(those)."""
        if self.count >= self._depth:
            return
        seen = store.scan(self.end, self._depth - self.count)
        self.is_missing = seen.missing
        self.count += len(seen.found)
        if seen.found:
            self.end = seen.found[-1][0]

    def load(self, store: Store) -> None:
        """Read what comes next. Raises: Unreadable."""
        self.is_missing = False
        store.load_at(self.end, self._depth - self.count)

    def left(self, positions: Iterable[int]) -> None:
        """Messages at these positions are gone."""
        end = self.end
        self.count -= sum(position <= end for position in positions)
