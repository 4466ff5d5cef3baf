"""Fills holes: records that one copy of a journal has lost are read from another copy, of another node or a backup.

First the hole's row in `holes` is split: a row for each piece that some copy has completely, and for each piece that no
copy has. Then the pieces are added to all tables. Then the rows of these pieces are deleted; until then jobs see the
hole. Each table notes the pieces in the commit that adds them, so after a kill only the others are added.

A late table is one that is read after the others (`payloads`). The copy read for a late table may be damaged in other
places: it may be another copy than the other tables were read from, or holes may have been filled since. Records of a
known hole are left out even if this copy has them, since they are added with the rest of the hole (`outside_holes`).
Records that are damaged only in this copy are read from the other copies (`read_late`).
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pyarrow import parquet

from ...journal.disk.segment import path_of, segments_in
from ...journal.format.errors import JournalError
from ..reading.arrow_files import locate
from ..reading.positions import JournalPlan, Slice
from ..schemas import TABLES
from .delta_tables import Part, extend, files_in, has_filled, mark_of, open_table, position_of, replace, retained_of
from .parts import deleted_if_it_fails, part_from_rows

#: Writes the records of slices of a copy for some tables.
Write = Callable[[JournalPlan, Sequence[Slice], tuple[str, ...]], Iterable[Sequence[Part]]]
#: Called for a copy that cannot be read.
CopyFailed = Callable[[JournalPlan, Exception], None]
Row = dict[str, Any]


class _Piece(NamedTuple):
    plan: JournalPlan
    part: Slice


class LateRead(NamedTuple):
    """What other copies have where a late table met damage. `parts`: their records. `rows`: holes that stay."""

    parts: list[Part]
    rows: list[Row]


def outside_holes(lake: str, plan: JournalPlan, slices: Sequence[Slice]) -> list[Slice]:
    """The slices without the blocks of known holes that this copy has. For a late table.

    Raises: JournalError, ValueError, OSError."""
    found = list(slices)
    for row in rows_of(lake, _files_of(open_table(lake, "holes"), plan.journal_id)):
        if any(part.start_lsn <= row["last_lsn"] and row["first_lsn"] < part.end_lsn for part in found):
            for piece in plan.whole_blocks(row["first_lsn"], row["last_lsn"] + 1):
                found = [rest for part in found for rest in _subtract(part, piece)]
    return found


def _subtract(part: Slice, piece: Slice) -> list[Slice]:
    """The rest of a slice without the blocks of `piece`, as up to two slices. The first one keeps `lost_from`."""
    if part.segment != piece.segment or piece.end <= part.start or part.end <= piece.start:
        return [part]
    before = part._replace(end=max(piece.start, part.start), end_lsn=max(piece.start_lsn, part.start_lsn))
    behind = part._replace(start=piece.end, start_lsn=piece.end_lsn, lost_from=0, lost_why="")
    rest = [before._replace(is_sealed=False)] if before.start < before.end or part.lost_from else []
    return [*rest, behind] if behind.start < behind.end else rest


def read_late(
    lake: str,
    plans: Sequence[JournalPlan],
    tables: tuple[str, ...],
    met: Sequence[Part],
    write: Write,
    lose: CopyFailed,
) -> LateRead:
    """Read from the other copies the records that late tables found damaged. Commits holes that are new.

    Args:   plans, write, lose: as for `fill_holes`. tables: the late tables. met: the damage, as uncommitted parts of
            `holes`.
    Raises: JournalError, ValueError, OSError.
    """
    journal = plans[0].journal_id
    holes = open_table(lake, "holes")
    kept = retained_of(open_table(lake, "events"), journal)
    known = rows_of(lake, _files_of(holes, journal))
    damage = rows_of(lake, [{"path": one.path} for one in met])
    pieces: list[_Piece] = []
    rows: list[Row] = []
    for row in damage:
        for first, end in _outside((row["first_lsn"], row["last_lsn"] + 1), known):
            if kept is None or first >= kept.lsn:
                found, lacking = _find_pieces(plans, first, end, lose)
                pieces += found
                rows += [_part_of_row(row, *one) for one in lacking]
    with deleted_if_it_fails(lake) as parts:
        for plan in {one.plan for one in pieces}:
            for made in write(plan, [one.part for one in pieces if one.plan is plan], tables):
                parts += made
        if rows:
            _note_complete(lake, journal, rows, tables)
            with deleted_if_it_fails(lake) as more:
                more.append(part_from_rows(lake, "holes", rows, mark_of(journal)))
                extend(holes, lake, "holes", more)
    return LateRead(parts, rows)


def _note_complete(lake: str, journal: str, rows: Sequence[Row], tables: Sequence[str]) -> None:
    """Note in the tables that are not late that they have the records of these holes."""
    for table in TABLES:
        delta = None if table == "holes" or table in tables else open_table(lake, table)
        place = None if delta is None else position_of(delta, journal)
        lsns = [row["first_lsn"] for row in rows if place is not None and row["last_lsn"] < place.lsn]
        if lsns := [lsn for lsn in lsns if not has_filled(delta, journal, lsn)]:
            extend(delta, lake, table, [], journal, lsns)


def _outside(span: tuple[int, int], rows: Sequence[Row]) -> list[tuple[int, int]]:
    """The parts of a span of LSNs outside these holes, as (first, end)."""
    rest = [span]
    for row in rows:
        first, end = row["first_lsn"], row["last_lsn"] + 1
        cut = [part for at, behind in rest for part in ((at, min(behind, first)), (max(at, end), behind))]
        rest = [(at, behind) for at, behind in cut if at < behind]
    return rest


def fill_holes(
    lake: str,
    plans: Sequence[JournalPlan],
    reached_lsn: int,
    write: Write,
    lose: CopyFailed,
    searched: dict[Any, Any] | None,
) -> dict[str, int]:
    """Fill the holes of a journal with the records that any copy has.

    Args:   plans: of the copies, not strict. reached_lsn: the LSN up to which all tables have the journal. write:
            writes the parts of slices of a copy. lose: called for a copy that cannot be read; the other copies are
            used. searched: for repeated calls, a cache: by hole, the segments that were searched without result. When
            these change, they are searched again.
    Returns: rows by table; empty if there was nothing to fill. Raises: JournalError, ValueError, OSError.
    """
    journal = plans[0].journal_id
    events, holes = open_table(lake, "events"), open_table(lake, "holes")
    kept = retained_of(events, journal)
    old = _files_of(holes, journal)
    pieces: dict[int, _Piece] = {}  # by their first record
    rows: list[Row] = []
    for row in rows_of(lake, old):
        first, end = row["first_lsn"], row["last_lsn"] + 1
        where = None if searched is None else _segments(plans, first, end)
        is_known = searched is not None and where is not None and searched.get((journal, first, end)) == where
        is_due = end <= reached_lsn and not (kept and first < kept.lsn) and not is_known
        found, lacking = _find_pieces(plans, first, end, lose) if is_due else ([], [])
        if searched is not None and is_due and not found:
            searched[journal, first, end] = where
        is_whole = len(found) == 1 and not lacking
        if not found or (has_filled(events, journal, first) and not is_whole):
            rows.append(row)  # partly filled before: the other tables need the whole piece, which was not found
            continue
        spans = [(one.part.start_lsn, one.part.end_lsn) for one in found]
        rows += [row] if is_whole else [_part_of_row(row, *span) for span in sorted([*spans, *lacking])]
        pieces |= {one.part.start_lsn: one for one in found}
    if not pieces:
        return {}
    holes, old = _replace_rows(lake, holes, old, rows, journal)
    counts = _add_pieces(lake, journal, pieces, write, lose)
    _replace_rows(lake, holes, old, [row for row in rows if row["first_lsn"] not in pieces], journal)
    return counts


def _files_of(holes: Any, journal: str) -> list[dict[str, Any]]:
    return [] if holes is None else [one for one in files_in(holes) if one["mark"] == mark_of(journal)]


def rows_of(lake: str, files: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows of files of `holes`. `files`: their `path`. Raises: OSError."""
    source, root = locate(lake)
    read = [parquet.read_table(f"{root}/holes/{one['path']}", filesystem=source.system) for one in files]
    return [row for one in read for row in one.to_pylist()]


