"""Rates of a node's figures between two requests. Without requests nothing is measured.

Source: management page 4, 5.1.
"""

from collections.abc import Mapping
from typing import Any

#: Figures that have a rate.
RATED = (
    "context_switches", "disk_free", "fd_used", "gc_bytes_reclaimed", "gc_num", "mem_used", "proc_used", "sockets_used",
)  # fmt: skip
#: Minimum milliseconds between two measurements. Requests in between get the last rates.
INTERVAL_MS = 1_000


class NodeRates:
    """Keeps the figures of the last measurement, and the rates between the last two."""

    def __init__(self) -> None:
        self._measured_ms: int | None = None
        self._values: dict[str, int] = {}
        self._rates = dict.fromkeys(RATED, 0.0)

    def update(self, view: Mapping[str, Any], now_ms: int) -> dict[str, dict[str, float]]:
        """The rates per second as fields `NAME_details`; 0.0 until the second measurement. `view`: the node's."""
        if self._measured_ms is None or now_ms - self._measured_ms >= INTERVAL_MS:
            values = {name: int(view[name]) for name in RATED}
            if self._measured_ms is not None:
                seconds = (now_ms - self._measured_ms) / 1000
                self._rates = {name: round((values[name] - self._values[name]) / seconds, 1) for name in RATED}
            self._measured_ms, self._values = now_ms, values
        return {f"{name}_details": {"rate": rate} for name, rate in self._rates.items()}
