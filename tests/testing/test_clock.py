"""Virtual time: what is due happens at its instant, clients' reactions land there, and real time is the default."""

import asyncio
import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pika.exceptions
import pytest
from consumers import channel_of, consuming, keep, reject

from leveret.testing import Autojump, ClockIsReal, RunningBroker, start_broker

#: Clients of these tests react within this time also on a machine that has other things to do.
QUIET_MS = 20


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """On virtual time."""
    with start_broker(clock="virtual", quiet_ms=QUIET_MS) as broker:
        yield broker


RETRIES = {
    "x-redelivery-delay": 60_000,
    "x-redelivery-delay-multiplier": 2,
    "x-max-redelivery-delay": 3_600_000,
    "x-max-delivery-attempts": 4,
    "x-dead-letter-address": "failed",
}


def instants(broker: RunningBroker, queue: str) -> list[float]:
    """When messages of a queue were delivered, in seconds of the broker's clock."""
    return [event.at for event in broker.history("delivered", queue=queue)]


def test_a_retried_message_comes_at_the_exact_instants(broker: RunningBroker) -> None:
    """1, 2, 4 minutes between the attempts, then the dead-letter queue: no more, no less, and in no real time."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("failed")
        with consuming(broker.url, "jobs", reject, arguments=RETRIES):
            channel.basic_publish("", "jobs", b"again")
            broker.clock.advance(hours=2)
        assert instants(broker, "jobs") == [0, 60, 180, 420]
        assert broker.queue("failed").bodies == [b"again"]
        assert broker.clock.elapsed == 7200


def test_a_consumer_may_work_for_a_while(broker: RunningBroker) -> None:
    """Its nack comes later than `quiet_ms`: it lands at the instant of the delivery all the same."""

    def work_and_reject(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        hashlib.pbkdf2_hmac("sha256", b"some", b"work", 100_000)
        reject(channel, method, properties, body)

    with channel_of(broker.url) as channel:
        channel.queue_declare("failed")
        with consuming(broker.url, "jobs", work_and_reject, arguments=RETRIES):
            channel.basic_publish("", "jobs", b"again")
            broker.clock.advance(hours=2)
    assert instants(broker, "jobs") == [0, 60, 180, 420]


def test_a_consumer_that_keeps_its_message_is_not_waited_for_twice(broker: RunningBroker) -> None:
    """Time goes on; a new message is worth waiting for again."""
    with channel_of(broker.url) as channel, consuming(broker.url, "jobs", keep, durable=True) as seen:
        channel.basic_publish("", "jobs", b"kept")
        assert seen.next() == b"kept"
        assert broker.runtime.awaits_reaction()
        broker.clock.advance(minutes=20)
        assert not broker.runtime.awaits_reaction()
        channel.basic_publish("", "jobs", b"another")
        assert seen.next() == b"another"
        assert broker.runtime.awaits_reaction()
        broker.reset()
        assert not broker.runtime.awaits_reaction()


def test_who_never_acknowledges_is_sent_away(broker: RunningBroker) -> None:
    """The time limit for acknowledgements, 30 minutes as RabbitMQ has it, goes by the same clock."""
    with consuming(broker.url, "jobs", keep, durable=True) as seen:
        broker.inject(routing_key="jobs", body="kept")
        assert seen.next() == b"kept"
        broker.clock.advance(hours=1)
        ended = seen.end()
        assert isinstance(ended, pika.exceptions.ChannelClosedByBroker) and ended.reply_code == 406
    assert broker.history("requeued", queue="jobs")[0].at >= 1800
    broker.assert_queue("jobs", ready=["kept"])


def test_nothing_is_due_before_its_time(broker: RunningBroker) -> None:
    """TTL of a minute: a millisecond before it the message is there, then it is gone."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("short", arguments={"x-message-ttl": 60_000})
        channel.basic_publish("", "short", b"x")
        broker.clock.advance(seconds=59, milliseconds=999)
        assert broker.queue("short").bodies == [b"x"]
        broker.clock.advance(milliseconds=1)
        assert broker.queue("short").bodies == []
        assert [event.at for event in broker.history("expired")] == [60]


def test_equal_instants_happen_in_the_order_in_which_they_were_set(broker: RunningBroker) -> None:
    """Ten queues with messages of one expiry: they expire in the order of publishing."""
    with channel_of(broker.url) as channel:
        names = [f"q{number}" for number in (3, 1, 9, 0, 7)]
        for name in names:
            channel.queue_declare(name, arguments={"x-message-ttl": 1000})
        for name in names:
            channel.basic_publish("", name, b"x")
        broker.clock.advance(seconds=1)
    assert [event.subject for event in broker.history("expired")] == names


def test_scheduled_deliveries_come_at_their_instants(broker: RunningBroker) -> None:
    """`x-delay` on any exchange, and one of type x-delayed-message: soonest first, whatever was published first."""
    with channel_of(broker.url) as channel, consuming(broker.url, "mails", durable=True) as seen:
        channel.exchange_declare("later", "x-delayed-message", arguments={"x-delayed-type": "topic"})
        channel.queue_bind("mails", "later", "#")
        for exchange, delay_ms in (("later", 86_400_000), ("", 3_600_000), ("later", 1_800_000), ("", 0)):
            properties = pika.BasicProperties(headers={"x-delay": delay_ms})
            channel.basic_publish(exchange, "mails", b"%d" % delay_ms, properties)
        broker.assert_queue("mails", scheduled=3, within=20)
        assert [message.due_at for message in broker.queue("mails").scheduled] == [1800, 3600, 86_400]
        broker.clock.advance(days=2)
        assert [seen.next() for _ in range(4)] == [b"0", b"1800000", b"3600000", b"86400000"]
        assert instants(broker, "mails") == [0, 1800, 3600, 86_400]


