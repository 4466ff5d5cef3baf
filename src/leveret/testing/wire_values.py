"""Conversion of Python values to wire values with type tags, for injected messages."""

from collections.abc import Collection, Mapping
from typing import Any

from ..configured.typed_arguments import field_of
from ..engine import Field, FieldTable, PropertyValue
from .snapshots import Properties
from .typos import check_property

#: The properties that are keywords of `inject` and `assert_published`.
PROPERTY_NAMES = tuple(name for name in Properties.__dataclass_fields__ if name != "headers")


def known_properties(properties: Mapping[str, Any], *, beside: Collection[str]) -> dict[str, Any]:
    """The properties as a dict. `beside`: other valid keywords. Raises: TypeError for an unknown property."""
    for name in properties:
        check_property(name, PROPERTY_NAMES, beside)
    return dict(properties)


def wire_property(value: Any) -> PropertyValue:
    """The wire value of a property."""
    return value.encode() if isinstance(value, str) else value


def wire_table(values: Mapping[str, Any]) -> FieldTable:
    """The wire form of a table; values of unknown types become text. Raises: TypeError: `values` is no mapping."""
    if not isinstance(values, Mapping):
        raise TypeError(f"headers: {values!r} is invalid, expected a table")
    return {key: _field(value) for key, value in values.items()}


def _field(value: Any) -> Field:
    if isinstance(value, Field):
        return value
    if isinstance(value, bytes):
        return Field("x", value)
    if isinstance(value, Mapping):
        return Field("F", wire_table(value))
    if isinstance(value, list | tuple):
        return Field("A", [_field(item) for item in value])
    if value is None:
        return Field("V", None)
    return field_of(value if isinstance(value, bool | int | float) else str(value))
