"""Argument tables between JSON, as definitions have them, and typed fields of AMQP. Source: behaviour page 5.5."""

from typing import Any

from .engine.field_table import Field, FieldTable, number_of

DEPTH_MAX = 32


def table_of(value: object, depth: int = 0) -> FieldTable:
    """The table that a JSON object stands for. Raises: ValueError."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError("an object")
    if depth > DEPTH_MAX or any(len(key.encode()) > 255 for key in value):
        raise ValueError("keys of at most 255 octets, not too deep in each other")
    return {key: _field(item, depth) for key, item in value.items()}


def _field(value: object, depth: int) -> Field:
    if isinstance(value, bool):
        return Field("t", value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ValueError("integers of 64 bits")
        return Field("I" if -(2**31) <= value < 2**31 else "l", value)
    if isinstance(value, float):
        return Field("d", value)
    if isinstance(value, str):
        return Field("S", value.encode())
    if value is None:
        return Field("V", None)
    if isinstance(value, list) and depth < DEPTH_MAX:
        return Field("A", [_field(item, depth + 1) for item in value])
    return Field("F", table_of(value, depth + 1))


def json_of(table: FieldTable) -> dict[str, Any]:
    """The JSON object for a table: what JSON has no word for becomes the nearest that it has."""
    return {key: _plain(field) for key, field in table.items()}


def _plain(field: Field) -> Any:
    value = field.value
    if isinstance(value, bytes):
        return field.text
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return json_of(value)
    return number_of(field) if field.tag == "D" else value
