"""Compares the figures of a real RabbitMQ and a leveret, in the HTTP API and the metrics, under the same load.

    python -m leveret.interop.tools.counted

The load has messages that are ready, unacknowledged, acknowledged manually and automatically, returned, dead-lettered
for each reason, and delayed by expiring from a queue to another; and consumers with and without credit. Exit code 1: a
figure differs, and `KNOWN` has no reason for it. 2: RabbitMQ is not on this machine.
"""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika

from ..brokers.peers import find_rabbitmq
from ..brokers.processes import PeerFailed
from ..wire.loopback import LOOPBACK
from .brokers import HttpBroker, http_broker
from .http import ask

SECONDS_MAX, POLL_SECONDS = 90.0, 0.5
#: Figures are final after this number of equal readings, since samples are taken once a second.
LOOKS = 5
NEVER_MS = 3_600_000
TO_LETTERS = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"}
QUEUES: dict[str, dict[str, Any]] = {
    "first": {},
    "auto": {},
    "letters": {},
    "fan1": {},
    "fan2": {},
    "dying": TO_LETTERS,
    "short": {"x-max-length": 2, **TO_LETTERS},
    "refusing": {"x-max-length": 2, "x-overflow": "reject-publish"},
    "delayed": {"x-message-ttl": NEVER_MS, **TO_LETTERS},
    "over": {"x-message-ttl": 1, **TO_LETTERS},
    "ranked": {"x-max-priority": 5},
    "counted": {"x-queue-type": "quorum", "x-delivery-limit": 1, **TO_LETTERS},
    "purged": {},
    "idle": {},
    "busy": {},
    "empty": {},
}
LETTERS = 2 + 2 + 3 + 1  # of the queues dying, short, over, counted

#: Fields of the HTTP API that are compared, beside the counts of `message_stats`.
OF_QUEUES = [
    "messages", "messages_ready", "messages_unacknowledged", "messages_persistent", "message_bytes",
    "message_bytes_ready", "message_bytes_unacknowledged", "message_bytes_persistent", "consumers",
    "head_message_timestamp", "consumer_utilisation", "consumer_capacity",
]  # fmt: skip
OF_CHANNELS = [
    "consumer_count", "messages_unacknowledged", "messages_unconfirmed", "messages_uncommitted", "acks_uncommitted",
    "prefetch_count", "global_prefetch_count", "confirm", "transactional",
]  # fmt: skip
#: Families of metrics that are compared.
FAMILIES = re.compile(
    r"rabbitmq_(global_.*messages.*|global_(publishers|consumers)|queue_messages.*|queue_consumers|queues.*_total|queues|"
    r"channel_messages.*|channel_get.*|channel_acks.*|channel_consumers|channel_prefetch|channels|connections|consumers)"
)
#: Pattern of figures that differ -> the reason.
KNOWN = {
    r"/metrics.*rabbitmq_queue_messages_(ready_|unacked_)?(ram|paged_out)(_bytes)?[^a-z].*": (
        "which messages are in memory; a quorum queue of RabbitMQ does not say"
    ),
    r"/metrics.*rabbitmq_queue_messages_persistent_bytes.*": "estimated here; RabbitMQ has no sum of it",
    r"/metrics.*rabbitmq_global_messages_routed_total.*": "what a full queue refuses counts as routed there",
    r".*rabbitmq_queue_messages_published_total.*": "the same",
    r"queue refusing publish": "what a full queue refuses counts as published there",
    r"exchange  publish_out": "a name that no queue has counts as routed there",
    r"overview disk_writes": "here the journal's octets, which has a page of its own",
    r"overview exchanges": "here the exchange of the control table is one more",
}


class Load:
    """The clients of the load, whose connections stay open."""

    def __init__(self, url: str) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = channel = self.connection.channel()
        channel.confirm_delivery()
        for name, arguments in QUEUES.items():
            channel.queue_declare(name, durable=True, arguments=arguments)
        channel.exchange_declare("fan", "fanout")
        for name in ("fan1", "fan2"):
            channel.queue_bind(name, "fan")
        self._publish()
        self._settle()
        self._consume()

    def _send(self, key: str, count: int = 1, *, exchange: str = "", body: bytes = b"four", **properties: Any) -> None:
        for _ in range(count):
            try:
                self.channel.basic_publish(exchange, key, body, pika.BasicProperties(**properties))
            except pika.exceptions.NackError:
                pass

    def _publish(self) -> None:
        for at in range(10):
            self._send("first", timestamp=1000 + at, delivery_mode=1 + at % 2)
        for name, count in {
            "dying": 4,
            "short": 4,
            "auto": 4,
            "refusing": 3,
            "delayed": 3,
            "over": 3,
            "purged": 2,
        }.items():
            self._send(name, count)
        self._send("", 4, exchange="fan")
        for priority in (1, 5, 3):
            self._send("ranked", priority=priority, timestamp=2000 + priority)
        self._send("counted", 2, delivery_mode=2)
        self._send("nowhere", 2)
        try:
            self.channel.basic_publish("", "nowhere", b"back", mandatory=True)
        except pika.exceptions.UnroutableError:
            pass
        self.channel.queue_purge("purged")

    def _get(self, queue: str, *, auto: bool = False) -> int:
        got, _, _ = self.channel.basic_get(queue, auto_ack=auto)
        return 0 if got is None else int(got.delivery_tag)

    def _settle(self) -> None:
        channel = self.channel
        for _ in range(2):
            channel.basic_reject(self._get("dying"), requeue=False)
        for _ in range(2):
            channel.basic_nack(self._get("counted"), requeue=True)
        for _ in range(3):
            self._get("auto", auto=True)
        self._get("empty")
        tags = [self._get("first") for _ in range(4)]
        channel.basic_ack(tags[0])
        channel.basic_nack(tags[1], requeue=True)
        self._get("fan1")

    def _consume(self) -> None:
        """Consumers: one of an empty queue, and one whose prefetch is used up."""
        consuming = self.connection.channel()
        consuming.basic_qos(prefetch_count=1)
        self._send("busy", 3)
        consuming.basic_consume("busy", lambda *_: None, consumer_tag="busy")
        consuming.basic_consume("idle", lambda *_: None, consumer_tag="idle")
        self.connection.process_data_events(0)
        taking = self.connection.channel()
        taken: list[bytes] = []
        self._send("idle", 2)

        def take(_: Any, method: Any, __: Any, body: bytes) -> None:
            taken.append(body)
            if len(taken) == 1:
                taking.basic_ack(method.delivery_tag)

        taking.basic_consume("fan2", take, consumer_tag="fan2")
        while len(taken) < 4:
            self.connection.process_data_events(0.1)


