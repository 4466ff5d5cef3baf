"""Matching of headers bindings, and their index by conditions. Source: behaviour page 3.9, "headers"."""

from collections.abc import Collection, Container, Hashable, Mapping
from dataclasses import field
from typing import Generic, TypeVar

from ...settings.slotted import slotted
from ..errors import InvalidHeadersMatch, InvalidHeadersMatchType
from ..messages.field_table import Field, FieldTable
from .counted import Held, values_of, with_one, without_one

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
        #: (key, value) of each condition. A value of None: the header must be present.
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
    """Whether the headers meet a condition. `wanted`: the value; None: any value."""
    return key in headers and (wanted is None or headers[key] == wanted)


D = TypeVar("D")

#: The value in the index for a condition on presence; no header equals it.
_PRESENT = object()


@slotted
class _Group(Generic[D]):
    """The destinations of bindings with equal patterns. `places`: the keys and values under which it is filed."""

    pattern: HeadersPattern
    serial: int
    held: Held[D] = None
    places: list[tuple[str, object]] = field(default_factory=list)


class HeadersPatterns(Generic[D]):
    """The bindings of a headers exchange, indexed by their conditions.

    A pattern that requires all its conditions is filed under one of them, the one with the fewest other patterns. A
    pattern that requires only one condition is filed under each. A message is compared with the patterns that are filed
    under the conditions it meets. `conditions`: number of conditions of all patterns. `cost`: number of comparisons so
    far.
    """

    def __init__(self) -> None:
        self.conditions = 0
        self.cost = 0
        self._serial = 0
        self._groups: dict[Hashable, _Group[D]] = {}  # by the identities of their patterns
        self._filed: dict[str, dict[object, dict[_Group[D], None]]] = {}  # groups by key and value
        self._unconditional: dict[_Group[D], None] = {}

    def __contains__(self, identity: Hashable) -> bool:
        return identity in self._groups

    def add(self, arguments: FieldTable, destination: D) -> None:
        pattern = HeadersPattern(arguments)
        group = self._groups.get(pattern.identity)
        if group is None:
            self._serial += 1
            group = self._groups[pattern.identity] = _Group(pattern, self._serial)
            self.conditions += pattern.conditions
            self._file(group)
        group.held = with_one(group.held, destination)

    def remove(self, arguments: FieldTable, destination: D) -> None:
        """Remove a binding, which must be there."""
        identity = HeadersPattern(arguments).identity
        group = self._groups[identity]
        group.held = without_one(group.held, destination)
        if group.held is None:
            del self._groups[identity]
            self.conditions -= group.pattern.conditions
            self._unfile(group)

    def match(self, headers: Comparables) -> list[D]:
        """The destinations of all matching bindings, in the order in which their patterns were first added."""
        filed, spent = self._filed, 0
        found: dict[int, _Group[D]] = {group.serial: group for group in self._unconditional}
        for key in headers.known_of(filed):
            values = filed[key]
            for value in (headers[key], _PRESENT):
                for group in values.get(value, ()):
                    spent += group.pattern.conditions
                    if group.serial not in found and group.pattern.matches(headers):
                        found[group.serial] = group
        self.cost += spent + len(found)
        return [destination for serial in sorted(found) for destination in values_of(found[serial].held)]

    def _file(self, group: _Group[D]) -> None:
        """File a group so that every message that matches it is compared with it."""
        pattern = group.pattern
        places = [(key, _PRESENT if value is None else value) for key, value in pattern.wanted]
        if not pattern.wants_any:
            if not places:
                self._unconditional[group] = None
                return
            places = [min(places, key=self._group_count)]
        group.places = places
        for key, value in places:
            self._filed.setdefault(key, {}).setdefault(value, {})[group] = None

    def _group_count(self, place: tuple[str, object]) -> int:
        """The number of groups under a key and value, doubled; plus 1 for presence, so that a value is preferred."""
        key, value = place
        return 2 * len(self._filed.get(key, {}).get(value, ())) + (value is _PRESENT)

    def _unfile(self, group: _Group[D]) -> None:
        self._unconditional.pop(group, None)
        for key, value in group.places:
            values = self._filed[key]
            del values[value][group]
            if not values[value]:
                del values[value]
                if not values:
                    del self._filed[key]
