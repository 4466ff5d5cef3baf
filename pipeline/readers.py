"""readers: who reads a journal, how far behind each is, and what the broker keeps for it. Needs no lake."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ..journal import forget_reader
from .answers import Answer
from .output.plain_table import PlainTable
from .reading.positions import JournalPlan
from .schemas import columns

#: `lsn`: the first record that it needs. `behind`: durable records from there on. `segments`, `octets`: what may not be
#: deleted because of it, the open segment included. `dropped`, `why`: of one that the broker has dropped, when and what
#: it had kept for it; null of all others.
READERS = columns(
    "reader string, lsn bigint, behind bigint, segments bigint, octets bigint, dropped timestamp?, why string?"
)


def drop(journal: str, names: Sequence[str]) -> None:
    """Nothing more is kept for these. Raises: ValueError (there is no such reader), JournalError, OSError."""
    plan = JournalPlan(journal, strict=False)
    known = plan.readers() | plan.dropped_readers()
    for name in names:
        if name not in known:
            raise ValueError(f"{plan.directory} has no reader {name!r}; it has {', '.join(known) or 'none'}")
    for name in names:
        forget_reader(plan.directory, name)


def readers(journal: str) -> Answer:
    """Those that are furthest behind first. Raises: JournalError, OSError."""
    plan = JournalPlan(journal, strict=False)
    end = plan.end()
    parts = plan.slices(plan.first(), end)
    rows: list[dict[str, Any]] = []
    for name, lsn in plan.readers().items():
        kept = [part for part in parts if part.end_lsn > lsn]
        rows.append(
            {
                "reader": name,
                "lsn": lsn,
                "behind": max(0, end.lsn - max(lsn, plan.first().lsn)),
                "segments": len(kept),
                "octets": sum(part.end for part in kept),
                "dropped": None,
                "why": None,
            }
        )
    for name, one in plan.dropped_readers().items():
        at = datetime.fromtimestamp(one.at_ms / 1000, UTC)
        behind = max(0, end.lsn - one.lsn)
        rows.append(
            {
                "reader": name,
                "lsn": one.lsn,
                "behind": behind,
                "segments": 0,
                "octets": 0,
                "dropped": at,
                "why": one.why,
            }
        )
    rows.sort(key=lambda row: (-row["behind"], row["reader"]))
    return Answer("readers", {"readers": PlainTable(READERS, rows)}, {"journal": plan.directory, "end_lsn": end.lsn})
