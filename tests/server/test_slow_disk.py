"""A disk that is slower than a publisher who asks for no confirms: memory holds a bounded part of what it sends."""

import os
import threading
from pathlib import Path

import pika
import pytest

from leveret.journal.recording import recorder
from leveret.testing import start_broker

BODY = bytes(100_000)
BACKLOG_MAX = 1_000_000
COUNT = 400


def test_a_publisher_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an fsync lasts, no more is read than may wait; others are served; afterwards all of it is there."""
    goes_on, is_congested = threading.Event(), threading.Event()
    backlogs: list[int] = []
    fsync, look = os.fdatasync, vars(recorder.Recorder)["is_congested"].fget

    def slow(handle: int) -> None:
        if is_stuck.is_set():
            assert goes_on.wait(100)
        fsync(handle)

    def looked(self: recorder.Recorder) -> bool:
        backlogs.append(self._journal.backlog_bytes)
        if look(self):
            is_congested.set()
            return True
        return False

    is_stuck = threading.Event()
    monkeypatch.setattr(os, "fdatasync", slow)
    monkeypatch.setattr(recorder, "BACKLOG_MAX", BACKLOG_MAX)
    monkeypatch.setattr(recorder.Recorder, "is_congested", property(looked))
    with start_broker(data=str(tmp_path / "data")) as broker:
        other = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
        other.queue_declare("q", durable=True)
        is_stuck.set()

        def publish() -> None:
            connection = pika.BlockingConnection(pika.URLParameters(broker.url))
            channel = connection.channel()
            for _ in range(COUNT):
                channel.basic_publish("", "q", BODY, pika.BasicProperties(delivery_mode=2))
            channel.queue_declare("q", passive=True)
            connection.close()

        publisher = threading.Thread(target=publish)
        publisher.start()
        assert is_congested.wait(60)
        for _ in range(100):  # turns in which the publisher's octets could be read
            other.queue_declare("transient", exclusive=True)
        assert publisher.is_alive()
        goes_on.set()
        publisher.join(100)
        assert not publisher.is_alive()
        assert other.queue_declare("q", passive=True).method.message_count == COUNT
    read_at_once = 1_100_000  # one read, and a message that it ends
    assert BACKLOG_MAX < max(backlogs) < BACKLOG_MAX + read_at_once
