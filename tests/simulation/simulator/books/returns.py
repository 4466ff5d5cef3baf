"""What a channel or a connection gives back as it ends goes to another one: who has gone takes nothing any more."""

from __future__ import annotations

from typing import Any

from leveret.engine import Broker, DeliveredEvent, RequeuedEvent

from ..ledger import Broken, QueueName
from .book import Book, Handlers
from .whereabouts import Whereabouts

CLOSED, LOST = "closed", "lost"
Key = tuple[QueueName, int]


class Returns(Book):
    """Who had each message last, and who will not have it again."""

    def __init__(self, where: Whereabouts) -> None:
        self._where = where
        self._had: dict[Key, Any] = {}
        self._gone: dict[Key, Any] = {}  # a session, or of lost connections the client

    def handlers(self) -> Handlers:
        return {DeliveredEvent: self._delivered, RequeuedEvent: self._requeued}

    def attach(self, broker: Broker) -> None:
        self._had.clear()
        self._gone.clear()

    def _delivered(self, event: DeliveredEvent) -> None:
        name, session = (event.vhost, event.subject), event.session
        if self._where.places[name].keeps:
            return
        for id_ in event.messages:
            key = name, id_
            self._had[key] = session
            gone = self._gone.pop(key, None)
            if gone is not None and (gone is session or gone is session.client):
                raise Broken(f"{name}: {id_} went to a channel that had given it back as it ended")

    def _requeued(self, event: RequeuedEvent) -> None:
        if event.why not in (CLOSED, LOST):
            return
        name = event.vhost, event.subject
        features = self._where.features_of(event.subject).keys()
        may_time_out = bool(features & {"timeout_ms", "explored"})  # one channel alone, which counts as lost
        for id_ in event.messages:
            session = self._had.get((name, id_))
            if session is not None:
                is_of_all = event.why == LOST and not may_time_out
                self._gone[name, id_] = session.client if is_of_all else session
