"""The rows of a job's query as a `Table` (answers.py)."""

from collections.abc import Iterator

from ..engines.protocol import Engine, Row, rows, value
from ..schemas import Columns
from .outputs import ORDERS


def counts(engine: Engine, column: str, among: str) -> dict[str, int]:
    """The number of rows by the values of a column. `among`: a view, or a query in brackets."""
    counted = f"SELECT {column} AS what, count(*) AS n FROM {among} AS counted GROUP BY {column} ORDER BY {column}"
    return {row["what"]: row["n"] for row in rows(engine, counted)}


class EngineTable:
    """A `Table` that is a view of an engine. The view stays until the engine answers the same job again.

    name: of the view. cached: its rows are computed once. order: SQL; by default the order of the job.
    """

    def __init__(
        self, engine: Engine, job: str, sql: str, columns: Columns, *, cached: bool = True, order: str | None = None
    ) -> None:
        self.columns, self.name = columns, f"answer_{job}"
        self._engine = engine
        self.order = order or ORDERS[job]
        self._rows = f"SELECT * FROM {self.name} ORDER BY {self.order}"
        self._count: int | None = None
        engine.view(self.name, sql, cached=cached)

    def count(self) -> int:
        if self._count is None:
            self._count = int(value(self._engine, f"SELECT count(*) FROM {self.name}"))
        return self._count

    def counts(self, column: str) -> dict[str, int]:
        """The number of rows by the values of a column."""
        found = counts(self._engine, column, self.name)
        self._count = sum(found.values())
        return found

    def head(self, rows: int | None = None) -> Iterator[Row]:
        if self._count == 0:
            return iter(())
        return self._engine.stream(self._rows if rows is None else f"{self._rows} LIMIT {rows}")

    def write_parquet(self, path: str) -> None:
        self._engine.write(self._rows, path)
