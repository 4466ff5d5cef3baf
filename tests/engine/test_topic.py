"""Topic patterns against a matcher that is too slow to be wrong (0-9-1 3.1.3.3; behaviour page 3.9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steps import steps

from leveret.engine.topic import TopicTrie, split


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
    trie: TopicTrie[str] = TopicTrie()
    trie.add(pattern, "here")
    assert trie.match(key) == (["here"] if matches else [])
    assert naive(split(pattern), split(key)) is matches


words = st.sampled_from(("a", "b", "", "*", "#", "*", "#"))
patterns = st.lists(words, max_size=6).map(".".join)
keys = st.lists(st.sampled_from(("a", "b", "", "c")), max_size=6).map(".".join)


@given(st.lists(patterns, max_size=12), st.lists(keys, min_size=1, max_size=6))
def test_any_set_of_patterns_matches_as_defined(bound: list[str], published: list[str]) -> None:
    """All patterns of an exchange in one trie find what each of them finds alone, each value once."""
    trie: TopicTrie[int] = TopicTrie()
    for value, pattern in enumerate(bound):
        trie.add(pattern, value)
    for key in published:
        found = trie.match(key)
        assert len(found) == len(set(found))
        assert set(found) == {value for value, pattern in enumerate(bound) if naive(split(pattern), split(key))}


@given(st.lists(st.tuples(patterns, st.integers(0, 2)), max_size=12), st.data())
def test_what_was_taken_out_no_longer_matches(bound: list[tuple[str, int]], data: st.DataObject) -> None:
    """A value that is bound twice stays until both are gone, and an emptied trie is empty."""
    trie: TopicTrie[int] = TopicTrie()
    for pattern, value in bound:
        trie.add(pattern, value)
    left = list(bound)
    while left:
        gone = left.pop(data.draw(st.integers(0, len(left) - 1)))
        trie.remove(*gone)
        key = data.draw(keys)
        assert set(trie.match(key)) == {value for pattern, value in left if naive(split(pattern), split(key))}
    assert not trie._root.children and not trie._root.values


@pytest.mark.parametrize(
    "pattern",
    [".".join("#" * 128), ".".join("#*" * 64), ".".join("#a" * 64), "a." + ".".join("#" * 120) + ".b"],
    ids=["only many", "many one", "many word", "many between words"],
)
def test_hostile_patterns_cost_no_more_than_pattern_times_key(pattern: str) -> None:
    """255 octets of `#` are not exponential, nor cubic: at most a few steps for each (pattern word, key word)."""
    trie: TopicTrie[str] = TopicTrie()
    trie.add(pattern, "here")
    key = ".".join("a" * 128)
    assert steps(lambda: trie.match(key)) <= 30 * len(split(pattern)) * len(split(key))
    assert set(trie.match(key)) == ({"here"} if _matches(split(pattern), split(key)) else set())


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
