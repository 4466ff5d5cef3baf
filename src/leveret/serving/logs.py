"""The log of a broker: lines safe for terminals, the last lines for operators, and a limit for lines about peers.

Source: management page 15.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ..settings.printable import printable_lines

#: Number of kept lines, and maximum characters of each.
LINES, LINE_MAX = 200, 2000


class PrintableFormatter(logging.Formatter):
    """Makes lines of the log safe for terminals, whatever names of clients they contain."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record))


class LogTail(logging.Handler):
    """A second handler of the log, which keeps the last lines.

    Lines have numbers that rise by one, so that a reader knows what it has missed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._number = 0
        self._lines: deque[dict[str, Any]] = deque(maxlen=LINES)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)[:LINE_MAX]
        except Exception:
            self.handleError(record)
            return
        self._number += 1  # handlers are called one at a time
        level, at_ms = record.levelname.lower(), int(record.created * 1000)
        line = {"number": self._number, "at_ms": at_ms, "level": level, "logger": record.name, "text": text}
        self._lines.append(line)

    def lines(self) -> list[dict[str, Any]]:
        """The last lines, oldest first."""
        return list(self._lines)


class LogBudget(logging.Filter):
    """A limit for lines that peers cause: a token bucket of ten seconds' lines, refilled at `lines_per_second`.

    `lines_per_second` may change at any time; 0: no limit. The first line after omitted ones reports their number, if
    there is a limit. `now`: seconds of a monotonic clock.
    """

    def __init__(self, lines_per_second: int, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.lines_per_second = lines_per_second
        self._now = now
        self._refilled_s = now()
        self._left = float(self._size)
        self._left_out = 0

    @property
    def _size(self) -> int:
        return 10 * self.lines_per_second

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        if not self.lines_per_second:
            return True
        now_s = self._now()
        self._left = min(self._size, self._left + (now_s - self._refilled_s) * self.lines_per_second)
        self._refilled_s = now_s
        if self._left < 1:
            self._left_out += 1
            return False
        self._left -= 1
        if self._left_out:
            record.msg = f"({self._left_out} lines about peers were left out) {record.msg}"
            self._left_out = 0
        return True


def limit_lines_about_peers(lines_per_second: int) -> None:
    """Set the limit of the frontend's log; 0: no limit."""
    logger = logging.getLogger("leveret.amqp")
    for known in logger.filters:
        if isinstance(known, LogBudget):
            known.lines_per_second = lines_per_second
            return
    logger.addFilter(LogBudget(lines_per_second))
