"""`df.write.format("amqp")` and `writeStream`: rows become messages, confirmed by the broker, whatever broker it is.

Columns: body (binary or string); may have exchange, routing_key, headers_json, properties_json, as in the lake's
`payloads`. Options: url; exchange, routing_key (where a row names none); window (unconfirmed at a time, 500); rate
(messages a second and task, 0: as fast as it goes); mandatory (true: what no queue takes fails the job).

Guarantee: at least once. A task ends well only when every message of it is confirmed; one that fails is done again from
its beginning by Spark, and a job that fails leaves what it had sent. The receiver drops repetitions by `message_id`.
"""

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)

from .amqp_source import SCHEMA, AmqpStreamReader

NAME = "amqp"
WINDOW = 500
#: Properties of the lake's JSON that a message is published with; user_id is the publisher's own, and checked.
PROPERTIES = (
    *("content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "reply_to"),
    *("expiration", "message_id", "timestamp", "type", "app_id"),
)
KNOWN = frozenset({"body", "exchange", "routing_key", "headers_json", "properties_json"})


class AmqpSink(DataSource):
    """Registered by the session."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        """Of the source: what a stream queue holds."""
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """A stream queue by offset."""
        return AmqpStreamReader(self.options)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise ValueError("amqp: messages can't be overwritten; use mode append")
        return _Writer(SinkOptions.read(self.options, schema.names))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        return _StreamWriter(SinkOptions.read(self.options, schema.names))


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """As the module says."""

    url: str
    exchange: str = ""
    routing_key: str = ""
    window: int = WINDOW
    rate: float = 0.0
    mandatory: bool = True

    @classmethod
    def read(cls, options: Any, columns: list[str]) -> "SinkOptions":
        """Raises: ValueError."""
        if "url" not in options:
            raise ValueError('amqp: option "url" is missing: amqp://USER:PASSWORD@HOST:PORT/VHOST')
        if "body" not in columns:
            raise ValueError("amqp: there is no column body")
        if strange := sorted(set(columns) - KNOWN):
            raise ValueError(f"amqp: no such columns: {', '.join(strange)}; there are {', '.join(sorted(KNOWN))}")
        window, rate = int(options.get("window", WINDOW)), float(options.get("rate", 0))
        if window < 1 or rate < 0:
            raise ValueError("amqp: window must be 1 or more, rate 0 or more")
        mandatory = str(options.get("mandatory", "true")).lower() == "true"
        return cls(options["url"], options.get("exchange", ""), options.get("routing_key", ""), window, rate, mandatory)


@dataclass
class Sent(WriterCommitMessage):
    """Messages that the broker has confirmed to a task."""

    count: int


class _Writer(DataSourceWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Sent:
        return Sent(asyncio.run(publish_all(self._options, iterator)))


class _StreamWriter(DataSourceStreamWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Sent:
        return Sent(asyncio.run(publish_all(self._options, iterator)))

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Nothing to do: confirmed is confirmed."""

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Nothing can be done: what was sent is sent."""


async def publish_all(options: SinkOptions, rows: Iterator[Any]) -> int:
    """Publish each row; returns how many, all confirmed. Raises: what aio-pika raises (nacked, returned, closed)."""
    import aio_pika

    connection = await aio_pika.connect(options.url)
    count = 0
    async with connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        exchanges: dict[str, Any] = {"": channel.default_exchange}
        began, pending = time.monotonic(), set()
        for row in rows:
            if options.rate:
                await asyncio.sleep(max(0.0, began + count / options.rate - time.monotonic()))
            told = row.asDict()
            name = told.get("exchange")
            name = options.exchange if name is None else name
            if name not in exchanges:
                exchanges[name] = await channel.get_exchange(name, ensure=False)
            key = told.get("routing_key")
            key = options.routing_key if key is None else key
            publishing = exchanges[name].publish(message_of(told), key, mandatory=options.mandatory)
            pending.add(asyncio.ensure_future(publishing))
            count += 1
            if len(pending) >= options.window:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    one.result()
        for one in asyncio.as_completed(pending):
            await one
    return count


def message_of(row: dict[str, Any]) -> Any:
    """The message that a row of the lake's `payloads` tells of. Raises: ValueError (no JSON)."""
    import aio_pika

    body = row["body"]
    headers = _bytes(json.loads(row.get("headers_json") or "{}"))
    told = json.loads(row.get("properties_json") or "{}")
    properties = {name: told[name] for name in PROPERTIES if told.get(name) is not None}
    if "expiration" in properties:
        properties["expiration"] = float(properties["expiration"]) / 1000  # aio-pika has seconds
    return aio_pika.Message(
        body.encode() if isinstance(body, str) else bytes(body or b""), headers=headers, **properties
    )


def _bytes(value: Any) -> Any:
    """As ingest wrote it: octets that are no UTF-8 are {"$binary": base64}."""
    if isinstance(value, dict):
        if set(value) == {"$binary"}:
            return base64.b64decode(value["$binary"])
        return {name: _bytes(one) for name, one in value.items()}
    return [_bytes(one) for one in value] if isinstance(value, list) else value
