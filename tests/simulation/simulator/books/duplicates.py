"""Each address remembers the newest ids that publishers gave their messages: it drops a message with one of them, and
no other one. A restart forgets no id of a persistent message that is safe.

Of queues whose plan has `ids`, how many of them. Source: address-settings page 3.6.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from typing import Any

from leveret.engine import Broker, EnqueuedEvent, Envelope, PublishedEvent
from leveret.engine.publishing.publish_events import DuplicateEvent
from leveret.interop.wire.raw_codec import Content

from ..ledger import HEADER_START, Broken, QueueName, keys_of
from .book import Book, Handlers
from .whereabouts import Whereabouts

#: The header of a message that has the id.
HEADER = "_AMQ_DUPL_ID"
#: What simulated publishers give as ids; the engine's own form of it has more around.
_ID = re.compile(r"[0-9a-f]{24}")


class Duplicates(Book):
    """`dropped`: of messages that were dropped for an id the keys of those that had brought it."""

    def __init__(self, where: Whereabouts) -> None:
        self._where = where
        self._coming: dict[int, tuple[str, bytes]] = {}  # message id -> id that it brings, its key
        self._remembered: dict[QueueName, list[str]] = {}  # the oldest first
        self._ever: dict[QueueName, dict[str, None]] = {}
        self._safe: set[str] = set()  # are in the journal
        self._newest: dict[str, int] = {}  # id -> the newest message that brought it
        self._turn: list[int] = []
        self._open: list[tuple[int, list[int]]] = []  # LSN behind a turn that is not durable yet, messages of it
        self._brought: dict[int, str] = {}  # of these
        self._broker: Broker | None = None
        self._first: dict[str, bytes] = {}  # id -> key of the message that brought it
        self.dropped: defaultdict[str, deque[bytes]] = defaultdict(deque)

    def handlers(self) -> Handlers:
        return {PublishedEvent: self._published, EnqueuedEvent: self._enqueued, DuplicateEvent: self._duplicate}

    def _size(self, queue: str) -> int:
        size: int = self._where.features_of(queue).get("ids", 0)
        return size

    def _is_remembered(self, name: QueueName, id_: str) -> bool:
        return id_ in self._remembered.get(name, ())[-self._size(name[1]) :]

    def _published(self, event: PublishedEvent) -> None:
        if event.cause is not None or not self._size(event.run.routing_key):
            return
        name = event.vhost, event.run.routing_key
        split = event.run.framing.split
        for id_, content, key in zip(event.messages, event.contents, keys_of(event)):
            tagged: Any = Content(bytes(split(content)[0])[HEADER_START:], b"").headers[HEADER]
            brings = tagged[1].decode()
            if self._is_remembered(name, brings):
                raise Broken(f"{name}: {id_} came, and its id {brings} was there before")
            self._coming[id_] = brings, key

    def _enqueued(self, event: EnqueuedEvent) -> None:
        """The id of a message that is refused is not remembered: its publisher may try again."""
        name = event.vhost, event.subject
        if not self._size(event.subject):
            return
        is_durable, of = self._where.places[name].queue.durable, event.run
        for at, id_ in enumerate(event.messages):
            brings, key = self._coming.pop(id_)
            self._remembered.setdefault(name, []).append(brings)
            self._ever.setdefault(name, {})[brings] = None
            self._first[brings] = key
            self._safe.discard(brings)
            self._newest[brings] = id_
            envelope = of if isinstance(of, Envelope) else of[at].envelope
            if is_durable and envelope.summary.persistent:
                self._turn.append(id_)
                self._brought[id_] = brings

    def _duplicate(self, event: DuplicateEvent) -> None:
        found = _ID.search(event.duplicate_id)
        if not self._size(event.subject) or found is None:
            return
        if not self._is_remembered((event.vhost, event.subject), found[0]):
            raise Broken(f"{event.subject} dropped a message, and its id {found[0]} was not there before")
        self.dropped[found[0]].append(self._first[found[0]])

    # -- durability ---------------------------------------------------------------------------------------------------

    def recorded(self, lsn: int, durable_lsn: int, *, takes_nothing: bool) -> None:
        """A turn has ended; what it did is safe when all below `lsn` is, unless the journal takes nothing."""
        if self._turn and not takes_nothing:
            self._open.append((lsn, self._turn))
        self._turn = []
        self.survived(durable_lsn)

    def survived(self, lsn: int) -> None:
        """All that was written below is there; an id that came again since is as safe as its newest message."""
        while self._open and self._open[0][0] <= lsn:
            for id_ in self._open.pop(0)[1]:
                brings = self._brought.pop(id_)
                if self._newest[brings] == id_:
                    self._safe.add(brings)

    def attach(self, broker: Broker) -> None:
        self._broker = broker
        for name in list(self._remembered):
            found, ever = self._found(name), self._ever[name]
            known = [one for one in self._remembered[name][-self._size(name[1]) :] if one in self._safe]
            if missing := [one for one in known if one not in found]:
                raise Broken(f"{name}: a restart forgot the ids {missing[:5]}")
            if strange := [one for one in found if one not in ever]:
                raise Broken(f"{name}: a restart brought the ids {strange[:5]}, which nobody gave")
            if [one for one in found if one in set(known)] != known:
                raise Broken(f"{name}: ids are out of order after a restart: {found[:50]}, before {known[:50]}")
            self._remembered[name] = found
            self._safe.update(found)
        self._coming.clear()
        self._open.clear()
        self._brought.clear()
        self._turn = []

    def _found(self, name: QueueName) -> list[str]:
        assert self._broker is not None
        host: Any = self._broker.virtual_hosts[name[0]]
        cache = host.context.id_caches.get(name[1])
        return [] if cache is None else [_ID.search(one)[0] for one in cache.ids()]  # type: ignore[index]

    def check(self) -> None:
        for name, remembered in self._remembered.items():
            found, size = self._found(name), self._size(name[1])
            if found != remembered[-size:]:
                newest = remembered[-5:]
                raise Broken(f"{name} remembers {len(found)} ids, {found[-5:]}; the newest {size} are {newest}")
