"""Filters that Spark pushes down to the source: bounds and sets of values for each column.

Only filters that can be applied exactly are accepted; Spark applies the others. `ts` is compared as microseconds, names
are compared as texts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ...journal.disk.segment import SegmentSummary
from ...journal.format.record import CHECKPOINT, CODE_OF, HEAD, KIND_NAMES, PUBLISHED, SNAPSHOT

NUMBERS = ("lsn", "ts", "msg_id", "conn_id")
WORDS = ("kind", "queue", "vhost", "address")
#: Margin for a clock that was set back within a block, which the times in a segment's footer do not show.
CLOCK_SLACK_US = 60_000_000
CODES = {name: code for code, name in KIND_NAMES.items()}
EVENT_CODES = frozenset(CODE_OF.values())
#: The kinds of records from which rows of the other tables are made.
TABLE_CODES = {
    "payloads": frozenset({PUBLISHED}),
    "snapshots": frozenset({SNAPSHOT}),
    "checkpoints": frozenset({CHECKPOINT}),
    "segments": frozenset({HEAD}),
}
LOW, HIGH = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Allowed:
    """The allowed values of a column: from `low` to `high`, in `only` (None: any), and not in `never`."""

    low: int = LOW
    high: int = HIGH
    only: frozenset[Any] | None = None
    never: frozenset[Any] = frozenset()

    def mask(self, values: Any) -> Any:
        """A mask of the allowed numbers in an array."""
        kept = (values >= self.low) & (values <= self.high)
        if self.only is not None:
            kept &= np.isin(values, list(self.only))
        if self.never:
            kept &= ~np.isin(values, list(self.never))
        return kept

    def allows(self, value: Any) -> bool:
        """Whether a word is allowed."""
        return (self.only is None or value in self.only) and value not in self.never


@dataclass(slots=True)
class Predicate:
    """The accepted filters, joined by AND. Empty: everything is allowed."""

    columns: dict[str, Allowed] = field(default_factory=dict)

    def accept(self, operator: str, column: str, value: Any) -> bool:
        """Add the filter `column operator value`. Operators: = in > >= < <= != `not in`. False: it is not accepted."""
        if operator in ("in", "not in"):
            values = frozenset(_comparable(column, one) for one in value)
        else:
            values = frozenset((_comparable(column, value),))
        if None in values or column not in NUMBERS + WORDS:
            return False
        allowed = self.columns.get(column, Allowed())
        if operator in ("=", "in"):
            allowed = replace(allowed, only=values if allowed.only is None else allowed.only & values)
        elif operator in ("!=", "not in"):
            allowed = replace(allowed, never=allowed.never | values)
        elif column in WORDS:
            return False
        else:
            (bound,) = values
            if operator in (">", ">="):
                allowed = replace(allowed, low=max(allowed.low, min(bound + (operator == ">"), HIGH)))
                if operator == ">" and bound >= HIGH:
                    allowed = replace(allowed, only=frozenset())
            else:
                allowed = replace(allowed, high=min(allowed.high, max(bound - (operator == "<"), LOW)))
                if operator == "<" and bound <= LOW:
                    allowed = replace(allowed, only=frozenset())
        self.columns[column] = allowed
        return True

    def of(self, column: str) -> Allowed | None:
        """The allowed values of a column; None: all."""
        return self.columns.get(column)

    def kinds(self, codes: Iterable[int] = EVENT_CODES) -> frozenset[int]:
        """Those of these record kinds that are allowed."""
        allowed = self.of("kind")
        return frozenset(code for code in codes if allowed is None or allowed.allows(KIND_NAMES[code]))

    def may_be_in(self, segment: SegmentSummary, codes: Iterable[int]) -> bool:
        """Whether a sealed segment may contain an allowed record of these kinds."""
        if not any(segment.kinds.get(code) for code in self.kinds(codes)):
            return False
        return self._overlaps("lsn", segment.base_lsn, segment.end_lsn - 1) and self._overlaps(
            "ts", segment.ts_min - CLOCK_SLACK_US, segment.ts_max + CLOCK_SLACK_US
        )

    def _overlaps(self, column: str, first: int, last: int) -> bool:
        allowed = self.of(column)
        if allowed is None:
            return True
        if allowed.only is not None and not any(first <= value <= last for value in allowed.only):
            return False
        return allowed.low <= last and first <= allowed.high


def _comparable(column: str, value: Any) -> Any:
    """A filter's value in the form in which it is compared, a text or a number; None: it does not fit the column."""
    if column in WORDS:
        return value if isinstance(value, str) else None
    if isinstance(value, datetime):
        if column != "ts":
            return None
        at = value if value.tzinfo else value.replace(tzinfo=UTC)
        since = at - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if column == "ts" or isinstance(value, bool) or not isinstance(value, int):
        return None
    return value