def _segments(plans: Sequence[JournalPlan], first: int, end: int) -> list[tuple[Any, ...]] | None:
    """The segments of all copies that may have a hole's records, with size and time, and the copies' ends.

    None: they are not known.
    """
    found: list[tuple[Any, ...]] = []
    try:
        for plan in plans:
            bases = segments_in(plan.files, plan.directory)
            found.append((plan.where, min(end, plan.end().lsn)))
            for base, following in zip(bases, [*bases[1:], end]):
                if base < end and following > first:
                    path = path_of(plan.directory, base)
                    about = os.stat(path)
                    found.append((path, about.st_size, about.st_mtime_ns))
    except (JournalError, OSError):  # also for URIs, which have no os.stat
        return None
    return found


def _find_pieces(
    plans: Sequence[JournalPlan], first: int, end: int, lose: CopyFailed
) -> tuple[list[_Piece], list[tuple[int, int]]]:
    """The pieces of a hole, each from the first copy that has it; and the spans (first, end LSN) that no copy has."""
    found: list[_Piece] = []
    lacking = [(first, end)]
    for plan in plans:
        rest: list[tuple[int, int]] = []
        try:
            there = [(at, behind, plan.whole_blocks(at, behind)) for at, behind in lacking]
        except (JournalError, OSError) as error:
            lose(plan, error)
            continue
        for at, behind, parts in there:
            for part in parts:
                found.append(_Piece(plan, part))
                rest += [(at, part.start_lsn)] if part.start_lsn > at else []
                at = part.end_lsn
            rest += [(at, behind)] if behind > at else []
        lacking = rest
    return found, lacking


