"""What the engine hands out is what comes to clients: each delivery once, by its tag, with a true redelivered flag.

Also the order: what is handed out for the first time is newer than all that was before it, where a queue has an order.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Protocol

from leveret.engine import Broker, DeliveredEvent, EnqueuedEvent, EventKind, LeftEvent, QueueEvent, RequeuedEvent

from ..ledger import KEY_SIZE, Broken, QueueName, is_as_published
from .book import Book, Handlers
from .routing import Routing
from .whereabouts import Place, Whereabouts

#: A message of a queue, whether its delivery says that it came before (None: either), and the consumer's tag.
Expected = tuple[QueueName, int, bool | None, str | None]
#: Of a client: its number, the number of its connection, and the channel.
LineName = tuple[str, int]


class Content(Protocol):
    """What came last to a client: the header of the content, and where it says that it was published."""

    header: bytes
    address: bytes


class Line:
    """What was handed out to one channel, by delivery tag, and has not come yet. `left`: ready behind what was got."""

    __slots__ = ("expected", "left", "tag")

    def __init__(self) -> None:
        self.left: dict[int, int] = {}
        self.tag = 0
        self.expected: dict[int, Expected] = {}


class Deliveries(Book):
    """`lines`: by the product that a connection calls itself, which no other one does, and its channel."""

    def __init__(self, where: Whereabouts, routing: Routing) -> None:
        self._where = where
        self._routing = routing
        self._sessions: dict[Any, Line] = {}
        self.lines: dict[LineName, Line] = {}
        self._ever: set[tuple[QueueName, int]] = set()  # handed out, in whichever life
        self._now: set[tuple[QueueName, int]] = set()  # in this one
        self._newest: dict[tuple[QueueName, Any], int] = {}  # of those that a session got for the first time
        self._moved: dict[QueueName, int] = {}  # the same of all sessions, of queues that handed out in this turn
        self._read: dict[tuple[Any, str | None], int] = {}  # of streams: session and consumer -> the last one
        self.is_certain = True  # whether what arrived last came before: an earlier broker may have handed it out

    def handlers(self) -> Handlers:
        return {
            DeliveredEvent: self._delivered,
            EnqueuedEvent: self._enqueued,
            LeftEvent: self._left,
            RequeuedEvent: self._requeued,
            QueueEvent: self._queue,
        }

    def attach(self, broker: Broker) -> None:
        self._sessions.clear()
        self.lines.clear()
        self._now.clear()
        self._newest.clear()
        self._moved.clear()
        self._read.clear()

    def _queue(self, event: QueueEvent) -> None:
        if event.kind is EventKind.UNDECLARED:
            self._moved.pop((event.vhost, event.subject), None)

    def _enqueued(self, event: EnqueuedEvent) -> None:
        if not self._ever:
            return
        name = event.vhost, event.subject
        for id_ in event.messages:  # an id that was lost with its message may come again
            self._ever.discard((name, id_))

    def _requeued(self, event: RequeuedEvent) -> None:
        name = event.vhost, event.subject
        for id_ in () if self._where.places[name].keeps else event.messages:
            if (name, id_) not in self._now:
                raise Broken(f"{name}: {id_} was requeued and never delivered")

    def _left(self, event: LeftEvent) -> None:
        """Nothing to know of it any more; what was acknowledged is forgotten when its id comes again."""

    def _line(self, session: Any) -> Line:
        line = self._sessions.get(session)
        if line is None:
            line = self._sessions[session] = Line()
            product = session.client.properties["product"].text
            self.lines[product, session.number] = line
        return line

    def _delivered(self, event: DeliveredEvent) -> None:
        name = event.vhost, event.subject
        place = self._where.places[name]
        line = self._line(event.session)
        expected, tag, consumer = line.expected, line.tag, event.consumer
        if consumer is None and not place.keeps:
            line.left[tag + 1] = len(place.ready) - 1
        if place.keeps:
            if place.features.get("stream"):
                self._read_on(place, event)
            for tag, id_ in enumerate(event.messages, line.tag + 1):
                expected[tag] = name, id_, None, consumer
            line.tag = tag
            return
        is_ordered = not place.is_leased and not place.features.keys() & {"priority_max", "last_value_keys", "apart"}
        newest = self._newest.get((name, event.session), 0)
        ever, now = self._ever, self._now
        for tag, id_ in enumerate(event.messages, line.tag + 1):
            key = name, id_
            if key not in ever:
                if is_ordered and id_ <= newest:
                    raise Broken(f"{name}: {id_} comes for the first time, after {newest}")
                newest = id_
                ever.add(key)
                now.add(key)
                expected[tag] = name, id_, False, consumer
            elif key in now:
                expected[tag] = name, id_, True, consumer
            else:
                now.add(key)
                expected[tag] = name, id_, False if place.is_leased else None, consumer
        line.tag = tag
        self._newest[name, event.session] = newest
        if is_ordered and "texts" not in place.features:
            self._moved[name] = max(newest, self._moved.get(name, 0))

    def turn_ended(self) -> None:
        """Several consumers get every second or third one each, one consumer after the other: so only now."""
        for name, newest in self._moved.items():
            for id_ in self._where.places[name].ready:
                if (name, id_) not in self._ever:
                    if id_ < newest:
                        raise Broken(f"{name}: {newest} went for the first time, and {id_} is still there")
                    break
        self._moved.clear()

    def _read_on(self, place: Place, event: DeliveredEvent) -> None:
        """A stream is read one message after the other, none left out but what is gone."""
        reader = event.session, event.consumer
        last = self._read.get(reader)
        ids = event.messages
        present = list(place.ready)
        if last is not None:
            at = bisect_right(present, last)
            if present[at] != ids[0]:
                raise Broken(f"{place.name}: after {last} comes {ids[0]}, and not {present[at]}")
        at = bisect_right(present, ids[0] - 1)
        if present[at : at + len(ids)] != list(ids):
            raise Broken(f"{place.name}: {list(ids)[:20]} were read, there is {present[at : at + 20]}")
        self._read[reader] = ids[-1]

    # -- what clients say ---------------------------------------------------------------------------------------------

    def arrived(
        self,
        product: str,
        channel: int,
        consumer: str | None,
        tag: int,
        redelivered: bool,
        body: bytes,
        content: Content | None = None,
    ) -> tuple[QueueName, int]:
        """A delivery came to a client: which message of which queue it is. Raises: Broken.

        To some queues' messages the broker adds fields of its own.
        """
        line = self.lines.get((product, channel))
        found = None if line is None else line.expected.pop(tag, None)
        if found is None:
            raise Broken(f"{product}, channel {channel}: delivery {tag} was not handed out, or came twice")
        name, id_, flag, whose = found
        self.is_certain = flag is not None
        if self._routing.keys.get(id_, body[-KEY_SIZE:]) != body[-KEY_SIZE:]:
            raise Broken(f"{product}, channel {channel}: delivery {tag} is not message {id_} of {name}")
        if content is not None:
            self._check_content(name, id_, content)
        if whose != consumer:
            raise Broken(f"{product}: {id_} of {name} was handed out to {whose}, and came to {consumer}")
        if flag is not None and flag != redelivered:
            raise Broken(f"{product}: {id_} of {name} says redelivered={redelivered}")
        return name, id_

    def _check_content(self, name: QueueName, id_: int, content: Content) -> None:
        header, published = content.header, self._routing.headers.get(id_)
        if published and self._is_left_alone(name) and not is_as_published(header, published):
            raise Broken(f"{id_} of {name} came with {header!r}, and was published with {published!r}")
        address = self._routing.addresses.get(id_, content.address)
        if content.address != address:
            raise Broken(f"{id_} of {name} came as published to {content.address!r}, and was to {address!r}")

    def closed(self, product: str, channel: int) -> None:
        """The broker closed a channel: what has not come by now does not come."""
        if (line := self.lines.get((product, channel))) is not None:
            line.expected.clear()

    def left_behind(self, product: str, channel: int, tag: int) -> int | None:
        """How many were ready when the engine handed out what is to come as the answer to a get; None: nobody knows."""
        line = self.lines.get((product, channel))
        return None if line is None else line.left.pop(tag, None)

    def _is_left_alone(self, name: QueueName) -> bool:
        place = self._where.places.get(name)
        return place is not None and not place.features.keys() & {"leased", "stream", "foreign", "first_key"}

    def owed(self, product: str) -> int:
        """How many deliveries have not come to a connection yet."""
        return sum(len(line.expected) for (owner, _), line in self.lines.items() if owner == product)
