"""Field tables: there and back, and nothing but a refusal on anything else (behaviour page 0.6)."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import decode as pamqp_decode
from pamqp import encode as pamqp_encode

from leveret.engine.messages.field_table import (
    DEPTH_MAX,
    TYPE_NAMES,
    Field,
    FieldTable,
    FieldTableError,
    UnknownFieldTag,
    decode_bare_table,
    decode_table,
    encode_array,
    encode_table,
    scan_table,
)


def _ints(tag: str, low: int, high: int) -> st.SearchStrategy[Field]:
    return st.builds(Field, st.just(tag), st.integers(low, high))


scalars = st.one_of(
    st.builds(Field, st.just("t"), st.booleans()),
    _ints("b", -(2**7), 2**7 - 1),
    _ints("B", 0, 2**8 - 1),
    _ints("s", -(2**15), 2**15 - 1),
    _ints("u", 0, 2**16 - 1),
    _ints("I", -(2**31), 2**31 - 1),
    _ints("i", 0, 2**32 - 1),
    _ints("l", -(2**63), 2**63 - 1),
    _ints("L", -(2**63), 2**63 - 1),
    _ints("T", 0, 2**64 - 1),
    st.builds(Field, st.just("f"), st.floats(width=32, allow_nan=False)),
    st.builds(Field, st.just("d"), st.floats(allow_nan=False)),
    st.builds(Field, st.just("D"), st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1))),
    st.builds(Field, st.sampled_from("Sx"), st.binary(max_size=20)),
    st.just(Field("V", None)),
)
keys = st.binary(max_size=12).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
fields = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.builds(Field, st.just("A"), st.lists(inner, max_size=4)),
        st.builds(Field, st.just("F"), st.dictionaries(keys, inner, max_size=4)),
    ),
    max_leaves=12,
)
tables = st.dictionaries(keys, fields, max_size=5)


@given(tables, st.binary(max_size=5), st.binary(max_size=5))
def test_tables_come_back_as_they_were(table: FieldTable, before: bytes, behind: bytes) -> None:
    """All eighteen tags, nested, at any offset; what stands behind is left alone."""
    raw = encode_table(table)
    assert decode_table(before + raw + behind, len(before)) == (table, len(before) + len(raw))
    assert decode_bare_table(raw[4:]) == table


@given(tables)
def test_a_table_cut_short_anywhere_is_refused(table: FieldTable) -> None:
    """A cut at every octet: FieldTableError, never a table and never another exception."""
    raw = encode_table(table)
    for size in range(len(raw)):
        with pytest.raises(FieldTableError):
            decode_table(raw[:size])


@given(st.binary(max_size=200), st.integers(0, 8))
def test_any_octets_are_a_table_or_are_refused(data: bytes, start: int) -> None:
    """Nothing but FieldTableError comes out of octets from outside; what decodes, encodes."""
    for octets in (data, len(data).to_bytes(4, "big") + data):
        assert by_scanning(octets, start) == by_decoding(octets, start)
        try:
            table, end = decode_table(octets, start)
        except FieldTableError:
            continue
        assert start + 4 <= end <= len(octets)
        encode_table(table)
    try:
        decode_bare_table(data)
    except FieldTableError:
        pass


MARKS = frozenset({b"k", b"CC", b""})


def by_decoding(data: bytes, start: int) -> tuple[bool, int] | tuple[type[Exception], str]:
    """What `scan_table` has to say of these octets, from the table itself."""
    try:
        table, end = decode_table(data, start)
    except FieldTableError as error:
        return type(error), str(error)
    return any(key.encode("utf-8", "surrogateescape") in MARKS for key in table), end


def by_scanning(data: bytes, start: int) -> tuple[bool, int] | tuple[type[Exception], str]:
    """What it does say."""
    try:
        return scan_table(data, start, MARKS)
    except FieldTableError as error:
        return type(error), str(error)


@given(tables, st.binary(max_size=3), st.binary(max_size=3), st.data())
def test_scanning_agrees_with_decoding(table: FieldTable, before: bytes, behind: bytes, chance: st.DataObject) -> None:
    """A table of any kind, whole, cut short anywhere, and with any octet changed: the same marks, the same error."""
    raw = bytearray(before + encode_table(table) + behind)
    assert by_scanning(bytes(raw), len(before)) == by_decoding(bytes(raw), len(before))
    for size in range(len(raw)):
        assert by_scanning(bytes(raw[:size]), len(before)) == by_decoding(bytes(raw[:size]), len(before))
    for place in chance.draw(st.lists(st.integers(0, len(raw) - 1), max_size=3)):
        raw[place] = chance.draw(st.integers(0, 255) | st.sampled_from(b"SxFAVDt\x00\x01\x02"))
        assert by_scanning(bytes(raw), len(before)) == by_decoding(bytes(raw), len(before))


@given(
    st.lists(keys, max_size=4),
    st.sampled_from([Field("V", None), Field("S", b"k"), Field("F", {"k": Field("V", None)})]),
)
def test_scanning_sees_marks_of_the_outermost_table_alone(names: list[str], value: Field) -> None:
    """A name is a mark where it is an entry's, not where it is a value or an entry of a nested table."""
    raw = encode_table(dict.fromkeys(names, value))
    assert scan_table(raw, 0, MARKS)[0] == any(name in ("k", "CC", "") for name in names)


