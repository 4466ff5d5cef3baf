"""Shapes of property lists: what has one is valid and has its facts, whatever the octets that do not matter are."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from property_lists import WORDS, careful_facts, facts_or_error, property_lists, with_changes

from leveret.engine.messages.content import MARKS, PROPERTIES, PropertySummary, encode_header, scan_properties
from leveret.engine.messages.field_table import Field, encode_table
from leveret.engine.messages.shapes import (
    ALIKE_MAX,
    COST,
    CREDIT_FIRST,
    SHAPES_MAX,
    SIZE_MAX,
    SOURCES,
    Shapes,
    fixed_octets,
)


def shapes_of(*lists: bytes) -> Shapes:
    """Shapes that know these lists, if they can."""
    shapes = Shapes()
    for _ in range(COST * (1 + len(lists))):
        shapes.learn(b"\x00\x00", PropertySummary(is_marked=True))
    for properties in lists:
        shapes.learn(properties, scan_properties(properties))
    return shapes


@given(property_lists)
def test_scanning_agrees_with_decoding(properties: bytes) -> None:
    """The facts are those of the decoded list, and so they are with an octet too many or too few."""
    for one in (properties, properties + b"\x00", properties[:-1]):
        assert facts_or_error(scan_properties, one) == facts_or_error(careful_facts, one)


@given(st.data())
def test_scanning_agrees_with_decoding_of_changed_lists(data: st.DataObject) -> None:
    """The same where a list is nearly valid."""
    changed = data.draw(with_changes(data.draw(property_lists)))
    assert facts_or_error(scan_properties, changed) == facts_or_error(careful_facts, changed)


@given(st.data())
def test_octets_outside_the_mask_change_nothing(data: st.DataObject) -> None:
    """Any octets, and every word that the broker knows, in each stretch that is not settled."""
    properties = data.draw(property_lists)
    summary = scan_properties(properties)
    assume(not summary.is_marked)
    settled = fixed_octets(properties)
    assert len(settled) == len(properties) and set(settled) <= {0, 255}
    changed = bytearray(properties)
    place = 0
    while place < len(changed):
        end = place + 1
        while end < len(changed) and settled[end] == settled[place]:
            end += 1
        if not settled[place]:
            size = end - place
            words = [word for word in WORDS if len(word) == size]
            anything = st.binary(min_size=size, max_size=size)
            changed[place:end] = data.draw(anything | st.sampled_from(words) if words else anything)
        place = end
    assert careful_facts(bytes(changed)) == summary
    assert shapes_of(properties).summary_of(bytes(changed)) == summary


@given(st.data())
def test_a_shape_never_covers_what_is_wrong_or_has_other_facts(data: st.DataObject) -> None:
    """Whatever octets are changed, of several lists that are known: the facts of a careful look, or no shape."""
    lists = data.draw(st.lists(property_lists, min_size=1, max_size=4))
    shapes = shapes_of(*lists)
    changed = data.draw(with_changes(data.draw(st.sampled_from(lists))))
    found = shapes.summary_of(changed)
    if found is not None:
        assert found == careful_facts(changed)


@given(property_lists)
def test_marked_lists_have_no_shape(properties: bytes) -> None:
    """All others of moderate size have."""
    summary = scan_properties(properties)
    assert shapes_of(properties).summary_of(properties) == (None if summary.is_marked else summary)


def test_facts_and_marks_are_all_accounted_for() -> None:
    """Whoever adds a fact says of which properties it is read; those are known by name."""
    assert tuple(SOURCES) == PropertySummary._fields
    assert {name for names in SOURCES.values() for name in names} <= {name for name, _, _ in PROPERTIES}


@pytest.mark.parametrize("name, _, kind", PROPERTIES)
def test_what_counts_of_each_property(name: str, _: int, kind: str) -> None:
    """Flags and lengths of all; octets of those of which a fact is read."""
    value = {"shortstr": b"abc", "octet": 7, "longlong": 2**60, "table": {"k": Field("S", b"abc")}}[kind]
    settled = fixed_octets(encode_header(0, {name: value})[12:])  # type: ignore[dict-item]
    counts = name in ("delivery_mode", "priority", "expiration", "user_id")
    head = {"shortstr": 3, "octet": 2, "longlong": 2, "table": 2 + 4 + 2 + 1 + 4}[kind]
    assert settled[:head] == b"\xff" * head
    assert settled[head:] == (b"\xff" if counts else b"\x00") * (len(settled) - head)


@pytest.mark.parametrize(
    "tag, value, free",
    [
        *[(tag, 1, size) for tag, size in zip("bBsuIilLT", (1, 1, 2, 2, 4, 4, 8, 8, 8), strict=True)],
        ("t", True, 1),
        ("f", 1.5, 4),
        ("d", 1.5, 8),
        ("D", (2, 5), 5),
        ("S", b"abcd", 4),
        ("x", b"abcd", 4),
        ("V", None, 0),
        ("F", {"k": Field("S", b"v")}, 0),
        ("A", [Field("S", b"v")], 0),
    ],
)
def test_what_counts_of_a_header(tag: str, value: object, free: int) -> None:
    """Name, tag and length; nested tables and arrays altogether."""
    table = encode_table({"name": Field(tag, value)})  # type: ignore[arg-type]
    settled = fixed_octets(b"\x20\x00" + table)
    assert settled == b"\xff" * (2 + len(table) - free) + bytes(free)


def test_entries_of_one_name_are_each_looked_at() -> None:
    """A second entry of a name counts as the first does: its name stays as it is."""
    entry = b"\x02ccS\x00\x00\x00\x02ab"
    properties = b"\x20\x00" + (2 * len(entry)).to_bytes(4, "big") + entry * 2
    shapes = shapes_of(properties)
    assert shapes.summary_of(properties.replace(b"ab", b"CC")) is not None
    for place in range(2):
        marked = bytearray(properties)
        at = properties.index(b"cc") if place == 0 else properties.rindex(b"cc")
        marked[at : at + 2] = b"CC"
        assert shapes.summary_of(bytes(marked)) is None and scan_properties(bytes(marked)).is_marked


@pytest.mark.parametrize("mark", sorted(MARKS))
def test_a_name_as_long_as_a_mark_is_not_taken_for_it(mark: str) -> None:
    """Nor the other way round."""
    plain = encode_header(0, {"headers": {"-" * len(mark): Field("V", None)}})[12:]
    marked = encode_header(0, {"headers": {mark: Field("V", None)}})[12:]
    shapes = shapes_of(plain, marked)
    assert shapes.summary_of(plain) == PropertySummary(has_headers=True)
    assert shapes.summary_of(marked) is None


def one_of_length(size: int, number: int) -> bytes:
    """A list of `size` octets; of each `number` another user."""
    user = b"%02d" % number
    return encode_header(0, {"user_id": user, "app_id": b"x" * (size - 6)})[12:]


def test_shapes_are_bounded() -> None:
    """Of one length, of all lengths; lists that are too long have none."""
    shapes = shapes_of(*(one_of_length(40, number) for number in range(50)))
    assert 0 < len(shapes.by_length[40]) <= ALIKE_MAX
    lists = [one_of_length(size, number) for size in range(20, 200) for number in range(4)]
    shapes = shapes_of(*lists)
    assert 0 < sum(map(len, shapes.by_length.values())) <= SHAPES_MAX
    long = encode_header(0, {"headers": {"k": Field("S", bytes(SIZE_MAX))}})[12:]
    assert shapes_of(long).summary_of(long) is None


def test_shapes_are_made_only_where_they_pay() -> None:
    """Lists of which no two have a shape in common: one shape for each few; the first few lists make none."""
    shapes = Shapes()
    lists = [one_of_length(size, number) for number in range(90) for size in range(20, 60)]
    made = [shapes.summary_of(one) is not None or shapes.learn(one, scan_properties(one)) for one in lists]
    assert not any(made[: -CREDIT_FIRST - 1]) and any(made[:-CREDIT_FIRST])
    assert len(lists) / COST / 2 <= sum(made) <= len(lists) / COST + 1


def test_a_list_of_shapes_stays_the_same_object() -> None:
    """Readers keep it while shapes come and go."""
    shapes = shapes_of(one_of_length(40, 0))
    kept = shapes.by_length[40]
    for number in range(10 * SHAPES_MAX):
        shapes.learn(one_of_length(20 + number % 200, number % 100), PropertySummary(user_id=b"%02d" % (number % 100)))
    assert shapes.by_length[40] is kept and shapes.find(one_of_length(40, 0)) in (None, *kept)
