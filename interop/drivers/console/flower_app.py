"""A Celery application that Flower watches: `watched` has messages, `celery` has a worker."""

import os

from celery import Celery

app = Celery("flower_app", broker=os.environ["BROKER_URL"])
app.conf.broker_connection_retry_on_startup = True
app.conf.worker_hijack_root_logger = False


@app.task
def add(a: int, b: int) -> int:
    """A task that a worker does."""
    return a + b
