"""Converts properties and headers into JSON and back, for the lake's `payloads` and the AMQP source and sink."""

import base64
from typing import Any

from ..engine import Field

BINARY = "$binary"


def json_of(value: Any) -> Any:
    """A property or header as JSON; octets that are not UTF-8 are {"$binary": base64}."""
    if isinstance(value, Field):
        return json_of(value.value)
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {BINARY: base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {utf8(str(name)): json_of(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [json_of(one) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return utf8(value) if isinstance(value, str) else value
    return str(value)


def value_of(value: Any) -> Any:
    """The inverse of `json_of`; types that JSON lacks stay texts."""
    if isinstance(value, dict):
        if set(value) == {BINARY}:
            return base64.b64decode(value[BINARY])
        return {name: value_of(one) for name, one in value.items()}
    return [value_of(one) for one in value] if isinstance(value, list) else value


def utf8(word: str) -> str:
    """A client's text, with octets that are not UTF-8 as `\\xNN`."""
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
