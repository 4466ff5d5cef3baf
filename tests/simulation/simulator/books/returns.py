"""What a channel or a connection gives back as it ends goes to another one: who has gone takes nothing any more.

After a channel error ("lost", too) the other channels of its connection go on, and so do those that open later.
"""

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
        self._gone: dict[Key, Any] = {}  # a session, or the client if its connection has ended

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
        for id_ in event.messages:
            session = self._had.get((name, id_))
            if session is not None:  # its client is closed before any of its channels gives something back
                self._gone[name, id_] = session.client if session.client.closed else session
