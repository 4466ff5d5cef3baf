"""Warnings about waiting publishers: one per interval for each full limit, while publishers wait.

Source: queues page E.1, "blockedProducerWarningInterval".
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ..clock import Clock, due_after
from ..deadlines import Deadlines
from .usage import Usage


class BlockedWarning(NamedTuple):
    """A full limit for which clients wait. `used`, `limit`: in octets or messages. `clients`: their number."""

    destination: str
    limit_name: str
    used: int
    limit: int
    clients: int


class BlockedWarnings:
    """The warnings of one broker. `on_due`: called with each warning; None: there are no warnings and no timers."""

    def __init__(self, clock: Clock, deadlines: Deadlines) -> None:
        self._clock = clock
        self._deadlines = deadlines
        self._recent: set[Usage] = set()  # nodes with a warning in the last interval
        self.on_due: Callable[[BlockedWarning], None] | None = None

    def blocked(self, node: Usage) -> None:
        """Warn that clients wait for room in a node, unless the last interval had a warning about it."""
        if self.on_due is not None and node not in self._recent:
            self._warn(node)

    def _warn(self, node: Usage) -> None:
        self._recent.discard(node)
        if self.on_due is None or not node.round_robin or not node.warning_interval_ms:
            return
        self._recent.add(node)
        self._deadlines.set(due_after(self._clock, node.warning_interval_ms), partial(self._warn, node))
        self.on_due(BlockedWarning(node.destination, node.limit_name, node.used, node.limit, len(node.round_robin)))
