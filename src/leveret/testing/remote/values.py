"""Conversion between JSON and Python: snapshots, events and bodies in results; bodies and conditions in arguments.

A body is text if it is UTF-8, else `{"base64": "..."}`, in results and in arguments. As a pattern, `{"$partial": ...}`
matches values with at least these entries, and `{"$any": true}` matches every value.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any
from unittest.mock import ANY

from ..matching import Partial
from ..snapshots import Properties

#: Maximum nesting of arguments.
DEPTH_MAX = 64


class WrongValue(ValueError):
    """An argument is invalid; the message has the reason."""


def json_of(value: Any) -> Any:
    """The JSON form of a result: objects, arrays, octets as bodies, and of properties only the set ones."""
    if isinstance(value, Properties):
        values = {name: getattr(value, name) for name in Properties.__dataclass_fields__}
        return {name: json_of(each) for name, each in values.items() if each not in (None, {})}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: json_of(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, bytes | bytearray | memoryview):
        return _body(bytes(value))
    if isinstance(value, Mapping):
        return {str(key): json_of(item) for key, item in value.items()}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float) and not isfinite(value):  # JSON has none: null, as in the broker's lists
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if hasattr(value, "__iter__"):
        return [json_of(item) for item in value]
    return str(value)


def _body(octets: bytes) -> Any:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(octets).decode()}


def read_value(value: Any, depth: int = DEPTH_MAX) -> Any:
    """An argument, with the conditions and octets in it converted. Raises: WrongValue."""
    if depth == 0:
        raise WrongValue("nested too deep")
    if isinstance(value, list):
        return [read_value(item, depth - 1) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"base64"}:
        return _octets(value["base64"])
    if value.keys() == {"$any"}:
        return ANY
    if value.keys() == {"$partial"}:
        return Partial(read_value(value["$partial"], depth - 1))
    return {key: read_value(item, depth - 1) for key, item in value.items()}


def _octets(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise WrongValue("base64: this is not base64") from None
