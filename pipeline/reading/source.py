"""`leveret_journal`, a Python data source for Spark: a table of a journal, as a batch or as a stream.

    spark.dataSource.register(JournalSource)
    spark.read.format("leveret_journal").load("leveret-data").where("kind = 'acked'")
    spark.readStream.format("leveret_journal").option("reader", "audit").load("leveret-data")

Options, as Spark's Kafka source names them where it has the same: `table` (events), `columns` (a,b,c: Spark 4.3 does
not report which it needs to a Python source), `reader` (a name: segments stay until it has read them; streams),
`startingOffsets` (earliest, latest, or a position), `startingTimestamp` (milliseconds since 1970), of batches also
`endingOffsets` and `endingTimestamp`, `maxBytesPerTrigger` (octets of journal per micro-batch, 256 MiB),
`maxOffsetsPerTrigger` (records), `minPartitions`, `failOnDataLoss` (true: damage fails the query; false: it is passed
over, and becomes a row of the table `holes`), `pushdown` (false). With pushdown filters are applied here, whole
segments by their footers; it needs spark.sql.python.filterPushdown.enabled, and a `load()` of its own for each query:
Spark 4.3.0 keeps what was pushed with what `load()` gave, and other queries of that would lack rows.

A partition is a segment, a part of a large one, or what is new of it. A stream's offsets are (segment, position); each
row comes exactly once in a query with a checkpoint, also when it, or the broker, is killed. Source: Spark page 2.
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
from .table_reader import EARLIEST, TableReader, bound_of, bounds_of, number_of, place_of, reader_of

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
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return NAME

    def schema(self) -> str:
        """The requested columns, unless `.schema(...)` names others."""
        return ddl(reader_of(self.options).columns)

    def reader(self, schema: Any) -> DataSourceReader:
        """A batch."""
        is_pushing = str(self.options.get("pushdown", "false")).lower() == "true"
        return (PushingReader if is_pushing else PlainReader)(self.options, schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """A stream."""
        return StreamReader(self.options, schema)


class SegmentPartition(InputPartition):
    """The part of one task."""

    def __init__(self, directory: str, part: Slice) -> None:
        super().__init__(part.segment)
        self.directory = directory
        self.part = part


class PlainReader(DataSourceReader):
    """Reads everything that is durable when the query is planned. Spark refuses `pushFilters` unless it is enabled."""

    def __init__(self, options: Mapping[str, str], schema: Iterable[Any] = ()) -> None:
        self.table: TableReader = reader_of(options, schema)
        self.start, self.end = bounds_of(options)

    def partitions(self) -> list[InputPartition]:
        """One for each segment that can contain a row, or more. Raises: ValueError (it begins behind its end)."""
        plan = self.table.plan()
        start, end = place_of(plan, self.start), place_of(plan, self.end)
        if start.lsn > end.lsn:
            raise ValueError(f"the batch begins with record {start.lsn}, and ends before it, with {end.lsn}")
        return _partitions(plan, self.table.slices(plan, start, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches."""
        return _read(self.table, partition)


class PushingReader(PlainReader):
    """The same, with filters applied before rows are made."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Accepts filters that it applies exactly; Spark applies the rest."""
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
        return bool(operator) and self.table.predicate.take(operator, name, inner.value)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches. With a name it registers as a reader before it returns its first offset."""

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
        self._reached_lsn: int | None = None  # by the newest micro-batch
        self._plan: JournalPlan | None = None
        self._target: Position | None = None
        self._registered_lsn: int | None = None  # by this object

    # -- offsets, on the driver ---------------------------------------------------------------------------------------

    @property
    def plan(self) -> JournalPlan:
        """Created in the planning process; a reader that is sent to executors has none."""
        if self._plan is None:
            self._plan = self.table.plan()
        return self._plan

    def initialOffset(self) -> dict[str, Any]:
        """For a query of which no micro-batch was committed: Spark asks again at each start until one is."""
        if self.start == EARLIEST:
            self._register(0)  # before reading what exists, so that it is kept
            return self.plan.first().as_dict()
        start = place_of(self.plan, self.start)
        if self.name is not None and not isinstance(self.start, Position):
            # Spark may have planned the first micro-batch from there, and the end of the journal was another then.
            registered = self.plan.readers().get(self.name, start.lsn)
            if registered < start.lsn:
                start = self.plan.position_before(registered)
        self._register(start.lsn)
        return start.as_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        """A number of octets of journal, or of records."""
        return ReadMaxBytes(self.max_bytes) if self.max_records is None else ReadMaxRows(self.max_records)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of a micro-batch from `start` on."""
        begin = Position.of(start)
        if begin.lsn != self._registered_lsn:
            self.plan.check(begin)  # first: in another journal nothing may be released up to this place
            self.plan.check_available(begin)  # for what is gone nothing is to be kept
            self._register(begin.lsn)
        end = self._target or self.plan.end()
        if (end.segment, end.offset) <= (begin.segment, begin.offset):
            end = begin
        elif not isinstance(limit, ReadAllAvailable):
            end = self.plan.advance(begin, end, self.max_bytes, self.max_records)
        self._reached_lsn = end.lsn
        return end.as_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The present end of the journal, and how many records the query is behind it: in its progress."""
        end = self.plan.end()
        behind = None if self._reached_lsn is None else end.lsn - self._reached_lsn
        return {**end.as_dict(), "offsetsBehindLatest": behind}

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to the present end only."""
        self._target = self.plan.end()

    def commit(self, end: dict[str, Any]) -> None:
        """Everything below is in the sink: its segments may be deleted."""
        self._register(Position.of(end).lsn)

    def _register(self, lsn: int) -> None:
        if self.name is not None:
            self.plan.files.register(self.plan.directory, self.name, lsn)
        self._registered_lsn = lsn

    # -- rows ---------------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One per segment between the two. Raises: JournalError (it begins behind its end)."""
        first, last = Position.of(start), Position.of(end)
        if first.lsn > last.lsn and self.table.strict:
            raise JournalError(
                f"{self.plan.directory}: the query begins with record {first.lsn}, but its checkpoint has a micro-batch"
                f" that ends with {last.lsn} and was not committed: its rows would be lost; give the query a new"
                " checkpoint (and option reader, which keeps its start), or pass over them (failOnDataLoss=false)"
            )
        self._reached_lsn = last.lsn  # of the first micro-batch after a start Spark asks for nothing else
        return _partitions(self.plan, self.table.slices(self.plan, first, last))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches."""
        return _read(self.table, partition)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None}


class NoPartition(InputPartition):
    """For nothing to read: from an empty list Spark would make a partition without a value."""

    def __init__(self) -> None:
        super().__init__(None)


def _partitions(plan: JournalPlan, parts: list[Slice]) -> list[InputPartition]:
    return [SegmentPartition(plan.directory, part) for part in parts] or [NoPartition()]


def _read(table: TableReader, partition: InputPartition) -> Iterator[Any]:
    if isinstance(partition, SegmentPartition):
        yield from table.batches(partition.directory, partition.part)
