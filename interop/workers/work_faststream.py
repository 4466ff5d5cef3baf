"""FastStream as its RabbitMQ pages have it; only the broker's URL is ours."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.rabbit import Channel, ExchangeType, RabbitBroker, RabbitExchange, RabbitQueue
from trial import Trial, ledger, note, wait_for

VERSIONS = ("faststream", "aio-pika", "aiormq", "pamqp")
WORKER = [sys.executable, "-m", "faststream", "run", "work_faststream:app"]
READY = "FastStream app started successfully"

broker = RabbitBroker(os.environ["BROKER_URL"])
app = FastStream(broker)
topics = RabbitExchange("leveret.topics", type=ExchangeType.TOPIC)
news = RabbitExchange("leveret.news", type=ExchangeType.FANOUT)
matching = RabbitExchange("leveret.matching", type=ExchangeType.HEADERS)
one_by_one = Channel(prefetch_count=1)
TO_FAILED = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "failed"}


@broker.subscriber("in")
@broker.publisher("out")
async def shout(text: str) -> str:
    return text.upper()


@broker.subscriber("out")
async def out(text: str) -> None:
    note("out", text=text)


@broker.subscriber("rpc")
async def answer(number: int) -> int:
    return number + 1


@broker.subscriber(RabbitQueue("logs.errors", routing_key="*.error"), topics)
async def errors(text: str) -> None:
    note("errors", text=text)


@broker.subscriber(RabbitQueue("logs.all", routing_key="#"), topics)
async def everything(text: str) -> None:
    note("everything", text=text)


@broker.subscriber("readers.one", news)
async def reader_one(text: str) -> None:
    note("reader", name="one")


@broker.subscriber("readers.two", news)
async def reader_two(text: str) -> None:
    note("reader", name="two")


@broker.subscriber(RabbitQueue("match.all", bind_arguments={"x-match": "all", "kind": "hare", "age": 1}), matching)
async def matched(text: str) -> None:
    note("matched", text=text)


@broker.subscriber(RabbitQueue("rejecting", arguments=TO_FAILED), ack_policy=AckPolicy.REJECT_ON_ERROR)
async def rejecting(text: str) -> None:
    note("rejecting")
    raise ValueError(text)


@broker.subscriber("failed")
async def failed(text: str) -> None:
    note("failed", text=text)


@broker.subscriber("nacking", ack_policy=AckPolicy.NACK_ON_ERROR)
async def nacking(text: str) -> None:
    note("nacking")
    if len(ledger("nacking")) < 3:
        raise ValueError(text)


@broker.subscriber("acking", ack_policy=AckPolicy.ACK)
async def acking(text: str) -> None:
    note("acking")
    raise ValueError(text)


@broker.subscriber(RabbitQueue("slow", durable=True), channel=one_by_one)
async def slow_once(text: str) -> None:
    first = not ledger("slow.began")
    note("slow.began")
    if first:
        await asyncio.sleep(300)
    note("slow.ended")


@broker.subscriber(RabbitQueue("counting", durable=True), channel=one_by_one)
async def counting(number: int) -> None:
    await asyncio.sleep(0.01)
    note("count", number=number)


def _with_client(use: Callable[[RabbitBroker], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with RabbitBroker(os.environ["BROKER_URL"]) as client:
            return await use(client)

    return asyncio.run(run())


def publish_and_subscribe(trial: Trial) -> dict[str, Any]:
    """The first example (`in` to `out`), and topic, fanout and headers exchanges"""

    async def publish(client: RabbitBroker) -> None:
        await client.publish("hello", "in")
        await client.publish("bad", "kern.error", exchange=topics)
        await client.publish("fine", "kern.info", exchange=topics)
        await client.publish("extra", exchange=news)
        await client.publish("young", exchange=matching, headers={"kind": "hare", "age": 1})
        await client.publish("old", exchange=matching, headers={"kind": "hare", "age": 9})

    with trial.worker():
        _with_client(publish)
        wait_for(lambda: len(ledger()) >= 7, "seven entries")
        return {
            "out": [entry["text"] for entry in ledger("out")],
            "errors": [entry["text"] for entry in ledger("errors")],
            "everything": sorted(entry["text"] for entry in ledger("everything")),
            "readers": sorted(entry["name"] for entry in ledger("reader")),
            "matched": [entry["text"] for entry in ledger("matched")],
        }


def rpc(trial: Trial) -> dict[str, Any]:
    """`broker.request(...)`: 50 calls by direct reply-to"""

    async def call(client: RabbitBroker) -> list[int]:
        return [int(await (await client.request(i, "rpc", timeout=30)).decode()) for i in range(50)]

    with trial.worker():
        return {"answers": _with_client(call) == list(range(1, 51))}


def acknowledgement_policies(trial: Trial) -> dict[str, Any]:
    """REJECT_ON_ERROR with a dead-letter queue, NACK_ON_ERROR until it works, ACK"""

    async def publish(client: RabbitBroker) -> None:
        for queue in ("rejecting", "nacking", "acking"):
            await client.publish(queue, queue)

    with trial.worker():
        _with_client(publish)
        wait_for(lambda: ledger("failed") and len(ledger("nacking")) == 3 and ledger("acking"), "all of it")
        return {
            "rejected": [len(ledger("rejecting")), [entry["text"] for entry in ledger("failed")]],
            "nacked": len(ledger("nacking")),
            "acked": len(ledger("acking")),
        }


def worker_killed(trial: Trial) -> dict[str, Any]:
    """The worker killed (SIGKILL) in the middle of a message: another one handles it again"""
    worker = trial.start_worker()
    worker.wait_for_log(READY)
    _with_client(lambda client: client.publish("x", "slow", persist=True))
    wait_for(lambda: ledger("slow.began"), "it to begin")
    worker.kill()
    with trial.worker():
        wait_for(lambda: ledger("slow.ended"), "it to end")
        return {"began": len(ledger("slow.began")), "ended": len(ledger("slow.ended"))}


def broker_killed(trial: Trial) -> dict[str, Any]:
    """200 confirmed messages, the broker killed (SIGKILL) in the middle and started again: all are handled"""

    async def publish(client: RabbitBroker) -> None:
        for number in range(200):
            await client.publish(number, "counting", persist=True)

    worker = trial.start_worker()
    worker.wait_for_log(READY)
    _with_client(publish)
    wait_for(lambda: len(ledger("count")) >= 40, "40 of them")
    trial.restart_broker()
    wait_for(lambda: len({entry["number"] for entry in ledger("count")}) == 200, "all of them")
    return {"numbers": len({entry["number"] for entry in ledger("count")})}


SCENARIOS = (publish_and_subscribe, rpc, acknowledgement_policies, worker_killed, broker_killed)
