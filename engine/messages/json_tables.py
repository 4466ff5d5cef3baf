"""Conversion of argument tables between the JSON of definitions and typed fields of AMQP.

Every table that a client may declare can be exported and imported. Values without an equivalent in JSON (octets that
are not text, decimals, NaN, infinities) become the nearest value; an export of the imported table equals the first
export. Source: behaviour page 5.5.
"""

from math import isfinite
from typing import Any

from .field_table import DEPTH_MAX, Field, FieldTable, number_of

KEY_OCTETS_MAX = 255


def table_of_json(value: object, depth: int = 0) -> FieldTable:
    """The table of a JSON object. Raises: ValueError, whose text names what is expected."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError("an object")
    if depth >= DEPTH_MAX or any(len(key.encode()) > KEY_OCTETS_MAX for key in value):
        raise ValueError(f"keys of at most {KEY_OCTETS_MAX} octets, nested at most {DEPTH_MAX} deep")
    return {key: _field(item, depth) for key, item in value.items()}


def _field(value: object, depth: int) -> Field:
    if isinstance(value, bool):
        return Field("t", value)
    if isinstance(value, int):
        return Field(_tag_of(value), value)
    if isinstance(value, float):
        if not isfinite(value):  # Python's reader accepts NaN and Infinity
            raise ValueError("finite numbers")
        return Field("d", value)
    if isinstance(value, str):
        return Field("S", value.encode())
    if value is None:
        return Field("V", None)
    if isinstance(value, list) and depth + 1 < DEPTH_MAX:
        return Field("A", [_field(item, depth + 1) for item in value])
    return Field("F", table_of_json(value, depth + 1))


def _tag_of(value: int) -> str:
    """The narrowest type that clients use; only the timestamp has 64 unsigned bits."""
    if -(2**31) <= value < 2**31:
        return "I"
    if -(2**63) <= value < 2**63:
        return "l"
    if 0 <= value < 2**64:
        return "T"
    raise ValueError("integers of 64 bits")


def json_of_table(table: FieldTable) -> dict[str, Any]:
    return {_key(key): _plain(field) for key, field in table.items()}


def is_same_json(one: object, other: object) -> bool:
    """Whether two values are the same in JSON. In Python, true would be 1, and 1.0, too."""
    import json  # an idle broker does without it

    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _key(key: str) -> str:
    """The key with undecodable octets replaced, cut to the maximum length of a key."""
    raw = key.encode("utf-8", "surrogateescape")
    return raw.decode("utf-8", "replace").encode()[:KEY_OCTETS_MAX].decode("utf-8", "ignore")


def _plain(field: Field) -> Any:
    value = field.value
    if isinstance(value, bytes):
        return field.text
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return json_of_table(value)
    if isinstance(value, float) and not isfinite(value):
        return None
    return number_of(field) if field.tag == "D" else value
