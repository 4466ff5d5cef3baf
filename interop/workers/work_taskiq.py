"""taskiq over taskiq-aio-pika as its page has it; only the broker's URL is ours."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from taskiq import Context, SimpleRetryMiddleware, TaskiqDepends
from taskiq_aio_pika import AioPikaBroker, Queue, QueueType
from trial import Trial, ledger, note, wait_for

VERSIONS = ("taskiq", "taskiq-aio-pika", "aio-pika", "aiormq", "pamqp")
WORKER = [sys.executable, "-m", "taskiq", "worker", "--workers", "1", "work_taskiq:broker"]
READY = "Listening started"

RANKED = bool(os.environ.get("WORK_TASKIQ_RANKED"))  # a second configuration, for one scenario
broker = AioPikaBroker(
    os.environ["BROKER_URL"],
    qos=1 if RANKED else 10,
    task_queues=[Queue(name="ranked", type=QueueType.CLASSIC, max_priority=10)] if RANKED else None,
    delay_queue=Queue(name="ranked.delay" if RANKED else "taskiq.delay"),
).with_middlewares(SimpleRetryMiddleware(default_retry_count=3))


@broker.task
async def add(x: int, y: int) -> int:
    note("add", sum=x + y)
    return x + y


@broker.task
async def later(name: str) -> None:
    note("later", name=name)


@broker.task(retry_on_error=True, max_retries=4)
async def flaky(context: Annotated[Context, TaskiqDepends()]) -> None:
    note("flaky", retries=int(context.message.labels.get("_retries", 0)))
    if len(ledger("flaky")) < 3:
        raise ValueError("not yet")


@broker.task
async def ranked(priority: int) -> None:
    note("ranked", priority=priority)


@broker.task
async def slow_once() -> None:
    first = not ledger("slow.began")
    note("slow.began")
    if first:
        await asyncio.sleep(300)
    note("slow.ended")


@broker.task
async def count(number: int) -> None:
    await asyncio.sleep(0.01)
    note("count", number=number)


def _with_client(use: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await broker.startup()
        await use()
        await broker.shutdown()

    asyncio.run(run())


def getting_started(trial: Trial) -> dict[str, Any]:
    """`add.kiq(...)`, 200 tasks, quorum queues (the default of taskiq-aio-pika)"""

    async def send() -> None:
        await add.kiq(20, 22)
        for number in range(200):
            await count.kiq(number)

    with trial.worker():
        _with_client(send)
        wait_for(lambda: ledger("add") and len(ledger("count")) == 200, "all")
        numbers = sorted(entry["number"] for entry in ledger("count"))
        return {"sum": ledger("add")[0]["sum"], "many": numbers == list(range(200))}


def delays_and_retries(trial: Trial) -> dict[str, Any]:
    """The `delay` label over a queue with expiry and dead letters, SimpleRetryMiddleware"""

    async def send() -> None:
        await later.kicker().with_labels(delay=0.5).kiq("soon")
        await later.kicker().with_labels(delay=1.2).kiq("late")
        await flaky.kiq()

    with trial.worker():
        began = time.time()
        _with_client(send)
        wait_for(lambda: len(ledger("later")) == 2 and len(ledger("flaky")) == 3, "delays and retries")
        return {
            "names": [entry["name"] for entry in ledger("later")],
            "waited": [e["at"] - began >= least for e, least in zip(ledger("later"), (0.45, 1.15))],
            "retries": [entry["retries"] for entry in ledger("flaky")],
        }


def priorities(trial: Trial) -> dict[str, Any]:
    """`max_priority=10` and the `priority` label, with prefetch 1"""
    os.environ["WORK_TASKIQ_RANKED"] = "1"
    try:
        sender = trial.start_worker(command=[sys.executable, "-c", _RANKED_CLIENT])
        assert sender.process.wait(60) == 0, sender.log()
        with trial.worker("--max-async-tasks", "1", "--max-prefetch", "1"):
            wait_for(lambda: len(ledger("ranked")) == 7, "seven")
            return {"order": [entry["priority"] for entry in ledger("ranked")]}
    finally:
        del os.environ["WORK_TASKIQ_RANKED"]


_RANKED_CLIENT = """
import work_taskiq as work
async def send():
    for priority in (1, 5, 9, 1, 5, 9, 0):
        await work.ranked.kicker().with_labels(priority=priority).kiq(priority)
work._with_client(send)
"""


def worker_killed(trial: Trial) -> dict[str, Any]:
    """The worker killed (SIGKILL) in the middle of a task: another one runs it again"""

    async def send() -> None:
        await slow_once.kiq()

    worker = trial.start_worker("--ack-type", "when_executed")
    worker.wait_for_log(READY)
    _with_client(send)
    wait_for(lambda: ledger("slow.began"), "it to begin")
    worker.kill()
    with trial.worker("--ack-type", "when_executed"):
        wait_for(lambda: ledger("slow.ended"), "it to end")
        return {"began": len(ledger("slow.began")), "ended": len(ledger("slow.ended"))}


def broker_killed(trial: Trial) -> dict[str, Any]:
    """200 confirmed tasks, the broker killed (SIGKILL) in the middle and started again: all are run"""

    async def send() -> None:
        for number in range(200):
            await count.kiq(number)

    worker = trial.start_worker("--ack-type", "when_executed", "--max-async-tasks", "2")
    worker.wait_for_log(READY)
    _with_client(send)
    wait_for(lambda: len(ledger("count")) >= 40, "40 of them")
    trial.restart_broker()
    wait_for(lambda: len({entry["number"] for entry in ledger("count")}) == 200, "all of them")
    return {"numbers": len({entry["number"] for entry in ledger("count")})}


SCENARIOS = (getting_started, delays_and_retries, priorities, worker_killed, broker_killed)
