"""Conversion of a configuration given as a dict to TOML, so that one loader reads all configurations."""

import json
from collections.abc import Mapping
from typing import Any


def toml_of(tables: Mapping[str, Any]) -> str:
    """TOML text. Raises: TypeError for values that TOML does not have."""
    return "\n".join(f"{_key(key)} = {_value(value)}" for key, value in tables.items()) + "\n"


def _key(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)


def _value(value: Any) -> str:
    """An inline value, also of tables and arrays."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise TypeError(f"config: {value!r} cannot stand in a configuration")
