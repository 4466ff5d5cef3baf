"""What a client says of a delivery happens to it: nobody else acknowledges, requeues or rejects it.

Leased queues, whose messages others may settle, have a book of their own, and queues that keep all have copies out.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from leveret.engine import AckedEvent, Broker, DeliveredEvent, LeftEvent, RequeuedEvent

from ..ledger import Broken, QueueName
from .book import Book, Handlers
from .whereabouts import Whereabouts

#: Why a message is ready again, where its client wants that.
ASKED_FOR = ("nacked", "rejected")


class Word(Enum):
    """What a client says of a delivery."""

    ACK = auto()
    REQUEUE = auto()
    REJECT = auto()


Key = tuple[QueueName, int]


class Settlements(Book):
    """Clients say what they are about to send: `says`. `automatic`: channels (product, number) that settle nothing."""

    def __init__(self, where: Whereabouts) -> None:
        self._where = where
        self._said: dict[Key, set[Word]] = {}  # since the message was delivered last
        self._had: dict[Key, Any] = {}  # the session that had it last
        self.automatic: set[tuple[str, int]] = set()

    def handlers(self) -> Handlers:
        return {
            DeliveredEvent: self._delivered,
            AckedEvent: self._acked,
            RequeuedEvent: self._requeued,
            LeftEvent: self._left,
        }

    def attach(self, broker: Broker) -> None:
        self._said.clear()
        self._had.clear()

    def says(self, key: Key, word: Word) -> None:
        """Somebody is about to settle a message that came to him."""
        self._said.setdefault(key, set()).add(word)

    def takes_back(self, key: Key) -> None:
        """What was said was rolled back."""
        self._said.pop(key, None)

    def _is_ours(self, name: QueueName) -> bool:
        place = self._where.places[name]
        return not (place.keeps or place.is_leased or "foreign" in place.features)

    def _delivered(self, event: DeliveredEvent) -> None:
        name = event.vhost, event.subject
        if self._is_ours(name):
            for id_ in event.messages:
                self._said.pop((name, id_), None)
                self._had[name, id_] = event.session

    def _acked(self, event: AckedEvent) -> None:
        name = event.vhost, event.subject
        for id_ in event.messages if self._is_ours(name) else ():
            words, session = self._over((name, id_))
            if Word.ACK not in words and not self._is_automatic(session):
                raise Broken(f"{name}: {id_} was acknowledged, and its client said {_told(words)}")

    def _is_automatic(self, session: Any) -> bool:
        return session is not None and (session.client.properties["product"].text, session.number) in self.automatic

    def _requeued(self, event: RequeuedEvent) -> None:
        name = event.vhost, event.subject
        for id_ in event.messages if self._is_ours(name) else ():
            words, _ = self._over((name, id_))
            if event.why in ASKED_FOR and Word.REQUEUE not in words:
                raise Broken(f"{name}: {id_} came back ({event.why}), and its client said {_told(words)}")

    def _left(self, event: LeftEvent) -> None:
        name = event.vhost, event.subject
        for id_ in event.messages if event.came_in and self._is_ours(name) else ():
            words, _ = self._over((name, id_))
            if event.reason == "rejected" and Word.REJECT not in words:
                raise Broken(f"{name}: {id_} was rejected, and its client said {_told(words)}")

    def _over(self, key: Key) -> tuple[set[Word], Any]:
        return self._said.pop(key, set()), self._had.pop(key, None)


def _told(words: set[Word]) -> str:
    return " or ".join(sorted(word.name.lower() for word in words)) or "nothing"
