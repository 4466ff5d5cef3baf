"""Rates of the node's figures, measured between two requests: without requests nothing is measured.

Source: management page 4, 5.1.
"""

from collections.abc import Mapping
from typing import Any

#: Figures of the node that have a rate.
RATED = (
    "context_switches", "disk_free", "fd_used", "gc_bytes_reclaimed", "gc_num", "mem_used", "proc_used", "sockets_used",
)  # fmt: skip
#: Requests within this time of each other see the same rates.
APART_MS = 1_000


class NodeRates:
    """The figures at an earlier request."""

    def __init__(self) -> None:
        self._before: tuple[int, dict[str, int]] | None = None
        self._rates = dict.fromkeys(RATED, 0.0)

    def of(self, view: Mapping[str, Any], now_ms: int) -> dict[str, dict[str, float]]:
        """Name with `_details` -> its rate per second; 0.0 until there are two requests a second apart."""
        if self._before is None or now_ms - self._before[0] >= APART_MS:
            values = {name: int(view[name]) for name in RATED}
            if self._before is not None:
                seconds = (now_ms - self._before[0]) / 1000
                self._rates = {name: round((values[name] - self._before[1][name]) / seconds, 1) for name in RATED}
            self._before = (now_ms, values)
        return {f"{name}_details": {"rate": rate} for name, rate in self._rates.items()}
