"""The answer of a job, the same for all engines: tables in a stable order, and facts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .schemas import Columns

EXIT_OK, EXIT_FAILED, EXIT_FAULT, EXIT_HOLDS, EXIT_INTERRUPTED = 0, 1, 2, 3, 130


class Table(Protocol):
    """Rows in the order of the job. An engine may compute them when they are read."""

    @property
    def columns(self) -> Columns:
        """Names and types."""

    def count(self) -> int: ...

    def head(self, rows: int | None = None) -> Iterator[dict[str, Any]]:
        """The first rows, one by one; None: all of them. Times are in UTC."""

    def write_parquet(self, path: str) -> None:
        """Write all rows to a file, or with Spark to a directory of files. It is replaced. Raises: OSError."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`tables`: by name; the first is printed; a report has none. `facts`: are printed, too. `code`: exit code."""

    job: str
    tables: Mapping[str, Table] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    code: int = EXIT_OK

    @property
    def main(self) -> Table | None:
        return next(iter(self.tables.values()), None)
