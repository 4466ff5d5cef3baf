"""Counts of the values of a key, in little memory because most keys have one value.

`Held` is None for no value, the value itself for a single one, else a dict of counts.
"""

from collections.abc import Iterable
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Held: TypeAlias = dict[T, int] | T | None


def with_one(held: Held[T], value: T) -> Held[T]:
    """Increment the count of `value`. A dict is changed in place."""
    if held is None:
        return value
    counts = held if isinstance(held, dict) else {held: 1}
    counts[value] = counts.get(value, 0) + 1
    return counts


def without_one(held: Held[T], value: T) -> Held[T]:
    """Decrement the count of `value`, which must be there."""
    if not isinstance(held, dict):
        assert held == value
        return None
    held[value] -= 1
    if not held[value]:
        del held[value]
    return held or None


def values_of(held: Held[T]) -> Iterable[T]:
    """The values, each once."""
    if held is None:
        return ()
    return held if isinstance(held, dict) else (held,)
