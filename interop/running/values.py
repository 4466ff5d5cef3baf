"""Values in scenarios and in drivers' answers (field tables, bodies, names), and their comparison.

In requests to a driver a value of a table has its type, a letter of AMQP's field tables: {"S": "text"}, {"I": 5}, {"F":
{...}}, {"A": [...]}, {"x": base64}, {"T": seconds}, {"D": [scale, value]}, {"V": null}. A driver's answers are plain,
since clients do not distinguish all types: numbers, texts, true, lists, tables; {"x": base64} for octets that are not
text, {"T": seconds} for times, {"D": [scale, value]} for decimals.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

TYPES = "tbBsuIilLfdDSxATFV"
SEQUENCE = bytes(range(256))


def typed(value: Any) -> dict[str, Any]:
    """A value of a scenario with its type: text is S, an integer I or l, a float d, true t.

    Raises: ValueError: it is a table without a type.
    """
    if isinstance(value, bool):
        return {"t": value}
    if isinstance(value, int):
        return {"I" if -(2**31) <= value < 2**31 else "l": value}
    if isinstance(value, float):
        return {"d": value}
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, list):
        return {"A": [typed(item) for item in value]}
    if isinstance(value, dict) and len(value) == 1:
        ((kind, inner),) = value.items()
        if kind == "F":
            return {"F": {key: typed(item) for key, item in inner.items()}}
        if kind == "A":
            return {"A": [typed(item) for item in inner]}
        if kind == "V":
            return {"V": None}
        if len(kind) == 1 and kind in TYPES:
            return {kind: inner}
    raise ValueError(f"a value with its type, such as {{ F = {value!r} }}, is needed")


def typed_table(table: Mapping[str, Any], leave_out: Collection[str] = ()) -> dict[str, Any]:
    """A table with types, without values that contain a type in `leave_out`."""
    result = {}
    for key, value in table.items():
        with_type = typed(value)
        if not types_in(with_type) & set(leave_out):
            result[key] = with_type
    return result


def types_in(value: Mapping[str, Any]) -> set[str]:
    """All types in a typed value."""
    ((kind, inner),) = value.items()
    nested = inner.values() if kind == "F" else inner if kind == "A" else ()
    return {kind}.union(*(types_in(item) for item in nested))


def plain(value: Mapping[str, Any]) -> Any:
    """A typed value in the form of drivers' answers."""
    ((kind, inner),) = value.items()
    if kind == "F":
        return {key: plain(item) for key, item in inner.items()}
    if kind == "A":
        return [plain(item) for item in inner]
    if kind == "x":
        with suppress(UnicodeDecodeError):
            return base64.b64decode(inner).decode()
    return {kind: inner} if kind in "xTD" else inner


def body_of(written: Any) -> bytes:
    """The octets of a body: text, {base64 = ...}, or {size = N}, in which all octets occur in turn."""
    if isinstance(written, str):
        return written.encode()
    if isinstance(written, dict) and written.keys() == {"size"}:
        size = int(written["size"])
        return (SEQUENCE * (size // 256 + 1))[:size]
    if isinstance(written, dict) and written.keys() == {"base64"}:
        return base64.b64decode(written["base64"])
    raise ValueError(f"no body: {written!r}")


def named(value: Any, rename: Callable[[str], str]) -> Any:
    """A value in which names that begin with @ are unique for the run."""
    if isinstance(value, str):
        return rename(value)
    if isinstance(value, dict):
        return {key: named(item, rename) for key, item in value.items()}
    if isinstance(value, list):
        return [named(item, rename) for item in value]
    return value


def difference(expected: Any, seen: Any, where: str = "") -> str:
    """The difference between `expected` and `seen`; "": there is none. Further keys of a seen table are ignored.

    An expected text that ends with an asterisk is a prefix; "?" is any text that is not empty.
    """
    if isinstance(expected, Mapping):
        if not isinstance(seen, Mapping):
            return f"{where}: {_short(seen)} instead of {_short(expected)}"
        for key, value in expected.items():
            if key not in seen:
                return f"{where}.{key}: missing; {_short(value)} was expected"
            found = difference(value, seen[key], f"{where}.{key}")
            if found:
                return found
        return ""
    if isinstance(expected, list):
        if not isinstance(seen, list) or len(seen) != len(expected):
            return f"{where}: {_short(seen)} instead of {_short(expected)}"
        return next(
            filter(None, (difference(*pair, f"{where}[{i}]") for i, pair in enumerate(zip(expected, seen)))), ""
        )
    if isinstance(expected, str) and isinstance(seen, str):
        if expected == "?":
            return "" if seen else f"{where}: empty"
        if expected.endswith("*") and seen.startswith(expected[:-1]):
            return ""
    if isinstance(expected, float) or isinstance(seen, float):
        close = isinstance(seen, int | float) and math.isclose(expected, seen, rel_tol=1e-6)
        return "" if close else f"{where}: {_short(seen)} instead of {_short(expected)}"
    if expected != seen or isinstance(expected, bool) != isinstance(seen, bool):
        return f"{where}: {_short(seen)} instead of {_short(expected)}"
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:200]}... ({len(text)} characters)"
