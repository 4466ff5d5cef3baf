"""The commands `readers` and `forget`: the readers of journals, how far each is behind, and what is kept for it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..journal import JournalError, forget_reader
from .answers import EXIT_FAILED, EXIT_OK, Answer
from .lake.ingest_sources import journal_places
from .lake.lake import reader_prefix
from .reading.positions import JournalPlan
from .schemas import Columns, arrow, columns

#: `journal`: the directory. `lsn`: the first record that the reader needs. `behind`: the number of durable records from
#: there on. `segments`, `octets`: kept for the reader, the open segment included. `dropped`, `why`: when the broker
#: dropped the reader, and what it had kept; null: it did not.
READERS = columns(
    "journal string, reader string, lsn bigint, behind bigint, segments bigint, octets bigint",
    "dropped timestamp?, why string?",
)


def drop(given: Sequence[str], names: Sequence[str]) -> None:
    """Forget readers in all journals, so that nothing is kept for them.

    Raises: ValueError (no journal has such a reader), JournalError, OSError.
    """
    plans = [JournalPlan(place, strict=False) for _, place in journal_places(given)]
    known = [plan.readers() | plan.dropped_readers() for plan in plans]
    for name in names:
        if not any(name in readers for readers in known):
            there = ", ".join(sorted({one for readers in known for one in readers})) or "none"
            raise ValueError(f"{plans[0].directory} has no reader {name!r}; it has {there}")
    for plan, readers in zip(plans, known, strict=True):
        for name in readers.keys() & set(names):
            forget_reader(plan.directory, name)


def forget(given: Sequence[str], lake: str) -> dict[str, Any]:
    """Forget the readers of a lake. Returns `forgotten`, their names (with several journals, by directory); `failed`.

    Raises: ValueError (no journal has a reader of the lake); JournalError, OSError (no journal can be read)."""
    forgotten: dict[str, list[str]] = {}

    def one(plan: JournalPlan) -> None:
        forgotten[plan.directory] = [name for name in plan.readers() if name.startswith(reader_prefix(lake))]
        for name in forgotten[plan.directory]:
            forget_reader(plan.directory, name)

    failed = _each(given, one)
    if not any(forgotten.values()) and not failed:
        raise ValueError(f"{', '.join(forgotten)} keeps nothing for a lake {lake}")
    is_one = len(forgotten) == 1 and not failed
    return {"forgotten": next(iter(forgotten.values())) if is_one else forgotten, **failed}


def readers(given: Sequence[str]) -> Answer:
    """The answer of `readers`, the furthest behind first.

    Raises: JournalError, OSError (no journal can be read), ValueError.
    """
    rows: list[dict[str, Any]] = []
    ends: dict[str, int] = {}

    def one(plan: JournalPlan) -> None:
        ends[plan.directory] = plan.end().lsn
        rows.extend(_of_journal(plan))

    failed = _each(given, one)
    rows.sort(key=lambda row: (-row["behind"], row["reader"], row["journal"]))
    facts: dict[str, Any] = {"journals": ends}
    if len(ends) == 1 and not failed:
        ((directory, end),) = ends.items()
        facts = {"journal": directory, "end_lsn": end}
    code = EXIT_FAILED if failed else EXIT_OK
    return Answer("readers", {"readers": PlainTable(READERS, rows)}, {**facts, **failed}, code)


def _each(given: Sequence[str], work: Callable[[JournalPlan], None]) -> dict[str, list[str]]:
    """Call `work` for each journal. Returns {"failed": a sentence for each one that cannot be read}; {}: none failed.

    Raises: JournalError, OSError (no journal can be read).
    """
    failed: list[str] = []
    places = journal_places(given)
    for _, place in places:
        try:
            work(JournalPlan(place, strict=False))
        except (JournalError, OSError) as error:
            failed.append(str(error))
            if len(failed) == len(places):
                raise
    return {"failed": failed} if failed else {}


def _of_journal(plan: JournalPlan) -> list[dict[str, Any]]:
    first, end = plan.first(), plan.end()
    parts = plan.slices(first, end)
    rows: list[dict[str, Any]] = []
    for name, lsn in plan.readers().items():
        kept = [part for part in parts if part.end_lsn > lsn]
        octets = sum(part.end for part in kept)
        rows.append({"reader": name, "lsn": lsn, "behind": max(0, end.lsn - max(lsn, first.lsn))})
        rows[-1] |= {"segments": len(kept), "octets": octets, "dropped": None, "why": None}
    for name, one in plan.dropped_readers().items():
        at = datetime.fromtimestamp(one.at_ms / 1000, UTC)
        rows.append({"reader": name, "lsn": one.lsn, "behind": max(0, end.lsn - one.lsn)})
        rows[-1] |= {"segments": 0, "octets": 0, "dropped": at, "why": one.why}
    return [{"journal": plan.directory, **row} for row in rows]


class PlainTable:
    """A `Table` (answers.py) of rows in memory, each with all columns."""

    def __init__(self, columns: Columns, rows: Sequence[Mapping[str, Any]]) -> None:
        self.columns = columns
        self._rows = rows

    def count(self) -> int:
        return len(self._rows)

    def head(self, rows: int | None = None) -> Iterator[dict[str, Any]]:
        return (dict(row) for row in self._rows[:rows])

    def write_parquet(self, path: str) -> None:
        import pyarrow
        from pyarrow import parquet

        Path(path).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.Table.from_pylist(list(self._rows), arrow(self.columns)), path)
