"""The interface of an engine, which runs SQL over named views. Jobs use only SQL that both engines understand.

That is Spark's SQL without DIV (write a - a % b), `inline`, lambdas, `concat` (write `||`), and LEFT before ANTI JOIN
or SEMI JOIN. max_by needs FILTER (WHERE the value is not null). These functions of Spark are macros in DuckDB:
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

#: A row: column -> value. Timestamps have the time zone UTC; arrays are lists.
Row = dict[str, Any]
#: Name of a percentile -> per mille. Percentiles are exact, by nearest rank: the least value that at least this part of
#: the values does not exceed.
PERCENTILES = {"p50": 500, "p95": 950, "p99": 990, "p999": 999}


class Dialect(Protocol):
    """SQL expressions that differ between the engines."""

    def text(self, value: str) -> str:
        """A literal of any text. Raises: ValueError (see `check_text`)."""

    def timestamp(self, at_us: int) -> str:
        """A literal of a timestamp. `at_us`: microseconds since 1970 UTC."""

    def type(self, name: str) -> str:
        """The engine's name of a type. `name`: as in schemas.py, also `array<...>`."""

    def ordered_array(self, value: str, by: str, where: str) -> str:
        """An aggregate: the array of the values of rows with the condition `where`, in the order of `by`."""

    def percentile_state(self, value: str) -> str:
        """An aggregate of values, for `percentile`. Nulls do not count."""

    def percentile(self, state: str, name: str) -> str:
        """The percentile with this name in PERCENTILES; null without values."""

    def json_field(self, json: str, name: str) -> str:
        """The text of a field of a JSON object; null if the object lacks it. `name`: any text."""

    def first_death(self, headers_json: str) -> str:
        """The queue in the first entry of the header x-death."""


class Engine(Protocol):
    """Runs SQL. `name`: local or spark. All methods raise: ValueError (wrong SQL), OSError."""

    name: str
    dialect: Dialect

    def view(self, name: str, sql: str, *, cached: bool = False) -> None:
        """Make or replace a view. `cached`: its rows are computed once."""

    def stream(self, sql: str) -> Iterator[Row]:
        """The rows of a query, in its order."""

    def arrow(self, sql: str) -> "pyarrow.Table":
        """The rows of a query as an Arrow table."""

    def memory_table(self, name: str, table: "pyarrow.Table") -> None:
        """Make a view of an Arrow table."""

    def parquet_files(self, name: str, paths: Sequence[str], columns: Columns) -> None:
        """Make a view of Parquet files; without files it is empty. Columns that a file lacks are null."""

    def write(self, sql: str, path: str) -> None:
        """Write the rows of a query to a Parquet file, with Spark to a directory of files, replacing what is there."""

    def append(self, sql: str, path: str) -> None:
        """Add the rows of a query to a directory of Parquet files."""

    def each_group(self, name: str, sql: str, by: Sequence[str], work: "GroupWork", columns: Columns) -> None:
        """Make a view of the rows that `work` returns; it is called once for each group of rows.

        `sql`: the rows for `work`. `by`: columns that are equal in a group, and not null. `columns`: of the view.
        """

    def close(self) -> None: ...


#: A function of all rows of one group, in any order, that returns rows of the view.
GroupWork = Callable[[list[Row]], list[Row]]


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
    """Raises: ValueError (a character that an engine cannot have in a literal)."""
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError(f"{text!r}: a text with NUL, or with half of a surrogate pair, cannot be searched for")
