"""Retries reads that fail for lack of file descriptors or memory and cannot wait for another turn."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from ..disk.files import OUT_OF_RESOURCES

#: Seconds between two tries of a read, and the number of tries: 10 s in all, in which the broker does nothing else.
RETRY_SECONDS, TRIES_MAX = 0.05, 200

Found = TypeVar("Found")

logger = logging.getLogger("leveret.journal")


def pause() -> None:
    """Wait for other code to release resources."""
    time.sleep(RETRY_SECONDS)


def retry_blocking(
    read: Callable[[], Found], release: Callable[[], object] = lambda: None, pause: Callable[[], object] = pause
) -> Found:
    """The result of `read`, after retries. `release`: closes files that can be opened again. Raises: as `read`."""
    for tries in range(TRIES_MAX):
        try:
            return read()
        except OSError as error:
            if error.errno not in OUT_OF_RESOURCES:
                raise
            if not tries:
                logger.warning("reading messages back: %s; tried again", error)
        release()
        pause()
    return read()
