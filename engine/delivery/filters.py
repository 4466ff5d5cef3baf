"""Messages as filters see them: nothing is read before a filter asks for it, and then once for all of them.

Source: queues page B.1 (header values), B.4, B.5.
"""

from typing import Any

from ...expressions.language import Subject, Value
from ..messages.content import ContentError, PropertyValue, decode_properties
from ..messages.field_table import Field, FieldTable, number_of
from ..messages.message import Message


class MessageSubject(Subject):
    """A message of a queue. `is_read`: its body was asked for."""

    __slots__ = ("_headers", "_message", "_properties", "is_read")

    def __init__(self, message: Message) -> None:
        envelope = message.envelope
        super().__init__(envelope.exchange, envelope.routing_key)
        self._message = message
        self._properties: dict[str, PropertyValue] | None = None
        self._headers: dict[str, Value] | None = None
        self.is_read = False

    def body(self) -> bytes:
        """See `Subject`."""
        self.is_read = True
        return self._message.body

    def headers(self) -> dict[str, Value]:
        """See `Subject`."""
        if self._headers is None:
            table = self._read().get("headers")
            self._headers = values_of(table) if isinstance(table, dict) else {}
        return self._headers

    def property(self, name: str) -> int | str | None:
        """See `Subject`. Octets that are no UTF-8 are replaced."""
        value = self._read().get(name)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        return value if isinstance(value, int) else None

    def _read(self) -> dict[str, PropertyValue]:
        if self._properties is None:
            try:
                self._properties = decode_properties(self._message.header)
            except ContentError:  # headers with a type that the broker passes on without knowing it
                self._properties = {}
        return self._properties


def values_of(table: FieldTable) -> dict[str, Value]:
    """A table in values of expressions."""
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
