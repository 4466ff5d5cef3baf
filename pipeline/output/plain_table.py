"""`Table`: rows that are there already."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..schemas import Columns, arrow

if TYPE_CHECKING:
    import pyarrow


class PlainTable:
    """`rows`: in their order, each with all columns."""

    def __init__(self, columns: Columns, rows: Sequence[Mapping[str, Any]]) -> None:
        self.columns = columns
        self._rows = rows

    def count(self) -> int:
        """See `Table`."""
        return len(self._rows)

    def head(self, rows: int | None = None) -> "pyarrow.Table":
        """See `Table`."""
        import pyarrow

        return pyarrow.Table.from_pylist(list(self._rows[:rows]), arrow(self.columns))

    def write_parquet(self, path: str) -> None:
        """See `Table`."""
        from pyarrow import parquet

        Path(path).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(self.head(), path)
