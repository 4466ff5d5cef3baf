"""Operators' requests about leased queues. The first request loads the modules that serve them.

Source: queues page A.6; docs/leases.md.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

from ..queues.queue import Queue

if TYPE_CHECKING:
    from .discarding import Discarded  # costs 30 ms and 2 MiB, which a broker without leased queues is spared


def leases_of(queue: Queue, count: int) -> list[dict[str, object]]:
    """Up to `count` live leases of a leased queue, as operators see them, the first to end first."""
    from .discarding import leases_of

    return leases_of(queue, count)


def renew_leases(queue: Queue, bookmarks: str) -> int:
    """Renew the leases of a queue's messages with these bookmarks. Returns how many. Raises: BadRequest."""
    from .discarding import renew_leases

    return renew_leases(queue, bookmarks)


def discarding(
    queue: Queue, bookmarks: str | None, filter_text: str | None, option: str
) -> "Generator[None, None, Discarded]":
    """The steps of one request to discard messages of a leased queue. Raises: BadRequest."""
    from .control import discarding

    return discarding(queue, bookmarks, filter_text, option)
