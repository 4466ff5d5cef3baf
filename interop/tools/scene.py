"""Objects that exist while a tool runs: a named connection, a consumer, a queue with messages."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pika

from ..brokers.processes import PeerFailed
from .brokers import HttpBroker
from .http import ask

WATCHED, CONSUMED, MESSAGES, PREFETCH = "watched", "consumed", 3, 7
SECONDS_MAX, POLL_SECONDS = 60.0, 0.3


@contextmanager
def scene(broker: HttpBroker) -> Iterator[None]:
    """Declare the objects, and keep their connection open, unless a tool closes it. Raises: PeerFailed."""
    parameters = pika.URLParameters(broker.peer.url)
    parameters.client_properties = {"connection_name": "scene"}
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare(WATCHED, durable=True)
    channel.queue_declare(CONSUMED, durable=True)
    for _ in range(MESSAGES):
        channel.basic_publish("", WATCHED, b"watched")
    channel.basic_qos(prefetch_count=PREFETCH)
    channel.basic_consume(CONSUMED, lambda *_: None, consumer_tag="scene")
    ended = threading.Event()

    def serve() -> None:
        try:
            while not ended.is_set():
                connection.process_data_events(0.1)
        except pika.exceptions.AMQPError:
            pass  # closed by a tool

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        _wait_until_shown(broker)
        yield
    finally:
        ended.set()
        thread.join()
        if connection.is_open:
            connection.close()


def _wait_until_shown(broker: HttpBroker) -> None:
    """Wait until the objects are shown, since RabbitMQ shows them after its next sample. Raises: PeerFailed."""
    deadline = time.monotonic() + SECONDS_MAX
    while not _is_shown(broker):
        if time.monotonic() > deadline:
            raise PeerFailed(f"{broker.name}: its HTTP API does not show what is there")
        time.sleep(POLL_SECONDS)


def _is_shown(broker: HttpBroker) -> bool:
    queues, connections, nodes, overview, channels = (
        json.loads(ask(broker.url, "GET", path)) for path in ("queues", "connections", "nodes", "overview", "channels")
    )
    return (
        sorted(one.get("messages", -1) for one in queues) == [0, MESSAGES]
        and all("publish_details" in one.get("message_stats", {}) for one in queues if one["name"] == WATCHED)
        and [one.get("channels") for one in connections] == [1]
        and [(one.get("consumer_count"), one.get("prefetch_count")) for one in channels] == [(1, PREFETCH)]
        and "fd_used_details" in nodes[0]
        and overview.get("queue_totals", {}).get("messages") == MESSAGES
    )
