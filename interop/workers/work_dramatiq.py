"""Dramatiq as its guide has it, over its RabbitmqBroker; only the broker's URL is ours."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import dramatiq
import pika
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from trial import Trial, ledger, note, wait_for

VERSIONS = ("dramatiq", "pika")
WORKER = [sys.executable, "-m", "dramatiq", "--processes", "1", "--threads", "2", "work_dramatiq"]
PREFETCH = "dramatiq_queue_prefetch"
READY = "is ready for action"


class Witness(dramatiq.Middleware):
    """Notes what dramatiq tells its middleware."""

    def after_process_message(self, broker: Any, message: Any, *, result: Any = None, exception: Any = None) -> None:
        note("processed", actor=message.actor_name, error=type(exception).__name__)

    def after_nack(self, broker: Any, message: Any) -> None:
        note("nacked", actor=message.actor_name)

    def after_skip_message(self, broker: Any, message: Any) -> None:
        note("skipped", actor=message.actor_name)


broker = RabbitmqBroker(url=os.environ["BROKER_URL"], confirm_delivery=True, max_priority=10)
broker.add_middleware(Witness())
dramatiq.set_broker(broker)


@dramatiq.actor
def count_words(text: str) -> int:
    note("words", count=len(text.split()))
    return len(text.split())


@dramatiq.actor
def show(count: int) -> None:
    note("shown", count=count)


@dramatiq.actor(max_retries=3, min_backoff=200, max_backoff=400)
def flaky(successes_at: int) -> None:
    attempt = len(ledger("flaky"))
    note("flaky", attempt=attempt)
    if attempt < successes_at:
        raise ValueError("not yet")


@dramatiq.actor(max_retries=1, min_backoff=100, max_backoff=100)
def hopeless() -> None:
    note("hopeless")
    raise ValueError("never")


@dramatiq.actor(max_age=1)
def stale() -> None:
    note("stale")


@dramatiq.actor
def later() -> None:
    note("later")


@dramatiq.actor(queue_name="ranked")
def ranked(priority: int) -> None:
    note("ranked", priority=priority)


@dramatiq.actor
def slow_once() -> None:
    first = not ledger("slow.began")
    note("slow.began")
    if first:
        time.sleep(300)
    note("slow.ended")


@dramatiq.actor
def count(number: int) -> None:
    time.sleep(0.01)
    note("count", number=number)


def getting_started(trial: Trial) -> dict[str, Any]:
    """`count_words.send(...)`, a pipeline, 200 messages, publisher confirms on"""
    with trial.worker():
        count_words.send("a young hare runs")
        wait_for(lambda: ledger("words"), "the words")
        (count_words.message("two words") | show.message()).run()
        wait_for(lambda: ledger("shown"), "the pipeline")
        for number in range(200):
            count.send(number)
        wait_for(lambda: len(ledger("count")) == 200, "all")
        numbers = sorted(entry["number"] for entry in ledger("count"))
        return {
            "words": ledger("words")[0]["count"],
            "shown": ledger("shown")[0]["count"],
            "many": numbers == list(range(200)),
        }


def retries_and_dead_letters(trial: Trial) -> dict[str, Any]:
    """Retries with backoff until it works; when there are no more, the message is in `default.XQ`"""
    with trial.worker():
        flaky.send(2)
        wait_for(lambda: len(ledger("flaky")) == 3, "three attempts")
        gaps = [b["at"] - a["at"] >= 0.09 for a, b in zip(ledger("flaky"), ledger("flaky")[1:])]
        hopeless.send()
        wait_for(lambda: ledger("nacked"), "the nack")
        channel = pika.BlockingConnection(pika.URLParameters(os.environ["BROKER_URL"])).channel()
        _, properties, body = wait_for(lambda: (got := channel.basic_get("default.XQ", auto_ack=True))[0] and got, "XQ")
        death = dict(properties.headers["x-death"][0])
        death.pop("time")
        return {
            "waited": gaps,
            "hopeless": len(ledger("hopeless")),
            "dead": dramatiq.Message.decode(body).actor_name,
            "death": {key: str(value) for key, value in sorted(death.items())},
            "errors": sorted(entry["error"] for entry in ledger("processed")),
        }


def delays(trial: Trial) -> dict[str, Any]:
    """`send_with_options(delay=...)` over `default.DQ`, and AgeLimit"""
    with trial.worker():
        began = time.time()
        later.send_with_options(delay=700)
        stale.send_with_options(delay=300)
        wait_for(lambda: ledger("later"), "the delayed one")
        wait_for(lambda: ledger("skipped") or ledger("nacked"), "the stale one to be skipped")
        return {"waited": ledger("later")[0]["at"] - began >= 0.65, "stale": len(ledger("stale"))}


def priorities(trial: Trial) -> dict[str, Any]:
    """`max_priority=10`, `broker_priority`: the broker's order, with one message at a time"""
    for priority in (1, 5, 9, 1, 5, 9, 0):
        ranked.send_with_options(args=(priority,), broker_priority=priority)
    # A prefetch of one: else dramatiq orders what it has by its own priorities.
    os.environ[PREFETCH] = "1"
    try:
        with trial.worker("--queues", "ranked", "--threads", "1"):
            wait_for(lambda: len(ledger("ranked")) == 7, "seven")
            return {"order": [entry["priority"] for entry in ledger("ranked")]}
    finally:
        del os.environ[PREFETCH]


def worker_killed(trial: Trial) -> dict[str, Any]:
    """The worker killed (SIGKILL) in the middle of a message: another one processes it again"""
    worker = trial.start_worker()
    slow_once.send()
    wait_for(lambda: ledger("slow.began"), "it to begin")
    worker.kill()
    with trial.worker():
        wait_for(lambda: ledger("slow.ended"), "it to end")
        return {"began": len(ledger("slow.began")), "ended": len(ledger("slow.ended"))}


def broker_killed(trial: Trial) -> dict[str, Any]:
    """200 confirmed messages, the broker killed (SIGKILL) in the middle and started again: all are processed"""
    with trial.worker():
        for number in range(200):
            count.send(number)
        wait_for(lambda: len(ledger("count")) >= 40, "40 of them")
        trial.restart_broker()
        wait_for(lambda: len({entry["number"] for entry in ledger("count")}) == 200, "all of them")
        later.send()
        wait_for(lambda: ledger("later"), "one over the new broker")
        return {"numbers": len({entry["number"] for entry in ledger("count")}), "after": len(ledger("later"))}


SCENARIOS = (getting_started, retries_and_dead_letters, delays, priorities, worker_killed, broker_killed)
