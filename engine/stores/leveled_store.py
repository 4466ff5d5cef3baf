"""The store of a queue with priorities, or with a limit of octets: a deque and a tail for each level.

Messages in memory always come before paged-out ones: before a level pages out, the lower levels in memory are paged out
completely. Source: behaviour page 3.3, 3.5; queues page F.
"""

from collections.abc import Sequence

from ..messages.levels import Levels
from ..messages.message import Message
from ..messages.mixed import Envelopes, each_of
from .memory_budget import OVERHEAD
from .paged_message import body_size
from .ready import LeveledReady
from .scanning import Level
from .storage import Owner
from .store import LEVEL_STEP
from .tail import Tail
from .tailed_store import TailedStore


class LeveledStore(TailedStore):
    """`levels`: of priority. `counts_octets`: `body_octets` includes paged-out messages."""

    __slots__ = ("_counts_octets", "_of_levels")

    ready: LeveledReady

    def __init__(self, owner: Owner, levels: Levels, *, counts_octets: bool, ready: LeveledReady | None = None) -> None:
        super().__init__(owner, LeveledReady(levels, body_size) if ready is None else ready)
        self._of_levels = levels
        self._counts_octets = counts_octets

    def _empty_ready(self) -> LeveledReady:
        return LeveledReady(self._of_levels, body_size)

    def _levels(self) -> Sequence[Level]:
        return self.ready.levels

    def _set_level(self, level: int, messages: Level) -> None:
        self.ready.levels[level] = messages

    def _left_levels(self, messages: Sequence[Message]) -> None:
        self.ready.took(messages)

    def _merge(self, messages: list[Message]) -> int:
        self.ready.merge(messages)
        return 0

    def _begin_tail(self) -> Tail:
        tail = self._tail = Tail(self._of_levels)
        self.has_tail = True
        if self._counts_octets:
            tail.count_octets()
        return tail

    def _is_within_charge(self, message: Message) -> bool:
        """See `TailPaging`. Uses the count of octets, so that the budget need not measure the store."""
        ready = self.ready
        octets = len(message.content) + OVERHEAD
        if ready.octets + OVERHEAD * len(ready) + octets > self._storage.memory.charge_of(self):
            return False
        self.quota = max(self.quota - octets, 0)
        return True

    @property
    def levels(self) -> Levels:
        return self._of_levels

    @property
    def body_octets(self) -> int:
        tail = self._tail
        return self.ready.octets + (0 if tail is None else tail.octets or 0)

    @property
    def counts_octets(self) -> bool:
        return self._counts_octets

    def append_run(self, first_id: int, envelopes: Envelopes, contents: Sequence[bytes]) -> None:
        for id_, (content, envelope) in enumerate(zip(contents, each_of(envelopes)), first_id):
            self.append(self.new_message(id_, content, envelope))

    def position_of(self, message: Message) -> int:
        levels = self._of_levels
        return (levels.top - levels.of(message.envelope.summary.priority)) * LEVEL_STEP + message.id
