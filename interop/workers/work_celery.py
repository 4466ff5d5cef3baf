"""Celery as its "First Steps" and user guide have it; only the broker's URL is ours."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery, chord, group
from celery.exceptions import Reject
from kombu.entity import Exchange, Queue
from trial import Trial, ledger, note, wait_for

VERSIONS = ("celery", "kombu", "amqp", "billiard")
WORKER = [sys.executable, "-m", "celery", "-A", "work_celery", "worker", "--loglevel=INFO", "--concurrency=2"]
READY = " ready."

app = Celery("work_celery", broker=os.environ["BROKER_URL"], backend="rpc://")
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": True},
    task_send_sent_event=True,
    worker_send_task_events=True,
    task_queues=[
        Queue("celery", Exchange("celery"), routing_key="celery"),
        Queue("ranked", Exchange("ranked"), routing_key="ranked", queue_arguments={"x-max-priority": 10}),
        Queue(
            "strict",
            Exchange("strict"),
            routing_key="strict",
            queue_arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "strict.failed"},
        ),
        Queue("strict.failed", Exchange("strict.failed"), routing_key="strict.failed"),
    ],
    task_default_queue="celery",
    task_routes={
        "work_celery.ranked": {"queue": "ranked"},
        "work_celery.refuse": {"queue": "strict"},
        "work_celery.refuse_once": {"queue": "strict"},
    },
)
WAIT = 60  # seconds for a result
RETRY_AFTER = 0.3
if os.environ.get("WORK_CELERY_QUORUM"):  # a second configuration of the same application, for one scenario
    RETRY_AFTER = 1  # native delays count whole seconds; a countdown below one is refused by kombu
    app.conf.update(
        task_default_queue="solid",
        task_queues=None,
        task_routes=None,
        task_default_queue_type="quorum",
        task_default_exchange_type="topic",
        broker_native_delayed_delivery_queue_type="quorum",
    )
ONLY_CELERY = ("--queues=celery",)


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def flaky(self: Any, successes_at: int) -> int:
    note("flaky", attempt=self.request.retries)
    if self.request.retries < successes_at:
        raise self.retry(countdown=RETRY_AFTER, exc=ValueError("not yet"))
    return int(self.request.retries)


@app.task(bind=True, autoretry_for=(KeyError,), retry_backoff=True, retry_jitter=False, retry_kwargs={"max_retries": 2})
def backing_off(self: Any) -> None:
    note("backing_off", attempt=self.request.retries)
    raise KeyError("never")


@app.task
def when() -> float:
    return time.time()


@app.task(acks_late=True)
def ranked(priority: int) -> None:
    note("ranked", priority=priority)


@app.task(bind=True, acks_late=True)
def slow_once(self: Any, name: str) -> str:
    """Hangs the first time: whoever runs it then is to be killed."""
    first = not ledger(f"{name}.began")
    note(f"{name}.began", redelivered=self.request.delivery_info["redelivered"])
    if first:
        time.sleep(300)
    note(f"{name}.ended")
    return "done"


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
def lost_once(self: Any) -> str:
    first = not ledger("lost.began")
    note("lost.began", redelivered=self.request.delivery_info["redelivered"])
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


@app.task(acks_late=True)
def refuse() -> None:
    note("refuse")
    raise Reject("not for me", requeue=False)


@app.task(bind=True, acks_late=True)
def refuse_once(self: Any) -> None:
    note("refuse_once", redelivered=self.request.delivery_info["redelivered"])
    if len(ledger("refuse_once")) == 1:
        raise Reject("once more", requeue=True)


@app.task(acks_late=True)
def count(number: int) -> None:
    time.sleep(0.01)
    note("count", number=number)


def first_steps(trial: Trial) -> dict[str, Any]:
    """`add.delay(4, 4)` with results by rpc://, a failure with its traceback, 200 jobs in a row"""
    with trial.worker(*ONLY_CELERY):
        result = add.delay(4, 4)
        value = result.get(timeout=WAIT)
        failed = add.delay(4, "four")
        failed.get(timeout=WAIT, propagate=False)
        many = [add.delay(i, i) for i in range(200)]
        values = [one.get(timeout=WAIT) for one in many]
        return {
            "value": value,
            "ready": result.ready(),
            "failed": [failed.state, type(failed.result).__name__, "Traceback" in failed.traceback],
            "many": values == [2 * i for i in range(200)],
        }


