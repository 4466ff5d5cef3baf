"""Reads that cannot wait for another turn: what finds no descriptor or memory is tried again for a while."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from ..disk.files import LATER

#: A read is retried after so long, and so often: the broker stands still meanwhile.
LATER_SECONDS, LATER_TRIES_MAX = 0.05, 200

Found = TypeVar("Found")

logger = logging.getLogger("leveret.journal")


def pause() -> None:
    """Somebody else may give something back."""
    time.sleep(LATER_SECONDS)


def retry_blocking(
    read: Callable[[], Found],
    give_back: Callable[[], object] = lambda: None,
    pause: Callable[[], object] = pause,
) -> Found:
    """What `read` returns, sooner or later. `give_back`: closes what can be opened again. Raises: what `read` does."""
    for tries in range(LATER_TRIES_MAX):
        try:
            return read()
        except OSError as error:
            if error.errno not in LATER:
                raise
            if not tries:
                logger.warning("reading messages back: %s; tried again", error)
        give_back()
        pause()
    return read()
