"""Spark as an engine: on one machine or a cluster. Paths may be URIs."""

from collections.abc import Iterator, Sequence
from typing import Any

from ..error_texts import spark_error_text
from ..schemas import Columns, arrow, ddl
from .protocol import PERCENTILES, Dialect, GroupWork, Row, check_text, in_utc


def is_one_process(master: str) -> bool:
    """Whether Spark runs in one JVM, that of this process. `local-cluster[...]`, which is for tests, starts others."""
    return master.startswith("local") and not master.startswith("local-cluster")


class SparkDialect:
    """The `Dialect` of Spark."""

    def text(self, value: str) -> str:
        check_text(value)
        return "'" + "".join(_ESCAPED.get(letter, letter) for letter in value) + "'"

    def timestamp(self, at_us: int) -> str:
        return f"timestamp_micros({at_us}L)"

    def type(self, name: str) -> str:
        return name

    def ordered_array(self, value: str, by: str, where: str) -> str:
        pairs = f"array_sort(collect_list(IF({where}, named_struct('place', {by}, 'it', {value}), NULL)))"
        return f"transform({pairs}, one -> one.it)"

    def percentile_state(self, value: str) -> str:
        return f"sort_array(collect_list({value}))"

    def percentile(self, state: str, name: str) -> str:
        rank = f"CAST((size({state}) * {PERCENTILES[name]}L + 999) DIV 1000 AS int)"
        return f"try_element_at({state}, greatest({rank}, 1))"

    def json_field(self, json: str, name: str) -> str:
        return f"from_json({json}, 'map<string,string>')[{self.text(name)}]"

    def first_death(self, headers_json: str) -> str:
        return f"get_json_object({headers_json}, '$[\\'x-death\\'][0].queue')"


#: Escapes in literals. Spark replaces ${...} in the text of a query, also in literals.
_ESCAPED = {"'": "\\'", "\\": "\\\\", "$": "\\u0024", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z"}


#: Events in one partition of a shuffle, and the most partitions, which is Spark's own number. On a cluster 200
#: partitions of a small lake would be as many tasks, of a few thousand rows each.
EVENTS_A_PARTITION, PARTITIONS_MAX = 250_000, 200
PARTITIONS = "spark.sql.shuffle.partitions"


class SparkEngine:
    """The `Engine` with Spark. `session`: the caller stops it. Its temporary views belong to the engine."""

    name = "spark"

    def __init__(self, session: Any) -> None:
        self.session = session
        self.dialect: Dialect = SparkDialect()
        self._cached: dict[str, Any] = {}

    def expect(self, events: int) -> None:
        """Choose the number of partitions of shuffles for questions to this number of events."""
        found = min(max(events // EVENTS_A_PARTITION, 2), PARTITIONS_MAX)
        self.session.conf.set(PARTITIONS, str(found))

    def view(self, name: str, sql: str, *, cached: bool = False) -> None:
        self._register(name, self._run(sql), cached=cached)

    def _run(self, sql: str) -> Any:
        """Raises: ValueError."""
        from pyspark.errors import AnalysisException, ParseException

        try:
            return self.session.sql(sql)
        except (AnalysisException, ParseException) as error:
            raise ValueError(spark_error_text(error)) from error

    def _register(self, name: str, frame: Any, *, cached: bool = False) -> None:
        if name in self._cached:
            self._cached.pop(name).unpersist()
        if cached:
            from pyspark import StorageLevel

            frame = self._cached[name] = frame.persist(StorageLevel.MEMORY_AND_DISK)
        frame.createOrReplaceTempView(name)

    def stream(self, sql: str) -> Iterator[Row]:
        """As in `Engine`, but all rows are in this process's memory."""
        for batch in self.arrow(sql).to_batches():
            for row in batch.to_pylist():
                yield {name: in_utc(found) for name, found in row.items()}

    def arrow(self, sql: str) -> Any:
        return self._run(sql).toArrow()

    def parquet_files(self, name: str, paths: Sequence[str], columns: Columns) -> None:
        wanted = ddl(columns).replace(" NOT NULL", "")
        read = self.session.read.schema(wanted).option("__globPaths__", "false")
        self._register(name, read.parquet(*paths) if paths else self.session.createDataFrame([], wanted))

    def memory_table(self, name: str, table: Any) -> None:
        # Of a table whose first chunk is empty, Spark 4.3.0 would take no row.
        self._register(name, self.session.createDataFrame(table.combine_chunks()))

    def frame(self, name: str, frame: Any) -> None:
        """Make a view of a DataFrame of this session."""
        self._register(name, frame)

    def write(self, sql: str, path: str) -> None:
        self._run(sql).write.mode("overwrite").parquet(path)

    def append(self, sql: str, path: str) -> None:
        self._run(sql).write.mode("append").parquet(path)

    def each_group(self, name: str, sql: str, by: Sequence[str], work: GroupWork, columns: Columns) -> None:
        """As in `Engine`, in Spark's tasks: the rows of a group are in the memory of one task."""

        def one(table: Any) -> Any:
            import pyarrow

            found = [{key: in_utc(value) for key, value in row.items()} for row in table.to_pylist()]
            return pyarrow.Table.from_pylist(work(found), arrow(columns))

        made = self._run(sql).groupBy(*by).applyInArrow(one, ddl(columns).replace(" NOT NULL", ""))
        self._register(name, made)

    def close(self) -> None:
        for frame in self._cached.values():
            frame.unpersist()
        self._cached.clear()
