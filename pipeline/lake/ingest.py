"""Ingest: adds the new records of the journal to the lake, exactly once. Everything else reads the lake.

The journal is read once, a slice (a segment, or what is new of it) at a time, by processes of this machine or Spark's
tasks; each writes the parts of all tables. A micro-batch ends with one commit for each table, which adds its parts and
moves its position together: killed before it, the parts count for nothing. All tables end at the same place in the
journal, `holes` first and then `events`, so that what is lost is known, and the events of each snapshot are there.
Damage stops nothing unless it is asked for: what is sound is committed, and each hole is a row. Source: Spark page 3.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...journal.format.errors import JournalError
from ..patience import patiently
from ..progress import Progress
from ..reading.arrow_files import locate
from ..reading.positions import JournalPlan, Position, Slice
from ..schemas import TABLES
from .lake import ALWAYS, check_written_here, locked, lost_in, missing, reader_name
from .tables import CHECKPOINTS, Part, absolute, add_new_columns, commit, create, open_table, position_of, swept

#: Octets of journal per micro-batch: each costs commits, and a kill repeats one. A cluster does more at once.
MAX_BYTES, MAX_BYTES_OF_SPARK = 1024**3, 64 * 1024**3


@dataclass(slots=True, frozen=True)
class IngestOptions:
    """`journal`, `lake`: paths or URIs. `payloads`: also store contents. `max_bytes`: of journal per micro-batch.
    `processes`: of this machine, if there is much to do. `retain_days`: drop what is older, afterwards. `strict`:
    damage is an error. `past_deleted`: records that the journal has deleted unread are none."""

    journal: str
    lake: str
    payloads: bool = False
    max_bytes: int | None = None
    processes: int = field(default_factory=lambda: os.cpu_count() or 1)
    retain_days: int | None = None
    strict: bool = False
    past_deleted: bool = False

    def plan(self) -> JournalPlan:
        """What can be read of the journal. Raises: JournalError, OSError."""
        return JournalPlan(self.journal, strict=self.strict, past_deleted=self.past_deleted)


def ingest(spark: Any, options: IngestOptions, progress: Progress) -> dict[str, Any]:
    """Bring the lake up to date with the journal. Returns the result: rows by table, the position.

    Args:   spark: a session whose tasks do the work; None: processes of this machine do, without Java.
    Raises: LakeBusy, JournalError (deleted, damaged, another journal), ValueError (the lake's files), OSError, and
            Spark's exceptions.
    """
    plan = options.plan()
    lake = absolute(options.lake)
    tables = (*ALWAYS, *(("payloads",) if options.payloads else ()))
    with locked(lake):
        check_journal(lake, plan)
        if "://" in lake or os.path.isdir(os.path.join(lake, CHECKPOINTS)):
            from .spark_log import migrate

            migrate(lake, progress)
        return _Ingest(plan, lake, options, progress, spark).run(tables)


def check_journal(lake: str, plan: JournalPlan) -> None:
    """Raises: JournalError (another journal than the lake's, or one that ends before the lake does), ValueError (files
    that no ingest of this lake wrote; a lake among the files of the journal), OSError."""
    if "://" not in lake:
        journal = os.path.realpath(plan.directory)
        if os.path.join(os.path.realpath(lake), "").startswith(os.path.join(journal, "")):
            raise ValueError(f"{lake} is in the directory of the journal: whoever deletes one deletes the other")
    end = plan.end()
    for table in TABLES:
        check_written_here(lake, table)
        delta = open_table(lake, table)
        position = _planned_by_spark(lake, table) if delta is None else position_of(delta)
        if position is not None:
            plan.check(position, f"the lake {lake}")
            if (position.segment, position.offset) > (end.segment, end.offset):
                raise JournalError(
                    f"{plan.directory}: the journal ends before record {position.lsn}, up to which the lake {lake} has"
                    " read"
                )


def _planned_by_spark(lake: str, table: str) -> Position | None:
    if "://" not in lake and not os.path.isdir(os.path.join(lake, CHECKPOINTS)):
        return None
    from .spark_log import planned

    return planned(lake, table)


class _Ingest:
    """One ingest, with the lock held."""

    def __init__(self, plan: JournalPlan, lake: str, options: IngestOptions, progress: Progress, spark: Any) -> None:
        self._plan = plan
        self._lake = lake
        self._options = options
        self._progress = progress
        self._spark = spark
        self._max_bytes = options.max_bytes or (MAX_BYTES if spark is None else MAX_BYTES_OF_SPARK)
        self._deltas: dict[str, Any] = {}
        self._rows: dict[str, int] = {}

    def run(self, tables: Sequence[str]) -> dict[str, Any]:
        """Fill these tables up to the journal's present end."""
        plan, lake = self._plan, self._lake
        found = {table: open_table(lake, table) for table in tables}
        known = plan.readers()
        for delta in found.values():
            if delta is not None:
                plan.check_there(position_of(delta))  # first: for what is gone nothing is to be kept
        for table in tables:  # all of them before anything is read: what one still needs must not be deleted
            if found[table] is None or reader_name(lake, table) not in known:
                at = 0 if found[table] is None else position_of(found[table]).lsn
                plan.files.register(plan.directory, reader_name(lake, table), at)
        first, target = plan.first(), plan.end()
        lost = missing(first.lsn) if found["events"] is None else None
        self._progress.say("begin", journal=plan.directory, lake=lake, lsn=target.lsn)
        if lost:
            self._progress.say("missing", what=lost)
        for table, delta in found.items():
            self._deltas[table] = create(lake, table, first) if delta is None else delta
            if delta is not None and add_new_columns(lake, table, delta):
                self._deltas[table] = open_table(lake, table)
        self._rows = dict.fromkeys(tables, 0)
        for start, end, group in self._batches(target):
            self._fill(start, end, group)
        for table in tables:
            if known.get(reader_name(lake, table)) != target.lsn:
                plan.files.register(plan.directory, reader_name(lake, table), target.lsn)
        self._compact()
        result = {"lake": lake, "lsn": target.lsn, "rows": self._rows, "seconds": self._progress.seconds}
        if self._options.retain_days is not None:
            from .retention import retain_in_ingest

            result["dropped"] = retain_in_ingest(lake, self._options.retain_days, self._progress)
        return {**result, "missing": lost} if lost else result

    def _batches(self, target: Position) -> Iterator[tuple[Position, Position, tuple[str, ...]]]:
        """(start, end, tables that are at the start) until all are at the target: first those that were left behind."""
        while True:
            at = {table: position_of(delta) for table, delta in self._deltas.items()}
            start = min(at.values(), key=_place)
            if _place(start) >= _place(target):
                return
            next_ = min((place for place in at.values() if _place(place) > _place(start)), key=_place, default=target)
            end = self._plan.within(start, min(next_, target, key=_place), self._max_bytes)
            yield start, end, tuple(table for table in at if at[table] == start)

    def _fill(self, start: Position, end: Position, tables: tuple[str, ...]) -> None:
        """One micro-batch."""
        slices = self._plan.slices(start, end)
        octets, done = sum(part.end - part.start for part in slices), 0
        parts = []
        for part, made in self._written(slices, tables):
            parts += made
            done += part.end - part.start
            if len(slices) > 1:
                self._progress.say("part", octets=done, of=octets)
        self._tell_holes(parts)
        for table in tables:
            added = [one for one in parts if one.table == table]
            self._deltas[table] = commit(self._deltas[table], self._lake, table, added, end)
            rows = sum(one.rows for one in added)
            self._rows[table] += rows
            self._plan.files.register(self._plan.directory, reader_name(self._lake, table), end.lsn)
            if rows:
                self._progress.say("batch", table=table, batch=self._deltas[table].version(), rows=rows)

    def _tell_holes(self, parts: Sequence[Part]) -> None:
        """Of what is about to be committed."""
        from pyarrow import parquet  # dear to import, and seldom needed

        for one in parts:
            if one.table == "holes":
                files, root = locate(self._lake)
                found = parquet.read_table(f"{root}/holes/{one.path}", filesystem=files.system).to_pylist()
                self._progress.say("holes", what=lost_in(found))

    def _compact(self) -> None:
        """Tables that many small ingests have filled."""
        if not any(self._rows.values()):
            return
        from .compact import KEEP_HOURS, SMALL_ROWS, compacted, has_many_small

        for table, delta in self._deltas.items():
            if self._rows[table] and has_many_small(delta):
                swept(compacted(delta, self._lake, table, SMALL_ROWS), self._lake, table, KEEP_HOURS)
                self._progress.say("compacted", table=table)

    def _written(self, slices: Sequence[Slice], tables: tuple[str, ...]) -> Iterator[Any]:
        from .workers import Work, by_processes, by_spark

        work = Work(self._options.journal, self._plan.directory, self._lake, tables, self._options.strict)
        if self._spark is None or not slices:
            return by_processes(work, slices, self._options.processes)
        made = patiently(lambda: list(by_spark(work, slices, self._spark)), self._progress)
        return iter(made)


def _place(position: Position) -> tuple[int, int]:
    return position.segment, position.offset