@pytest.mark.parametrize("tag", [b"F", b"A"], ids=["tables", "arrays"])
@pytest.mark.parametrize("depth", [1, 62, 63, 64, 65, 20_000])
def test_scanning_has_the_same_limit_of_nesting(depth: int, tag: bytes) -> None:
    """Neither deeper nor less deep, and no end of Python's stack."""
    assert by_scanning(nested(depth, tag), 0) == by_decoding(nested(depth, tag), 0)


@pytest.mark.parametrize("tag", range(256))
def test_scanning_knows_the_same_tags(tag: int) -> None:
    """Every octet as a tag, with room enough and with every room too small, in a table and in an array."""
    for size in range(14):
        value = bytes((tag,)) + bytes(size)
        for entry in (b"\x01n" + value, b"\x01nA" + struct.pack(">I", len(value)) + value):
            data = struct.pack(">I", len(entry)) + entry
            assert by_scanning(data, 0) == by_decoding(data, 0)


_tagged = st.tuples(st.sampled_from("".join(TYPE_NAMES)), st.binary(max_size=12)).map(
    lambda pair: b"\x01k" + pair[0].encode() + pair[1]
)


@given(st.lists(_tagged, max_size=6).map(b"".join))
def test_almost_tables_are_refused_cleanly(data: bytes) -> None:
    """Keys and tags are right, the rest is chance: the same promise where it is harder to keep."""
    framed = len(data).to_bytes(4, "big") + data
    assert by_scanning(framed, 0) == by_decoding(framed, 0)
    try:
        decode_bare_table(data)
    except FieldTableError:
        pass


def nested(depth: int, tag: bytes) -> bytes:
    """A table of tables, or of arrays of arrays."""
    value = b"V"
    for _ in range(depth):
        inner = (b"\x01k" if tag == b"F" else b"") + value
        value = tag + struct.pack(">I", len(inner)) + inner
    body = b"\x01k" + value
    return struct.pack(">I", len(body)) + body


@pytest.mark.parametrize("tag", [b"F", b"A"], ids=["tables", "arrays"])
@pytest.mark.parametrize("depth, is_refused", [(1, False), (63, False), (64, True), (400, True), (200_000, True)])
def test_nesting_has_a_limit(depth: int, is_refused: bool, tag: bytes) -> None:
    """64 levels with the outermost are fine; more are refused long before Python's stack ends."""
    assert DEPTH_MAX == 64
    if is_refused:
        with pytest.raises(FieldTableError, match="deep"):
            decode_table(nested(min(depth, 20_000), tag))
    else:
        table, _ = decode_table(nested(depth, tag))
        encode_table(table)


@pytest.mark.parametrize("tag", [octet for octet in range(256) if chr(octet) not in TYPE_NAMES])
def test_unknown_tags_are_named(tag: int) -> None:
    """Every octet that is no tag raises UnknownFieldTag."""
    with pytest.raises(UnknownFieldTag):
        decode_bare_table(b"\x01k" + bytes((tag,)) + bytes(16))


