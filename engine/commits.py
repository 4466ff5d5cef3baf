"""Commits of transactions: applied at once, or, if they are too much for one turn, a slice at the end of each."""

from collections import deque
from typing import TYPE_CHECKING

from .context import BrokerContext

if TYPE_CHECKING:
    from .clients.commit import Commit

#: Messages times queues that a commit publishes in one slice (2 to 5 ms); one with less is applied at once.
COMMIT_SLICE = 2_000


class Commits:
    """Of one broker. Of those `waiting` only the first is under way."""

    __slots__ = ("_context", "waiting")

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.waiting: deque[Commit] = deque()

    @property
    def pending(self) -> bool:
        """Whether one is to go on. None begins while the journal takes nothing."""
        waiting = self.waiting
        if not waiting:
            return False
        durability = self._context.storage.durability
        return waiting[0].has_begun or durability is None or not durability.has_failed

    @property
    def is_under_way(self) -> bool:
        """Whether one has begun, and is not done."""
        return bool(self.waiting) and self.waiting[0].has_begun

    def apply(self, commit: "Commit") -> None:
        """Apply a transaction: at once, or in slices if it is large."""
        if commit.cost <= COMMIT_SLICE:
            commit.work()
        else:
            self.waiting.append(commit)

    def work(self) -> None:
        """A slice of the first; none begins before what was recorded before is written."""
        commit = self.waiting[0]
        if not commit.has_begun and (self._context.dead_letters.waiting or not self.pending):
            return
        commit.work(COMMIT_SLICE)
        if commit.is_done:
            self.waiting.popleft()
            commit.session.committed()
            client = commit.session.client
            if not client.closed:
                self._context.touched[client] = None
