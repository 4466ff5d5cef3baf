"""A journal, a temp store and a queue in memory: what a store is lent, for tests of stores alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leveret.engine import Envelope, Message
from leveret.engine.messages.content import PLAIN
from leveret.engine.stores.paged_run import Location, Run
from leveret.engine.stores.storage import Storage
from leveret.engine.stores.store import Store
from leveret.engine.stores.tail import Unreadable


class MemoryPager:
    """`memory`: octets that messages may take."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.journal: dict[int, tuple[Envelope, bytes]] = {}
        self.is_broken = False

    def budget(self) -> int:
        return self.memory // 2

    def has(self, id_: int) -> bool:
        return id_ in self.journal

    def load(self, ids: Sequence[int]) -> list[Run]:
        """See `Pager`; runs of those that follow each other with the same envelope."""
        assert list(ids) == sorted(set(ids))
        if self.is_broken or not all(id_ in self.journal for id_ in ids):
            raise Unreadable("broken")
        runs: list[tuple[Envelope, list[bytes]]] = []
        for id_ in ids:
            envelope, content = self.journal[id_]
            if not runs or runs[-1][0] is not envelope.stored():
                runs.append((envelope.stored(), []))
            runs[-1][1].append(PLAIN.join(*envelope.framing.split(content)))
        return [(envelope, contents) for envelope, contents in runs]


class MemoryTempStore:
    """`room`: octets that it takes."""

    def __init__(self, room: int) -> None:
        self.limit = 0
        self.used = 0
        self.on_change: Callable[[int], object] = lambda used: None
        self.is_broken = self.has_failed = False
        self._room = room
        self._octets = b""

    def give_room(self, octets: int) -> None:
        """It takes so many from now on."""
        self._room = octets

    def spool(self, contents: Sequence[bytes]) -> Location | None:
        octets = b"".join(contents)
        self.has_failed = self.used + len(octets) > self._room
        if self.has_failed or 0 < self.limit <= self.used:
            return None
        location = Location(self, len(self._octets))
        self._octets += octets
        self.used += len(octets)
        self.on_change(self.used)
        return location

    def unspool(self, location: Location, size: int) -> bytes:
        if self.is_broken:
            raise Unreadable("broken")
        assert location.chunk is self
        assert location.offset + size <= len(self._octets)
        return self._octets[location.offset : location.offset + size]

    def release(self, location: Location, size: int) -> None:
        assert location.chunk is self
        self.used -= size
        assert self.used >= 0
        self.on_change(self.used)

    def close(self) -> None:
        pass


class StoreOwner:
    """A durable queue as its store sees it. `loaded_count`: messages that came back.

    What it was told of messages that were paged out is counted, from 0 on.
    """

    store: Store

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.loaded_count = 0
        self.in_memory = self.in_memory_octets = self.paged = self.paged_octets = 0

    def stores(self, envelope: Envelope) -> bool:
        return envelope.summary.persistent

    def message_for(self, id_: int, content: bytes, envelope: Envelope) -> Message:
        return self.store.new_message(id_, content, envelope)

    def could_not_page(self) -> None:
        """See `Owner`: the store is asked by whoever has it."""

    def loaded(self, messages: list[Message], attempts: int) -> None:
        self.loaded_count += len(messages)
        for message in messages:
            assert attempts in (0, message.deliveries - message.uncounted)

    def forget_paged(self) -> None:
        """All is gone."""
        self.in_memory = self.in_memory_octets = self.paged = self.paged_octets = 0

    def paged_out(self, count: int, octets: int, octets_paged: int, *, are_stored: bool) -> None:
        self.in_memory -= count
        self.in_memory_octets -= octets
        self.paged += count
        self.paged_octets += octets_paged
