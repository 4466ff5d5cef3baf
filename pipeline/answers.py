"""What a job answers, whichever engine computed it: tables in a stable order, beside a few facts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .schemas import Columns

EXIT_OK, EXIT_FAILED, EXIT_FAULT, EXIT_HOLDS, EXIT_INTERRUPTED = 0, 1, 2, 3, 130


class Table(Protocol):
    """Rows that an engine can compute, in the job's order."""

    @property
    def columns(self) -> Columns:
        """Names and types."""
        ...

    def count(self) -> int:
        """How many rows there are."""
        ...

    def head(self, rows: int | None = None) -> Iterator[dict[str, Any]]:
        """The first rows, one by one; None: all of them. Times are in UTC."""
        ...

    def write_parquet(self, path: str) -> None:
        """All rows, as a file or a directory of files (a cluster's). What was there is replaced. Raises: OSError."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """`tables`: by name, the one that is printed first; none of a report. `facts`: more to print. `code`: exit code."""

    job: str
    tables: Mapping[str, Table] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    code: int = EXIT_OK

    @property
    def main(self) -> Table | None:
        """The table that is printed."""
        return next(iter(self.tables.values()), None)
