"""The public interface of leveret.testing as users write it; checked by mypy and pyright, never run."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

from leveret.testing import (
    Autojump,
    BrokerAt,
    BrokerTestMixin,
    Fault,
    HistoryEvent,
    MessageSnapshot,
    Partial,
    PublishedMessage,
    QueueSnapshot,
    Record,
    ReplayReport,
    RunningBroker,
    VirtualHostView,
    open_broker,
    process_worker,
    start_broker,
    thread_worker,
)


def use(broker: RunningBroker) -> None:
    """Every method, with the types that it gives."""
    assert_type(broker.url, str)
    assert_type(broker.port, int)
    assert_type(broker.queue("q"), QueueSnapshot)
    assert_type(broker.queue("q", vhost="v").ready, tuple[MessageSnapshot, ...])
    assert_type(broker.queue("q").bodies, list[bytes])
    assert_type(broker.queues(), tuple[QueueSnapshot, ...])
    assert_type(broker.queue("q").ready[0].json(), Any)
    assert_type(broker.published(exchange="e", routing_key="k"), Record[PublishedMessage])
    assert_type(broker.published()[0], PublishedMessage)
    assert_type(broker.published()[0].properties.message_id, str | None)
    assert_type(broker.history("delivered", queue="q"), Record[HistoryEvent])
    assert_type([event.at for event in broker.history()], list[float])
    assert_type(broker.assert_published("e", body={"n": 1}, count=1, message_id="m"), PublishedMessage | None)
    assert_type(broker.assert_published("e", body=Partial({"n": 1}), headers={"n": callable}), PublishedMessage | None)
    broker.assert_not_published("e", body={"n": 1}, within=0.1, message_id="m")
    assert_type(broker.plain(), dict[str, Any])
    assert_type(broker.published()[0].plain(), dict[str, Any])
    assert_type(broker.assert_queue("q", ready=[b"x", "y", {"z": 1}], unacked=0, consumers=1), QueueSnapshot)
    assert_type(broker.inject("e", "k", json={"n": 1}, headers={"h": [1, 2]}, priority=3), bool)
    assert_type(broker.remove("q", lambda message: message.redelivered), tuple[MessageSnapshot, ...])
    assert_type(broker.vhost("v"), VirtualHostView)
    assert_type(broker.leaks(queues=True), list[str])
    assert_type(broker.clock.now(), datetime)
    assert_type(broker.clock.elapsed, float)
    assert_type(broker.clock.autojump(limit=timedelta(hours=1)), Autojump)
    assert_type(broker.replay("file").run(vhost="v"), ReplayReport)
    broker.clock.advance(hours=1, seconds=2.5)
    broker.clock.travel_to(datetime(2027, 1, 1))
    broker.settled(timeout=1, ignore=["dead.*"])
    broker.reset(clock="virtual")
    broker.restart(durable=True)
    broker.vhost("v").reset()
    assert_type(broker.at("v"), BrokerAt)
    with thread_worker(broker.at("v"), print, 1, consumes="q", stop=print, timeout=1.5) as thread:
        assert_type(thread.is_alive(), bool)
    with process_worker(broker, ["worker", "{url}"], consumes="q", says="ready", environment={"A": "{url}"}) as process:
        assert_type(process.pid, int)
    with start_broker(data="folder") as kept, start_broker(data=Path("folder")) as other:
        assert_type((kept, other), tuple[RunningBroker, RunningBroker])


def break_things(broker: RunningBroker) -> Sequence[str]:
    """Every fault is a context manager."""
    faults: list[Fault] = [
        broker.faults.drop_connection("basic.publish", after=1, times=2),
        broker.faults.drop_connection(mid_frame=True, seed=1),
        broker.faults.stop_reading(),
        broker.faults.stop_writing(connection="mine"),
        broker.faults.half_open(vhost="*"),
        broker.faults.close_channel(404, "NOT_FOUND", on="queue.declare"),
        broker.faults.close_connection(320),
        broker.faults.nack_confirms(keep=True),
        broker.faults.delay_confirms(1.5),
        broker.faults.withhold_confirms(lose=True),
        broker.faults.lose_acks(times=1),
        broker.faults.block("low on memory"),
        broker.faults.cancel_consumers("q"),
        broker.faults.refuse_connections(),
        broker.faults.refuse_login(times=1),
        broker.faults.slow_network(0.1, octets=100),
        broker.faults.restart(durable=False),
        broker.faults.chaos(seed=1, drop=0.1),
    ]
    with faults[0] as fault:
        assert_type(fault, Fault)
        return fault.hits


def start() -> None:
    """Options."""
    made = start_broker(clock="virtual", config={"limits": {"history-events": 10}}, profile="rabbitmq-3.10", seed=1)
    assert_type(made.__enter__(), RunningBroker)
    manager: AbstractContextManager[RunningBroker] = made
    with manager as broker:
        use(broker)


async def start_in_a_loop() -> AsyncIterator[RunningBroker]:
    """For trio and asyncio."""
    async with open_broker(clock="virtual") as broker:
        assert_type(broker, RunningBroker)
        await broker.clock.advance_async(hours=1)
        await broker.clock.travel_to_async(datetime(2027, 1, 1))
        await broker.settled_async(ignore=["dead"])
        yield broker


class Shop(BrokerTestMixin):
    """unittest."""

    amqp_clock = "virtual"

    def test_it(self) -> None:
        """Attributes of the mixin."""
        assert_type(self.amqp_url, str)
        assert_type(self.amqp_broker, RunningBroker)


def wrong(broker: RunningBroker) -> None:
    """What checkers have to find: a line each, counted by test_typing.py."""
    broker.queue(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    broker.clock.advance("2h")  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
    broker.reset(clock="slow")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    broker.queue("q").name = "other"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    broker.faults.close_channel("406")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
