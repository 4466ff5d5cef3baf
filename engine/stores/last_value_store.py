"""The store of a last-value queue: only the newest message of a key stays, in the position of the first.

All message objects are in memory; contents beyond the queue's share are only in the journal, and read back on access
(`LastValueReady`). Source: address-settings page 3.4, 5.8; queues page F.
"""

from collections.abc import Callable
from operator import attrgetter

from ..messages.levels import Levels
from ..messages.message import Envelope, Message
from .last_value import Key, LastValueReady
from .leveled_store import LeveledStore
from .paged_message import PagedMessage
from .storage import Owner

_id_of: Callable[[Message], int] = attrgetter("id")
_first_id_of: Callable[[Message], int] = attrgetter("first_id")


class LastValueStore(LeveledStore):
    """`key_of`: returns a message's key; messages without a key (None) are never replaced."""

    __slots__ = ("_key_of",)

    ready: LastValueReady

    def __init__(self, owner: Owner, levels: Levels, key_of: Callable[[Message], Key | None]) -> None:
        super().__init__(owner, levels, counts_octets=True, ready=LastValueReady(owner, levels, key_of))
        self._key_of = key_of
        self.may_page = False

    def _empty_ready(self) -> LastValueReady:
        return LastValueReady(self._owner, self._of_levels, self._key_of)

    def leave_owner(self) -> None:
        super().leave_owner()
        self.ready = self._empty_ready()

    @property
    def is_deep(self) -> bool:
        return self.ready.left_count > 0

    @property
    def pageable(self) -> None:
        """This kind has no tail."""

    def new_message(self, id_: int, content: bytes, envelope: Envelope) -> Message:
        if self._storage.pager is None:
            return Message(id_, content, envelope)
        return PagedMessage(id_, content, envelope, self.ready)

    def append(self, message: Message) -> Message | None:
        older, has_to_come = self._superseded(message)
        if has_to_come:
            self.ready.append(message)
        return older

    def put_first(self, message: Message) -> Message | None:
        older, has_to_come = self._superseded(message)
        if has_to_come:
            super().put_first(message)
        return older

    def put_last(self, message: Message) -> Message | None:
        older, has_to_come = self._superseded(message)
        if has_to_come:
            super().put_last(message)
        return older

    def _superseded(self, message: Message) -> tuple[Message | None, bool]:
        older, has_to_come = self.ready.supersede(message)
        if older is not None and older is not message:
            self._loosen()  # the newer message takes the older one's position
        return older, has_to_come

    def put_back(self, messages: list[Message]) -> tuple[list[Message], int]:
        gone: list[Message] = []
        by_key: dict[Key, Message] = {}  # the requeued messages may include several values of one key
        fresh: list[Message] = []
        for message in sorted(messages, key=_first_id_of, reverse=True):
            key = self.ready.key_of(message)
            if key is not None and by_key.setdefault(key, message) is not message:
                gone.append(message)
                continue
            older, has_to_come = self._superseded(message)
            if older is not None:
                gone.append(older)
            if has_to_come:
                fresh.append(message)
        fresh.sort(key=_id_of, reverse=True)
        self.ready.merge(fresh)
        return gone, 0
