"""The firehose: copies of published and delivered messages, for clients that bind a queue to `amq.rabbitmq.trace`.

It listens only while a virtual host is traced, so that otherwise a message costs nothing. An operator switches it on,
and a restart ends it, as in RabbitMQ. Its keys, headers and types are those of RabbitMQ 3.10.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..context import BrokerContext
from ..messages.content import (
    NATIVE,
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
from .marked import prepared
from .publish_events import PublishedEvent
from .route import Route, choose
from .service import ServiceExchange

if TYPE_CHECKING:
    from ..clients.session import Session

EXCHANGE = "amq.rabbitmq.trace"
#: The node in copies without a cluster.
NODE = "leveret@localhost"
KEY_OCTETS_MAX = 255


class Firehose:
    """The firehose of one broker. The scheduler dispatches it like a queue."""

    deleted = False

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.vhosts: set[str] = set()
        self._pending: list[tuple[str, str, FieldTable, bytes]] = []  # virtual host, routing key, headers, body
        self._publisher: Session | None = None
        self._expected = ("", "", 0)  # of the announced publish: exchange, routing key, number of messages left

    # -- switching ----------------------------------------------------------------------------------------------------

    def switch(self, vhost: str, *, on: bool) -> None:
        if on:
            self.vhosts.add(vhost)
        else:
            self.vhosts.discard(vhost)
        listeners = self._context.listeners
        if self.vhosts and self.listen not in listeners:
            listeners.append(self.listen)
        elif not self.vhosts and self.listen in listeners:
            listeners.remove(self.listen)

    # -- events -------------------------------------------------------------------------------------------------------

    def expect(self, session: "Session", route: Route, envelope: Envelope, contents: Sequence[bytes]) -> None:
        """Announce a session's publish of a run. In a transaction it is traced before the commit.

        Raises: ReplyConsumerMissing, InvalidCopies, as the publish does.
        """
        self._publisher = None
        if isinstance(route.exchange, ServiceExchange):
            return  # requests to the broker may contain passwords
        if session.transaction is None:
            self._publisher, self._expected = session, (envelope.exchange, envelope.routing_key, len(contents))
            return
        host = session.client.host
        chosen: list[tuple[Envelope, list[str]]] = []
        for content in contents:
            one, traced = envelope, content
            if envelope.summary.is_marked:
                one, traced = prepared(envelope, content, session.subscriptions.reply_address)
            for names, _ in choose(route, one, (traced,), host):
                self._published(session, one, traced, names)
                chosen.append((one, names))
        for one, names in reversed(chosen):  # the publish chooses the same queues in turn
            queues = [queue for name in names if (queue := host.queues.get(name)) is not None]
            host.router.give_turns_back(route.exchange, one.keys, queues)

    def listen(self, event: Event) -> None:
        if event.vhost not in self.vhosts:
            return
        if isinstance(event, PublishedEvent):
            self._on_published(event)
        elif isinstance(event, DeliveredEvent):
            self._on_delivered(event)

    def _on_published(self, event: PublishedEvent) -> None:
        session, envelope = self._publisher, event.run
        exchange, routing_key, left = self._expected
        if session is None or event.cause is not None:
            return
        if (envelope.exchange, envelope.routing_key) != (exchange, routing_key):
            return  # a divert's copy, published by the broker
        self._expected = (exchange, routing_key, left - len(event.messages))
        if left <= len(event.messages):
            self._publisher = None
        names = [queue.name for queue in event.reached]
        for content in event.contents:
            self._published(session, envelope, content, names)

    def _published(self, session: "Session", envelope: Envelope, content: bytes, names: Sequence[str]) -> None:
        named = () if envelope.exchange else envelope.keys  # even those of missing queues
        routed = sorted({name for name in (*names, *named) if not name.startswith(REPLY_PREFIX)})
        headers, body = self._describe(session, envelope, content)
        headers["routed_queues"] = _text_array(routed)
        self._keep_copy(session, f"publish.{envelope.exchange}", headers, body)

    def _on_delivered(self, event: DeliveredEvent) -> None:
        if event.subject.startswith(REPLY_PREFIX):
            return
        session = event.session
        for envelope, content, redelivered in _deliveries(event):
            if envelope.exchange != EXCHANGE:
                headers, body = self._describe(session, envelope, content, redelivered)
                self._keep_copy(session, f"deliver.{event.subject}", headers, body)

    def _describe(
        self, session: "Session", envelope: Envelope, content: bytes, redelivered: bool | None = None
    ) -> tuple[FieldTable, bytes]:
        header, body = envelope.framing.split(content)
        client = session.client
        headers: FieldTable = {
            "exchange_name": Field("S", envelope.exchange.encode()),
            "routing_keys": _text_array(envelope.keys),
            "properties": Field("F", _properties(header)),
            "node": Field("S", (client.connection_info.node or NODE).encode()),
        }
        if redelivered is not None:
            headers["redelivered"] = Field("I", int(redelivered))
        headers["vhost"] = Field("S", client.vhost.name.encode())
        headers["connection"] = Field("S", client.name.encode())
        headers["channel"] = Field("I", session.number)
        headers["user"] = Field("S", client.user.name.encode())
        return headers, body

    def _keep_copy(self, session: "Session", key: str, headers: FieldTable, body: bytes) -> None:
        """Keep a copy for the next dispatch, because a publish or a delivery is in progress."""
        key = key.encode()[:KEY_OCTETS_MAX].decode(errors="ignore")
        self._pending.append((session.client.vhost.name, key, headers, body))
        self._context.scheduler.mark(self)

    # -- the turn -----------------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Publish the copies."""
        self._publisher = None
        pending, self._pending = self._pending, []
        for name, key, headers, body in pending:
            vhost = self._context.virtual_hosts.get(name)  # None: deleted
            if vhost is not None:
                header, summary = _header(headers, len(body))
                publish_by_name(vhost.context, Envelope(EXCHANGE, key, summary), [NATIVE.join(header, body)])


def _header(headers: FieldTable, body_size: int) -> tuple[bytes, PropertySummary]:
    """The header of a copy. Message properties that are nested too deeply for one more table are left out."""
    header = encode_header(body_size, {"headers": headers})
    try:
        return header, scan_properties(header[12:])
    except ContentError:
        header = encode_header(body_size, {"headers": {**headers, "properties": Field("F", {})}})
        return header, scan_properties(header[12:])


def _deliveries(event: DeliveredEvent) -> Iterator[tuple[Envelope, bytes, bool]]:
    """The deliveries of an event: envelope, content, redelivered flag."""
    if isinstance(event.run, Envelope):
        for content in event.contents:
            yield event.run, content, False
        return
    for message in event.run:
        yield message.envelope, message.content, event.is_redelivery(message)


def _properties(header: bytes) -> FieldTable:
    """The properties of a content header as a table, in reverse order."""
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


def _text_array(texts: Sequence[str]) -> Field:
    return Field("A", [Field("S", text.encode()) for text in texts])
