"""Spark starts Pythons beside Java, and gives up when one has not answered in ten seconds, as on a busy machine. Then
nothing of its work has begun: it is tried again."""

from collections.abc import Callable
from typing import TypeVar

from .progress import Progress

T = TypeVar("T")
#: Spark's message when a Python worker did not start within ten seconds.
SLOW_WORKER = "Python worker failed to connect back"
ATTEMPTS = 4


def retry_slow_workers(work: Callable[[], T], progress: Progress, **facts: object) -> T:
    """What `work` returns; it is called again, at most `ATTEMPTS` times in all, when a Python worker did not start.

    Args:   work: may be done again from its beginning. facts: what the lines of progress say beside.
    Raises: what `work` raises.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return work()
        except Exception as error:
            if SLOW_WORKER not in str(error):
                raise
            progress.say("retry", **facts, attempt=attempt, why=SLOW_WORKER)
    return work()
