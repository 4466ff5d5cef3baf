"""Ingest: adds the new records of a journal to the lake, exactly once. Everything else reads the lake.

The journal is read once, a slice (a segment, or what is new of it) at a time, by processes of this machine or Spark's
tasks; each writes the parts of all tables. A micro-batch ends with one commit for each table, which adds its parts and
moves its position together: killed before it, the parts count for nothing. All tables end at the same place in the
journal, `holes` first and then `events`, so that what is lost is known, and the events of each snapshot are there.
Damage stops nothing unless it is asked for: what is sound is committed, and each hole is a row. Source: Spark page 3.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...journal.format.errors import JournalError
from ..error_texts import error_text
from ..progress import Progress
from ..reading.arrow_files import locate
from ..reading.positions import JournalPlan, Position, Slice
from ..retries import retry_slow_workers
from ..schemas import TABLES
from .delta_tables import (
    CHECKPOINTS,
    Part,
    absolute,
    add_new_columns,
    commit,
    create,
    files_in,
    first_journal,
    open_table,
    position_of,
    vacuum,
)
from .lake import ALWAYS, check_written_here, holes_text, locked, missing_text, reader_name
from .nodes import Node, add_node, check_name, nodes_of

#: Octets of journal per micro-batch: each costs commits, and a kill repeats one. A cluster does more at once.
MAX_BYTES, MAX_BYTES_OF_SPARK = 1024**3, 64 * 1024**3


@dataclass(slots=True, frozen=True)
class IngestOptions:
    """`journal`, `lake`: paths or URIs. `payloads`: also store contents. `max_bytes`: of journal per micro-batch.
    `processes`: of this machine, if there is much to do. `strict`: damage is an
    error. `past_deleted`: records that the journal has deleted unread are none. `node`: its name in the
    lake, which a lake of others gets as one more; "": the one that it has there, or that of its directory. `copies`: of
    the journal, paths or URIs of other nodes of a cluster: nothing is deleted there either, and they fill holes.
    `searched`: as for `fill_holes`."""

    journal: str
    lake: str
    payloads: bool = False
    max_bytes: int | None = None
    processes: int = field(default_factory=lambda: os.cpu_count() or 1)
    strict: bool = False
    past_deleted: bool = False
    node: str = ""
    copies: tuple[str, ...] = ()
    searched: dict[Any, Any] | None = None

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
        check_journal(lake, plan, options.node)
        if "://" in lake or os.path.isdir(os.path.join(lake, CHECKPOINTS)):
            from .spark_log import migrate

            migrate(lake, progress)
        node = ensure_node(lake, plan, options.node)
        return _Ingest(plan, lake, options, progress, spark, node).run(tables)


def default_node_name(directory: str) -> str:
    """The default name of a node: that of the directory of its data."""
    path = directory.rstrip("/")
    above, _, name = path.rpartition("/")
    return (above.rpartition("/")[2] if name == "journal" else name) or "node"


def ensure_node(lake: str, plan: JournalPlan, name: str) -> Node:
    """The node of a journal, one of the lake's afterwards; after `check_journal`. Raises: ValueError, OSError."""
    nodes = nodes_of(lake)
    for node in nodes:
        if node.journal == plan.journal_id and node.name:
            return node
    wanted = Node(name or default_node_name(plan.directory), plan.journal_id)
    check_name(wanted.name)
    if (own := nodes[0]).name == "" and own.journal not in (None, plan.journal_id):
        add_node(lake, Node(f"node-{own.journal[:8]}", own.journal))  # whose journal is not here to tell its name
    add_node(lake, wanted)
    return wanted


def _check_node(lake: str, plan: JournalPlan, name: str) -> bool:
    """Whether the lake has read this journal, or may. Raises: JournalError (it must not be one of its nodes)."""
    nodes = nodes_of(lake)
    if name:
        check_name(name)
    own = next((one for one in nodes if one.journal == plan.journal_id), None)
    if own is not None and name and own.name and own.name != name:
        raise JournalError(f"{plan.directory}: this journal is node {own.name!r} of the lake {lake}, not {name!r}")
    taken = next((one for one in nodes if one.name == name and one.name and one.journal != plan.journal_id), None)
    if taken is not None:
        raise JournalError(
            f"{plan.directory}: node {name!r} of the lake {lake} has journal {taken.journal}, this is journal"
            f" {plan.journal_id}: another broker, or one whose journal was made anew; give it another name"
        )
    return own is not None


def check_journal(lake: str, plan: JournalPlan, name: str = "") -> None:
    """Raises: JournalError (another journal than the lake's, or one that ends before the lake does), ValueError (files
    that no ingest of this lake wrote; a lake among the files of the journal), OSError.

    Args: name: of the node, as which another journal is added to the lake.
    """
    if "://" not in lake:
        journal = os.path.realpath(plan.directory)
        if os.path.join(os.path.realpath(lake), "").startswith(os.path.join(journal, "")):
            raise ValueError(f"{lake} is in the directory of the journal: whoever deletes one deletes the other")
    end = plan.end()
    is_known = _check_node(lake, plan, name)
    for table in TABLES:
        delta = open_table(lake, table)
        if delta is None:
            check_written_here(lake, table)
            position = _planned_by_spark(lake, table)
        elif is_known or name:
            position = position_of(delta, plan.journal_id)
        else:
            position = position_of(delta, first_journal(delta))
        if position is not None and (not name or position.journal == plan.journal_id):
            plan.check(position, f"the lake {lake}")
            if (position.segment, position.offset) > (end.segment, end.offset):
                raise JournalError(
                    f"{plan.directory}: the journal ends before record {position.lsn}, up to which the lake {lake} has"
                    " read"
                )


