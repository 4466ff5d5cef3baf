"""A broker under attack: how much its process grew, and whether an ordinary client is served meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
from broker_process import BrokerProcess, leveret_serve
from rawclient import Client, Eof

KEEP = "siege.witness"


class Siege:
    """`broker` with an ordinary client in it; `mark` remembers its memory."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self._witness = pika.BlockingConnection(pika.URLParameters(broker.url))
        self._channel = self._witness.channel()
        self._channel.queue_declare(KEEP)
        self._served = 0
        self._before_kib = 0

    def attacker(self, **options: object) -> Client:
        """A raw client, logged in, channel 1 open."""
        return Client.open("127.0.0.1", self.broker.port, **options)

    def stranger(self) -> Client:
        """A raw client that has said nothing."""
        return Client("127.0.0.1", self.broker.port)

    def mark(self) -> None:
        """Growth counts from here."""
        self.others_are_served()
        self._before_kib = self.broker.rss_kib()

    def growth_kib(self) -> int:
        """Since `mark`, when everything that was sent before has been looked at by a broker that also serves others."""
        self.others_are_served()
        return self.broker.rss_kib() - self._before_kib

    def others_are_served(self) -> None:
        """The ordinary client publishes and gets, and another one can log in."""
        self._served += 1
        body = b"%d" % self._served
        self._channel.basic_publish("", KEEP, body)
        assert self._channel.basic_get(KEEP, auto_ack=True)[2] == body
        pika.BlockingConnection(pika.URLParameters(self.broker.url)).close()

    def ready(self, queue: str) -> int:
        """Ready messages of a queue."""
        return int(self._channel.queue_declare(queue, passive=True).method.message_count)

    def wait_until_empty(self, *queues: str) -> None:
        """Look until these have no ready messages; others are served at each look."""
        while sum(self.ready(queue) for queue in queues):
            self.others_are_served()

    def wait_until_half_open_is_free(self) -> None:
        """Look until somebody can log in again."""
        while True:
            try:
                self.attacker().close()
                return
            except (OSError, AssertionError, Eof):
                pass

    def close(self) -> None:
        """The witness goes."""
        self._witness.close()


@contextmanager
def siege(directory: Path, limits: str = "", *arguments: str) -> Iterator[Siege]:
    """A broker of its own with these lines in `[limits]`."""
    with leveret_serve(directory, *arguments, config=f"[limits]\n{limits}\n") as broker:
        siege = Siege(broker)
        siege.mark()
        yield siege
        siege.others_are_served()
        siege.close()
