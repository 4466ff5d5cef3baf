"""The store of an ordinary queue: a deque, and the tail behind it. Source: queues page F."""

from collections import deque
from collections.abc import Sequence

from ..messages.message import Message
from .ready import merge_back
from .scanning import Level
from .storage import Owner
from .tail import Tail
from .tailed_store import TailedStore


class PlainStore(TailedStore):
    """One level, in order of delivery. See `Store`."""

    __slots__ = ()

    ready: Level

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner, deque())

    def _empty_ready(self) -> deque[Message]:
        return deque()

    def _levels(self) -> Sequence[Level]:
        return (self.ready,)

    def _set_level(self, level: int, messages: Level) -> None:
        self.ready = messages

    def _left_levels(self, messages: Sequence[Message]) -> None:
        """Nothing to do: a deque counts its messages."""

    def _merge(self, messages: list[Message]) -> int:
        return merge_back(self.ready, messages)

    def _begin_tail(self) -> Tail:
        tail = self._tail = Tail()
        self.has_tail = True
        return tail

    @property
    def body_octets(self) -> int:
        return 0

    @property
    def counts_octets(self) -> bool:
        return False

    def position_of(self, message: Message) -> int:
        return message.id
