"""Faults of messages, each with a real client that shows what an application sees."""

import asyncio
import threading
from typing import Any

import aio_pika
import aio_pika.exceptions
import aiormq.exceptions
import pika
import pika.exceptions
import pytest
from consumers import acknowledge, channel_of, consuming

from leveret.testing import RunningBroker


def test_a_nacked_publish_is_told_and_nowhere(broker: RunningBroker) -> None:
    """pika raises NackError for the second of three; its message is in no queue."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        channel.confirm_delivery()
        with broker.faults.nack_confirms(after=1, times=1) as fault:
            channel.basic_publish("", "q", b"1")
            with pytest.raises(pika.exceptions.NackError):
                channel.basic_publish("", "q", b"2")
            channel.basic_publish("", "q", b"3")
        assert len(fault.hits) == 1
    broker.assert_queue("q", ready=[b"1", b"3"])


def test_a_nacked_publish_may_be_there_all_the_same(broker: RunningBroker) -> None:
    """Who publishes again after a nack may make a duplicate: with `keep` a test shows it."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        channel.confirm_delivery()
        with broker.faults.nack_confirms(keep=True, times=1):
            with pytest.raises(pika.exceptions.NackError):
                channel.basic_publish("", "q", b"once")
            channel.basic_publish("", "q", b"once")
    broker.assert_queue("q", ready=[b"once", b"once"])


def test_a_nack_in_aio_pika(broker: RunningBroker) -> None:
    """DeliveryError, with the frame that said so."""

    async def publish() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            with broker.faults.nack_confirms(), pytest.raises(aio_pika.exceptions.DeliveryError):
                await channel.default_exchange.publish(aio_pika.Message(b"x"), "q")

    asyncio.run(publish())


def test_confirms_come_late_by_the_brokers_clock(virtual_broker: RunningBroker) -> None:
    """A publisher waits for its confirm a virtual minute; until then it is not confirmed."""
    broker = virtual_broker
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        channel.confirm_delivery()
        confirmed = threading.Event()

        def publish() -> None:
            channel.basic_publish("", "q", b"x")
            confirmed.set()

        with broker.faults.delay_confirms(60):
            publisher = threading.Thread(target=publish)
            publisher.start()
            broker.assert_queue("q", ready=1, within=20)
            broker.clock.advance(seconds=59)
            assert not confirmed.is_set()
            broker.clock.advance(seconds=1)
            assert confirmed.wait(60)
            publisher.join()


def test_withheld_confirms_come_in_the_end(broker: RunningBroker) -> None:
    """aio-pika waits; when the fault ends the confirm is there."""

    async def publish() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q")
            fault = broker.faults.withhold_confirms()
            task = asyncio.ensure_future(channel.default_exchange.publish(aio_pika.Message(b"x"), queue.name))
            await asyncio.to_thread(broker.assert_queue, "q", ready=[b"x"], within=20)
            assert not task.done()
            fault.stop()
            await task

    asyncio.run(publish())


def test_lost_confirms_never_come(broker: RunningBroker) -> None:
    """The publisher's own time limit is what ends it."""

    async def publish() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            await channel.declare_queue("q")
            with broker.faults.withhold_confirms(lose=True), pytest.raises(asyncio.TimeoutError):
                await channel.default_exchange.publish(aio_pika.Message(b"x"), "q", timeout=0.1)

    asyncio.run(publish())


def test_lost_acks_bring_the_message_again(broker: RunningBroker) -> None:
    """The consumer thinks it is done; when its connection is gone the message comes again, redelivered."""
    with consuming(broker.url, "jobs", acknowledge, durable=True) as seen:
        with broker.faults.lose_acks() as fault:
            broker.inject(routing_key="jobs", body=b"twice")
            assert seen.next() == b"twice"
            while not fault.hits:  # its acknowledgement is still on its way
                broker.assert_queue("jobs", unacked=1, ready=0)
            broker.assert_queue("jobs", unacked=1, ready=0)
            broker.faults.drop_connection()
            seen.end()
        assert fault.hits == [hit for hit in fault.hits if hit.startswith("lost basic.ack")]
        assert len(fault.hits) == 1
    (message,) = broker.assert_queue("jobs", ready=1, within=20).ready
    assert message.redelivered
    with consuming(broker.url, "jobs", acknowledge) as seen:
        assert seen.next() == b"twice"
        broker.settled()


