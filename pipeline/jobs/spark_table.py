"""`Table`: a DataFrame, computed once."""

from typing import Any

from ..schemas import Columns


class SparkTable:
    """`frame`: in the job's order, with the columns of the schema."""

    def __init__(self, frame: Any, columns: Columns) -> None:
        self._frame = kept(frame)
        self.columns = columns

    def count(self) -> int:
        """See `Table`."""
        return int(self._frame.count())

    def head(self, rows: int | None = None) -> Any:
        """See `Table`."""
        return (self._frame if rows is None else self._frame.limit(rows)).toArrow()

    def write_parquet(self, path: str) -> None:
        """See `Table`: a directory."""
        self._frame.write.mode("overwrite").parquet(path)


def kept(frame: Any) -> Any:
    """Computed once; what does not fit into memory is on disk."""
    from pyspark import StorageLevel

    return frame.persist(StorageLevel.MEMORY_AND_DISK)