def test_of_duplicate_keys_the_first_counts() -> None:
    """As look-ups in Erlang's property lists do."""
    assert decode_bare_table(b"\x01kt\x01\x01kt\x00") == {"k": Field("t", True)}


@pytest.mark.parametrize("count", [0, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 1000])
@pytest.mark.parametrize("tag", list("SxFA"))
def test_announced_sizes_are_not_believed(tag: str, count: int) -> None:
    """A size that is not there is refused (and nothing of that size is built)."""
    data = b"\x01k" + tag.encode() + struct.pack(">I", count)
    if count:
        with pytest.raises(FieldTableError):
            decode_bare_table(data)
    else:
        decode_bare_table(data)


class CountingBytes(bytes):
    """Octets that count how many of them were copied out."""

    copied = 0

    def __getitem__(self, index: object) -> object:  # type: ignore[override]
        found = super().__getitem__(index)  # type: ignore[call-overload]
        if isinstance(found, bytes):
            type(self).copied += len(found)
        return found


@pytest.mark.parametrize(
    "element",
    [b"V", b"t\x01", b"S\x00\x00\x00\x01x", b"A\x00\x00\x00\x00", b"F\x00\x00\x00\x00", b"A\x00\x00\x00\x02VV"],
    ids=["voids", "bools", "strings", "arrays", "tables", "filled arrays"],
)
@pytest.mark.parametrize("read", [decode_table, lambda data: scan_table(data, 0, MARKS)], ids=["decoded", "scanned"])
def test_huge_arrays_cost_one_step_an_element(read: Callable[[bytes], object], element: bytes) -> None:
    """Twice the elements, twice the calls; no octet is copied more than once."""

    def cost(count: int) -> int:
        items = element * count
        body = b"\x01kA" + struct.pack(">I", len(items)) + items
        data = CountingBytes(struct.pack(">I", len(body)) + body)
        CountingBytes.copied = 0
        calls = 0

        def profile(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(profile)
        try:
            read(data)
        finally:
            sys.setprofile(None)
        assert CountingBytes.copied <= len(data)
        return calls

    small, large = cost(2_000), cost(4_000)
    assert large <= 2.05 * small


plain = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-(2**31), 2**31 - 1),
        st.text(max_size=8),
        st.none(),
        st.floats(width=32, allow_nan=False),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=8,
)


def as_plain(field: Field) -> object:
    """The Python value that pamqp has for a field."""
    if isinstance(field.value, dict):
        return {key: as_plain(value) for key, value in field.value.items()}
    if isinstance(field.value, list):
        return [as_plain(value) for value in field.value]
    return field.text if field.tag == "S" else field.value


@given(st.dictionaries(st.text(max_size=8), plain, max_size=4))
def test_agrees_with_pamqp(table: dict[str, object]) -> None:
    """What pamqp encodes we read alike, and what we encode pamqp reads alike."""
    decoded, _ = decode_table(pamqp_encode.field_table(table))  # type: ignore[arg-type]
    assert {key: as_plain(field) for key, field in decoded.items()} == table
    _, back = pamqp_decode.field_table(encode_table(decoded))
    assert back == table


@pytest.mark.parametrize(
    "field",
    [
        Field("b", 200), Field("I", 2**40), Field("T", -1), Field("t", []), Field("f", 1e39),
        Field("D", (256, 1)), Field("D", (0, -1)), Field("D", (0, 2**32)),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_their_tag_are_refused(field: Field) -> None:
    """Encoding raises FieldTableError, too."""
    if field.tag == "t":
        assert encode_table({"k": field})  # anything is true or false
    else:
        with pytest.raises(FieldTableError):
            encode_table({"k": field})
        with pytest.raises(FieldTableError):
            encode_array([field])


def test_a_key_that_is_too_long_is_refused() -> None:
    """A key is a short string: at most 255 octets, not characters."""
    value = Field("t", True)
    for key in ("k" * 255, "\u00fc" * 127):
        assert decode_table(encode_table({key: value}))[0] == {key: value}
    for key in ("k" * 256, "\u00fc" * 128):
        with pytest.raises(FieldTableError, match="a key has 256 octets, more than 255"):
            encode_table({"outer": Field("F", {key: value})})
