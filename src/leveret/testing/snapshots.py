"""Immutable snapshots of a broker's state as plain values: text, numbers, datetimes, no wire types."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Generic, Self, TypeVar, cast, overload

from ..engine import (
    Consumer,
    ContentError,
    Envelope,
    Field,
    FieldTable,
    Message,
    Queue,
    decode_properties,
    holder_of,
    messages_of,
    runs_of,
)
from .nearest_names import nearest_names

T = TypeVar("T")
#: Maximum characters of a body in a text.
SHOWN_MAX = 200


@nearest_names
@dataclass(slots=True, frozen=True)
class Properties:
    """The properties of basic, decoded; None: the message has no such property. `timestamp`: seconds since 1970 UTC."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None

    def __str__(self) -> str:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return ", ".join(f"{name}={plain(value)!r}" for name, value in values.items() if value not in (None, {}))


class _OfProperties(Generic[T]):
    """An attribute of a message: the value of the property of the same name."""

    def __set_name__(self, owner: Any, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, message: None, owner: Any) -> Self: ...
    @overload
    def __get__(self, message: "Content", owner: Any) -> T: ...

    def __get__(self, message: "Content | None", owner: Any) -> T | Self:
        return self if message is None else cast(T, getattr(message.properties, self._name))


class Content:
    """The content of a message, with an attribute for each property, and the body as text and as JSON."""

    __slots__ = ()

    exchange: str
    routing_key: str
    properties: Properties
    body: bytes

    # Each as in `Properties`.
    headers = _OfProperties[Mapping[str, Any]]()
    content_type = _OfProperties[str | None]()
    content_encoding = _OfProperties[str | None]()
    delivery_mode = _OfProperties[int | None]()
    priority = _OfProperties[int | None]()
    correlation_id = _OfProperties[str | None]()
    reply_to = _OfProperties[str | None]()
    expiration = _OfProperties[str | None]()
    message_id = _OfProperties[str | None]()
    timestamp = _OfProperties[int | None]()
    type = _OfProperties[str | None]()
    user_id = _OfProperties[str | None]()
    app_id = _OfProperties[str | None]()
    cluster_id = _OfProperties[str | None]()

    @property
    def text(self) -> str:
        """The body as UTF-8 text."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as JSON. Raises: ValueError."""
        return json.loads(self.body)


@nearest_names
@dataclass(slots=True, frozen=True)
class MessageSnapshot(Content):
    """One message in one queue.

    `deliveries`: number of its deliveries. Times are seconds of the broker's clock since its start: `due_at` when a
    scheduled message becomes ready, `expires_at` when it expires; None: never. `consumer`: tag of the consumer that has
    it unacknowledged, "" for a get; `connection`: the name of its connection.
    """

    id: int
    exchange: str
    routing_key: str
    body: bytes
    properties: Properties
    redelivered: bool = False
    deliveries: int = 0
    due_at: float | None = None
    expires_at: float | None = None
    consumer: str | None = None
    connection: str | None = None

    def __str__(self) -> str:
        return f"{shown_body(self.body)} ({self.properties})" if str(self.properties) else shown_body(self.body)


@nearest_names
@dataclass(slots=True, frozen=True)
class ConsumerSnapshot:
    """One subscription. `prefetch`: 0 for no limit."""

    tag: str
    connection: str
    no_ack: bool
    exclusive: bool
    prefetch: int
    unacked: int


@nearest_names
@dataclass(slots=True, frozen=True)
class QueueSnapshot:
    """A queue with its messages in the order of delivery; `scheduled` in the order of their times."""

    name: str
    vhost: str
    ready: tuple[MessageSnapshot, ...]
    unacked: tuple[MessageSnapshot, ...]
    scheduled: tuple[MessageSnapshot, ...]
    consumers: tuple[ConsumerSnapshot, ...]
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Mapping[str, Any]
    counters: Mapping[str, int]

    @property
    def messages(self) -> tuple[MessageSnapshot, ...]:
        """All messages: unacknowledged, ready, scheduled."""
        return self.unacked + self.ready + self.scheduled

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of the ready messages."""
        return [message.body for message in self.ready]

    def __len__(self) -> int:
        return len(self.ready) + len(self.unacked) + len(self.scheduled)

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        lines = [f"queue {self.name!r} in virtual host {self.vhost!r}, {len(self.consumers)} consumers"]
        for state in ("ready", "unacked", "scheduled"):
            messages: tuple[MessageSnapshot, ...] = getattr(self, state)
            lines.append(f"  {state}: {len(messages)}")
            lines += [f"    {message}" for message in messages]
        return "\n".join(lines)


# -- taking snapshots -----------------------------------------------------------------------------------------------


def snapshot_of(queue: Queue) -> QueueSnapshot:
    """A snapshot of a queue. Call it in the broker's loop."""
    unacked = sorted(queue.unacked_messages(), key=lambda message: message.id)
    return QueueSnapshot(
        name=queue.name,
        vhost=queue.vhost_name,
        ready=tuple(message_of(message) for message in _ready(queue)),
        unacked=tuple(message_of(message) for message in unacked),
        scheduled=tuple(message_of(message, due_ns) for due_ns, message in queue.scheduled.entries()),
        consumers=tuple(_consumer_of(consumer) for consumer in queue.consumers),
        durable=queue.durable,
        exclusive=queue.exclusive,
        auto_delete=queue.auto_delete,
        arguments=plain_table(queue.arguments),
        counters=MappingProxyType(queue.counters.as_dict()),
    )