def _part_of_row(row: Row, first: int, end: int) -> Row:
    """The row of a part of a hole, whose octets are not known."""
    return {**row, "first_lsn": first, "last_lsn": end - 1, "octets": None}


def _replace_rows(
    lake: str, holes: Any, old: Sequence[Any], rows: Sequence[Row], journal: str
) -> tuple[Any, list[Any]]:
    """Replace the rows of a journal in `holes`. Returns the table after that, and the journal's files in it."""
    with deleted_if_it_fails(lake) as new:
        if rows:
            new.append(part_from_rows(lake, "holes", rows, mark_of(journal)))
        holes = replace(holes, lake, "holes", old, new, is_change=True)
    return holes, _files_of(holes, journal)


def _add_pieces(lake: str, journal: str, pieces: dict[int, _Piece], write: Write, lose: CopyFailed) -> dict[str, int]:
    """Add to each table the pieces that it lacks, in one commit. Returns rows by table.

    Pieces of a copy that cannot be read are removed from `pieces`.
    """
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
    counts: dict[str, int] = {}
    with deleted_if_it_fails(lake) as parts:
        for plan in {plan for plan, _ in work}:
            try:
                with deleted_if_it_fails(lake) as of_plan:
                    for tables, slices in [(tables, slices) for (of, tables), slices in work.items() if of is plan]:
                        for made in write(plan, slices, tables):
                            of_plan += made
                    parts += of_plan
            except (JournalError, OSError) as error:
                if str(getattr(error, "filename", None) or "").startswith(lake):
                    raise  # the lake failed, not the copy
                lose(plan, error)
                for lsn in [lsn for lsn, one in pieces.items() if one.plan is plan]:
                    del pieces[lsn]
        for table in lacking:
            lsns = [lsn for lsn in lacking[table] if lsn in pieces]
            added = [one for one in parts if one.table == table]
            if lsns:
                extend(deltas[table], lake, table, added, journal, lsns)
            counts[table] = sum(one.rows for one in added)
    return counts