def retries(trial: Trial) -> dict[str, Any]:
    """`self.retry(countdown=...)` until it works, and until there are no more retries"""
    with trial.worker(*ONLY_CELERY):
        works = flaky.delay(2)
        value = works.get(timeout=WAIT)
        attempts = [entry["attempt"] for entry in ledger("flaky")]
        gaps = [b["at"] - a["at"] >= 0.29 for a, b in zip(ledger("flaky"), ledger("flaky")[1:])]
        hopeless = flaky.delay(9)
        hopeless.get(timeout=WAIT, propagate=False)
        automatic = backing_off.delay()
        automatic.get(timeout=WAIT, propagate=False)
        return {
            "value": value,
            "attempts": attempts,
            "waited": gaps,
            "hopeless": [hopeless.state, repr(hopeless.result), len(ledger("flaky")) - len(attempts)],
            "autoretry": [automatic.state, [entry["attempt"] for entry in ledger("backing_off")]],
        }


def eta_and_countdown(trial: Trial) -> dict[str, Any]:
    """`apply_async(eta=...)`, `countdown`, `expires`: not before, not after"""
    with trial.worker(*ONLY_CELERY):
        began = time.time()
        eta = when.apply_async(eta=datetime.now(UTC) + timedelta(seconds=1.2))
        countdown = when.apply_async(countdown=0.6)
        expired = when.apply_async(countdown=1.0, expires=0.3)
        expired.get(timeout=WAIT, propagate=False)
        return {
            "eta": eta.get(timeout=WAIT) - began >= 1.15,
            "countdown": countdown.get(timeout=WAIT) - began >= 0.55,
            "expired": expired.state,
        }


def priorities(trial: Trial) -> dict[str, Any]:
    """`x-max-priority` with prefetch 1: higher priorities first, equals in order"""
    for priority in (1, 5, 9, 1, 5, 9, 0):
        ranked.apply_async((priority,), priority=priority)
    with trial.worker("--queues=ranked", "--concurrency=1", "--prefetch-multiplier=1"):
        wait_for(lambda: len(ledger("ranked")) == 7, "seven jobs")
        return {"order": [entry["priority"] for entry in ledger("ranked")]}


def worker_killed(trial: Trial) -> dict[str, Any]:
    """acks_late, and the whole worker killed (SIGKILL) in the middle of the job: another one runs it again"""
    worker = trial.start_worker(*ONLY_CELERY)
    result = slow_once.delay("slow")
    wait_for(lambda: ledger("slow.began"), "the job to begin")
    worker.kill()
    with trial.worker(*ONLY_CELERY):
        value = result.get(timeout=WAIT)
        return {
            "value": value,
            "redelivered": [entry["redelivered"] for entry in ledger("slow.began")],
            "ended": len(ledger("slow.ended")),
        }


def child_lost(trial: Trial) -> dict[str, Any]:
    """reject_on_worker_lost, and the pool's process killed by its own job: the same worker runs it again"""
    with trial.worker(*ONLY_CELERY) as worker:
        value = lost_once.delay().get(timeout=WAIT)
        return {
            "value": value,
            "redelivered": [entry["redelivered"] for entry in ledger("lost.began")],
            "reported": "WorkerLostError" in worker.log(),
        }


def rejection(trial: Trial) -> dict[str, Any]:
    """`Reject(requeue=True)` comes again; `Reject(requeue=False)` is dead-lettered with its x-death"""
    with trial.worker("--queues=strict"), app.connection_for_write() as connection:
        app.amqp.queues["strict.failed"](connection.default_channel).declare()
        refuse_once.delay()
        wait_for(lambda: len(ledger("refuse_once")) == 2, "two runs")
        refuse.delay()
        with connection.SimpleQueue(app.amqp.queues["strict.failed"]) as failed:
            message = failed.get(timeout=WAIT)
            message.ack()
        death = dict(message.headers["x-death"][0])
        death.pop("time")
        return {
            "runs": len(ledger("refuse")),
            "redelivered": [entry["redelivered"] for entry in ledger("refuse_once")],
            "task": message.headers["task"],
            "death": {key: str(value) for key, value in sorted(death.items())},
        }


