"""The interface of an engine, which runs SQL over named views. Jobs use the SQL that both engines understand.

This is Spark's SQL without: DIV (write a - a % b), `inline` and lambdas, `concat` (write `||`), LEFT before ANTI JOIN
and SEMI JOIN. max_by needs FILTER (WHERE the value is not null). These functions of Spark are macros in DuckDB:
unix_micros, unix_millis, unix_seconds, timestamp_micros, timestamp_seconds, sequence, explode, collect_set, array_sort,
slice, size. `Dialect` has the expressions that differ.

In both engines `/` of two integers is a double, and nulls come first in ascending order.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from ..schemas import Columns

if TYPE_CHECKING:
    import pyarrow

#: A row by column. Timestamps have the time zone UTC; arrays are lists.
Row = dict[str, Any]
#: Name of a percentile -> per mille. Percentiles are exact, of the nearest rank: the least value that is not exceeded
#: by so many per mille of the values.
PERCENTILES = {"p50": 500, "p95": 950, "p99": 990, "p999": 999}


class Dialect(Protocol):
    """SQL expressions that differ between the engines."""

    def text(self, value: str) -> str:
        """The literal of a text with any characters. Raises: ValueError (see `check_text`)."""

    def timestamp(self, at_us: int) -> str:
        """A timestamp. `at_us`: microseconds since 1970 UTC."""

    def type(self, name: str) -> str:
        """A type. `name`: as in schemas.py, also `array<...>`."""

    def ordered_array(self, value: str, by: str, where: str) -> str:
        """An aggregate: the array of the values, in the order of `by`."""

    def percentile_state(self, value: str) -> str:
        """An aggregate that `percentile` reads. Nulls do not count."""

    def percentile(self, state: str, name: str) -> str:
        """A percentile, by its name in PERCENTILES; null without values."""

    def json_field(self, json: str, name: str) -> str:
        """The text of a field of a JSON object; null if it has none. `name`: with any characters."""

    def first_death(self, headers_json: str) -> str:
        """The queue of the first entry of the header x-death."""


class Engine(Protocol):
    """`name`: local or spark. All methods raise: ValueError (wrong SQL), OSError."""

    name: str
    dialect: Dialect

    def view(self, name: str, sql: str, *, cached: bool = False) -> None:
        """Make or replace a view. `cached`: its rows are computed once."""

    def stream(self, sql: str) -> Iterator[Row]:
        """The rows of a query one by one, in its order."""

    def arrow(self, sql: str) -> "pyarrow.Table":
        """The rows of a query as an Arrow table."""

    def memory_table(self, name: str, table: "pyarrow.Table") -> None:
        """Make a view of rows in memory."""

    def parquet_files(self, name: str, paths: Sequence[str], columns: Columns) -> None:
        """Make a view of Parquet files. Columns that a file lacks are null. Without files it is empty."""

    def write(self, sql: str, path: str) -> None:
        """Write the rows of a query as a Parquet file, with Spark as a directory of files. It is replaced."""

    def append(self, sql: str, path: str) -> None:
        """Add the rows of a query to a directory of Parquet files."""

    def each_queue(self, name: str, sql: str, work: "QueueWork", columns: Columns) -> None:
        """Make a view of the results of `work`, which is called for each queue. `sql` has the columns vhost and
        queue."""

    def close(self) -> None: ...


#: Gets all rows of one queue, in any order; returns rows with the wanted columns.
QueueWork = Callable[[list[Row]], list[Row]]


def rows(engine: Engine, sql: str) -> list[Row]:
    """All rows of a query."""
    return list(engine.stream(sql))


def value(engine: Engine, sql: str) -> Any:
    """The value of a query with one row and one column."""
    (row,) = engine.stream(sql)
    (found,) = row.values()
    return found


def in_utc(found: Any) -> Any:
    """A value of an engine's row, with times in UTC."""
    if isinstance(found, datetime):
        return found.astimezone(UTC)
    return found


def quoted_list(texts: Sequence[str]) -> str:
    """The literals of texts for IN (...). The texts have no quotes or backslashes."""
    return ", ".join(f"'{text}'" for text in texts)


def check_text(text: str) -> None:
    """Raises: ValueError (a character that an engine cannot have in a text)."""
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError(f"{text!r}: neither NUL nor half of a pair of UTF-16 can be looked for")
