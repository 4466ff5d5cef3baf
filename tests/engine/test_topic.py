"""Topic patterns against a matcher that is too slow to be wrong (0-9-1 3.1.3.3; behaviour page 3.9)."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steps import steps

from leveret.engine.exchanges import topic_automata
from leveret.engine.exchanges.topic import TopicPatterns, normalised, split


def naive(pattern: list[str], words: list[str]) -> bool:
    """The definition, written down."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return naive(pattern[1:], words) or (bool(words) and naive(pattern, words[1:]))
    return bool(words) and pattern[0] in ("*", words[0]) and naive(pattern[1:], words[1:])


@pytest.mark.parametrize(
    "pattern, key, matches",
    [
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("#", "", True),
        ("*", "", False),
        ("", "", True),
        ("", "a", False),
        ("*", "a", True),
        ("#.a", "a", True),
        ("#.a", "b.a", True),
        ("#.a.#", "b.a.c", True),
        ("*.#", "", False),
        ("#.*", "a", True),
        ("#.#", "", True),
        ("a..b", "a..b", True),
        ("a.*.b", "a..b", True),
        ("*", ".", False),
        ("*.*", ".", True),
        ("a*", "ab", False),
        ("a#", "a", False),
        ("*", "*", True),
        ("#", "#", True),
        ("a", "*", False),
    ],
)
def test_topic_patterns(pattern: str, key: str, matches: bool) -> None:
    """`*` is one word, `#` is any number of words, both only as whole words; empty words count, "" has none."""
    index: TopicPatterns[str] = TopicPatterns()
    index.add(pattern, "here")
    assert index.match(key) == (["here"] if matches else [])
    assert naive(split(pattern), split(key)) is matches


words = st.sampled_from(("a", "b", "", "*", "#", "*", "#"))
patterns = st.lists(words, max_size=8).map(".".join)
keys = st.lists(st.sampled_from(("a", "b", "", "c")), max_size=6).map(".".join)


@given(st.lists(patterns, max_size=12), st.lists(keys, min_size=1, max_size=6))
def test_any_set_of_patterns_matches_as_defined(bound: list[str], published: list[str]) -> None:
    """All patterns of an exchange in one index find what each of them finds alone, each value once."""
    index: TopicPatterns[int] = TopicPatterns()
    for value, pattern in enumerate(bound):
        index.add(pattern, value)
    for key in published:
        found = index.match(key)
        assert len(found) == len(set(found))
        assert set(found) == {value for value, pattern in enumerate(bound) if naive(split(pattern), split(key))}


def is_empty(index: TopicPatterns[int]) -> bool:
    """Whether nothing that was added still takes memory."""
    root, automata = index._tree._root, index._automata
    held = index._exact or root.children or automata._places or automata._groups
    return not held and root.values is None and root.beyond is None


@given(st.lists(st.tuples(patterns, st.integers(0, 2)), max_size=12), st.data())
def test_what_was_taken_out_no_longer_matches(bound: list[tuple[str, int]], data: st.DataObject) -> None:
    """A value that is bound twice stays until both are gone, and an emptied index is empty."""
    index: TopicPatterns[int] = TopicPatterns()
    for pattern, value in bound:
        index.add(pattern, value)
    left = list(bound)
    while left:
        gone = left.pop(data.draw(st.integers(0, len(left) - 1)))
        index.remove(*gone)
        key = data.draw(keys)
        assert set(index.match(key)) == {value for pattern, value in left if naive(split(pattern), split(key))}
    assert is_empty(index)


@given(st.lists(st.tuples(patterns, st.integers(0, 1), st.booleans()), max_size=60), st.lists(keys, min_size=1))
def test_patterns_that_come_and_go_in_small_bundles(changes: list[tuple[str, int, bool]], published: list[str]) -> None:
    """Bundles fill, empty and become one, edges of the tree part and join: what is bound then is what matches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_automata, "BUNDLE_STATES", 16)
        index: TopicPatterns[int] = TopicPatterns()
        bound: Counter[tuple[str, int]] = Counter()
        for pattern, value, is_added in changes:
            if is_added:
                index.add(pattern, value)
                bound[pattern, value] += 1
            elif bound[pattern, value]:
                index.remove(pattern, value)
                bound[pattern, value] -= 1
            left = [one for one in bound if bound[one]]
            for key in published:
                assert set(index.match(key)) == {one for pat, one in left if naive(split(pat), split(key))}
        for (pattern, value), count in bound.items():
            for _ in range(count):
                index.remove(pattern, value)
        assert is_empty(index) and not index.excess_states


@pytest.mark.parametrize(
    "pattern, same",
    [("#.#", "#"), ("#.*", "*.#"), ("a.#.*.#.*.b", "a.*.*.#.b"), ("*.#.#.*", "*.*.#"), ("#.a.#.#", "#.a.#")],
)
def test_wildcards_in_a_row_are_one_pattern(pattern: str, same: str) -> None:
    """In any order they mean the same: so many words, or at least so many."""
    assert normalised(pattern) == normalised(same) == tuple(split(same))


HOSTILE = [
    ".".join("#" * 128),
    ".".join("#*" * 64),
    ".".join("#a" * 64),
    "a." + ".".join("#" * 120) + ".b",
    ".".join("a*" * 63),
]


@pytest.mark.parametrize("pattern", HOSTILE, ids=["many", "many one", "many word", "many between words", "one word"])
def test_a_hostile_pattern_costs_no_more_than_the_key(pattern: str) -> None:
    """255 octets of wildcards: a few steps for each word of the key, and for each of the pattern once."""
    index: TopicPatterns[str] = TopicPatterns()
    index.add(pattern, "here")
    key = ".".join("a" * 128)
    assert steps(lambda: index.match(key)) <= 10 * (len(split(pattern)) + len(split(key)))
    assert set(index.match(key)) == ({"here"} if _matches(split(pattern), split(key)) else set())


@pytest.mark.parametrize("alphabet", ["a*#", "a*", "a#"])
def test_two_hundred_hostile_patterns_are_looked_up_in_one_go(alphabet: str) -> None:
    """200 patterns of 120 words and one key of 126: less than a step for each (pattern, word of the key)."""
    chance = Random(1)
    index: TopicPatterns[int] = TopicPatterns()
    bound = [".".join([*chance.choices(alphabet, k=119), "a"]) for _ in range(200)]
    for value, pattern in enumerate(bound):
        index.add(pattern, value)
    key = ".".join("a" * 126)
    expected = {value for value, pattern in enumerate(bound) if _matches(split(pattern), split(key))}
    assert set(index.match(key)) == expected
    assert steps(lambda: index.match(key)) < 200 * 126


def _matches(pattern: list[str], words_of_key: list[str]) -> bool:
    """`naive` with a table instead of recursion."""
    row = [not words_of_key[index:] for index in range(len(words_of_key) + 1)]
    for word in reversed(pattern):
        new = [False] * len(row)
        for index in range(len(words_of_key), -1, -1):
            rest = index < len(words_of_key)
            if word == "#":
                new[index] = row[index] or (rest and new[index + 1])
            else:
                new[index] = rest and word in ("*", words_of_key[index]) and row[index + 1]
        row = new
    return row[0]
