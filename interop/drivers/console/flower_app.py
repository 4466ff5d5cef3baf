"""A Celery application for Flower: the queue `watched` has messages, the queue `celery` has a worker."""

import os

from celery import Celery

app = Celery("flower_app", broker=os.environ["BROKER_URL"])
app.conf.broker_connection_retry_on_startup = True
app.conf.worker_hijack_root_logger = False


@app.task
def add(a: int, b: int) -> int:
    """A task for a worker."""
    return a + b
