"""The firehose: copies of what clients publish and get, for clients that bind a queue to `amq.rabbitmq.trace`.

It listens only while some virtual host is traced: then routes are looked up for each publish, so that frontends tell
whose it is. With tracing off nothing is asked for a message. Switched on by hand, and gone with the process, as in
RabbitMQ; its keys, headers and types are RabbitMQ 3.10's.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from ..context import BrokerContext
from ..messages.content import (
    PLAIN,
    ContentError,
    PropertySummary,
    PropertyValue,
    decode_properties,
    encode_header,
    scan_properties,
)
from ..messages.event import Event
from ..messages.field_table import Field, FieldTable
from ..messages.message import Envelope
from ..queues.kinds import REPLY_PREFIX
from ..queues.queue_events import DeliveredEvent
from .arrival import publish_by_name
from .choosing import choose
from .marked import prepared
from .publish_events import PublishedEvent
from .route import Route
from .service import ServiceExchange

if TYPE_CHECKING:
    from ..clients.session import Session

EXCHANGE = "amq.rabbitmq.trace"
#: What stands for the name of an Erlang node.
NODE = b"leveret@localhost"
KEY_OCTETS_MAX = 255


#: The session that messages were delivered to. Queues know less of it.
traced_of: "Callable[[DeliveredEvent], Session]" = attrgetter("session")


class Firehose:
    """Of one broker. To the turn it is one more queue that may have something to hand out."""

    __slots__ = ("_context", "_expected", "_pending", "_publisher", "vhosts")

    deleted = False

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.vhosts: set[str] = set()
        self._pending: list[tuple[str, str, FieldTable, bytes]] = []  # virtual host, routing key, headers, body
        self._publisher: Session | None = None
        self._expected = ("", "", 0)  # exchange, routing key, messages that its publish is still to make

    # -- switching ----------------------------------------------------------------------------------------------------

    def switch(self, vhost: str, *, on: bool) -> None:
        """Trace a virtual host, or not any more."""
        if on:
            self.vhosts.add(vhost)
        else:
            self.vhosts.discard(vhost)
        listeners = self._context.listeners
        if self.vhosts and self.listen not in listeners:
            listeners.append(self.listen)
        elif not self.vhosts and self.listen in listeners:
            listeners.remove(self.listen)

    # -- what happens -------------------------------------------------------------------------------------------------

    def expect(self, session: "Session", route: Route, envelope: Envelope, blobs: Sequence[bytes]) -> None:
        """A client is about to publish a run. In a transaction it is told at once, as if it were committed.

        Raises: ReplyConsumerMissing, InvalidCopies; the publish raises the same.
        """
        self._publisher = None
        if isinstance(route.exchange, ServiceExchange):
            return  # what is asked of the broker itself, passwords and all
        if session.transaction is None:
            self._publisher, self._expected = session, (envelope.exchange, envelope.routing_key, len(blobs))
            return
        for blob in blobs:
            one, content = envelope, blob
            if envelope.facts.is_marked:
                one, content = prepared(envelope, blob, session.subscriptions.reply_address)
            for names, _ in choose(route, one, (content,), session.client.host):
                self._published(session, one, content, names)

    def listen(self, event: Event) -> None:
        """A `Listener`."""
        if event.vhost not in self.vhosts:
            return
        if isinstance(event, PublishedEvent):
            self._hear_published(event)
        elif isinstance(event, DeliveredEvent):
            self._hear_delivered(event)

    def _hear_published(self, event: PublishedEvent) -> None:
        session, envelope = self._publisher, event.of
        exchange, routing_key, left = self._expected
        if session is None or event.cause is not None:
            return
        if (envelope.exchange, envelope.routing_key) != (exchange, routing_key):
            return  # the broker's own, of a divert
        self._expected = (exchange, routing_key, left - len(event.messages))
        if left <= len(event.messages):
            self._publisher = None
        names = [queue.name for queue in event.reached]
        for blob in event.blobs:
            self._published(session, envelope, blob, names)

    def _published(self, session: "Session", envelope: Envelope, blob: bytes, names: Sequence[str]) -> None:
        named = () if envelope.exchange else envelope.keys  # also before such queues are there
        routed = sorted({name for name in (*names, *named) if not name.startswith(REPLY_PREFIX)})
        headers, body = self._told(session, envelope, blob)
        headers["routed_queues"] = _texts(routed)
        self._tell(session, f"publish.{envelope.exchange}", headers, body)

    def _hear_delivered(self, event: DeliveredEvent) -> None:
        if event.subject.startswith(REPLY_PREFIX):
            return
        session = traced_of(event)
        for envelope, blob, redelivered in _deliveries(event):
            if envelope.exchange != EXCHANGE:
                headers, body = self._told(session, envelope, blob, redelivered)
                self._tell(session, f"deliver.{event.subject}", headers, body)

    def _told(
        self, session: "Session", envelope: Envelope, blob: bytes, redelivered: bool | None = None
    ) -> tuple[FieldTable, bytes]:
        header, body = envelope.framing.split(blob)
        client = session.client
        headers: FieldTable = {
            "exchange_name": Field("S", envelope.exchange.encode()),
            "routing_keys": _texts(envelope.keys),
            "properties": Field("F", _properties(header)),
            "node": Field("S", NODE),
        }
        if redelivered is not None:
            headers["redelivered"] = Field("I", int(redelivered))
        headers["vhost"] = Field("S", client.vhost.name.encode())
        headers["connection"] = Field("S", client.name.encode())
        headers["channel"] = Field("I", session.number)
        headers["user"] = Field("S", client.user.name.encode())
        return headers, body

    def _tell(self, session: "Session", key: str, headers: FieldTable, body: bytes) -> None:
        """Not now: the caller is in the middle of something."""
        key = key.encode()[:KEY_OCTETS_MAX].decode(errors="ignore")
        self._pending.append((session.client.vhost.name, key, headers, body))
        self._context.scheduler.mark(self)

    # -- the turn -----------------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Publish what was gathered."""
        self._publisher = None
        pending, self._pending = self._pending, []
        for name, key, headers, body in pending:
            vhost = self._context.virtual_hosts.get(name)  # None: it is gone
            if vhost is not None:
                header, facts = _header(headers, len(body))
                publish_by_name(vhost.context, Envelope(EXCHANGE, key, facts), [PLAIN.join(header, body)])


