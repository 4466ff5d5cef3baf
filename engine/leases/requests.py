"""What operators ask of leased queues. What serves it is loaded when the first of them is asked.

Source: queues page A.6; docs/leases.md.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

from ..queues.queue import Queue

if TYPE_CHECKING:
    from .discarding import Discarded  # a broker without leased queues need not have all that: 30 ms, 2 MiB


def leases_of(queue: Queue, count: int) -> list[dict[str, object]]:
    """Up to `count` live leases of a leased queue, as operators see them; those that end first come first."""
    from .discarding import leases_of

    return leases_of(queue, count)


def renew_leases(queue: Queue, bookmarks: str) -> int:
    """Leases of messages with these bookmarks, of a leased queue, begin again. Returns how many. Raises: BadRequest."""
    from .discarding import renew_leases

    return renew_leases(queue, bookmarks)


def discarding(
    queue: Queue, bookmarks: str | None, filter_text: str | None, option: str
) -> "Generator[None, None, Discarded]":
    """Steps of one request about a leased queue. Raises: BadRequest."""
    from .control import discarding

    return discarding(queue, bookmarks, filter_text, option)
