"""A Celery worker that takes one message at a time, behind a task with an ETA. Where Celery is (`make frameworks`)."""

from typing import Any

import pytest

from leveret.testing import RunningBroker
from leveret.testing.frameworks import TURN_S, celery_worker


def test_a_task_is_not_behind_one_that_waits_for_its_time(
    amqp_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done while the other one waits: the worker's loop never sleeps for long, and asks for room in time."""
    celery = pytest.importorskip("celery")
    from kombu.asynchronous.hub import Hub

    app = celery.Celery("prefetch", broker="amqp://nowhere.invalid//", set_as_current=False)
    app.conf.task_acks_late = True
    done: list[str] = []

    @app.task(name="note", shared=False)  # type: ignore[untyped-decorator]
    def note(text: str) -> None:
        done.append(text)

    sleeps_s: list[float] = []
    fire_timers = Hub.fire_timers

    def noted(hub: Any, *arguments: Any, **options: Any) -> float:
        sleeps_s.append(fire_timers(hub, *arguments, **options))
        return sleeps_s[-1]

    monkeypatch.setattr(Hub, "fire_timers", noted)
    with celery_worker(app, amqp_broker, conf={"worker_prefetch_multiplier": 1}):
        del sleeps_s[:]
        note.apply_async(("late",), countdown=3600)
        note.delay("now")
        while done != ["now"]:
            pass
    assert max(sleeps_s) <= TURN_S
