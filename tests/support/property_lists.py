"""Property lists of every sort for property tests, and what they say according to a decoder that builds everything."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from leveret.engine.messages import content
from leveret.engine.messages.content import (
    MARKS,
    PROPERTIES,
    REPLY_TO_ME,
    ContentError,
    PropertySummary,
    decode_properties,
    encode_header,
)
from leveret.engine.messages.field_table import Field

#: Every word that the broker compares anything of a property list with.
WORDS = sorted(
    {
        word if isinstance(word, bytes) else word.encode()
        for value in vars(content).values()
        for word in (value if isinstance(value, tuple | frozenset) else (value,))
        if isinstance(word, str | bytes) and 0 < len(word) < 40
    }
)
#: Names of the length of a mark that are none, and marks.
NAMES = ["x-delai", "cc", "CC", "BCC", "ABC", "x-delay", "JMSXGroupID", "JMSXGroupIE", "k", "n", ""]


def careful_facts(properties: bytes) -> PropertySummary:
    """The facts of a property list, from all that it says. Raises: ContentError."""
    if len(properties) < 2 or properties[1] & 3:
        raise ContentError
    found: dict[str, Any] = decode_properties(bytes(12) + properties)
    spans = (
        1 + len(value) if isinstance(value, bytes) else 1 if name in ("delivery_mode", "priority") else 8
        for name, value in found.items()
        if not isinstance(value, dict)
    )
    position = 2
    headers = found.get("headers")
    if headers is not None:
        start = 2 + sum(1 + len(found[name]) for name in ("content_type", "content_encoding") if name in found)
        position += 4 + int.from_bytes(properties[start : start + 4], "big")
    if position + sum(spans) != len(properties):
        raise ContentError
    return PropertySummary(
        found.get("delivery_mode") == 2,
        found.get("priority"),
        found.get("expiration"),
        found.get("user_id"),
        headers is not None,
        not MARKS.isdisjoint(headers or ()) or found.get("reply_to") == REPLY_TO_ME,
    )


def facts_or_error(read: Any, properties: bytes) -> PropertySummary | None:
    """What a reader of property lists makes of one; None if it refuses it."""
    try:
        return read(properties)  # type: ignore[no-any-return]
    except ContentError:
        return None


octets = st.binary(max_size=12) | st.sampled_from(WORDS) | st.just(REPLY_TO_ME[:-1] + b"!")
_integers = {"b": 7, "B": 8, "s": 15, "u": 16, "I": 31, "i": 32, "l": 63, "L": 63, "T": 64}
_scalars = st.one_of(
    *(
        st.builds(Field, st.just(tag), st.integers(-(2**bits) if bits in (7, 15, 31, 63) else 0, 2**bits - 1))
        for tag, bits in _integers.items()
    ),
    st.builds(Field, st.just("t"), st.booleans()),
    st.builds(Field, st.just("f"), st.floats(width=32)),
    st.builds(Field, st.just("d"), st.floats()),
    st.builds(Field, st.just("D"), st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1))),
    st.builds(Field, st.sampled_from("Sx"), octets),
    st.just(Field("V", None)),
)
_names = st.sampled_from(NAMES) | st.sampled_from([word.decode("latin-1") for word in WORDS]) | st.text(max_size=4)
_fields = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.builds(Field, st.just("A"), st.lists(inner, max_size=3)),
        st.builds(Field, st.just("F"), st.dictionaries(_names, inner, max_size=3)),
    ),
    max_leaves=6,
)
_values = {
    "shortstr": octets,
    "octet": st.integers(0, 255) | st.integers(1, 2),
    "longlong": st.integers(0, 2**64 - 1),
    "table": st.dictionaries(_names, _fields, max_size=4),
}
#: Valid property lists (flags and values), marked and unmarked.
property_lists = st.fixed_dictionaries({}, optional={name: _values[kind] for name, _, kind in PROPERTIES}).map(
    lambda values: encode_header(0, values)[12:]
)


@st.composite
def with_changes(draw: st.DrawFn, properties: bytes) -> bytes:
    """The same list with some octets changed, or a word put over some; of the same length."""
    changed = bytearray(properties)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(changed) - 1))
        word = draw(st.binary(min_size=1, max_size=3) | st.sampled_from(WORDS))[: len(changed) - place]
        changed[place : place + len(word)] = word
    return bytes(changed)
