"""An engine: it answers SQL over named views. Jobs are SQL text in the subset that both engines take.

That subset is Spark's SQL without: DIV (a - a % b), `inline` and lambdas, `concat` (it is `||`), LEFT in front of ANTI
JOIN and SEMI JOIN. max_by needs FILTER (WHERE the value is not null). Spark's own functions of this list are macros in
DuckDB: unix_micros, unix_millis, unix_seconds, timestamp_micros, timestamp_seconds, sequence, explode, collect_set,
array_sort, slice, size. For what is spelled in two ways there is `Dialect`.

Division of two integers with `/` is a double in both. In ascending order nulls come first, as in Spark.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from ..schemas import Columns

if TYPE_CHECKING:
    import pyarrow

#: Timestamps are in UTC and know it; arrays are lists.
Row = dict[str, Any]
#: Percentiles are of the nearest rank: the least of the values that a share of `per_mille` of them do not exceed. They
#: are exact, and one of the values. Points -> their names.
PERCENTILES = {"p50": 500, "p95": 950, "p99": 990, "p999": 999}


class Dialect(Protocol):
    """SQL that is spelled in two ways."""

    def text(self, value: str) -> str:
        """A text, whatever is in it. Raises: ValueError (no engine can hold it)."""
        ...

    def timestamp(self, at_us: int) -> str:
        """A timestamp, from microseconds since 1970 UTC."""
        ...

    def type(self, name: str) -> str:
        """A type, by its name in schemas.py, also `array<...>`."""
        ...

    def ordered_array(self, value: str, by: str, where: str) -> str:
        """An aggregate: the values as an array, in the order of `by`."""
        ...

    def percentile_state(self, value: str) -> str:
        """An aggregate: what `point` takes its percentiles from. Nulls do not count."""
        ...

    def percentile(self, spread: str, name: str) -> str:
        """One of PERCENTILES; null if there were no values."""
        ...

    def json_field(self, json: str, name: str) -> str:
        """The text of a member of a JSON object, whatever its name is; null without one."""
        ...

    def first_death(self, headers_json: str) -> str:
        """The queue of the first entry in the header x-death."""
        ...


class Engine(Protocol):
    """`name`: local or spark. Raises, of all: ValueError (SQL that is wrong), OSError."""

    name: str
    dialect: Dialect

    def view(self, name: str, sql: str, *, cached: bool = False) -> None:
        """Give a query a name, in place of one with this name; `kept`: its rows are computed once."""
        ...

    def stream(self, sql: str) -> Iterator[Row]:
        """The rows one by one, in the query's order."""
        ...

    def arrow(self, sql: str) -> "pyarrow.Table":
        """The rows in Arrow's columns."""
        ...

    def memory_table(self, name: str, table: "pyarrow.Table") -> None:
        """A view of rows that are in memory."""
        ...

    def parquet_files(self, name: str, paths: Sequence[str], columns: Columns) -> None:
        """A view of Parquet files; columns that they lack are null. It is empty without files."""
        ...

    def write(self, sql: str, path: str) -> None:
        """The rows as Parquet, in place of what is there: a file, or of Spark a directory of files."""
        ...

    def append(self, sql: str, path: str) -> None:
        """The rows as one more Parquet file, or several, in this directory."""
        ...

    def each_queue(self, name: str, sql: str, work: "QueueWork", columns: Columns) -> None:
        """A view of what `work` makes of the rows of each queue. The query has the columns vhost and queue."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


#: From the rows of one queue, in no order, to rows with the wanted columns.
QueueWork = Callable[[list[Row]], list[Row]]


def rows(engine: Engine, sql: str) -> list[Row]:
    """All rows."""
    return list(engine.stream(sql))


def value(engine: Engine, sql: str) -> Any:
    """The one value of a query of one row and column."""
    (row,) = engine.stream(sql)
    (found,) = row.values()
    return found


def plain(found: Any) -> Any:
    """A value as every engine gives it: times in UTC."""
    if isinstance(found, datetime):
        return found.astimezone(UTC)
    return found


def words(texts: Sequence[str]) -> str:
    """Texts without quotes and backslashes, for IN (...)."""
    return ", ".join(f"'{text}'" for text in texts)


def check_text(text: str) -> None:
    """Raises: ValueError (no engine can hold it)."""
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError(f"{text!r}: neither NUL nor half of a pair of UTF-16 can be looked for")
