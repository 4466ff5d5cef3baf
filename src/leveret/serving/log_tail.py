"""The last lines of the log, for operators who are not at the machine. Source: management page 15."""

import logging
from collections import deque
from typing import Any

#: Lines that are kept, and characters of each.
LINES, LINE_MAX = 200, 2000


class LogTail(logging.Handler):
    """A handler beside that which writes them. Its formatter makes lines safe to be shown."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[dict[str, Any]] = deque(maxlen=LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        try:
            text = self.format(record)[:LINE_MAX]
        except Exception:
            self.handleError(record)
            return
        at_ms = int(record.created * 1000)
        self._lines.append({"at_ms": at_ms, "level": record.levelname.lower(), "logger": record.name, "text": text})

    def lines(self) -> list[dict[str, Any]]:
        """Oldest first."""
        return list(self._lines)
