"""The rows of a job's query as a `Table` (answers.py)."""

from collections.abc import Iterator

from ..engines.protocol import Engine, Row, value
from ..schemas import Columns
from .outputs import ORDERS


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
        engine.view(self.name, sql, cached=cached)

    def count(self) -> int:
        return int(value(self._engine, f"SELECT count(*) FROM {self.name}"))

    def head(self, rows: int | None = None) -> Iterator[Row]:
        return self._engine.stream(self._rows if rows is None else f"{self._rows} LIMIT {rows}")

    def write_parquet(self, path: str) -> None:
        self._engine.write(self._rows, path)
