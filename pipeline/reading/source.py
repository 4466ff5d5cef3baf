"""`leveret_journal`: a Python data source of Spark that reads a table of a journal, as a batch or as a stream.

    spark.dataSource.register(JournalSource)
    spark.read.format("leveret_journal").load("leveret-data").where("kind = 'acked'")
    spark.readStream.format("leveret_journal").option("reader", "audit").load("leveret-data")

The options, with defaults in brackets. Options that Spark's Kafka source has, too, have its names:

    table (events)               the table of the journal
    columns (all)                a,b,c; Spark 4.3 does not tell a Python source which columns it needs
    reader                       a name, for streams: the journal keeps segments until this reader has read them
    startingOffsets (earliest)   earliest, latest, or a position as JSON; for batches also endingOffsets (latest)
    startingTimestamp            milliseconds since 1970; for batches also endingTimestamp
    maxBytesPerTrigger (256 MiB) octets of journal per micro-batch
    maxOffsetsPerTrigger         records per micro-batch
    minPartitions (1)            the minimum number of partitions, as far as there are blocks
    failOnDataLoss (true)        true: damage fails the query; false: it becomes rows of the table `holes`
    pushdown (false)             apply filters in the source, which skips whole segments by their footers

Pushdown needs spark.sql.python.filterPushdown.enabled, and a separate `load()` for each query: Spark 4.3.0 keeps pushed
filters with the result of `load()`, so a second query of that result would lack rows.

A partition is a segment or a part of one. Offsets of a stream are positions. In a query with a checkpoint each row
comes exactly once, also if the query or the broker is killed. Source: Spark page 2.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ...journal.format.errors import JournalError
from ..schemas import ddl
from .positions import JournalPlan, Position, Slice
from .table_reader import EARLIEST, TableReader, bound_of, bound_position, bounds_of, number_of, reader_of

NAME = "leveret_journal"
MAX_BYTES = 256 * 1024 * 1024

OPERATORS = {
    datasource.EqualTo: "=",
    datasource.EqualNullSafe: "=",
    datasource.In: "in",
    datasource.GreaterThan: ">",
    datasource.GreaterThanOrEqual: ">=",
    datasource.LessThan: "<",
    datasource.LessThanOrEqual: "<=",
}
NEGATED = {"=": "!=", "in": "not in"}


class JournalSource(DataSource):
    """The data source, as Spark calls it."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        """The default schema, for queries without `.schema(...)`."""
        return ddl(reader_of(self.options).columns)

    def reader(self, schema: Any) -> DataSourceReader:
        is_pushing = str(self.options.get("pushdown", "false")).lower() == "true"
        return (PushingReader if is_pushing else PlainReader)(self.options, schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return StreamReader(self.options, schema)


class SegmentPartition(InputPartition):
    """The slice that one task reads."""

    def __init__(self, directory: str, part: Slice) -> None:
        super().__init__(part.segment)
        self.directory = directory
        self.part = part


class PlainReader(DataSourceReader):
    """Reads everything that is durable when a batch is planned.

    It has no `pushFilters`: Spark refuses a reader that has it, unless pushdown is enabled.
    """

    def __init__(self, options: Mapping[str, str], schema: Iterable[Any] = ()) -> None:
        self.table: TableReader = reader_of(options, schema)
        self.start, self.end = bounds_of(options)

    def partitions(self) -> list[InputPartition]:
        """At least one partition for each segment that may contain a row.

        Raises: ValueError (the batch begins behind its end), JournalError (also for a position in another journal),
        OSError.
        """
        plan = self.table.plan()
        start, end = bound_position(plan, self.start), bound_position(plan, self.end)
        if start.lsn > end.lsn:
            raise ValueError(f"the batch begins with record {start.lsn}, and ends before it, with {end.lsn}")
        return _partitions(plan, self.table.slices(plan, start, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self.table, partition)


class PushingReader(PlainReader):
    """As `PlainReader`, but applies filters before it makes rows."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Accept the filters that can be applied exactly. Yields the others, for Spark."""
        for one in filters:
            if not self._takes(one):
                yield one

    def _takes(self, one: Any) -> bool:
        if self.table.table != "events":
            return False
        names = {column.name: column for column in self.table.columns}
        inner, negated = (one.child, True) if isinstance(one, datasource.Not) else (one, False)
        (name,) = inner.attribute if len(inner.attribute) == 1 else ("",)
        if name not in names:
            return False
        if isinstance(inner, datasource.IsNotNull) and not negated:
            return not names[name].nullable
        operator = OPERATORS.get(type(inner), "")
        if negated:
            operator = NEGATED.get(operator, "")
        return bool(operator) and self.table.predicate.accept(operator, name, inner.value)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches. With the option `reader` it registers with the journal before it returns an offset."""

    def __init__(self, options: Mapping[str, str], schema: Iterable[Any] = ()) -> None:
        self.table: TableReader = reader_of(options, schema)
        self.name = options.get("reader")
        self.start = bound_of(options, "starting", EARLIEST)
        for name in ("endingOffsets", "endingTimestamp"):
            if name in options:
                raise ValueError(f"option {name}: a stream has no end; .trigger(availableNow=True) reads what is there")
        self.max_bytes = number_of(options, "maxBytesPerTrigger", MAX_BYTES)
        has_most = "maxOffsetsPerTrigger" in options
        self.max_records = number_of(options, "maxOffsetsPerTrigger", 1) if has_most else None
        self._reached_lsn: int | None = None  # the end of the newest micro-batch
        self._plan: JournalPlan | None = None
        self._target: Position | None = None
        self._registered_lsn: int | None = None  # by this object

    # -- offsets, on the driver ---------------------------------------------------------------------------------------

    @property
    def plan(self) -> JournalPlan:
        """The plan, made on first use. Only the driver needs one."""
        if self._plan is None:
            self._plan = self.table.plan()
        return self._plan

    def initialOffset(self) -> dict[str, Any]:
        """The first offset of a query. Spark asks for it at each start until a micro-batch is committed."""
        if self.start == EARLIEST:
            self._register(0)  # before reading, so that nothing is deleted meanwhile
            return self.plan.first().as_dict()
        start = bound_position(self.plan, self.start)
        if self.name is not None and not isinstance(self.start, Position):
            # Spark may have planned the first micro-batch at an earlier start, whose offset is registered.
            registered = self.plan.readers().get(self.name, start.lsn)
            if registered < start.lsn:
                start = self.plan.position_before(registered)
        self._register(start.lsn)
        return start.as_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self.max_bytes) if self.max_records is None else ReadMaxRows(self.max_records)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the micro-batch that begins at `start`."""
        begin = Position.from_dict(start)
        if begin.lsn != self._registered_lsn:
            # Both checks come before registering, which would release records if this were another journal.
            self.plan.check(begin)
            self.plan.check_available(begin)
            self._register(begin.lsn)
        end = self._target or self.plan.end()
        if end.place <= begin.place:
            end = begin
        elif not isinstance(limit, ReadAllAvailable):
            end = self.plan.advance(begin, end, self.max_bytes, self.max_records)
        self._reached_lsn = end.lsn
        return end.as_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the journal, and the number of records that the query is behind it, for the query's progress."""
        end = self.plan.end()
        behind = None if self._reached_lsn is None else end.lsn - self._reached_lsn
        return {**end.as_dict(), "offsetsBehindLatest": behind}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self.plan.end()

    def commit(self, end: dict[str, Any]) -> None:
        """Let the journal delete segments before `end`, since their rows are in the sink."""
        self._register(Position.from_dict(end).lsn)

    def _register(self, lsn: int) -> None:
        if self.name is not None:
            self.plan.files.register(self.plan.directory, self.name, lsn)
        self._registered_lsn = lsn

    # -- rows ---------------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """At least one partition for each segment that may contain a row.

        Raises: JournalError (the micro-batch begins behind its end, and failOnDataLoss is true), OSError.
        """
        first, last = Position.from_dict(start), Position.from_dict(end)
        if first.lsn > last.lsn and self.table.strict:
            raise JournalError(
                f"{self.plan.directory}: the query begins with record {first.lsn}, but its checkpoint has a micro-batch"
                f" that ends with {last.lsn} and was not committed: its rows would be lost; give the query a new"
                " checkpoint (and option reader, which keeps its start), or pass over them (failOnDataLoss=false)"
            )
        self._reached_lsn = last.lsn  # Spark does not ask `latestOffset` for the first micro-batch after a restart
        return _partitions(self.plan, self.table.slices(self.plan, first, last))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self.table, partition)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None}


class NoPartition(InputPartition):
    """A partition without rows. For an empty list, Spark would make a partition that `read` could not know."""

    def __init__(self) -> None:
        super().__init__(None)


def _partitions(plan: JournalPlan, parts: list[Slice]) -> list[InputPartition]:
    return [SegmentPartition(plan.directory, part) for part in parts] or [NoPartition()]


def _read(table: TableReader, partition: InputPartition) -> Iterator[Any]:
    if isinstance(partition, SegmentPartition):
        yield from table.batches(partition.directory, partition.part)
