"""`--fail-if`: a condition on a job's rows, in the language of selectors (docs/expressions.md).

The syntax is `[JOB:]CONDITION`. Names are the columns of the job's table, and `rows`, the number of its rows. The
condition is met if it is true for one row. For a table without rows it is evaluated once, with `rows` = 0 and every
column NULL. Times are seconds since 1970; of an array, the condition sees the first element.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from ...expressions.language import JMS, Expression, ExpressionError, Subject, Value, compiled

ROWS = "rows"
_OF_A_JOB = re.compile(r"\s*([a-z]+)\s*:(.*)", re.DOTALL)


class _NotedNames(Mapping[str, Value]):
    """A mapping that collects the names that are looked up, in `names`."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = values
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Value:
        self.names.add(name)
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class _Row(Subject):
    """A row as the subject of an expression: its columns are headers."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Value]) -> None:
        super().__init__("", "")
        self._values = values

    def body(self) -> bytes:
        return b""

    def headers(self) -> Mapping[str, Value]:
        return self._values

    def property(self, name: str) -> None:
        return None


class Condition:
    """A condition on the rows of one table."""

    def __init__(self, text: str, columns: Collection[str]) -> None:
        """`columns`: of the table. Raises: ValueError (a wrong expression, or an unknown name)."""
        try:
            self._expression: Expression = compiled(text, JMS)
        except ExpressionError as error:
            raise ValueError(f"--fail-if {text}: {error}") from None
        self.text = text
        noted = _NotedNames({})
        self._expression.truth(_Row(noted))
        for name in sorted(noted.names - {ROWS, *columns}):
            raise ValueError(f"--fail-if {text}: there is no column {name}; there are {', '.join((ROWS, *columns))}")

    def is_met(self, rows: Iterable[Mapping[str, Any]], count: int) -> bool:
        """Whether the condition is true for one of the rows. `count`: their number."""
        if count == 0:
            return self._expression.matches(_Row({ROWS: 0}))
        return any(self._expression.matches(_Row({**_plain(row), ROWS: count})) for row in rows)


def conditions(texts: Iterable[str], jobs: Mapping[str, Collection[str]]) -> dict[str, list[Condition]]:
    """The conditions by job. `texts`: values of --fail-if. `jobs`: job -> columns of its table. Raises: ValueError."""
    found: dict[str, list[Condition]] = {}
    for text in texts:
        match = _OF_A_JOB.fullmatch(text)
        if match and match[1] not in jobs:
            raise ValueError(f"--fail-if {text}: this command has no job {match[1]} with a table")
        for job in (match[1],) if match else jobs:
            found.setdefault(job, []).append(Condition(match[2].strip() if match else text, jobs[job]))
    return found


def _plain(row: Mapping[str, Any]) -> dict[str, Value]:
    return {name: value.timestamp() if isinstance(value, datetime) else value for name, value in row.items()}