def _header(headers: FieldTable, body_size: int) -> tuple[bytes, PropertySummary]:
    """Of a copy. What its properties are, it can say only where they are not nested as deeply as tables may be."""
    header = encode_header(body_size, {"headers": headers})
    try:
        return header, scan_properties(header[12:])
    except ContentError:
        header = encode_header(body_size, {"headers": {**headers, "properties": Field("F", {})}})
        return header, scan_properties(header[12:])


def _deliveries(event: DeliveredEvent) -> Iterator[tuple[Envelope, bytes, bool]]:
    """Envelope, content and redelivered flag of each."""
    if isinstance(event.of, Envelope):
        for blob in event.blobs:
            yield event.of, blob, False
        return
    for message in event.of:
        yield message.envelope, message.blob, message.deliveries > 1


def _properties(header: bytes) -> FieldTable:
    """A content header's properties as a table, the last one first."""
    try:
        found = decode_properties(header)
    except ContentError:
        return {}
    return {name: _field(found[name]) for name in reversed(found)}


def _field(value: PropertyValue) -> Field:
    if isinstance(value, bytes):
        return Field("S", value)
    if isinstance(value, int):
        return Field("I" if value < 2**31 else "l" if value < 2**63 else "T", value)
    return Field("F", value)


def _texts(texts: Sequence[str]) -> Field:
    return Field("A", [Field("S", text.encode()) for text in texts])
