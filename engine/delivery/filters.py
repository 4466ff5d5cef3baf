"""Messages as subjects of filters. Each part is read when a filter first needs it, once for all filters.

Source: queues page B.1 (header values), B.4, B.5.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from ...expressions.language import Subject, Value
from ..messages.content import ContentError, PropertyValue, decode_properties, opened_headers
from ..messages.field_table import Field, FieldTable, FieldTableError, number_of
from ..messages.message import Message


class MessageSubject(Subject):
    """A message of a queue. `is_read`: a filter has read its body."""

    __slots__ = ("_headers", "_message", "_properties", "is_read")

    def __init__(self, message: Message) -> None:
        envelope = message.envelope
        super().__init__(envelope.exchange, envelope.routing_key)
        self._message = message
        self._properties: dict[str, PropertyValue] | None = None
        self._headers: Mapping[str, Value] | None = None
        self.is_read = False

    def body(self) -> bytes:
        self.is_read = True
        return self._message.body

    def headers(self) -> Mapping[str, Value]:
        if self._headers is None:
            table = opened_headers(self._message.header)
            self._headers = _HeaderValues(table) if table else NO_HEADERS
        return self._headers

    def property(self, name: str) -> int | str | None:
        value = self._read().get(name)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")  # octets may not be UTF-8
        return value if isinstance(value, int) else None

    def _read(self) -> dict[str, PropertyValue]:
        if self._properties is None:
            try:
                self._properties = decode_properties(self._message.header, has_headers=False)
            except ContentError:  # the property list is malformed
                self._properties = {}
        return self._properties


class _HeaderValues(Mapping[str, Value]):
    """Headers as values of expressions, each converted on demand, because filters need few of them."""

    __slots__ = ("_known", "_table")

    def __init__(self, table: Mapping[str, Field]) -> None:
        self._table = table
        self._known: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        if name not in self._known:
            try:
                self._known[name] = _value(self._table[name])
            except FieldTableError:  # a type that the broker passes on unread
                self._known[name] = None
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


NO_HEADERS: Mapping[str, Value] = MappingProxyType({})


def values_of(table: FieldTable) -> dict[str, Value]:
    """A field table as values of expressions."""
    return {name: _value(field) for name, field in table.items()}


def _value(field: Field) -> Any:
    tag, value = field
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return values_of(value)
    if isinstance(value, list):
        return [_value(one) for one in value]
    return number_of(field) if tag == "D" else value
