"""Clients that consume in a thread of their own, as an application does, and tell what they saw."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pika
import pika.exceptions

#: What a consumer does with a delivery: (channel, method, properties, body).
Handler = Callable[[Any, Any, Any, bytes], object]


def reject(channel: Any, method: Any, properties: Any, body: bytes) -> None:
    """Nack with requeue: try again."""
    channel.basic_nack(method.delivery_tag, requeue=True)


def acknowledge(channel: Any, method: Any, properties: Any, body: bytes) -> None:
    """Ack."""
    channel.basic_ack(method.delivery_tag)


def keep(channel: Any, method: Any, properties: Any, body: bytes) -> None:
    """Neither."""


@dataclass
class Seen:
    """What a consumer met. `bodies` can be waited for."""

    bodies: "queue.SimpleQueue[bytes]" = field(default_factory=queue.SimpleQueue)
    ended: "queue.SimpleQueue[BaseException | str]" = field(default_factory=queue.SimpleQueue)
    connection: Any = None

    def next(self) -> bytes:
        """The next body that comes."""
        return self.bodies.get(timeout=60)

    def end(self) -> BaseException | str:
        """Why consuming ended."""
        return self.ended.get(timeout=60)


@contextmanager
def consuming(url: str, queue_name: str, handler: Handler = acknowledge, **declare: Any) -> Iterator[Seen]:
    """A pika consumer in a thread; it is there when the block begins, and gone when it has ended."""
    seen = Seen()
    is_ready = threading.Event()

    def run() -> None:
        try:
            connection = pika.BlockingConnection(pika.URLParameters(url))
            seen.connection = connection
            channel = connection.channel()
            if declare:
                channel.queue_declare(queue_name, **declare)

            def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
                seen.bodies.put(body)
                handler(channel, method, properties, body)

            channel.basic_consume(queue_name, on_message)
            is_ready.set()
            channel.start_consuming()
            seen.ended.put("cancelled")
            if connection.is_open:
                connection.close()
        except BaseException as error:
            seen.ended.put(error)
        finally:
            is_ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert is_ready.wait(60)
    try:
        yield seen
    finally:
        connection = seen.connection
        if connection is not None and connection.is_open:
            try:
                connection.add_callback_threadsafe(lambda: connection.close())
            except pika.exceptions.AMQPError:
                pass
        thread.join(60)
        assert not thread.is_alive()


@contextmanager
def channel_of(url: str, **parameters: Any) -> Iterator[Any]:
    """A pika channel for a while."""
    made = pika.URLParameters(url)
    for name, value in parameters.items():
        setattr(made, name, value)
    connection = pika.BlockingConnection(made)
    try:
        yield connection.channel()
    finally:
        try:
            if connection.is_open:
                connection.close()
        except pika.exceptions.AMQPError:
            pass  # a fault was quicker
