"""Matching of headers bindings. Source: behaviour page 3.9, "headers"."""

from collections.abc import Collection, Container, Hashable, Mapping

from ..errors import InvalidHeadersMatch, InvalidHeadersMatchType
from ..messages.field_table import Field, FieldTable

_MATCHES = (b"all", b"any", b"all-with-x", b"any-with-x")


class HeadersPattern:
    """The arguments of a headers binding, ready to be matched.

    Raises: InvalidHeadersMatch, InvalidHeadersMatchType (406) for a bad `x-match`.
    """

    __slots__ = ("conditions", "identity", "wanted", "wants_any")

    def __init__(self, arguments: FieldTable) -> None:
        match = check_headers_match(arguments)
        with_x = match.endswith(b"-with-x")
        self.wants_any = match.startswith(b"any")
        #: (key, value) of each condition; a value of None: the header only has to be present.
        self.wanted = [
            (key, None if field.tag == "V" else field.comparable())
            for key, field in arguments.items()
            if key != "x-match" and (with_x or not key.startswith("x-"))
        ]
        #: Equal for patterns that match the same headers.
        self.identity: Hashable = (self.wants_any, frozenset(self.wanted))
        #: The cost of a comparison: one unit for each condition, more for long and nested values.
        self.conditions = 1 + sum(weight_of(field) for field in arguments.values())

    def matches(self, headers: "Comparables") -> bool:
        """Whether the binding matches these headers. Without conditions `all` matches, and `any` does not."""
        if self.wants_any:
            return any(_holds(headers, key, wanted) for key, wanted in self.wanted)
        return all(_holds(headers, key, wanted) for key, wanted in self.wanted)


class Comparables:
    """The headers of one message. Each is made comparable once, for all bindings."""

    __slots__ = ("_headers", "_known")

    def __init__(self, headers: Mapping[str, Field]) -> None:
        self._headers = headers
        self._known: dict[str, object] = {}

    def known_of(self, keys: Collection[str]) -> list[str]:
        """The keys among `keys` that the message has. O(the smaller number)."""
        headers = self._headers
        few: Collection[str] = headers
        many: Container[str] = keys
        if len(keys) < len(headers):
            few, many = keys, headers
        return [key for key in few if key in many]

    def __contains__(self, key: str) -> bool:
        return key in self._headers

    def __getitem__(self, key: str) -> object:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._headers[key].comparable()
        return known


def weight_of(field: Field) -> int:
    """The cost of comparing a value: one unit, more for a long or nested value."""
    value = field.value
    if isinstance(value, bytes):
        return 1 + len(value) // 64
    if isinstance(value, list):
        return 1 + sum(map(weight_of, value))
    if isinstance(value, dict):
        return 1 + sum(map(weight_of, value.values()))
    return 1


def check_headers_match(arguments: FieldTable) -> bytes:
    """The validated `x-match` of binding arguments; `all` if absent. Raises as `HeadersPattern` does."""
    field = arguments.get("x-match")
    if field is None:
        return b"all"
    if field.tag != "S":
        raise InvalidHeadersMatchType(type=field.type_name, field=field)
    assert isinstance(field.value, bytes)
    if field.value not in _MATCHES:
        raise InvalidHeadersMatch(value=field.value)
    return field.value


def _holds(headers: Comparables, key: str, wanted: object) -> bool:
    """Whether the headers meet one condition; for a `wanted` of None the key only has to be present."""
    return key in headers and (wanted is None or headers[key] == wanted)
