"""Retries work for which Spark could not start a Python worker.

Spark gives up after ten seconds, which a busy machine may need. The task has not begun then.
"""

from collections.abc import Callable
from typing import TypeVar

from .progress import Progress

T = TypeVar("T")
#: Spark's message when a Python worker did not start within ten seconds.
SLOW_WORKER = "Python worker failed to connect back"
ATTEMPTS = 4


def retry_slow_workers(work: Callable[[], T], progress: Progress) -> T:
    """Call `work`, which can be repeated, up to `ATTEMPTS` times until Python workers start. Returns its result.

    Raises: as `work`.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return work()
        except Exception as error:
            if SLOW_WORKER not in str(error):
                raise
            progress.say("retry", attempt=attempt, why=SLOW_WORKER)
    return work()