def control_and_events(trial: Trial) -> dict[str, Any]:
    """Two workers with gossip, mingle and events: ping, inspect, revoke, rate limit, the events of a task"""
    with trial.worker(*ONLY_CELERY, "-n", "one@here"), trial.worker(*ONLY_CELERY, "-n", "two@here") as second:
        second.wait_for_log("mingle: sync complete")
        pings = wait_for(lambda: len(found := app.control.ping(timeout=1)) == 2 and found, "two pongs")
        inspect = app.control.inspect(timeout=2)
        queues = inspect.active_queues() or {}
        seen: list[str] = []
        with app.connection_for_read() as connection:
            receiver = app.events.Receiver(
                connection,
                handlers={
                    "task-received": lambda event: seen.append("received"),
                    "task-started": lambda event: seen.append("started"),
                    "task-succeeded": lambda event: seen.append("succeeded"),
                    "worker-heartbeat": lambda event: seen.append("heartbeat"),
                },
            )
            consumer = receiver.itercapture(limit=None, timeout=WAIT, wakeup=True)
            next(consumer)
            add.delay(1, 1).get(timeout=WAIT)
            while "succeeded" not in seen or "heartbeat" not in seen:
                next(consumer)
        revoked = add.apply_async((1, 1), countdown=1.5)
        app.control.revoke(revoked.id)
        revoked.get(timeout=WAIT, propagate=False)
        limited = app.control.rate_limit("work_celery.add", "100/m", reply=True, timeout=2)
        shutdown = trial.start_worker(*ONLY_CELERY, "-n", "three@here")
        shutdown.wait_for_log(READY)
        app.control.shutdown(destination=["three@here"])
        return {
            "pongs": sorted(name for answer in pings for name in answer),
            "queues": {name: [queue["name"] for queue in found] for name, found in sorted(queues.items())},
            "events": [event for event in seen if event != "heartbeat"],
            "revoked": revoked.state,
            "limited": sorted(name for answer in limited for name in answer),
            "mingled": "mingle: sync with 1 nodes" in second.log(),
            "shut down": shutdown.process.wait(WAIT),
        }


def canvas(trial: Trial) -> dict[str, Any]:
    """chain, group, map by rpc://; a chord is refused by that backend, with its reason"""
    with trial.worker(*ONLY_CELERY):
        chained = (add.s(1, 2) | add.s(3) | add.s(4)).apply_async()
        value = chained.get(timeout=WAIT)
        grouped = group(add.s(i, i) for i in range(10))().get(timeout=WAIT)
        mapped = add.starmap([(1, 2), (3, 4)]).apply_async().get(timeout=WAIT)
        try:
            chord([add.s(1, 1), add.s(2, 2)])(total.s())
            refused = "accepted"
        except NotImplementedError as error:
            refused = str(error).split(".")[0]
        return {"chain": value, "group": grouped, "starmap": mapped, "chord": refused}


def quorum_and_native_delay(trial: Trial) -> dict[str, Any]:
    """Quorum queues: countdowns by native delayed delivery (28 levels of queues), a publisher with confirms"""
    os.environ["WORK_CELERY_QUORUM"] = "1"
    try:
        script = trial.start_worker(command=[sys.executable, "-c", _QUORUM_CLIENT])
        with trial.worker():
            assert script.process.wait(WAIT) == 0, script.log()
            lines = script.log().strip().splitlines()
            return {"client": lines[-1]}
    finally:
        del os.environ["WORK_CELERY_QUORUM"]


_QUORUM_CLIENT = """
import time
import work_celery as work
direct = work.add.delay(1, 2).get(timeout=60)  # waits for the worker, which makes the delays' queues
began = time.time()
later = [work.when.apply_async(countdown=seconds) for seconds in (1, 2, 5)]
waited = [one.get(timeout=60) - began for one in later]
retried = work.flaky.delay(2).get(timeout=60)
print(direct, [least <= seconds <= least + 4 for seconds, least in zip(waited, (1, 2, 5))], retried)
"""


def broker_killed(trial: Trial) -> dict[str, Any]:
    """200 persistent jobs, the broker killed (SIGKILL) in the middle and started again: every job is run"""
    with trial.worker(*ONLY_CELERY):
        for number in range(200):
            count.delay(number)
        wait_for(lambda: len(ledger("count")) >= 40, "40 jobs")
        trial.restart_broker()
        wait_for(lambda: len({entry["number"] for entry in ledger("count")}) == 200, "all jobs")
        after = wait_for(_answers, "a result over the new broker")
        return {"numbers": len({entry["number"] for entry in ledger("count")}), "after": after}


def _answers() -> int:
    """A call over the broker that has come back, with the client's own way to connect again."""
    return int(add.delay(20, 22).get(timeout=WAIT))


SCENARIOS = (
    first_steps,
    retries,
    eta_and_countdown,
    priorities,
    worker_killed,
    child_lost,
    rejection,
    control_and_events,
    canvas,
    quorum_and_native_delay,
    broker_killed,
)
