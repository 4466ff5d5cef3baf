"""`data=`: durable queues and persistent messages outlive the broker, and virtual time goes on where it was."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from consumers import channel_of, consuming, keep, reject

from leveret.testing import BrokerOptionsError, RunningBroker, start_broker

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@contextmanager
def broker_on(folder: Path, **options: Any) -> Iterator[RunningBroker]:
    """A broker on virtual time whose journal is in a folder."""
    with start_broker(**{"clock": "virtual", "quiet_ms": 20, "data": folder, **options}) as broker:
        yield broker


def fill(broker: RunningBroker) -> None:
    """Durable and passing things, side by side."""
    with channel_of(broker.url) as channel:
        channel.confirm_delivery()
        channel.exchange_declare("events", "topic", durable=True)
        channel.exchange_declare("passing", "topic")
        channel.queue_declare("kept", durable=True)
        channel.queue_declare("lost")
        channel.queue_bind("kept", "events", "#")
        for name in ("kept", "lost"):
            channel.basic_publish("", name, b"persistent", PERSISTENT)
            channel.basic_publish("", name, b"transient")


def check(broker: RunningBroker) -> None:
    """A client finds what is durable, and nothing else."""
    with channel_of(broker.url) as channel:
        channel.confirm_delivery()
        assert channel.basic_get("kept", auto_ack=True)[2] == b"persistent"
        assert channel.basic_get("kept") == (None, None, None)
        channel.basic_publish("events", "any.key", b"bound still", mandatory=True)
        channel.basic_get("kept", auto_ack=True)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue 'lost'"):
            channel.queue_declare("lost", passive=True)
        again = channel.connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no exchange 'passing'"):
            again.exchange_declare("passing", passive=True)


def test_what_is_durable_outlives_the_broker(tmp_path: Path) -> None:
    """Two brokers one after the other in one directory; on real time, too."""
    for clock in ("virtual", "real"):
        with broker_on(tmp_path / clock, clock=clock) as broker:
            fill(broker)
        with broker_on(tmp_path / clock, clock=clock) as broker:
            assert [queue.name for queue in broker.queues()] == ["kept"]
            check(broker)


@pytest.mark.parametrize("persists", ["false", "true"])
def test_an_orderly_stop_is_no_failed_attempt(tmp_path: Path, persists: str) -> None:
    """Address-settings page 7.1, queues page A.5: nothing dies of a stop; leased queues count from zero again."""
    config = f"""
        [broker]
        persist-delivery-count-before-delivery = {persists}
        [[address-setting]]
        match = "#"
        max-delivery-attempts = 2
        dead-letter-address = "dead"
        redelivery-delay = 60000
    """
    leased = {"x-queue-type": "amps", "x-max-deliveries": 2}
    for start in range(3):
        with broker_on(tmp_path, config=config) as broker:
            channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()  # open when the broker stops
            channel.confirm_delivery()
            for name, arguments in (("jobs", {}), ("leased", leased), ("kept", {"x-non-destructive": True})):
                channel.queue_declare(name, durable=True, arguments=arguments)
                if start == 0:
                    channel.basic_publish("", name, b"once", PERSISTENT)
                method, properties, body = channel.basic_get(name)
                assert body == b"once", (start, name)
                count = (properties.headers or {}).get("x-delivery-count")
                assert count == (1 if name == "leased" else None), (start, name)


def test_a_restart_goes_through_the_journal(tmp_path: Path) -> None:
    """Clients are refused while it is away; the port, the history and the time go on."""
    with broker_on(tmp_path) as broker:
        fill(broker)
        broker.clock.advance(minutes=5)
        port = broker.port
        with channel_of(broker.url) as channel, broker.faults.restart(durable=True) as fault:
            with pytest.raises(pika.exceptions.AMQPConnectionError):
                channel.queue_declare("kept", passive=True)
            with pytest.raises(pika.exceptions.AMQPConnectionError):
                pika.BlockingConnection(pika.URLParameters(broker.url))
        assert len(fault.hits) == 1
        assert (broker.port, broker.clock.elapsed) == (port, 300)
        check(broker)
        bodies = [message.body for message in broker.published()]
        assert bodies == [b"persistent", b"transient"] * 2 + [b"bound still"]
        broker.restart()
        broker.assert_queue("kept", ready=0)


def test_without_durability_the_disk_is_gone(tmp_path: Path) -> None:
    """And a reset begins a new journal, too."""
    with broker_on(tmp_path) as broker:
        fill(broker)
        broker.restart(durable=False)
        assert broker.queues() == ()
        fill(broker)
        broker.clock.advance(hours=1)
        broker.reset()
        assert (broker.queues(), broker.clock.elapsed) == ((), 0)
        fill(broker)
        broker.assert_queue("kept", ready=2)
    with broker_on(tmp_path) as broker:
        broker.assert_queue("kept", ready=[b"persistent"])


@pytest.mark.parametrize("way", ["restart", "memory", "stop and start"])
def test_delays_and_expiries_survive(tmp_path: Path, way: str) -> None:
    """TTL of a queue, of a message, a redelivery delay: each at its instant, however often the broker was away."""
    with pausing(tmp_path, way) as (broker, pause):
        start = broker.clock.now()
        with channel_of(broker.url) as channel:
            channel.confirm_delivery()
            channel.queue_declare("failed", durable=True)
            channel.queue_declare(
                "jobs",
                durable=True,
                arguments={
                    "x-redelivery-delay": 3_600_000,
                    "x-redelivery-delay-multiplier": 2,
                    "x-max-delivery-attempts": 3,
                    "x-dead-letter-address": "failed",
                },
            )
            channel.queue_declare("short", durable=True, arguments={"x-message-ttl": 5_400_000})
            channel.queue_declare("mixed", durable=True)
            channel.basic_publish("", "jobs", b"again", PERSISTENT)
            channel.basic_publish("", "short", b"short", PERSISTENT)
            channel.basic_publish("", "mixed", b"forever", PERSISTENT)
            own = pika.BasicProperties(delivery_mode=2, expiration="4500000")
            channel.basic_publish("", "mixed", b"own", own)
            channel.basic_get("mixed", auto_ack=True)
            channel.basic_publish("", "mixed", b"forever", PERSISTENT)
        with consuming(broker.url, "jobs", reject) as seen:
            assert seen.next() == b"again"
            broker.clock.advance(minutes=59)
        broker = pause()
        broker.assert_queue("jobs", ready=0, scheduled=[b"again"])
        broker.assert_queue("short", ready=1)
        broker.assert_queue("mixed", ready=[b"own", b"forever"])
        assert broker.clock.now() - start == timedelta(minutes=59)
        with consuming(broker.url, "jobs", reject) as seen:
            broker.clock.advance(minutes=16)
            assert [message.at - broker.clock.elapsed for message in broker.history("delivered")[-1:]] == [-900]
        broker.assert_queue("mixed", ready=[b"forever"])
        broker.assert_queue("short", ready=1)
        broker = pause()
        broker.clock.advance(minutes=15)
        broker.assert_queue("short", ready=0)
        broker.assert_queue("jobs", scheduled=[b"again"])
        with consuming(broker.url, "jobs", reject):
            broker.clock.advance(minutes=90)
            broker.assert_queue("failed", ready=[b"again"])
        assert broker.history("dead_lettered")[-1].wall - start == timedelta(hours=3)


@contextmanager
def pausing(folder: Path, way: str) -> Iterator[tuple[RunningBroker, Any]]:
    """A broker, and how to have it away for a moment: restarted with or without a disk, or another one started."""
    contexts = []

    def begin() -> RunningBroker:
        options: dict[str, Any] = {} if way == "memory" else {"data": folder}
        contexts.append(start_broker(clock="virtual", quiet_ms=20, **options))
        return contexts[-1].__enter__()

    def pause() -> RunningBroker:
        if way == "stop and start":
            contexts[-1].__exit__(None, None, None)
            return begin()
        broker.restart()
        return broker

    broker = begin()
    try:
        yield broker, pause
    finally:
        contexts[-1].__exit__(None, None, None)


def test_what_was_unacked_comes_back_redelivered(tmp_path: Path) -> None:
    """Also to another broker in the same directory."""
    with broker_on(tmp_path) as broker, consuming(broker.url, "jobs", keep, durable=True) as seen:
        with channel_of(broker.url) as channel:
            channel.confirm_delivery()
            channel.basic_publish("", "jobs", b"x", PERSISTENT)
        assert seen.next() == b"x"
        broker.restart()
        assert isinstance(seen.end(), pika.exceptions.AMQPConnectionError)
        (message,) = broker.queue("jobs").ready
        assert message.redelivered
    with broker_on(tmp_path) as broker, channel_of(broker.url) as channel:
        method, _, body = channel.basic_get("jobs")
        assert (method.redelivered, body) == (True, b"x")


def test_virtual_hosts_come_back(tmp_path: Path) -> None:
    """A test's own among them."""
    with broker_on(tmp_path) as broker:
        broker.default_vhost = "shop"
        fill(broker)
        broker.restart()
        check(broker)
        fill(broker)
    with broker_on(tmp_path) as broker:
        assert broker.queues() == ()
        broker.assert_queue("kept", ready=[b"persistent"], vhost="shop")


