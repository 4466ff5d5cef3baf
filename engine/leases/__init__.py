"""Leased queues, as in AMPS. Source: queues page A; docs/leases.md.

`queues/kinds.py` loads the kind for the first leased queue. The functions for operators, and the headers of deliveries,
can be imported without it: they load the other modules when they are called.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

from ..queues.queue import Queue
from .headers import DeliveredLeases
from .rules import LeasedRules

if TYPE_CHECKING:
    from .control import Discarded  # costs 30 ms and 2 MiB, which a broker without leased queues is spared

__all__ = ["DeliveredLeases", "LeasedRules", "discarding", "is_leased", "list_leases", "list_owners", "renew_leases"]


def is_leased(queue: Queue) -> bool:
    return isinstance(queue.rules.extra, LeasedRules)


def list_leases(queue: Queue, count: int) -> list[dict[str, object]]:
    """Up to `count` live leases of a leased queue, as operators see them, in the order in which they end."""
    from . import reports

    return reports.list_leases(queue, count)


def list_owners(queue: Queue) -> Generator[None, None, list[dict[str, object]]]:
    """The steps of counting a queue's messages by site. Raises: BadRequest: its messages have no owners."""
    from . import reports

    return reports.list_owners(queue)


def renew_leases(queue: Queue, bookmarks: str) -> int:
    """Renew the leases of a queue's messages with these bookmarks. Returns the number of leases. Raises: BadRequest."""
    from . import control

    return control.renew_leases(queue, bookmarks)


def discarding(
    queue: Queue, bookmarks: str | None, filter_text: str | None, option: str
) -> "Generator[None, None, Discarded]":
    """The steps of one request to discard messages of a leased queue. Raises: BadRequest."""
    from . import control

    return control.discarding(queue, bookmarks, filter_text, option)
