"""The first messages of a leased queue, up to its target depth. Only these active messages can be leased.

Positions of paged-out messages are known without reading them. Source: queues page A.3 (TargetQueueDepth).
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
        """Make the next messages active, up to the depth. O(newly active messages)."""
        if self.count >= self._depth:
            return
        assert isinstance(store, TailedStore)  # a queue with ranks has no target depth
        positions = store.positions(self.end, self._depth - self.count)
        self.count += len(positions)
        if positions:
            self.end = positions[-1]

    def came(self, positions: Iterable[int]) -> None:
        """Count new messages at these positions that stand among the active ones."""
        end = self.end
        self.count += sum(position <= end for position in positions)

    def left(self, positions: Iterable[int]) -> None:
        """Messages at these positions are gone from the queue."""
        end = self.end
        self.count -= sum(position <= end for position in positions)
