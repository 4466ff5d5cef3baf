"""A queue as its store sees it, for tests of stores alone."""

from __future__ import annotations

from leveret.engine import Envelope, Message
from leveret.engine.stores.storage import Storage
from leveret.engine.stores.store import Store


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
        """See `StoreOwner`."""

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
