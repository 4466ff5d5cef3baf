"""A broker, or an address, with little memory: what a publisher (pika) sees, and how a test tells who waits.

Source: queues page E.4 rows 1 to 8, E.5.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pika.exceptions
import pytest
from consumers import channel_of

from leveret.testing import NotSettled, RunningBroker

BODY = bytes(1500)


@contextmanager
def publishing(url: str, count: int = 1, *, confirms: bool = True, name: str = "") -> Iterator[Callable[[], list[str]]]:
    """A thread that publishes to `q`. Its call, once the thread has ended: what became of each publish."""
    outcomes: list[str] = []

    def run() -> None:
        with channel_of(url, client_properties={"connection_name": name} if name else None) as channel:
            if confirms:
                channel.confirm_delivery()
            for _ in range(count):
                try:
                    channel.basic_publish("", "q", BODY)
                    outcomes.append("ack")
                except pika.exceptions.NackError:
                    outcomes.append("nack")

    def end() -> list[str]:
        thread.join(60)
        assert not thread.is_alive()
        return outcomes

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield end
    end()


@pytest.fixture
def channel(virtual_broker: RunningBroker) -> Iterator[Any]:
    """Another connection, with the queue `q` declared."""
    with channel_of(virtual_broker.url) as channel:
        channel.queue_declare("q")
        yield channel


def test_an_alarm_blocks_like_a_limit(virtual_broker: RunningBroker) -> None:
    """An operator's alarm is a limit that an assertion can name."""
    broker, flow = virtual_broker, virtual_broker.runtime.broker.flow
    broker.ask(lambda: flow.raise_alarm("by hand"))
    with publishing(broker.url, 1) as end:
        (blocked,) = broker.assert_blocked(limit="alarm", within=60)
        assert (blocked.destination, blocked.limit) == ("broker", "alarm")
        broker.ask(flow.end_alarm)
        assert end() == ["ack"]


@pytest.mark.parametrize(
    "address, destination", [("q", "queue 'q' in vhost '/'"), (None, "broker"), ("#", "queue 'q'")]
)
def test_a_publish_waits_until_there_is_room(
    virtual_broker: RunningBroker, channel: Any, address: str | None, destination: str
) -> None:
    """One goes over the limit; the next is held, and confirmed when a consumer has made room."""
    broker = virtual_broker
    broker.clock.advance(seconds=7)
    with broker.faults.memory_limit("3 KiB", address) as fault, publishing(broker.url, 4, name="shop") as end:
        (blocked,) = broker.assert_blocked(destination, connection="shop", limit="memory", within=60)
        assert (blocked.connection, blocked.since, blocked.messages) == ("shop", 7.0, 1)
        assert broker.blocked() == (blocked,)
        broker.assert_queue("q", ready=3)
        assert len(fault.hits) == 1 and destination in fault.hits[0]
        channel.queue_purge("q")
        assert end() == ["ack"] * 4
        assert broker.assert_blocked(count=0) == ()
    broker.assert_queue("q", ready=1)


@pytest.mark.parametrize("ends", ["stop", "reset"])
def test_the_end_of_the_fault_lets_go(virtual_broker: RunningBroker, channel: Any, ends: str) -> None:
    """And the broker's reset, with the connections; nothing of it is left in force."""
    broker = virtual_broker
    fault = broker.faults.memory_limit(1, "q")
    thread = threading.Thread(target=lambda: fault.stop() if ends == "stop" else broker.reset())
    outcomes: list[str] = []

    def publish() -> None:
        try:
            with channel_of(broker.url) as mine:
                mine.confirm_delivery()
                for _ in range(3):
                    mine.basic_publish("", "q", BODY)
                    outcomes.append("ack")
        except pika.exceptions.AMQPError:
            outcomes.append("lost")

    publisher = threading.Thread(target=publish)
    publisher.start()
    broker.assert_blocked("q", within=60)
    thread.start()
    thread.join()
    publisher.join()
    assert outcomes[-1] == ("ack" if ends == "stop" else "lost")
    with channel_of(broker.url) as mine:
        mine.queue_declare("q")
        mine.confirm_delivery()
        for _ in range(3):
            mine.basic_publish("", "q", BODY)
    assert broker.blocked() == ()


def test_what_does_not_fit_is_refused(virtual_broker: RunningBroker, channel: Any) -> None:
    """A nack, at once."""
    broker = virtual_broker
    with broker.faults.memory_limit(2000, "q", fails=True), publishing(broker.url, 4) as end:
        assert end() == ["ack", "ack", "nack", "nack"]


