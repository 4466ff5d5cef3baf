"""The answer of a job, with any engine: tables whose rows have a stable order, and facts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .schemas import Columns

EXIT_OK, EXIT_FAILED, EXIT_FAULT, EXIT_HOLDS, EXIT_INTERRUPTED = 0, 1, 2, 3, 130


class Table(Protocol):
    """A table of rows in the order of the job. An engine may compute the rows only when they are read."""

    @property
    def columns(self) -> Columns:
        """Names and types."""

    def count(self) -> int: ...

    def head(self, rows: int | None = None) -> Iterator[dict[str, Any]]:
        """The first rows, one by one; None: all of them. Times are in UTC."""

    def write_parquet(self, path: str) -> None:
        """Write all rows to a file, with Spark to a directory of files, replacing what is there. Raises: OSError."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a job. `tables`: by name; the first one is printed, and so are `facts`. `code`: the exit code."""

    job: str
    tables: Mapping[str, Table] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    code: int = EXIT_OK

    @property
    def main(self) -> Table | None:
        return next(iter(self.tables.values()), None)
