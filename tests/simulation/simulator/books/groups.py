"""Messages of a group go to one consumer, as long as it is there, in the order of the queue.

Source: address-settings page, `default-group-*`. A message of the sequence -1 is the last of its group.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from zlib import crc32

from leveret.engine import Broker, DeliveredEvent, EnqueuedEvent
from leveret.interop.wire.raw_codec import Content

from ..ledger import HEADER_START, Broken, QueueName
from .book import Book, Handlers
from .routing import Routing
from .whereabouts import Place, Whereabouts

GROUP, SEQUENCE = "_AMQ_GROUP_ID", "_AMQ_GROUP_SEQUENCE"

Consumer = tuple[Any, str]  # session and tag
Group = tuple[QueueName, str]


class Groups(Book):
    """`first`: of the messages that are out, those that began a group for their consumer. `again`: those that were out
    more than once; a client may read the delivery before, whose channel it has closed, while the next is on its way.
    """

    def __init__(self, where: Whereabouts, routing: Routing) -> None:
        self._where = where
        self._routing = routing
        self._holders: dict[Group, Consumer] = {}
        self._newest: dict[Group, int] = {}  # of those that were handed out, by this broker
        self._ever: set[tuple[QueueName, int]] = set()
        self.first: set[tuple[QueueName, int]] = set()
        self.again: set[tuple[QueueName, int]] = set()

    def handlers(self) -> Handlers:
        return {EnqueuedEvent: self._enqueued, DeliveredEvent: self._delivered}

    def attach(self, broker: Broker) -> None:
        self._holders.clear()
        self._newest.clear()
        self._ever.clear()
        self.first.clear()
        self.again.clear()

    def _enqueued(self, event: EnqueuedEvent) -> None:
        """An id that was lost with its message may come again."""
        name = event.vhost, event.subject
        if self._ever and "groups" in self._where.places[name].features:
            self._ever.difference_update((name, id_) for id_ in event.messages)
            self.again.difference_update((name, id_) for id_ in event.messages)

    def _delivered(self, event: DeliveredEvent) -> None:
        name = event.vhost, event.subject
        place = self._where.places[name]
        if "groups" not in place.features:
            return
        for id_ in event.messages:
            self.first.discard((name, id_))
            if (name, id_) in self._ever:
                self.again.add((name, id_))
            text, ends = group_in(self._routing.headers.get(id_, b""))
            if text is None or event.consumer is None:
                self._ever.add((name, id_))
                continue
            if buckets := place.features.get("buckets"):
                text = f"{crc32(text.encode()) % buckets}"
            self._look(place, (name, text), id_, (event.session, event.consumer))
            if ends:
                self._holders.pop((name, text), None)

    def _look(self, place: Place, group: Group, id_: int, consumer: Consumer) -> None:
        name, text = group
        holder = self._holders.get(group)
        if holder is None or not is_there(place, holder):
            self.first.add((name, id_))
        elif holder != consumer:
            if not place.features.get("rebalances"):
                raise Broken(f"{name}: {id_} of the group {text} went to {consumer[1]}, and the group to {holder[1]}")
            self.first.add((name, id_))
        self._holders[group] = consumer
        if (name, id_) in self._ever:
            return
        self._ever.add((name, id_))
        if id_ < self._newest.get(group, 0):
            raise Broken(f"{name}: {id_} of the group {text} went after {self._newest[group]}")
        self._newest[group] = id_


def is_there(place: Place, consumer: Consumer) -> bool:
    """Whether a consumer still has the queue."""
    session, tag = consumer
    return any(one.session is session and one.tag == tag for one in place.queue.consumer_list.consumers)


@lru_cache(maxsize=1000)
def group_in(header: bytes) -> tuple[str | None, bool]:
    """The group that a content header names, and whether it ends with this message."""
    if not header:
        return None, False
    headers = Content(header[HEADER_START:], b"").headers
    named = headers.get(GROUP)
    sequence = headers.get(SEQUENCE)
    return None if named is None else named[1].decode(), sequence is not None and sequence[1] == -1