def test_unused_queues_expire(broker: RunningBroker) -> None:
    """x-expires goes by the same clock."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("idle", arguments={"x-expires": 1_800_000})
        broker.clock.advance(minutes=29, seconds=59)
        assert [queue.name for queue in broker.queues()] == ["idle"]
        broker.clock.advance(seconds=1)
        assert broker.queues() == ()


def test_connections_live_on_real_time(broker: RunningBroker) -> None:
    """A day passes, and nobody has missed a heartbeat."""
    with channel_of(broker.url, heartbeat=10) as channel:
        broker.clock.advance(days=1)
        assert channel.queue_declare("still here").method.queue == "still here"


def test_heartbeats_are_virtual_when_asked() -> None:
    """A client that says nothing for a virtual minute is gone."""
    with start_broker(clock="virtual", virtual_heartbeats=True, quiet_ms=QUIET_MS) as broker:
        with channel_of(broker.url, heartbeat=10) as channel:
            channel.queue_declare("mine", exclusive=True)
            broker.clock.advance(minutes=2)
            assert broker.queues() == ()
            with pytest.raises(pika.exceptions.AMQPConnectionError):
                channel.connection.process_data_events(0)
        assert [event.kind for event in broker.history("connection_closed")] == ["connection_closed"]


def test_travel_to_a_wall_time() -> None:
    """Wall time starts where it is told to, and a message may be scheduled for a moment of it."""
    start = datetime(2026, 12, 31, 23, 0, tzinfo=UTC)
    with start_broker(clock="virtual", clock_start=start, quiet_ms=QUIET_MS) as broker:
        assert broker.clock.now() == start
        broker.clock.travel_to(datetime(2027, 1, 1, 0, 0))
        assert broker.clock.elapsed == 3600
        assert broker.clock.now() == start + timedelta(hours=1)
        with pytest.raises(ValueError, match="is in the past"):
            broker.clock.travel_to(start)


def test_autojump_goes_on_by_itself(broker: RunningBroker) -> None:
    """Retries over an hour happen without anybody turning the clock, and it stands still afterwards."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("failed")
        with broker.clock.autojump(), consuming(broker.url, "jobs", reject, arguments=RETRIES):
            channel.basic_publish("", "jobs", b"again")
            broker.assert_queue("failed", ready=[b"again"], within=20)
        assert instants(broker, "jobs") == [0, 60, 180, 420]
        channel.queue_declare("short", arguments={"x-message-ttl": 1000})
        channel.basic_publish("", "short", b"stays")
        assert broker.queue("short").bodies == [b"stays"]
        assert broker.clock.elapsed == 420


def test_autojump_outlives_the_loop_that_began_it(broker: RunningBroker) -> None:
    """An event loop that has ended is not waited for."""

    async def begin() -> Autojump:
        return broker.clock.autojump()

    with asyncio.run(begin()), channel_of(broker.url) as channel:
        channel.queue_declare("short", arguments={"x-message-ttl": 60_000})
        channel.basic_publish("", "short", b"x")
        broker.assert_queue("short", ready=0, within=20)
    assert broker.clock.elapsed == 60


def test_autojump_has_a_limit(broker: RunningBroker) -> None:
    """What is due behind the limit stays due."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"x", pika_properties("1000"))
        channel.queue_declare("r")
        channel.basic_publish("", "r", b"y", pika_properties("90000"))
        with broker.clock.autojump(limit=timedelta(minutes=1)):
            broker.assert_queue("q", ready=0, within=20)
            broker.assert_queue("r", ready=1)
        assert broker.clock.elapsed == 1


def pika_properties(expiration: str) -> object:
    """A message that expires."""
    return pika.BasicProperties(expiration=expiration)


def test_a_real_clock_is_not_moved() -> None:
    """The error says what to do."""
    with start_broker() as broker:
        assert broker.clock.mode == "real"
        with pytest.raises(ClockIsReal, match='clock="virtual"'):
            broker.clock.advance(seconds=1)
        with pytest.raises(ClockIsReal):
            broker.clock.autojump()
        broker.reset(clock="virtual")
        broker.clock.advance(seconds=1)
        assert broker.clock.elapsed == 1
        with pytest.raises(ValueError, match="backwards"):
            broker.clock.advance(seconds=-1)


def test_real_time_passes_by_itself() -> None:
    """A TTL of a moment is over in a moment."""
    with start_broker() as broker, channel_of(broker.url) as channel:
        channel.queue_declare("short", arguments={"x-message-ttl": 5})
        channel.basic_publish("", "short", b"x")
        broker.assert_queue("short", ready=0, within=20)
        (expired,) = broker.history("expired")
        assert expired.at >= 0.005


def test_a_consumer_timeout_by_virtual_time_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """The channel is closed as a real broker would, and the log says that the clock was moved; -1 is the way out."""
    for timeout, is_closed in (("30m", True), (-1, False)):
        caplog.clear()
        config = {"broker": {"consumer-timeout": timeout}}
        with start_broker(clock="virtual", config=config) as broker, channel_of(broker.url) as channel:
            channel.queue_declare("q")
            broker.inject(routing_key="q", body="x")
            channel.basic_get("q")
            broker.clock.advance(hours=2)
            broker.assert_queue("q", ready=int(is_closed), unacked=int(not is_closed))
        text = "virtual time was moved past the consumer time-out (1800 s) of 127.0.0.1:"
        assert (text in caplog.text) is is_closed
