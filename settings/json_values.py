"""Reads JSON without what only Python's parser accepts: NaN, infinite numbers, and numbers of any length."""

import json
from collections.abc import Callable
from math import isinf
from typing import Any

#: Maximum digits of a number; JSON with more is refused.
DIGITS_MAX = 30


def value_of_json(text: str | bytes, object_of: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The value of a JSON text. `object_of`: makes an object of its pairs; None: a dict.

    Raises: ValueError: it is not JSON; a JSONDecodeError, which is one, has a position. RecursionError: it is too deep.
    """
    return json.loads(
        text,
        parse_int=checked_integer,
        parse_float=checked_float,
        parse_constant=checked_constant,
        object_pairs_hook=object_of,
    )


def checked_integer(text: str) -> int:
    """An integer of at most DIGITS_MAX digits: parsing costs quadratic time. Raises: ValueError."""
    if len(text) > DIGITS_MAX:
        raise ValueError
    return int(text)


def checked_float(text: str) -> float:
    """A number that a float can hold: Python reads 1e999 as infinity, which JSON does not have. Raises: ValueError."""
    value = float(text)
    if isinf(value):
        raise ValueError(text)
    return value


def checked_constant(text: str) -> object:
    """Refuse NaN and Infinity, which Python's parser accepts, but JSON does not have. Raises: ValueError."""
    raise ValueError(text)