def _ready(queue: Queue) -> list[Message]:
    """The ready messages, in memory and on disk."""
    found = [*queue.store, *_only_on_disk(queue)]
    if queue.keeps_acked:
        found.sort(key=lambda message: message.id)  # messages on disk may come before or between the others
    return found


def _only_on_disk(queue: Queue) -> Iterator[Message]:
    """The messages of a queue that are not in memory."""
    for part in queue.store.paged_parts():
        if isinstance(part, Message):
            yield part
        else:
            yield from messages_of(part.ids, runs_of(queue.storage, part, release=False))


def message_of(message: Message, due_ns: int | None = None) -> MessageSnapshot:
    """A snapshot of a message in a queue."""
    header, body = message.envelope.framing.split(message.content)
    holder = None if message.holder is None else holder_of(message)
    return MessageSnapshot(
        id=message.id,
        exchange=message.envelope.exchange,
        routing_key=message.envelope.routing_key,
        body=body,
        properties=properties_of(header),
        redelivered=message.deliveries > (holder is not None),
        deliveries=message.deliveries,
        due_at=None if due_ns is None else due_ns / 1e9,
        expires_at=message.expires_ns / 1e9 if message.expires_ns else None,
        consumer=None if holder is None else holder.tag if isinstance(holder, Consumer) else "",
        connection=None if holder is None else holder.session.client.name,
    )


def _consumer_of(consumer: Consumer) -> ConsumerSnapshot:
    return ConsumerSnapshot(
        consumer.tag, consumer.client.name, consumer.no_ack, consumer.exclusive, consumer.prefetch, consumer.unacked
    )


def content_of(envelope: Envelope, content: bytes) -> tuple[Properties, bytes]:
    """Properties and body of a published content."""
    header, body = envelope.framing.split(content)
    return properties_of(header), body


def properties_of(header: bytes) -> Properties:
    """Decoded properties of a content header; none if they are invalid."""
    try:
        found = decode_properties(header)
    except ContentError:
        return Properties()
    values: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, bytes):
            values[name] = value.decode("utf-8", "replace")
        else:
            values[name] = plain_table(value) if isinstance(value, dict) else value
    return Properties(**values)


def plain_table(table: FieldTable) -> Mapping[str, Any]:
    """A field table as plain, read-only values."""
    return MappingProxyType({key: _plain(value) for key, value in table.items()})


def _plain(field_: Field) -> Any:
    value = field_.value
    if isinstance(value, bytes):
        if field_.tag == "x":
            return value
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if isinstance(value, list):
        return tuple(_plain(item) for item in value)
    if isinstance(value, dict):
        return plain_table(value)
    if isinstance(value, tuple):
        scale, number = value
        return Decimal(number).scaleb(-scale)
    if field_.tag == "T":
        assert isinstance(value, int)
        try:
            return datetime.fromtimestamp(value, UTC)
        except (OverflowError, ValueError, OSError):
            return value
    return value


# -- texts ----------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Read-only tables and arrays as dicts and lists, for printing."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def json_content(body: bytes, default: Any = None) -> Any:
    """The JSON value of a body; `default` if it is no JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return default


def shown_body(body: bytes) -> str:
    """A body for people: its text with invisible characters escaped, or its octets."""
    try:
        text = body.decode()
        shown = text if text.isprintable() and text and text == text.strip() else repr(text)
    except UnicodeDecodeError:
        shown = repr(body)
    return shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}... ({len(body)} octets)"
