"""Publishes rows as messages with confirms, to any broker. Used by the tasks of the sink, and by replays."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aio_pika
from aio_pika.exceptions import AMQPError, DeliveryError, PublishError
from pamqp.commands import Basic

from .rows import message_of

WINDOW = 500


@dataclass(frozen=True, slots=True)
class Publishing:
    """Where and how rows are published.

    exchange, routing_key: for rows without one. window: the most unconfirmed messages. rate: messages per second; 0: no
    limit. mandatory: an unroutable message is a failure.
    """

    url: str
    exchange: str = ""
    routing_key: str = ""
    window: int = WINDOW
    rate: float = 0.0
    mandatory: bool = True


class NotSent(Exception):
    """A broker refused a message, or does not answer. The text names the broker and the reason."""


async def publish_all(options: Publishing, rows: Iterator[dict[str, Any]], prefix: str) -> int:
    """Publish all rows and wait for their confirms. Returns their number. `prefix`: of ids for rows without an id.

    Raises: ValueError, NotSent (nacked, returned, refused, closed).
    """
    try:
        return await _publish_all(options, rows, prefix)
    except (OSError, AMQPError) as error:
        raise NotSent(f"{_without_password(options.url)}: {_reason(error)}") from error


def _without_password(url: str) -> str:
    """A URL without user and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _reason(error: Exception) -> str:
    returned = error.message.delivery if isinstance(error, PublishError) and error.message else None
    if isinstance(returned, Basic.Return):
        place = f"exchange {returned.exchange!r} with key {returned.routing_key!r}"
        return f"a message to {place} was returned: {returned.reply_text}"
    if isinstance(error, DeliveryError):
        return "a message could not be delivered: the broker answered with a nack"
    return str(error) or type(error).__name__


async def _publish_all(options: Publishing, rows: Iterator[dict[str, Any]], prefix: str) -> int:
    connection = await aio_pika.connect(options.url)
    count = 0
    async with connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        exchanges: dict[str, Any] = {"": channel.default_exchange}
        began, pending = time.monotonic(), set()
        for values in rows:
            if options.rate:
                await asyncio.sleep(max(0.0, began + count / options.rate - time.monotonic()))
            name = values.get("exchange")
            name = options.exchange if name is None else name
            if name not in exchanges:
                exchanges[name] = await channel.get_exchange(name, ensure=False)
            key = values.get("routing_key")
            key = options.routing_key if key is None else key
            message = message_of(values, values.get("message_id") or f"{prefix}-{count}")
            publishing = exchanges[name].publish(message, key, mandatory=options.mandatory)
            pending.add(asyncio.ensure_future(publishing))
            count += 1
            if len(pending) >= options.window:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    one.result()
        for one in asyncio.as_completed(pending):
            await one
    return count
