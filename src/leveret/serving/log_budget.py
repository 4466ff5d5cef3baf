"""A limit on log lines that peers cause: a peer that errs in a loop must not fill the disk.

Lines about peers (those of the frontend) share a budget; further lines are counted, and one line reports their number.
"""

import logging
import time
from collections.abc import Callable


class LogBudget(logging.Filter):
    """A token bucket of ten seconds' lines, refilled at `lines_per_second`; 0: no limit.

    The rate may be changed at any time. `now`: seconds, rising.
    """

    def __init__(self, lines_per_second: int, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.lines_per_second = lines_per_second
        self._now = now
        self._seen = now()
        self._left = float(self._size)
        self._left_out = 0

    @property
    def _size(self) -> int:
        return 10 * self.lines_per_second

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written. The first one after omissions reports their number."""
        if not self.lines_per_second:
            return True
        now = self._now()
        self._left = min(self._size, self._left + (now - self._seen) * self.lines_per_second)
        self._seen = now
        if self._left < 1:
            self._left_out += 1
            return False
        self._left -= 1
        if self._left_out:
            record.msg = f"({self._left_out} lines about peers were left out) {record.msg}"
            self._left_out = 0
        return True


def set_budget(name: str, lines_per_second: int) -> None:
    """Give the logger `name` this budget."""
    logger = logging.getLogger(name)
    for known in logger.filters:
        if isinstance(known, LogBudget):
            known.lines_per_second = lines_per_second
            return
    logger.addFilter(LogBudget(lines_per_second))
