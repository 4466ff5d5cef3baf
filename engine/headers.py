"""Matching of headers bindings. Source: behaviour page 3.9, "headers"."""

from .errors import InvalidHeadersMatch, InvalidHeadersMatchType
from .field_table import Field, FieldTable

_MATCHES = (b"all", b"any", b"all-with-x", b"any-with-x")


class HeadersPattern:
    """The arguments of a headers binding, ready to be matched.

    Raises: InvalidHeadersMatch, InvalidHeadersMatchType (406) for a bad `x-match`.
    """

    __slots__ = ("_any", "_wanted")

    def __init__(self, arguments: FieldTable) -> None:
        match = check_headers_match(arguments)
        with_x = match.endswith(b"-with-x")
        self._any = match.startswith(b"any")
        self._wanted = [
            (key, None if field.tag == "V" else field.comparable())
            for key, field in arguments.items()
            if key != "x-match" and (with_x or not key.startswith("x-"))
        ]

    def matches(self, headers: FieldTable) -> bool:
        """Whether a message with these headers takes the binding. No conditions: all matches, any does not."""
        if self._any:
            return any(_holds(headers.get(key), wanted) for key, wanted in self._wanted)
        return all(_holds(headers.get(key), wanted) for key, wanted in self._wanted)


def check_headers_match(arguments: FieldTable) -> bytes:
    """The validated `x-match` of binding arguments; all when absent."""
    field = arguments.get("x-match")
    if field is None:
        return b"all"
    if field.tag != "S":
        raise InvalidHeadersMatchType(type=field.type_name, field=field)
    assert isinstance(field.value, bytes)
    if field.value not in _MATCHES:
        raise InvalidHeadersMatch(value=field.value)
    return field.value


def _holds(field: Field | None, wanted: object) -> bool:
    """A void condition (None) asks only for presence."""
    return field is not None and (wanted is None or field.comparable() == wanted)
