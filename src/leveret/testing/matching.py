"""Whether a value is one that a test means: by equality, by a condition, in part.

A wanted value is plain (compared as JSON is: 1 is not true), `Partial`, a class (an instance of it is meant), a
callable (true for what is meant; one that raises means no), or anything else that decides by `==`: `mock.ANY`,
`pytest.approx`, dirty-equals. In mappings and lists each part may be any of these.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from .nearest_names import nearest_names
from .snapshots import json_content, plain, shown_body

#: A body as tests write it: octets, text, a condition on the octets, or anything else to be compared as JSON.
Body = Any
#: A value as tests write it; see above.
Wanted = Any

_OCTETS = (bytes, bytearray, memoryview)
_MISSING = object()


@nearest_names
class Partial:
    """JSON, or a table, with at least this in it: `Partial({"id": 7})` is like {"id": 7, "total": 9}.

    Tables in it are meant in part, too; arrays have to have as many items, each of them meant in part.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, content: Any) -> None:
        self.content = content

    def __eq__(self, other: object) -> bool:
        return _is_partly(self.content, other)

    def __repr__(self) -> str:
        return f"Partial({self.content!r})"


def is_like(wanted: Wanted, value: Any) -> bool:
    """Whether a value (tables and lists in it as dicts and lists) is meant."""
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
    """Whether a body is the one that a test means."""
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
    """Whether a body is to be compared as JSON and nothing else."""
    return wanted is None or isinstance(wanted, Mapping | list | tuple | bool | int | float | Partial)


def _text_of(body: bytes) -> Any:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return _MISSING


def _is_plain_class(wanted: Wanted) -> bool:
    """`int`, `dict`, a class of one's own; not one whose class decides what it equals, as in dirty-equals."""
    return type(wanted) is type


def is_condition(wanted: Wanted) -> bool:
    """Whether it is to be called."""
    return callable(wanted) and not isinstance(wanted, type)


def why_not(condition: Callable[[Any], object], value: Any) -> str:
    """Why a value does not meet a condition; "": it does."""
    try:
        return "" if condition(value) else "returned false"
    except Exception as error:  # of the test: it means no, and the failure says which
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
    """What is wanted, with the value's own parts wherever these are meant: only what differs is left to be seen."""
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
    """The value without what nobody asked for: beside a `Partial` only what it names."""
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
    """A wanted value on one line."""
    if is_condition(wanted):
        code = getattr(wanted, "__code__", None)
        where = (
            ""
            if code is None
            else f" ({code.co_filename.replace(chr(92), '/').rsplit('/', 1)[-1]}:{code.co_firstlineno})"
        )
        return f"what {getattr(wanted, '__name__', repr(wanted))}{where} accepts"
    return wanted.__name__ if _is_plain_class(wanted) else repr(plain(wanted))


def shown_expected(wanted: Body) -> str:
    """A body that a test expects, as it would be shown if it were there."""
    if isinstance(wanted, _OCTETS):
        return shown_body(bytes(wanted))
    if isinstance(wanted, str):
        return shown_body(wanted.encode())
    if isinstance(wanted, Partial):
        return f"with at least {shown_json(wanted.content)}"
    return shown_json(wanted) if is_json(wanted) else shown_wanted(wanted)


def shown_json(content: Any, indent: int | None = None) -> str:
    """JSON; conditions and the like in it by their names."""
    return json.dumps(content, default=shown_wanted, indent=indent, sort_keys=indent is not None)
