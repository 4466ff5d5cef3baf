"""Rates beside counts for `--watch`: the change since the previous answer, per second."""

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

#: Command -> the columns that identify its rows, and the column of each rate -> the count that it is computed from.
ROWS = {
    "queues": (("vhost", "name"), {"in/s": "enqueued", "out/s": "delivered", "ack/s": "acknowledged"}),
    "publishers": (("connection",), {"published/s": "published"}),
}
#: The rates are inserted before these columns.
BEFORE = frozenset({"unacked", "by"})


class Rates:
    """Adds rates to successive answers to one command."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._at = 0.0
        self._counts: dict[tuple[Any, ...], Mapping[str, Any]] = {}

    def with_rates(self, result: Any, command: str) -> Any:
        """The answer with rates since the previous answer; the first one has none."""
        now = self._clock()
        seconds, self._at, before = now - self._at, now, self._counts
        if command == "status" and isinstance(result, dict) and isinstance(result.get("counters"), dict):
            counts, last = result["counters"], before.get(())
            self._counts = {(): counts}
            rates = {name: _rate(last, counts, name, seconds) for name in counts}
            shown = {name: f"{count} ({rates[name]}/s)" if rates[name] else count for name, count in counts.items()}
            return {**result, "counters": shown}
        if command not in ROWS or not isinstance(result, list):
            return result
        keys, names = ROWS[command]
        self._counts = {tuple(row.get(key) for key in keys): row.get("counters", row) for row in result}
        return [self._row(row, before.get(tuple(row.get(key) for key in keys)), names, seconds) for row in result]

    def _row(
        self, row: Mapping[str, Any], before: Mapping[str, Any] | None, names: Mapping[str, str], seconds: float
    ) -> dict[str, Any]:
        counts = row.get("counters", row)
        rates = {head: _rate(before, counts, name, seconds) for head, name in names.items()}
        shown: dict[str, Any] = {}
        for name, value in row.items():
            shown |= (rates if name in BEFORE else {}) | {name: value}
        return shown


def _rate(before: Mapping[str, Any] | None, counts: Mapping[str, Any], name: str, seconds: float) -> float | None:
    """The rate per second; None: unknown, e.g. if a count fell because its object was created again."""
    if before is None or seconds <= 0 or not isinstance(before.get(name), int) or counts[name] < before[name]:
        return None
    return float(round((counts[name] - before[name]) / seconds, 1))
