"""readers: who reads a journal, how far behind each is, and what the broker keeps for it. Needs no lake."""

from typing import Any

from .answers import Answer
from .output.plain_table import PlainTable
from .reading.positions import JournalPlan
from .schemas import columns

#: `lsn`: the first record that it needs. `behind`: durable records from there on. `segments`, `octets`: what may not be
#: deleted because of it, the open segment included.
READERS = columns("reader string, lsn bigint, behind bigint, segments bigint, octets bigint")


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
            }
        )
    rows.sort(key=lambda row: (-row["behind"], row["reader"]))
    return Answer("readers", {"readers": PlainTable(READERS, rows)}, {"journal": plan.directory, "end_lsn": end.lsn})
