"""Converts messages into rows and back, for the AMQP source, the AMQP sink, and replays of the lake's `payloads`.

Properties and headers are JSON objects with AMQP's names; `expiration` is a text of milliseconds, `timestamp` seconds.
"""

import json
from typing import Any

import aio_pika

from ..json_values import json_of, value_of

#: Properties of a published message. user_id is not among them: it would have to be the publisher's own.
PROPERTIES = (
    *("content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "reply_to"),
    *("expiration", "message_id", "timestamp", "type", "app_id"),
)
#: Columns of the sink; the source has `offset` in front of them.
COLUMNS = "exchange string, routing_key string, headers_json string, properties_json string, body binary"
NAMES = tuple(column.split()[0] for column in COLUMNS.split(", "))


def message_of(row: dict[str, Any], message_id: str) -> aio_pika.Message:
    """The message of a row. `message_id`: for a row without one. Raises: ValueError (invalid JSON)."""
    body = row["body"]
    headers = value_of(_object(row, "headers_json"))
    values = _object(row, "properties_json")
    properties = {name: values[name] for name in PROPERTIES if values.get(name) is not None}
    properties.setdefault("message_id", message_id)
    if "expiration" in properties:
        properties["expiration"] = float(properties["expiration"]) / 1000  # aio-pika uses seconds
    return aio_pika.Message(
        body.encode() if isinstance(body, str) else bytes(body or b""), headers=headers, **properties
    )


def row_of(message: aio_pika.abc.AbstractIncomingMessage, *, without: str) -> tuple[Any, ...]:
    """The row of a message, with `COLUMNS`. `without`: a header that the broker added, to leave out."""
    headers = {name: value for name, value in message.headers.items() if name != without}
    values = {name: getattr(message, name) for name in (*PROPERTIES, "user_id")}
    properties = {name: value for name, value in values.items() if value not in (None, "")}
    properties["delivery_mode"] = int(message.delivery_mode or aio_pika.DeliveryMode.NOT_PERSISTENT)
    if isinstance(message.expiration, int | float):
        properties["expiration"] = str(round(message.expiration * 1000))
    if message.timestamp is not None:
        properties["timestamp"] = int(message.timestamp.timestamp())
    return (
        message.exchange or "",
        message.routing_key or "",
        json.dumps(json_of(headers)),
        json.dumps(json_of(properties)),
        message.body,
    )


def _object(row: dict[str, Any], name: str) -> dict[str, Any]:
    text = row.get(name) or "{}"
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"amqp: {name}: {text[:100]!r} is no JSON") from error
    if not isinstance(found, dict):
        raise ValueError(f"amqp: {name}: {text[:100]!r} is no JSON object")
    return found
