"""Comparison of a value with the pattern of a test: by equality, by a condition, or in part.

A pattern is a plain value (compared as JSON: 1 is not true), `Partial`, a class (matches its instances), a callable
(matches if it returns true; an exception means no), or another object that compares with `==`: `mock.ANY`,
`pytest.approx`, dirty-equals. In mappings and lists each part may be any of these.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from .nearest_names import nearest_names
from .snapshots import json_content, plain, shown_body

#: A pattern for bodies: octets, text, a condition on the octets, or anything else, which is compared with the JSON.
Body = Any
#: A pattern for values; see above.
Wanted = Any

_OCTETS = (bytes, bytearray, memoryview)
_MISSING = object()


@nearest_names
class Partial:
    """JSON, or a table, that has at least these entries: `Partial({"id": 7})` matches {"id": 7, "total": 9}.

    Tables inside it match in part, too; arrays must have the same number of items, each of which matches in part.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, content: Any) -> None:
        self.content = content

    def __eq__(self, other: object) -> bool:
        return _is_partly(self.content, other)

    def __repr__(self) -> str:
        return f"Partial({self.content!r})"


def is_like(wanted: Wanted, value: Any) -> bool:
    """Whether a value matches a pattern. Tables and arrays in it are dicts and lists."""
    if is_condition(wanted):
        return not why_not(wanted, value)
    if _is_plain_class(wanted):
        return isinstance(value, wanted)
    if isinstance(wanted, Mapping):
        if not isinstance(value, Mapping) or wanted.keys() != value.keys():
            return False
        return all(is_like(each, value[key]) for key, each in wanted.items())
    if isinstance(wanted, list | tuple):
        if not isinstance(value, list | tuple) or len(wanted) != len(value):
            return False
        return all(map(is_like, wanted, value))
    if isinstance(wanted, bool | int | float) and isinstance(value, bool) is not isinstance(wanted, bool):
        return False
    return bool(wanted == value)


def is_body(wanted: Body, body: bytes) -> bool:
    """Whether a body matches the pattern."""
    if isinstance(wanted, _OCTETS):
        return bytes(wanted) == body
    if isinstance(wanted, str):
        return wanted.encode() == body
    if is_condition(wanted):
        return not why_not(wanted, body)
    content = json_content(body, _MISSING)
    if content is not _MISSING and is_like(wanted, content):
        return True
    if is_json(wanted):
        return False
    return is_like(wanted, body) or is_like(wanted, _text_of(body))


def is_json(wanted: Body) -> bool:
    """Whether the pattern can only be compared with JSON."""
    return wanted is None or isinstance(wanted, Mapping | list | tuple | bool | int | float | Partial)


def _text_of(body: bytes) -> Any:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return _MISSING


def _is_plain_class(wanted: Wanted) -> bool:
    """Whether a pattern is a class whose instances match, unlike the classes of dirty-equals, which compare by `==`."""
    return type(wanted) is type


def is_condition(wanted: Wanted) -> bool:
    """Whether the pattern is a callable that decides; a class is not."""
    return callable(wanted) and not isinstance(wanted, type)


def why_not(condition: Callable[[Any], object], value: Any) -> str:
    """The reason why a value does not meet a condition; "": it does."""
    try:
        return "" if condition(value) else "returned false"
    except Exception as error:  # the test's condition failed: no match, and the text names the error
        return f"raised {type(error).__name__}: {error}"


def _is_partly(wanted: Wanted, value: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(value, Mapping) and all(
            key in value and _is_partly(each, value[key]) for key, each in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return isinstance(value, list | tuple) and len(wanted) == len(value) and all(map(_is_partly, wanted, value))
    return is_like(wanted, value)


# -- showing --------------------------------------------------------------------------------------------------------


def aligned(wanted: Wanted, value: Any) -> Any:
    """The pattern with its matching parts replaced by the value's: then a diff of the texts shows only mismatches."""
    if isinstance(wanted, Partial):
        return aligned(wanted.content, value)
    if is_like(wanted, value):
        return value
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        return {key: aligned(each, value[key]) if key in value else each for key, each in wanted.items()}
    if isinstance(wanted, list | tuple) and isinstance(value, list | tuple) and len(wanted) == len(value):
        return [aligned(each, there) for each, there in zip(wanted, value)]
    return wanted


def projected(wanted: Wanted, value: Any) -> Any:
    """The value without the parts that a `Partial` in the pattern leaves open."""
    partial = isinstance(wanted, Partial)
    asked = wanted.content if partial else wanted
    if isinstance(asked, Mapping) and isinstance(value, Mapping):
        inner = (lambda each: Partial(each)) if partial else (lambda each: each)
        return {
            key: projected(inner(asked[key]), there) if key in asked else there
            for key, there in value.items()
            if key in asked or not partial
        }
    if isinstance(asked, list | tuple) and isinstance(value, list | tuple) and len(asked) == len(value):
        return [projected(Partial(each) if partial else each, there) for each, there in zip(asked, value)]
    return value


def shown_wanted(wanted: Wanted) -> str:
    """A pattern on one line."""
    if is_condition(wanted):
        code, where = getattr(wanted, "__code__", None), ""
        if code is not None:
            where = f" ({code.co_filename.replace(chr(92), '/').rpartition('/')[2]}:{code.co_firstlineno})"
        return f"what {getattr(wanted, '__name__', repr(wanted))}{where} accepts"
    return wanted.__name__ if _is_plain_class(wanted) else repr(plain(wanted))


def shown_expected(wanted: Body) -> str:
    """An expected body, shown like a body of a message."""
    if isinstance(wanted, _OCTETS):
        return shown_body(bytes(wanted))
    if isinstance(wanted, str):
        return shown_body(wanted.encode())
    if isinstance(wanted, Partial):
        return f"with at least {shown_json(wanted.content)}"
    return shown_json(wanted) if is_json(wanted) else shown_wanted(wanted)


def shown_json(content: Any, indent: int | None = None) -> str:
    """JSON text. Conditions and similar patterns in it are shown by their names."""
    return json.dumps(content, default=shown_wanted, indent=indent, sort_keys=indent is not None)
