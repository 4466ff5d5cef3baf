"""What a node waits for, in its log, while no client is served through it: one that says nothing looks well."""

import logging
from collections.abc import Callable

import trio

logger = logging.getLogger("leveret.cluster")

#: Seconds between two looks; looks in a row until the first line, and from one line to the next.
LOOK_S, FIRST, AGAIN = 2.0, 3, 30


async def log_waiting(waits_for: Callable[[], str]) -> None:
    """Until cancelled. `waits_for`: why no client is served through this node; "": they are."""
    looks = 0
    while True:
        await trio.sleep(LOOK_S)
        why = waits_for()
        looks = looks + 1 if why else 0
        if looks % AGAIN == FIRST:
            logger.warning("no client is served through this node: %s", why)
