"""The ingest: adds the new records of a journal to the lake, exactly once. Everything else reads the lake.

Processes of this machine, or Spark's tasks, read the journal, each a slice at a time: a segment, or the new part of it.
Each writes the parts of all tables. A micro-batch ends with one commit for each table, which adds its parts and moves
its position together. Parts that were not committed before a kill count for nothing. All tables of an ingest end at the
same position. They are committed in the order of `COMMIT_ORDER`: `holes` first, so that lost records are known, then
`events`, so that the events of each snapshot are there. Damage becomes rows of `holes`; with `strict` it is an error.
Source: Spark page 3.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from ...journal.format.errors import JournalError
from ..error_texts import error_text
from ..progress import Progress
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
from .lake import COMMIT_ORDER, check_written_here, holes_text, lake_lock, missing_text, reader_name
from .nodes import Node, add_node, check_name, nodes_of

#: Octets of journal per micro-batch, without Spark and with it. Small micro-batches cost commits; large ones cost more
#: after a kill.
MAX_BYTES, MAX_BYTES_OF_SPARK = 1024**3, 64 * 1024**3


@dataclass(slots=True, frozen=True)
class IngestOptions:
    """The options of an ingest.

    journal, lake: paths or URIs. payloads: also store contents. max_bytes: octets of journal per micro-batch; None: the
    default. processes: the maximum that read at a time on this machine. strict: damage is an error. past_deleted:
    records that the journal has deleted unread are a hole, and no error. node: the name of the journal's node in the
    lake; "": its present name, or that of its directory. copies: paths or URIs of the same journal on other nodes of a
    cluster; they fill holes, and keep their records until these were read. searched: see `fill_holes`.
    """

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
        """The readable part of the journal. Raises: JournalError, OSError."""
        return JournalPlan(self.journal, strict=self.strict, past_deleted=self.past_deleted)


def ingest(spark: Any, options: IngestOptions, progress: Progress) -> dict[str, Any]:
    """Bring the lake up to date with the journal. Returns the result: rows by table, the position.

    Args:   spark: a session whose tasks do the work; None: processes of this machine, without Java.
    Raises: LakeBusy, JournalError (deleted, damaged, another journal), ValueError (the lake's files), OSError, and
            Spark's exceptions.
    """
    plan = options.plan()
    lake = absolute(options.lake)
    tables = (*COMMIT_ORDER, *(("payloads",) if options.payloads else ()))
    with lake_lock(lake):
        check_journal(lake, plan, options.node)
        if "://" in lake or os.path.isdir(os.path.join(lake, CHECKPOINTS)):
            from .spark_log import migrate

            migrate(lake, progress)
        node = ensure_node(lake, plan, options.node)
        return _Ingest(plan, lake, options, progress, spark, node).run(tables)


def default_node_name(directory: str) -> str:
    """The default name of a node: that of its data directory. `directory`: of the journal."""
    path = directory.rstrip("/")
    above, _, name = path.rpartition("/")
    return (above.rpartition("/")[2] if name == "journal" else name) or "node"


def ensure_node(lake: str, plan: JournalPlan, name: str) -> Node:
    """The node of a journal, added if the lake lacks it. The node of a lake of an older release gets a name.

    Call `check_journal` first. Raises: JournalError (another journal has the default name), ValueError, OSError.
    """
    nodes = nodes_of(lake)
    for node in nodes:
        if node.journal == plan.journal_id and node.name:
            return node
    wanted = Node(name or default_node_name(plan.directory), plan.journal_id)
    _check_node(lake, plan, wanted.name)
    if (own := nodes[0]).name == "" and own.journal not in (None, plan.journal_id):
        add_node(lake, Node(f"node-{own.journal[:8]}", own.journal))  # its directory is unknown
    add_node(lake, wanted)
    return wanted


def _check_node(lake: str, plan: JournalPlan, name: str) -> bool:
    """Whether the lake has the journal's node. Raises: JournalError (the name is another node's, or not this one's)."""
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
    """Check that a journal can be added to the lake.

    Args:   name: of the node. Without a name a new journal is accepted only by an empty lake.
    Raises: JournalError (not the lake's journal; the name is another node's; the journal ends before the lake does),
            ValueError (files that no ingest of this lake wrote; the lake is in the journal's directory), OSError.
    """
    if "://" not in lake:
        journal = os.path.realpath(plan.directory)
        if os.path.join(os.path.realpath(lake), "").startswith(os.path.join(journal, "")):
            raise ValueError(f"{lake} is in the directory of the journal: to delete that would delete the lake, too")
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


def lake_position(lake: str, journal: str) -> Position | None:
    """The position up to which all tables have a journal; None: the lake has nothing of that.

    A table that never had records of the journal, such as `payloads`, does not count.
    Raises: JournalError, ValueError, OSError.
    """
    places: list[Position] = []
    for table in TABLES:
        delta = open_table(lake, table)
        place = _planned_by_spark(lake, table) if delta is None else position_of(delta, journal)
        if place is not None and place.journal == journal:
            places.append(place)
    return min(places, key=attrgetter("place"), default=None)


def _planned_by_spark(lake: str, table: str) -> Position | None:
    if "://" not in lake and not os.path.isdir(os.path.join(lake, CHECKPOINTS)):
        return None
    from .spark_log import planned_position

    return planned_position(lake, table)


class _Ingest:
    """Carries out one ingest, while the lake is locked."""

    def __init__(
        self, plan: JournalPlan, lake: str, options: IngestOptions, progress: Progress, spark: Any, node: Node
    ) -> None:
        self._plan = plan
        self._node = node
        self._lake = lake
        self._options = options
        self._progress = progress
        self._spark = spark
        self._failed_copies: dict[str, str] = {}  # path or URI -> why it cannot be read
        self._copies: list[JournalPlan] = []
        for place in options.copies:
            try:
                self._copies.append(JournalPlan(place, strict=False))
            except (JournalError, OSError) as error:
                self._report_failed_copy(place, error)
        self._max_bytes = options.max_bytes or (MAX_BYTES if spark is None else MAX_BYTES_OF_SPARK)
        self._deltas: dict[str, Any] = {}
        self._places: dict[str, Position] = {}  # table -> position; asking delta-rs would take longer
        self._rows: dict[str, int] = {}

    def run(self, tables: Sequence[str]) -> dict[str, Any]:
        """Fill these tables up to the present end of the journal. Returns the result of `ingest`."""
        plan, lake = self._plan, self._lake
        found = {table: open_table(lake, table) for table in tables}
        places = {
            table: None if delta is None else position_of(delta, plan.journal_id) for table, delta in found.items()
        }
        known = plan.readers()
        for place in places.values():
            if place is not None:
                plan.check_available(place)  # before `_register`: what was deleted by then is gone
        for table, place in places.items():  # before the first read, so that no needed segment is deleted meanwhile
            if place is None or reader_name(lake, table) not in known:
                self._register(table, 0 if place is None else place.lsn)
        first, target = plan.first(), plan.end()
        lost = missing_text(first.lsn) if places["events"] is None else None
        self._progress.say("begin", journal=plan.directory, node=self._node.name, lake=lake, lsn=target.lsn)
        if lost:
            self._progress.say("missing", what=lost)
        journal = next((first_journal(one) for one in found.values() if one is not None), plan.journal_id)
        for table, delta in found.items():
            self._places[table] = places[table] or first
            self._deltas[table] = self._prepared(table, delta, journal, None if places[table] else first)
        self._rows = dict.fromkeys(tables, 0)
        for start, end, group in self._batches(target):
            self._fill(start, end, group)
        for table, place in self._places.items():  # some may be behind the target: the block that proved it can be cut
            if known.get(reader_name(lake, table)) != place.lsn:
                self._register(table, place.lsn)
        self._fill_holes()
        self._compact()
        reached = min(self._places.values(), key=attrgetter("place"))
        result = {"lake": lake, "lsn": reached.lsn, "rows": self._rows, "seconds": self._progress.seconds}
        if self._failed_copies:
            result["copies"] = self._failed_copies
        return {**result, "missing": lost} if lost else result

    def _prepared(self, table: str, delta: Any, journal: str, first: Position | None) -> Any:
        """The table with all columns and a position; it is made if there is none.

        Args:   journal: id of the first node's journal. first: the position to set; None: the table has one.
        """
        if delta is None:
            return create(self._lake, table, first, first=journal)
        if add_new_columns(self._lake, table, delta):
            delta = open_table(self._lake, table)
        return delta if first is None else commit(delta, self._lake, table, [], first)

    def _register(self, table: str, lsn: int) -> None:
        """Make the journal and its copies keep the records from `lsn` on, for a table."""
        self._plan.files.register(self._plan.directory, reader_name(self._lake, table), lsn)
        for plan in list(self._copies):
            try:
                plan.files.register(plan.directory, reader_name(self._lake, table), lsn)
            except (JournalError, OSError) as error:
                self._drop_copy(plan, error)

    def _drop_copy(self, plan: JournalPlan, error: Exception) -> None:
        """Stop using a copy that cannot be read."""
        self._copies = [one for one in self._copies if one is not plan]
        self._report_failed_copy(plan.where, error)

    def _report_failed_copy(self, place: str, error: Exception) -> None:
        if place not in self._failed_copies:
            self._failed_copies[place] = error_text(error)
            self._progress.say("copy", what=f"{place} fills no holes: {error_text(error)}")

    def _batches(self, target: Position) -> Iterator[tuple[Position, Position, tuple[str, ...]]]:
        """Micro-batches (start, end, the tables at that start), until all tables are at the target.

        Tables that are behind come first.
        """
        place = attrgetter("place")
        while True:
            at = self._places
            start = min(at.values(), key=place)
            if start.place >= target.place:
                return
            next_ = min((one for one in at.values() if one.place > start.place), key=place, default=target)
            end = self._plan.advance(start, min(next_, target, key=place), self._max_bytes)
            yield start, end, tuple(table for table in at if at[table] == start)

    def _fill(self, start: Position, end: Position, tables: tuple[str, ...]) -> None:
        """Do one micro-batch."""
        from .parts import deleted_if_it_fails  # imports pyarrow

        with deleted_if_it_fails(self._lake) as parts:
            self._read_and_commit(parts, start, end, tables)

    def _read_and_commit(self, parts: list[Part], start: Position, end: Position, tables: tuple[str, ...]) -> None:
        slices = self._plan.slices(start, end)
        is_late = "holes" not in tables
        if is_late:
            from .filling import outside_holes, read_late  # imports pyarrow, and is seldom needed
            from .parts import delete_uncommitted

            slices = outside_holes(self._lake, self._plan, slices)
        octets, done = sum(part.end - part.start for part in slices), 0
        for part, made in self._write_slices(self._plan, slices, (*tables, "holes") if is_late else tables):
            parts += made
            done += part.end - part.start
            if len(slices) > 1:
                self._progress.say("part", octets=done, of=octets)
        if is_late:
            met = [one for one in parts if one.table == "holes"]
            late = read_late(self._lake, self._all_copies(), tables, met, self._write_parts, self._drop_copy)
            parts += late.parts
            delete_uncommitted(self._lake, met)
            if late.rows:
                self._deltas = {table: open_table(self._lake, table) for table in self._deltas}
                self._progress.say("holes", what=holes_text(late.rows))
        else:
            self._report_holes(parts)
        for table in tables:
            added = [one for one in parts if one.table == table]
            self._deltas[table] = commit(self._deltas[table], self._lake, table, added, end)
            self._places[table] = end
            rows = sum(one.rows for one in added)
            self._rows[table] += rows
            self._register(table, end.lsn)
            if rows:
                self._progress.say("batch", table=table, batch=self._deltas[table].version(), rows=rows)

    def _report_holes(self, parts: Sequence[Part]) -> None:
        for one in parts:
            if one.table == "holes":
                from .filling import rows_of  # slow to import, and seldom needed

                self._progress.say("holes", what=holes_text(rows_of(self._lake, [{"path": one.path}])))

    def _fill_holes(self) -> None:
        """Fill holes from any copy, also the one that was read: that may have been replaced by a backup since."""
        if not files_in(self._deltas["holes"]):
            return
        from .filling import fill_holes

        reached = lake_position(self._lake, self._plan.journal_id)
        reached_lsn = 0 if reached is None else reached.lsn
        copies, searched = self._all_copies(), self._options.searched
        filled = fill_holes(self._lake, copies, reached_lsn, self._write_parts, self._drop_copy, searched)
        for table, rows in filled.items():
            self._rows[table] = self._rows.get(table, 0) + rows
        if filled:
            self._deltas = {table: open_table(self._lake, table) for table in self._deltas}
            self._progress.say("filled", **filled)

    def _all_copies(self) -> list[JournalPlan]:
        """Plans of all copies, with the one that is read first. They skip damage."""
        return [JournalPlan(self._options.journal, strict=False), *self._copies]

    def _write_parts(
        self, plan: JournalPlan, slices: Sequence[Slice], tables: tuple[str, ...]
    ) -> Iterator[Sequence[Part]]:
        for _, made in self._write_slices(plan, slices, tables, strict=False):
            yield made

    def _compact(self) -> None:
        if not any(self._rows.values()):
            return
        from .compact import KEEP_HOURS, SMALL_ROWS, compact_table, has_many_small

        for table, delta in self._deltas.items():
            if self._rows[table] and has_many_small(delta):
                vacuum(compact_table(delta, self._lake, table, SMALL_ROWS), self._lake, table, KEEP_HOURS)
                self._progress.say("compacted", table=table)

    def _write_slices(
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