def reached(lake: str, journal: str) -> Position | None:
    """How far all tables of the lake have read a journal; None: it has nothing of it. Raises: JournalError, ValueError,
    OSError."""
    places: list[Position] = []
    for table in TABLES:
        delta = open_table(lake, table)
        place = _planned_by_spark(lake, table) if delta is None else position_of(delta, journal)
        if place is not None and place.journal == journal:
            places.append(place)
    return min(places, key=_place, default=None)


def _planned_by_spark(lake: str, table: str) -> Position | None:
    if "://" not in lake and not os.path.isdir(os.path.join(lake, CHECKPOINTS)):
        return None
    from .spark_log import planned

    return planned(lake, table)


class _Ingest:
    """One ingest, with the lock held."""

    def __init__(
        self, plan: JournalPlan, lake: str, options: IngestOptions, progress: Progress, spark: Any, node: Node
    ) -> None:
        self._plan = plan
        self._node = node
        self._lake = lake
        self._options = options
        self._progress = progress
        self._spark = spark
        self._lost: dict[str, str] = {}  # copies that cannot be read: why
        self._copies: list[JournalPlan] = []
        for place in options.copies:
            try:
                self._copies.append(JournalPlan(place, strict=False))
            except (JournalError, OSError) as error:
                self._lose_copy(place, error)
        self._max_bytes = options.max_bytes or (MAX_BYTES if spark is None else MAX_BYTES_OF_SPARK)
        self._deltas: dict[str, Any] = {}
        self._places: dict[str, Position] = {}  # of the tables: to ask delta-rs for them takes longer
        self._rows: dict[str, int] = {}

    def run(self, tables: Sequence[str]) -> dict[str, Any]:
        """Fill these tables up to the journal's present end."""
        plan, lake = self._plan, self._lake
        found = {table: open_table(lake, table) for table in tables}
        places = {
            table: None if delta is None else position_of(delta, plan.journal_id) for table, delta in found.items()
        }
        known = plan.readers()
        for place in places.values():
            if place is not None:
                plan.check_available(place)  # first: for what is gone nothing is to be kept
        for table, place in places.items():  # all of them before anything is read: what one needs must not be deleted
            if place is None or reader_name(lake, table) not in known:
                self._register(table, 0 if place is None else place.lsn)
        first, target = plan.first(), plan.end()
        lost = missing_text(first.lsn) if places["events"] is None else None
        self._progress.say("begin", journal=plan.directory, node=self._node.name, lake=lake, lsn=target.lsn)
        if lost:
            self._progress.say("missing", what=lost)
        for table, delta in found.items():
            self._deltas[table] = create(lake, table, first, first=self._first(found)) if delta is None else delta
            if delta is not None and add_new_columns(lake, table, delta):
                self._deltas[table] = open_table(lake, table)
            if delta is not None and places[table] is None:
                self._deltas[table] = commit(self._deltas[table], lake, table, [], first)
            self._places[table] = places.get(table) or first
        self._rows = dict.fromkeys(tables, 0)
        for start, end, group in self._batches(target):
            self._fill(start, end, group)
        for table in tables:
            if known.get(reader_name(lake, table)) != target.lsn:
                self._register(table, target.lsn)
        self._fill_holes()
        self._compact()
        result = {"lake": lake, "lsn": target.lsn, "rows": self._rows, "seconds": self._progress.seconds}
        if self._lost:
            result["copies"] = self._lost
        return {**result, "missing": lost} if lost else result

    def _first(self, found: Mapping[str, Any]) -> str:
        """The id of the journal of the lake's first node: in all tables the same."""
        made = [first_journal(one) for one in (*found.values(), *self._deltas.values()) if one is not None]
        return made[0] if made else self._plan.journal_id

    def _register(self, table: str, lsn: int) -> None:
        """The journal, and its copies, keep what is still to be read."""
        self._plan.files.register(self._plan.directory, reader_name(self._lake, table), lsn)
        for plan in list(self._copies):
            try:
                plan.files.register(plan.directory, reader_name(self._lake, table), lsn)
            except (JournalError, OSError) as error:
                self._lose(plan, error)

    def _lose(self, plan: JournalPlan, error: Exception) -> None:
        """Go on without a copy that cannot be read."""
        self._copies = [one for one in self._copies if one is not plan]
        self._lose_copy(plan.where, error)

    def _lose_copy(self, place: str, error: Exception) -> None:
        if place not in self._lost:
            self._lost[place] = error_text(error)
            self._progress.say("copy", what=f"{place} fills no holes: {error_text(error)}")

    def _batches(self, target: Position) -> Iterator[tuple[Position, Position, tuple[str, ...]]]:
        """(start, end, tables that are at the start) until all are at the target: first those that were left behind."""
        while True:
            at = self._places
            start = min(at.values(), key=_place)
            if _place(start) >= _place(target):
                return
            next_ = min((place for place in at.values() if _place(place) > _place(start)), key=_place, default=target)
            end = self._plan.advance(start, min(next_, target, key=_place), self._max_bytes)
            yield start, end, tuple(table for table in at if at[table] == start)

    def _fill(self, start: Position, end: Position, tables: tuple[str, ...]) -> None:
        """One micro-batch. If it fails, a full disk for instance has the room again that it took."""
        parts: list[Part] = []
        try:
            self._fill_with(parts, start, end, tables)
        except Exception:
            from .parts import delete_uncommitted

            delete_uncommitted(self._lake, parts)
            raise

    def _fill_with(self, parts: list[Part], start: Position, end: Position, tables: tuple[str, ...]) -> None:
        slices = self._plan.slices(start, end)
        is_late = "holes" not in tables
        if is_late:
            from .filling import outside_holes, read_late  # as dear as pyarrow, and seldom needed
            from .parts import delete_uncommitted

            slices = outside_holes(self._lake, self._plan, slices)
        octets, done = sum(part.end - part.start for part in slices), 0
        for part, made in self._written(self._plan, slices, (*tables, "holes") if is_late else tables):
            parts += made
            done += part.end - part.start
            if len(slices) > 1:
                self._progress.say("part", octets=done, of=octets)
        if is_late:
            met = [one for one in parts if one.table == "holes"]
            late = read_late(self._lake, self._all_copies(), tables, met, self._parts, self._lose)
            parts += late.parts
            delete_uncommitted(self._lake, met)
            if late.rows:
                self._deltas = {table: open_table(self._lake, table) for table in self._deltas}
                self._progress.say("holes", what=holes_text(late.rows))
        else:
            self._tell_holes(parts)
        for table in tables:
            added = [one for one in parts if one.table == table]
            self._deltas[table] = commit(self._deltas[table], self._lake, table, added, end)
            self._places[table] = end
            rows = sum(one.rows for one in added)
            self._rows[table] += rows
            self._register(table, end.lsn)
            if rows:
                self._progress.say("batch", table=table, batch=self._deltas[table].version(), rows=rows)

    def _tell_holes(self, parts: Sequence[Part]) -> None:
        """Report the holes that are about to be committed."""
        from pyarrow import parquet  # dear to import, and seldom needed

        for one in parts:
            if one.table == "holes":
                files, root = locate(self._lake)
                found = parquet.read_table(f"{root}/holes/{one.path}", filesystem=files.system).to_pylist()
                self._progress.say("holes", what=holes_text(found))

    def _fill_holes(self) -> None:
        """From any copy of the journal; also from this one: what was damaged may have been put back from a backup."""
        if not files_in(self._deltas["holes"]):
            return
        from .filling import fill_holes

        reached_ = reached(self._lake, self._plan.journal_id)
        reached_lsn = 0 if reached_ is None else reached_.lsn
        copies, searched = self._all_copies(), self._options.searched
        filled = fill_holes(self._lake, copies, reached_lsn, self._parts, self._lose, searched)
        for table, rows in filled.items():
            self._rows[table] = self._rows.get(table, 0) + rows
        if filled:
            self._deltas = {table: open_table(self._lake, table) for table in self._deltas}
            self._progress.say("filled", **filled)

    def _all_copies(self) -> list[JournalPlan]:
        """The plans of all copies, also of the one that is read; damage in them is passed over."""
        return [JournalPlan(self._options.journal, strict=False), *self._copies]

    def _parts(self, plan: JournalPlan, slices: Sequence[Slice], tables: tuple[str, ...]) -> Iterator[Sequence[Part]]:
        for _, made in self._written(plan, slices, tables, strict=False):
            yield made

    def _compact(self) -> None:
        """Tables that many small ingests have filled."""
        if not any(self._rows.values()):
            return
        from .compact import KEEP_HOURS, SMALL_ROWS, compact_table, has_many_small

        for table, delta in self._deltas.items():
            if self._rows[table] and has_many_small(delta):
                vacuum(compact_table(delta, self._lake, table, SMALL_ROWS), self._lake, table, KEEP_HOURS)
                self._progress.say("compacted", table=table)

    def _written(
        self, plan: JournalPlan, slices: Sequence[Slice], tables: tuple[str, ...], *, strict: bool | None = None
    ) -> Iterator[Any]:
        from .parts import WriteTask, by_processes, by_spark

        strict = self._options.strict if strict is None else strict
        node = self._node.name, self._plan.journal_id
        work = WriteTask(plan.where, plan.directory, self._lake, tables, strict, node)
        if self._spark is None or not slices:
            return by_processes(work, slices, self._options.processes)
        made = retry_slow_workers(lambda: list(by_spark(work, slices, self._spark)), self._progress)
        return iter(made)


def _place(position: Position) -> tuple[int, int]:
    return position.segment, position.offset
