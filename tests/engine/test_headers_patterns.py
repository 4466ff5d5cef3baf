"""The bindings of a headers exchange are found by what a message has: against a look at each of them."""

from hypothesis import given
from hypothesis import strategies as st

from leveret.engine.exchanges.headers import Comparables, HeadersPattern, HeadersPatterns
from leveret.engine.messages.field_table import Field, FieldTable

values = st.sampled_from(
    [Field("I", 1), Field("l", 1), Field("d", 1.0), Field("I", 2), Field("S", b"1"), Field("t", True), Field("V", None)]
)
tables = st.dictionaries(st.sampled_from(["a", "b", "c", "x-d"]), values, max_size=4)
matches = st.sampled_from([b"all", b"any", b"all-with-x", b"any-with-x"])
bindings = st.tuples(tables, matches, st.integers(0, 3)).map(
    lambda one: ({"x-match": Field("S", one[1]), **one[0]}, one[2])
)


@given(st.lists(bindings, max_size=12), st.data(), st.lists(tables, min_size=1, max_size=6))
def test_bindings_are_found_as_by_looking_at_each(
    bound: list[tuple[FieldTable, int]], data: st.DataObject, messages: list[FieldTable]
) -> None:
    """Numbers of any width, presence, all and any, none at all, those that ask for the same; bound and unbound."""
    patterns: HeadersPatterns[int] = HeadersPatterns()
    for arguments, destination in bound:
        patterns.add(arguments, destination)
    for _ in range(data.draw(st.integers(0, len(bound)))):
        arguments, destination = bound.pop(data.draw(st.integers(0, len(bound) - 1)))
        patterns.remove(arguments, destination)
    known = [(HeadersPattern(arguments), destination) for arguments, destination in bound]
    assert all(one.identity in patterns for one, _ in known)
    for headers in messages:
        expected = {destination for one, destination in known if one.matches(Comparables(headers))}
        assert set(patterns.match(Comparables(headers))) == expected


@given(st.lists(tables, min_size=1, max_size=8))
def test_nothing_is_left_of_what_is_unbound(bound: list[FieldTable]) -> None:
    """Neither in the places nor in the count of conditions."""
    patterns: HeadersPatterns[int] = HeadersPatterns()
    for arguments in bound:
        patterns.add(arguments, 1)
    for arguments in bound:
        patterns.remove(arguments, 1)
    assert patterns.conditions == 0
    for name in ("_groups", "_filed", "_unconditional"):
        assert not getattr(patterns, name), name


def test_a_message_is_compared_with_few_of_many() -> None:
    """With those that ask for a value that it has, however many ask for others; and it says what that cost."""
    costs = []
    for count in (10, 1_000):
        patterns: HeadersPatterns[int] = HeadersPatterns()
        for number in range(count):
            patterns.add({"kind": Field("I", number), "region": Field("I", 1)}, number)
        assert patterns.match(Comparables({"kind": Field("I", 7), "region": Field("I", 1)})) == [7]
        costs.append(patterns.cost)
    assert costs[0] == costs[1] > 0


def test_destinations_come_in_the_order_of_their_bindings() -> None:
    """Of the first that asks for the same."""
    patterns: HeadersPatterns[str] = HeadersPatterns()
    for name, key in (("one", "b"), ("two", "a"), ("three", "b")):
        patterns.add({key: Field("I", 1)}, name)
    patterns.add({}, "four")
    assert patterns.match(Comparables({"a": Field("I", 1), "b": Field("I", 1)})) == ["one", "three", "two", "four"]
