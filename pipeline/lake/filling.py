"""Filling: what one node of a cluster has lost of the journal another one has. A hole of the lake goes when it is full.

The row of a hole becomes one for each piece of it that some copy has whole, and for each that none has. Then the
pieces are added to all tables, then their rows go: until then jobs see the hole. Each table notes the pieces in the
commit that adds them, so that a fill that was killed goes on with the tables that lack them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from pyarrow import parquet

from ..reading.arrow_files import locate
from ..reading.positions import JournalPlan, Slice
from ..schemas import TABLES
from .parts import part_of
from .tables import Part, extend, files_in, has_filled, kept_of, mark_of, open_table, replace

Write = Callable[[JournalPlan, Sequence[Slice], tuple[str, ...]], Iterable[Sequence[Part]]]
Row = dict[str, Any]


class _Piece(NamedTuple):
    plan: JournalPlan
    part: Slice


def fill_holes(lake: str, plans: Sequence[JournalPlan], reached_lsn: int, write: Write) -> dict[str, int]:
    """Add what any copy of a journal has of what the lake lacks of it.

    Args:   plans: of the copies, not strict. reached_lsn: up to which all tables have read the journal. write: makes
            the parts of slices of a copy.
    Returns: rows by table; none if there was nothing to fill. Raises: JournalError, ValueError, OSError.
    """
    journal = plans[0].journal_id
    events, holes = open_table(lake, "events"), open_table(lake, "holes")
    kept = kept_of(events, journal)
    old = [one for one in files_in(holes) if one["mark"] == mark_of(journal)]
    pieces: dict[int, _Piece] = {}  # by their first record
    rows: list[Row] = []
    for row in _rows_of(lake, old):
        first, end = row["first_lsn"], row["last_lsn"] + 1
        found, lacking = ([], []) if end > reached_lsn or (kept and first < kept.lsn) else _found(plans, first, end)
        is_whole = len(found) == 1 and not lacking
        if not found or (has_filled(events, journal, first) and not is_whole):
            rows.append(row)  # of the latter other tables lack more than this, and wait for it
            continue
        spans = [(one.part.start_lsn, one.part.end_lsn) for one in found]
        rows += [row] if is_whole else [_cut(row, *span) for span in sorted([*spans, *lacking])]
        pieces |= {one.part.start_lsn: one for one in found}
    if not pieces:
        return {}
    holes, old = _rewritten(lake, holes, old, rows, journal)
    counts = _add(lake, journal, pieces, write)
    _rewritten(lake, holes, old, [row for row in rows if row["first_lsn"] not in pieces], journal)
    return counts


def _rows_of(lake: str, files: Sequence[Any]) -> list[Row]:
    source, root = locate(lake)
    read = [parquet.read_table(f"{root}/holes/{one['path']}", filesystem=source.system) for one in files]
    return [row for one in read for row in one.to_pylist()]


def _found(plans: Sequence[JournalPlan], first: int, end: int) -> tuple[list[_Piece], list[tuple[int, int]]]:
    """The pieces of a hole, each from the first copy that has it; first record and behind the last of what none has."""
    found: list[_Piece] = []
    lacking = [(first, end)]
    for plan in plans:
        rest: list[tuple[int, int]] = []
        for at, behind in lacking:
            for part in plan.whole(at, behind):
                found.append(_Piece(plan, part))
                rest += [(at, part.start_lsn)] if part.start_lsn > at else []
                at = part.end_lsn
            rest += [(at, behind)] if behind > at else []
        lacking = rest
    return found, lacking


def _cut(row: Row, first: int, end: int) -> Row:
    """A part of a hole; its octets are not known."""
    return {**row, "first_lsn": first, "last_lsn": end - 1, "octets": None}


def _rewritten(lake: str, holes: Any, old: Sequence[Any], rows: Sequence[Row], journal: str) -> tuple[Any, list[Any]]:
    """Put rows in the place of a journal's. Returns the table of then, and the files with its rows."""
    new = [part_of(lake, "holes", rows, mark_of(journal))] if rows else []
    holes = replace(holes, lake, "holes", old, new, is_change=True)
    return holes, [one for one in files_in(holes) if one["mark"] == mark_of(journal)]


def _add(lake: str, journal: str, pieces: dict[int, _Piece], write: Write) -> dict[str, int]:
    """Each table gets the pieces that it lacks, in one commit. Returns rows by table."""
    deltas = {table: open_table(lake, table) for table in TABLES if table != "holes"}
    lacking = {
        table: [lsn for lsn in pieces if not has_filled(delta, journal, lsn)]
        for table, delta in deltas.items()
        if delta is not None
    }
    work: dict[tuple[JournalPlan, tuple[str, ...]], list[Slice]] = defaultdict(list)
    for lsn, one in pieces.items():
        tables = tuple(table for table, lsns in lacking.items() if lsn in lsns)
        work[one.plan, tables].append(one.part)
    parts = [part for (plan, tables), slices in work.items() for made in write(plan, slices, tables) for part in made]
    counts: dict[str, int] = {}
    for table, lsns in lacking.items():
        added = [one for one in parts if one.table == table]
        if lsns:
            extend(deltas[table], lake, table, added, journal, lsns)
        counts[table] = sum(one.rows for one in added)
    return counts