def test_a_blocked_publisher_is_told_and_waits(broker: RunningBroker) -> None:
    """pika's callbacks have the reason, and the end; the publish is done when the fault ends."""
    told: list[str] = []
    with channel_of(broker.url) as channel:
        connection = channel.connection
        connection.add_on_connection_blocked_callback(lambda _, frame: told.append(frame.method.reason))
        connection.add_on_connection_unblocked_callback(lambda _, frame: told.append("unblocked"))
        channel.queue_declare("q")
        with broker.faults.block("low on disk"):
            channel.basic_publish("", "q", b"waits")
            channel.queue_declare("everything else goes on")
            broker.assert_queue("q", ready=0)
        while len(told) < 2:
            connection.process_data_events(0.1)
        assert told == ["low on disk", "unblocked"]
        broker.assert_queue("q", ready=[b"waits"])


def test_a_publisher_that_will_not_wait_gives_up(broker: RunningBroker) -> None:
    """pika's blocked_connection_timeout."""
    with channel_of(broker.url, blocked_connection_timeout=0.1) as channel:
        channel.confirm_delivery()
        with broker.faults.block(), pytest.raises(pika.exceptions.ConnectionBlockedTimeout):
            channel.basic_publish("", "q", b"x")


def test_a_cancelled_consumer_is_told(broker: RunningBroker) -> None:
    """pika's consuming ends when its last consumer is cancelled by the broker."""
    with consuming(broker.url, "q", acknowledge, durable=True) as seen:
        broker.assert_queue("q", consumers=1)
        fault = broker.faults.cancel_consumers("q")
        assert len(fault.hits) == 1
        assert seen.end() == "cancelled"
        broker.assert_queue("q", consumers=0)


def publish_through(broker: RunningBroker, seed: int) -> tuple[list[str], list[bytes]]:
    """What happens to thirty publishes through chaos: the faults, and what is in the queue."""
    with broker.faults.chaos(seed, drop=0.05, close=0.1, nack=0.1, cut=0.05) as chaos:
        channel: Any = None
        for number in range(30):
            try:
                if channel is None or not channel.is_open:
                    if channel is None or not channel.connection.is_open:
                        channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
                    else:
                        channel = channel.connection.channel()
                    channel.confirm_delivery()
                channel.basic_publish("", "q", b"%d" % number)
            except pika.exceptions.AMQPError:
                pass
    if channel.connection.is_open:
        channel.connection.close()
    names = [hit.replace(hit.split(" of ")[-1].split(" after ")[0], "...") for hit in chaos.hits]
    return [hit.split()[0] for hit in names], broker.queue("q").bodies


def test_chaos_is_the_same_for_the_same_seed(broker: RunningBroker) -> None:
    """Two runs with one seed: the same faults in the same order, and the same messages survive."""
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
    first = publish_through(broker, 7)
    assert len(set(first[0])) >= 2, "the seed should show more than one kind of fault"
    broker.reset()
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
    assert publish_through(broker, 7) == first


def test_chaos_loses_acks(broker: RunningBroker) -> None:
    """A consumer did everything right; what chaos lost of its acks comes to the next one, redelivered."""
    with consuming(broker.url, "q", acknowledge, durable=True) as seen:
        with broker.faults.chaos(3, drop=0, close=0, nack=0, cut=0, lose=0.3) as chaos:
            for number in range(18):
                broker.inject(routing_key="q", body=b"%d" % number)
            assert [seen.next() for _ in range(18)] == [b"%d" % number for number in range(18)]
            lost = [b"3", b"8", b"12"]  # as the dice fall for this seed; the last ack is not lost, so it is waited for
            broker.assert_queue("q", ready=0, unacked=lost, within=20)
        assert len(chaos.hits) == len(lost) and all(hit.startswith("lost basic.ack") for hit in chaos.hits)
    with channel_of(broker.url) as channel:
        for body in lost:
            method, _, again = channel.basic_get("q", auto_ack=True)
            assert (again, method.redelivered) == (body, True)
        assert channel.basic_get("q")[0] is None


def test_aio_pika_robust_survives_a_drop(broker: RunningBroker) -> None:
    """A robust connection comes back by itself and consumes on."""

    async def main() -> None:
        connection = await aio_pika.connect_robust(broker.url, reconnect_interval=0.01)
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q", durable=True)
            got: asyncio.Queue[bytes] = asyncio.Queue()

            async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
                async with message.process():
                    await got.put(message.body)

            await queue.consume(take)
            broker.inject(routing_key="q", body=b"before")
            assert await got.get() == b"before"
            await broker.settled_async()
            broker.faults.drop_connection()
            broker.inject(routing_key="q", body=b"after")
            assert await got.get() == b"after"

    asyncio.run(main())


def test_aiormq_hears_of_a_closed_channel(broker: RunningBroker) -> None:
    """aio-pika: the declare that met the fault raises what the code means."""

    async def main() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            with (
                broker.faults.close_channel(404, "NOT_FOUND", on="queue.declare"),
                pytest.raises(aiormq.exceptions.ChannelNotFoundEntity),
            ):
                await channel.declare_queue("q")

    asyncio.run(main())