def test_what_does_not_fit_is_refused_after_a_while(virtual_broker: RunningBroker, channel: Any) -> None:
    """A nack after as long as was asked for, by the broker's clock."""
    broker = virtual_broker
    with broker.faults.memory_limit(1000, "q", fails_after=30), publishing(broker.url, 2) as end:
        broker.assert_blocked("q", within=60)
        broker.clock.advance(seconds=29.999)
        broker.assert_blocked("q", count=1)
        broker.clock.advance(seconds=0.001)
        broker.assert_blocked(count=0, within=60)
        assert end() == ["ack", "nack"]
        assert broker.clock.elapsed == 30


def test_a_channel_without_confirms_is_closed(virtual_broker: RunningBroker, channel: Any) -> None:
    """406, and the connection goes on."""
    broker = virtual_broker
    with broker.faults.memory_limit(1000, "q", fails=True), channel_of(broker.url) as mine:
        for _ in range(2):
            mine.basic_publish("", "q", BODY)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="RESOURCE_ERROR - queue 'q'") as closed:
            mine.queue_declare("q", passive=True)
        assert closed.value.reply_code == 406
        assert mine.connection.channel().queue_declare("q", passive=True).method.message_count == 1


def test_a_blocked_connection_is_told_and_told_again_after_a_calm(virtual_broker: RunningBroker, channel: Any) -> None:
    """The broker's limit is an alarm: connection.blocked, and unblocked when nothing was held for 200 ms."""
    broker, told = virtual_broker, []
    with broker.faults.memory_limit(1000), channel_of(broker.url) as mine:
        mine.connection.add_on_connection_blocked_callback(lambda _, frame: told.append(frame.method.reason))
        mine.connection.add_on_connection_unblocked_callback(lambda *_: told.append("unblocked"))
        for _ in range(2):
            mine.basic_publish("", "q", BODY)
        broker.assert_blocked("broker", within=60)
        mine.connection.process_data_events(0)
        assert told == ["broker: memory limit"]
        for _ in range(2):  # the second time what was held and came in
            channel.queue_purge("q")
        broker.assert_blocked(count=0)
        broker.clock.advance(milliseconds=199)
        mine.connection.process_data_events(0)
        assert told == ["broker: memory limit"]
        broker.clock.advance(milliseconds=1)
        while len(told) < 2:
            mine.connection.process_data_events(1)
        assert told == ["broker: memory limit", "unblocked"]


def test_limits_add_up_and_end_one_by_one(virtual_broker: RunningBroker, channel: Any) -> None:
    """Of two queues: the end of one lets go what it held, and nothing else."""
    broker = virtual_broker
    channel.queue_declare("other")
    with channel_of(broker.url) as mine, channel_of(broker.url) as others:
        with broker.faults.memory_limit(1000, "q"):
            with broker.faults.memory_limit(1000, "other"):
                for _ in range(2):
                    mine.basic_publish("", "q", BODY)
                    others.basic_publish("", "other", BODY)
                broker.assert_blocked(count=2, within=60)
                broker.assert_blocked("'other'", count=1)
            broker.assert_queue("other", ready=2)
            broker.assert_blocked("'q'", count=1)
            broker.assert_blocked(count=1)
        broker.assert_queue("q", ready=2)


def test_what_is_held_is_pending(virtual_broker: RunningBroker, channel: Any) -> None:
    """A broker that holds a publish is not settled, and its text says who waits for what."""
    broker = virtual_broker
    with broker.faults.memory_limit(1000, "q"), channel_of(broker.url) as mine:
        for _ in range(2):
            mine.basic_publish("", "q", BODY)
        broker.assert_blocked("q", within=60)
        with pytest.raises(NotSettled, match="1 publish of .* held for queue 'q' in vhost '/': memory limit"):
            broker.settled(0.1, ignore=["q"])


def test_what_is_otherwise_is_told(virtual_broker: RunningBroker, channel: Any) -> None:
    """Who waits, and how full each limit is."""
    broker = virtual_broker
    with pytest.raises(AssertionError, match="a connection to be blocked by 'q'.*\nnothing is held\nthere is no limit"):
        broker.assert_blocked("q")
    with broker.faults.memory_limit(1000, "q"), channel_of(broker.url) as mine:
        for _ in range(2):
            mine.basic_publish("", "q", BODY)
        broker.assert_blocked("q", within=60)
        with pytest.raises(AssertionError) as failed:
            broker.assert_blocked("q", count=0)
        assert "expected 0 connections to be blocked by 'q'" in str(failed.value)
        assert "held for queue 'q' in vhost '/': memory limit" in str(failed.value)
        assert "of 1000 octets, full" in str(failed.value)


@pytest.mark.parametrize("size, address", [(0, None), ("much", None), (-1, None), (1000, "")])
def test_what_is_no_limit_is_refused(broker: RunningBroker, size: int | str, address: str | None) -> None:
    """And nothing is in force then."""
    with pytest.raises(ValueError):
        broker.faults.memory_limit(size, address)
    assert not broker.runtime.broker.flow.is_on