def test_a_queue_deeper_than_memory_is_seen_whole(tmp_path: Path) -> None:
    """What the journal alone holds is in the picture, and can be taken out."""
    with broker_on(tmp_path, config={"limits": {"memory": "256KiB"}, "journal": {"fsync": "never"}}) as broker:
        with channel_of(broker.url) as channel:
            channel.queue_declare("deep", durable=True)
            for number in range(4000):
                channel.basic_publish("", "deep", b"%d" % number, PERSISTENT)
            assert channel.queue_declare("deep", passive=True).method.message_count == 4000
        every = [b"%d" % number for number in range(4000)]
        assert broker.queue("deep").bodies == every
        assert len(broker.remove("deep", lambda message: int(message.body) % 2 == 1)) == 2000
        broker.restart()
        assert broker.queue("deep").bodies == every[::2]
        seen: list[bytes] = []
        with channel_of(broker.url) as channel:
            for _, _, body in channel.consume("deep", auto_ack=True):
                seen.append(body)
                if len(seen) == 2000:
                    break
        assert seen == every[::2]
        broker.settled()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors where Linux shows them")
def test_rounds_leave_nothing(tmp_path: Path) -> None:
    """No thread and no descriptor of the journal, with restarts and resets; the directory does not grow for ever."""

    def round_() -> None:
        with broker_on(tmp_path) as broker:
            fill(broker)
            broker.restart()
            check(broker)
            broker.reset()

    def left() -> tuple[int, int]:
        gc.collect()
        return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    round_()
    threads, descriptors = left()
    names = sorted(one.name for one in tmp_path.iterdir())
    for _ in range(20):
        round_()
    threads_after, descriptors_after = left()
    # One a round would be 20; what other tests left in this process may end, or be collected, meanwhile.
    assert threads_after <= threads
    assert descriptors_after <= descriptors
    assert sorted(one.name for one in tmp_path.iterdir()) == names


def test_one_directory_one_broker(tmp_path: Path) -> None:
    """Also in one process; the second is refused, the first goes on."""
    with broker_on(tmp_path) as broker:
        with pytest.raises(BrokerOptionsError, match="another process has this journal open"), broker_on(tmp_path):
            pass
        fill(broker)
    with broker_on(tmp_path) as broker:
        check(broker)


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    """A directory of something else, and one that is damaged."""
    (tmp_path / "format").write_text("something else")
    with pytest.raises(BrokerOptionsError, match="data: .*is not a journal's"), broker_on(tmp_path):
        pass
    whole = tmp_path / "whole"
    with broker_on(whole) as broker:
        fill(broker)
    (segment, *_) = sorted(whole.glob("*.log"))
    octets = bytearray(segment.read_bytes())
    octets[200] ^= 0xFF
    segment.write_bytes(octets)
    with pytest.raises(BrokerOptionsError, match=segment.name), broker_on(whole):
        pass