def _counts(value: dict[str, Any]) -> dict[str, Any]:
    """The counts of `message_stats` that are not 0, since a missing one means 0."""
    stats = value.get("message_stats") or {}
    return {name: count for name, count in stats.items() if isinstance(count, int) and count}


def _of_api(broker: HttpBroker) -> Iterator[tuple[str, Any]]:
    def got(path: str) -> Any:
        return json.loads(ask(broker.url, "GET", path))

    for queue in got("queues"):
        where = f"queue {queue['name']}"
        for field in OF_QUEUES:
            if field in queue:
                value = queue[field]
                yield f"{where} {field}", round(value) if isinstance(value, float) else value
        yield from ((f"{where} {name}", count) for name, count in _counts(queue).items())
    for exchange in got("exchanges"):
        yield from ((f"exchange {exchange['name']} {name}", count) for name, count in _counts(exchange).items())
    for channel in got("channels"):
        where = f"channel {channel['number']}"
        yield from ((f"{where} {field}", channel.get(field)) for field in OF_CHANNELS)
        yield from ((f"{where} {name}", count) for name, count in _counts(channel).items())
    overview = got("overview")
    for name, value in (overview["queue_totals"] | overview["object_totals"]).items():
        if isinstance(value, int):
            yield f"overview {name}", value
    yield from ((f"overview {name}", count) for name, count in _counts(overview).items())
    vhost = got("vhosts/%2F")
    yield from (
        (f"vhost {name}", vhost.get(name)) for name in ("messages", "messages_ready", "messages_unacknowledged")
    )
    yield from ((f"vhost {name}", count) for name, count in _counts(vhost).items())


def _of_metrics(broker: HttpBroker) -> Iterator[tuple[str, Any]]:
    for path in ("/metrics", "/metrics/per-object"):
        with urllib.request.urlopen(f"http://{LOOPBACK}:{broker.metrics}{path}", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        for line in lines:
            name, _, value = line.rpartition(" ")
            family, _, labels = name.partition("{")
            if not line.startswith("#") and FAMILIES.fullmatch(family):
                if family.startswith("rabbitmq_channel_"):
                    labels = ""  # RabbitMQ has it by queue and exchange, Leveret by channel
                yield f"{path} {family}{{{labels}", float(value)


def figures(broker: HttpBroker) -> dict[str, Any]:
    """The figures of a broker now. Metrics with the same labels are added up; those that are 0 are left out."""
    found = dict(_of_api(broker))
    for name, value in _of_metrics(broker):
        if value:
            found[name] = found.get(name, 0) + value
    return found


@contextmanager
def loaded(broker: str) -> Iterator[dict[str, Any]]:
    """The figures of a fresh `rabbitmq` or `leveret` under the load. Raises: PeerFailed."""
    with http_broker(broker) as found:
        load = Load(found.peer.url)
        deadline = time.monotonic() + SECONDS_MAX
        before: dict[str, Any] = {}
        same = 0
        while same < LOOKS:
            if time.monotonic() > deadline:
                raise PeerFailed(f"{broker}: its figures do not come to rest")
            load.connection.process_data_events(POLL_SECONDS)
            now = figures(found)
            is_there = now.get("queue letters messages") == LETTERS and now.get("overview ack")
            same = same + 1 if now == before and is_there else 0
            before = now
        yield before
        load.connection.close()


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, str]:
    """The figures that differ and are not in `KNOWN`, with both values."""
    return {
        name: f"{ours.get(name)}, RabbitMQ {theirs.get(name)}"
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name) and not any(re.fullmatch(known, name) for known in KNOWN)
    }


def compared() -> tuple[dict[str, str], int]:
    """The differences of two fresh brokers, and the number of figures. Raises: PeerFailed."""
    with loaded("leveret") as ours:
        pass
    with loaded("rabbitmq") as theirs:
        pass
    return differences(ours, theirs), len(theirs)


def main() -> int:
    if find_rabbitmq() is None:
        return 2
    found, count = compared()
    for name, text in found.items():
        print(f"{name}: {text}")
    print(f"{count} figures, {len(found)} differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
