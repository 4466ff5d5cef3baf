"""Values as operators write them: durations, sizes, words. Each reader raises ValueError with what it expected."""

import re
from collections.abc import Callable
from typing import Any

_DURATION = re.compile(r"\s*([0-9]+)\s*(ms|s|m|h|d)\s*")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = re.compile(r"\s*([0-9]+)\s*([KMGT]?)(i?)B?\s*", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}

Reader = Callable[[object], Any]


def duration_ms(value: object) -> int:
    """Milliseconds from an integer or text such as "5s", "15m"."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        return int(match[1]) * _UNITS_MS[match[2]]
    raise ValueError('a duration: milliseconds, or text like "5s", "15m", "1h"')


def size_bytes(value: object) -> int:
    """Octets from an integer or text such as "64KiB", "10MB" (both in powers of 1024, as Artemis reads them)."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        factor: int = 1024 ** _POWERS[match[2].upper()]
        return int(match[1]) * factor
    raise ValueError('a size: octets, or text like "64KiB", "10MB"')


def boolean(value: object) -> bool:
    """true or false."""
    if isinstance(value, bool):
        return value
    raise ValueError("true or false")


def text(value: object) -> str:
    """Any text."""
    if isinstance(value, str):
        return value
    raise ValueError("text")


def texts(value: object) -> tuple[str, ...]:
    """A list of texts; one text alone will do."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise ValueError("a list of texts")


def integer(low: int, high: int) -> Reader:
    """An integer between two bounds."""

    def read(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        raise ValueError(f"an integer from {low} to {high}")

    return read


def word(*words: str) -> Reader:
    """One of some words."""

    def read(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise ValueError("one of " + ", ".join(words))

    return read
