"""The rows of queues page B.6 and B.7, read from the page itself; and messages as those rows describe them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leveret.expressions.language import Subject, Value

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "queues.md"
_ROW = re.compile(r"^\| ([XJ][0-9]+) \| `(.*?)` \| (.*?) \| (T|F|U|ERR) \|", re.MULTILINE)
_BODY = re.compile(r"`(\{.*?\})`")
_ENVELOPE = re.compile(r'(rk|headers|props)=("[^"]*"|\{[^}]*\})')
_VALUE = re.compile(r"`([^`]+)` → (?:`([^`]*)`|(-?[0-9]+|NaN))")


@dataclass(frozen=True)
class Row:
    """`answer`: T, F, U or ERR. `body`: as JSON; None: something that is none."""

    id: str
    expression: str
    answer: str
    body: str | None = None
    routing_key: str = ""
    headers: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def octets(self) -> bytes:
        """The body of the message."""
        return b"not JSON" if self.body is None else self.body.encode()


def rows(letter: str) -> list[Row]:
    """All rows whose id begins with X (content filters) or J (selectors)."""
    found = []
    for id_, expression, message, answer in _ROW.findall(PAGE.read_text()):
        if id_[0] == letter:
            body = _BODY.match(message)
            parts = {name: json.loads(text) for name, text in _ENVELOPE.findall(message)}
            envelope = parts.get("rk", ""), parts.get("headers", {}), parts.get("props", {})
            found.append(Row(id_, expression, answer, body and body[1], *envelope))
    return found


def value_rows() -> list[tuple[str, str]]:
    """Expression and value, of the cases that stand below the table of B.6."""
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith("Value cases (amps)")]
    return [(expression, text or number) for expression, text, number in _VALUE.findall(line)]


class Given(Subject):
    """A message made of what a test says."""

    def __init__(
        self,
        body: bytes = b"",
        *,
        routing_key: str = "",
        exchange: str = "",
        headers: Mapping[str, Value] | None = None,
        properties: Mapping[str, int | str] | None = None,
    ) -> None:
        super().__init__(exchange, routing_key)
        self.given = body
        self.given_headers: Mapping[str, Value] = headers or {}
        self.given_properties: Mapping[str, int | str] = properties or {}
        self.reads = 0

    def body(self) -> bytes:
        self.reads += 1
        return self.given

    def headers(self) -> Mapping[str, Value]:
        return self.given_headers

    def property(self, name: str) -> int | str | None:
        return self.given_properties.get(name)


def given(row: Row) -> Given:
    """The message of a row."""
    return Given(row.octets, routing_key=row.routing_key, headers=row.headers, properties=row.properties)
