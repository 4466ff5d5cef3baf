"""The active messages of a leased queue with a target depth: what stands behind them is in the queue, and nothing else.

Which these are is known of what is paged out, too: nothing is read for it. Source: queues page A.3 (TargetQueueDepth).
"""

from collections.abc import Iterable

from ..stores.store import Store
from ..stores.tailed_store import TailedStore


class ActiveSet:
    """`end`: the position of the last active message. `count`: active ones, leased or ready."""

    __slots__ = ("_depth", "count", "end")

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self.count = 0
        self.end = 0

    def refill(self, store: Store) -> None:
        """Messages became fewer, or more came: the next ones are active. O(those)."""
        if self.count >= self._depth:
            return
        assert isinstance(store, TailedStore)  # a queue with ranks has no target depth
        positions = store.positions(self.end, self._depth - self.count)
        self.count += len(positions)
        if positions:
            self.end = positions[-1]

    def came(self, positions: Iterable[int]) -> None:
        """New messages stand at these positions, perhaps among those that are active."""
        end = self.end
        self.count += sum(position <= end for position in positions)

    def left(self, positions: Iterable[int]) -> None:
        """Messages at these positions are gone."""
        end = self.end
        self.count -= sum(position <= end for position in positions)
