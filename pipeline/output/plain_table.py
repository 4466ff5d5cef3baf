"""`Table`: rows that are there already."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..schemas import Columns, arrow


class PlainTable:
    """`rows`: in their order, each with all columns."""

    def __init__(self, columns: Columns, rows: Sequence[Mapping[str, Any]]) -> None:
        self.columns = columns
        self._rows = rows

    def count(self) -> int:
        return len(self._rows)

    def head(self, rows: int | None = None) -> Iterator[dict[str, Any]]:
        return (dict(row) for row in self._rows[:rows])

    def write_parquet(self, path: str) -> None:
        import pyarrow
        from pyarrow import parquet

        Path(path).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.Table.from_pylist(list(self._rows), arrow(self.columns)), path)
