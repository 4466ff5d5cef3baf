"""Encodes values as JSON, in steps if they are large."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from .steps import ListSteps, free_in_steps, map_in_steps

if TYPE_CHECKING:
    import json

T = TypeVar("T")

#: Lists with more entries are encoded entry by entry.
SHORT_LIST_MAX = 20
#: Entries of a list in one part of the JSON.
PART_ENTRIES = 100

_encoder: "json.JSONEncoder | None" = None


def encoded(value: Any) -> bytes:
    """A value as compact JSON in UTF-8."""
    global _encoder
    if _encoder is None:
        import json  # loaded with the first answer

        _encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
    return _encoder.encode(value).encode("utf-8", "replace")


def encoded_in_steps(value: Any, *, is_own: bool = False) -> ListSteps[bytes]:
    """A value as JSON in parts. A long list, or one that is a field of an object, is encoded entry by entry.

    `is_own`: nothing else uses the lists, so they may be emptied to free their entries.
    """
    if _is_long(value):
        return (yield from list_in_steps(value if is_own else list(value)))
    if not isinstance(value, dict) or not any(map(_is_long, value.values())):
        return [encoded(value)]
    parts: list[bytes] = []
    for key, one in value.items():
        parts.append((b"," if parts else b"{") + encoded(key) + b":")
        if _is_long(one):
            parts += yield from list_in_steps(one if is_own else list(one))
        else:
            parts.append(encoded(one))
    parts.append(b"}")
    return parts


def _is_long(value: Any) -> bool:
    return isinstance(value, list) and len(value) > SHORT_LIST_MAX


def list_in_steps(items: list[T], make: Callable[[T], bytes] = encoded) -> ListSteps[bytes]:
    """A list as JSON in parts. `make`: encodes an entry.

    `items` is emptied meanwhile, because freeing a long list at once would take too long.
    """
    rows = yield from map_in_steps(make, _popped(items))
    parts = yield from map_in_steps(
        lambda at: b",".join(rows[at : at + PART_ENTRIES]) + b",", range(0, len(rows), PART_ENTRIES)
    )
    if parts:
        parts[-1] = parts[-1][:-1]
    yield from free_in_steps(rows)
    return [b"[", *parts, b"]"]


def _popped(items: list[T]) -> Iterator[T]:
    items.reverse()
    while items:
        yield items.pop()
