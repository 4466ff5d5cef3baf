"""The point of the log from which a leased queue without stored state is built. Source: queues page A.3, C.5."""

import re

from ...settings.leases import is_timestamp
from ..messages.lease_headers import ORIGIN
from .replay_rules import Boundary, wall_ms_of

EPOCH, NOW, CREATION = "epoch", "now", "creation"
_BOOKMARK = re.compile(r"([0-9]{1,20})\|([0-9]{1,20})\|")


def boundary_of(point: str) -> Boundary | None:
    """The boundary at a valid recovery point (E-RP); None: only new messages."""
    if point == EPOCH:
        return Boundary()
    if is_timestamp(point):
        return Boundary(wall_ms=wall_ms_of(point))
    found = _BOOKMARK.fullmatch(point)
    return None if found is None or int(found[1]) != ORIGIN else Boundary(int(found[2]))


def is_known(point: str, first_id: int, next_id: int) -> bool:
    """Whether a log with ids from `first_id` to before `next_id` has the point. Only bookmarks can be unknown."""
    found = _BOOKMARK.fullmatch(point)
    return found is None or (int(found[1]) == ORIGIN and first_id <= int(found[2]) < next_id)
