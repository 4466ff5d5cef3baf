"""The last lines of the log, for operators without access to the machine. Source: management page 15."""

import logging
from collections import deque
from typing import Any

#: Lines that are kept, and maximum characters of each.
LINES, LINE_MAX = 200, 2000


class LogTail(logging.Handler):
    """A handler beside the one that writes the log. Its formatter makes lines safe for terminals."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[dict[str, Any]] = deque(maxlen=LINES)

    def emit(self, record: logging.LogRecord) -> None:
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
