"""Which entries apply to an address, and in which order: every row of address-settings page 2.3; other delimiters."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.settings import MatchFault, SettingsRepository, Wildcards, entry, layer_of
from leveret.settings.addresses.entries import DuplicateMatch, Entry
from leveret.settings.addresses.matching import parse_artemis_match, parse_match

DOCS = ("#", "a.b.#", "a.b.d.#")
MULTIPLE = (
    "#", "a", "a.#", "a.*", "a.b.c", "a.*.c", "a.d.c", "a.b.#", "a.b", "a.b.c.#", "a.b.c.d", "a.*.*.d", "a.*.d.#",
)  # fmt: skip
ORDER = ("a.b.c.d.e.f", "a.b.c.d.e.*", "a.*.*.*.*.*", "*.b.c.d.*.f", "*.b.*.d.*.f", "a.b.c.d.e.#")
MERGE = ("#", "a.#", "b.#", "a.b.#", "b.c.#", "a.b.c.#", "a.b.*.d", "a.b.c.*")
LITERAL = ("#", "(a.#)", "a.#", "a.b", "a.*")

ROWS: list[tuple[str, tuple[str, ...], str, list[str]]] = [
    ("1", DOCS, "a.b", ["a.b.#", "#"]),
    ("2", DOCS, "a.b.c", ["a.b.#", "#"]),
    ("3", DOCS, "a.b.d", ["a.b.d.#", "a.b.#", "#"]),
    ("3", DOCS, "a.b.d.lll", ["a.b.d.#", "a.b.#", "#"]),
    ("4", DOCS, "a.babc", ["#"]),
    ("4", DOCS, "z.z.z", ["#"]),
    ("5", DOCS, "a.b.dabc", ["a.b.#", "#"]),
    ("7", MULTIPLE, "a", ["a", "a.#", "#"]),
    ("8", MULTIPLE, "a.b", ["a.b", "a.*", "a.b.#", "a.#", "#"]),
    ("9", MULTIPLE, "a.x", ["a.*", "a.#", "#"]),
    ("10", MULTIPLE, "a.b.x", ["a.b.#", "a.#", "#"]),
    ("11", MULTIPLE, "a.b.c", ["a.b.c", "a.*.c", "a.b.c.#", "a.b.#", "a.#", "#"]),
    ("12", MULTIPLE, "a.d.c", ["a.d.c", "a.*.c", "a.#", "#"]),
    ("13", MULTIPLE, "a.x.c", ["a.*.c", "a.#", "#"]),
    ("14", MULTIPLE, "a.b.c.d", ["a.b.c.d", "a.*.*.d", "a.b.c.#", "a.b.#", "a.#", "#"]),
    ("15", MULTIPLE, "a.b.x.d", ["a.*.*.d", "a.b.#", "a.#", "#"]),
    ("16", MULTIPLE, "a.d.d.g", ["a.*.d.#", "a.#", "#"]),
    ("17", MULTIPLE, "zzzz.z.z.z.z", ["#"]),
    ("18", ORDER, "a.b.c.d.e.f", list(ORDER)),
    ("19", ORDER, "a.b.c.d.e.x", ["a.b.c.d.e.*", "a.*.*.*.*.*", "a.b.c.d.e.#"]),
    ("20", ORDER, "a.b.x.d.x.f", ["a.*.*.*.*.*", "*.b.*.d.*.f"]),
    ("21", ORDER, "x.b.c.d.e.f", ["*.b.c.d.*.f", "*.b.*.d.*.f"]),
    ("22", ORDER, "a.b.c.d.e.f.g", ["a.b.c.d.e.#"]),
    ("23", MERGE, "a.b.c.d", ["a.b.c.*", "a.b.*.d", "a.b.c.#", "a.b.#", "a.#", "#"]),
    ("24", MERGE, "a.b.c", ["a.b.c.#", "a.b.#", "a.#", "#"]),
    ("25", MERGE, "z", ["#"]),
    ("26", LITERAL, "a.b", ["a.b", "a.*", "a.#", "#"]),
    ("27", LITERAL, "a.#", ["(a.#)", "a.*", "a.#", "#"]),
    ("36", ("*", "prefix.address"), "prefix.address", ["prefix.address"]),
    ("37", ("test.*",), "test.A", ["test.*"]),
    ("37", ("test.*",), "test", []),
    ("37", ("test.*",), "testing.A", []),
    ("37", ("test.*",), "test.A.B", []),
    ("38", ("$test.#",), "$test", ["$test.#"]),
    ("38", ("$test.#",), "$test.A", ["$test.#"]),
    ("38", ("$test.#",), "$test.A.B", ["$test.#"]),
    ("38", ("$test.#",), "$testing.A", []),
    ("40", ("orders.*.#", "orders.eu.#"), "orders.eu.x", ["orders.eu.#", "orders.*.#"]),
    ("41", ("*.*.*", "orders.eu.#", "#"), "orders.eu.x", ["*.*.*", "orders.eu.#", "#"]),
    ("42", ("orders.*", "*.eu"), "orders.eu", ["orders.*", "*.eu"]),
    ("43", ("a.*.#",), "a", []),
    ("43", ("a.*.#",), "a.b", ["a.*.#"]),
    ("44", ("*",), "", []),
    ("44", ("*",), "x", ["*"]),
    ("44", ("*",), "x.y", []),
    ("45", ("a.*.b", "a.#"), "a..b", ["a.#"]),
    ("hash", ("#",), "", ["#"]),
    ("case", ("A.#",), "a.b", []),
    ("length", ("orders.#", "*.eu.#"), "orders.eu.k", ["orders.#", "*.eu.#"]),
    ("tie", ("*.b.#", "a.*.#"), "a.b", ["a.*.#", "*.b.#"]),
    ("left", ("*.b.c.d.*.f", "a.*.*.*.*.*"), "a.b.c.d.e.f", ["a.*.*.*.*.*", "*.b.c.d.*.f"]),
    ("regex", ("a+b.(c|d)", "a+b.#"), "aab.c", []),
    ("regex", ("a+b.(c|d)", "a+b.#"), "a+b.(c|d)", ["a+b.(c|d)", "a+b.#"]),
    ("one marker", ("(a.b", "(a.#"), "(a.b", ["(a.b", "(a.#"]),
]

SYNTAXES = [
    Wildcards(literal_markers="()"),
    Wildcards("_", literal_markers="()"),
    Wildcards("/", literal_markers="()"),
    Wildcards("/", "%", "+", "()"),
    Wildcards(".", ">", "*", "[]"),
]


def written_in(text: str, wildcards: Wildcards) -> str:
    """A pattern or address of the table in another syntax."""
    markers = wildcards.literal_markers or "()"
    table = {
        ".": wildcards.delimiter,
        "#": wildcards.any_words,
        "*": wildcards.single_word,
        "(": markers[0],
        ")": markers[1],
    }
    return "".join(table.get(character, character) for character in text)


@pytest.mark.parametrize("wildcards", SYNTAXES, ids=lambda one: one.delimiter + one.any_words + one.single_word)
@pytest.mark.parametrize("row, patterns, address, expected", ROWS, ids=[f"{row[0]}-{row[2]}" for row in ROWS])
def test_matches_in_order(
    row: str, patterns: tuple[str, ...], address: str, expected: list[str], wildcards: Wildcards
) -> None:
    """Address-settings page 2.3: the first wins field by field. The order of the patterns in the file is irrelevant."""
    if row == "regex" and wildcards.single_word == "+":
        return  # there the plus is a wildcard
    for order in (patterns, patterns[::-1]):
        entries = [entry(written_in(text, wildcards), wildcards=wildcards) for text in order]
        repository = SettingsRepository(entries, wildcards)
        found = [one.match.text for one in repository.matches(written_in(address, wildcards))]
        assert found == [written_in(text, wildcards) for text in expected]


@pytest.mark.parametrize(
    "address, matches", [("test", True), ("test.A", True), ("test.A.B", True), ("testing.A", False)]
)
def test_dollar_as_any_words(address: str, matches: bool) -> None:
    """Address-settings page 2.3, row 39: `test.$` with any-words = `$`."""
    wildcards = Wildcards(any_words="$")
    repository = SettingsRepository([entry("test.$", wildcards=wildcards)], wildcards)
    assert bool(repository.matches(address)) is matches


@pytest.mark.parametrize(
    "text, problem",
    [
        ("a.#.b", "'#' is allowed only as the last word"),
        ("#.a", "only as the last word"),
        ("##", "a wildcard must be a whole word"),
        ("#a", "a wildcard must be a whole word"),
        ("ab#", "a wildcard must be a whole word, and only the last"),
        ("activemq.management#", "did you mean 'management.#'"),
        ("ord*", "a wildcard must be a whole word: 'ord*' holds '*'"),
        ("", "an empty match covers nothing"),
        ("()", "nothing between the literal markers"),
    ],
)
def test_matches_that_are_refused(text: str, problem: str) -> None:
    """Address-settings page 2.1: `#` only at the end, wildcards as whole words."""
    with pytest.raises(MatchFault, match=problem.replace("*", r"\*").replace("(", r"\(")):
        parse_match(text, Wildcards(literal_markers="()"))


@pytest.mark.parametrize(
    "syntax",
    [
        {"delimiter": ""},
        {"delimiter": ".."},
        {"any_words": "."},
        {"single_word": "#"},
        {"literal_markers": "("},
        {"literal_markers": "((("},
        {"literal_markers": "#)"},
    ],
)
def test_wildcard_syntax_that_is_refused(syntax: dict[str, str]) -> None:
    """Single, different characters; markers are two."""
    with pytest.raises(MatchFault):
        Wildcards(**syntax)


def test_an_escaped_wildcard_is_not_wild() -> None:
    """A backslash before a wildcard: the text is an exact one, as it stands."""
    repository = SettingsRepository([entry("a.\\#", default_ring_size=1)])
    assert repository.resolve("a.\\#").default_ring_size == 1
    assert repository.resolve("a.b").default_ring_size == -1


def test_without_markers_parentheses_are_letters() -> None:
    """Literal markers exist only when they are configured."""
    repository = SettingsRepository([entry("(a.b)", default_ring_size=1)])
    assert repository.resolve("a.b").default_ring_size == -1
    assert repository.resolve("(a.b)").default_ring_size == 1


def test_an_exact_match_comes_before_a_literal_one() -> None:
    """Of the same address, in either order (address-settings page 2.2). What one leaves out the other says."""
    wildcards = Wildcards(literal_markers="()")
    literal = entry("(a)", wildcards=wildcards, default_ring_size=1, redelivery_delay_ms=5)
    exact = entry("a", wildcards=wildcards, default_ring_size=2)
    for entries in ((literal, exact), (exact, literal)):
        found = SettingsRepository(entries, wildcards).resolve("a")
        assert (found.default_ring_size, found.redelivery_delay_ms) == (2, 5)


def test_a_single_literal_marker_is_a_letter() -> None:
    """Where both markers are the same character."""
    wildcards = Wildcards(literal_markers="||")
    repository = SettingsRepository([entry("|", wildcards=wildcards, default_ring_size=1)], wildcards)
    assert repository.resolve("|").default_ring_size == 1


def test_one_match_twice_is_refused() -> None:
    """Which one was meant? In different virtual hosts it is two matches."""
    with pytest.raises(DuplicateMatch):
        SettingsRepository([entry("a.#"), entry("a.#")])
    SettingsRepository([entry("a.#"), entry("a.#", "one"), entry("a.#", "two")])


# -- against a matcher that is too slow to be wrong -------------------------------------------------------------------


def naive(pattern: list[str], words: list[str]) -> bool:
    """The definition, written down."""
    if pattern == ["#"]:
        return True
    if not pattern or not words:
        return not pattern and not words
    return (pattern[0] == words[0] or (pattern[0] == "*" and words[0] != "")) and naive(pattern[1:], words[1:])


WORD = st.sampled_from(["a", "b", "cc", "*"])
PATTERNS = st.builds(
    lambda words, tail: ".".join(words + tail), st.lists(WORD, min_size=1, max_size=4), st.sampled_from([[], ["#"]])
) | st.just("#")
ADDRESSES = st.lists(st.sampled_from(["a", "b", "cc", "", "d"]), min_size=1, max_size=5).map(".".join)


@given(st.sets(PATTERNS, max_size=8), ADDRESSES)
def test_matching_agrees_with_the_definition(patterns: set[str], address: str) -> None:
    """Exactly the entries that the definition says; exact before wildcards, without `#` before with."""
    found = [one.match.text for one in SettingsRepository(map(entry, patterns)).matches(address)]
    words = address.split(".")
    assert set(found) == {pattern for pattern in patterns if pattern == address or naive(pattern.split("."), words)}
    kinds = [0 if pattern == address and "*" not in pattern else 2 if "#" in pattern else 1 for pattern in found]
    assert kinds == sorted(kinds)


@given(st.lists(PATTERNS, min_size=1, max_size=8, unique=True), ADDRESSES, st.randoms())
def test_the_order_of_entries_is_irrelevant(patterns: list[str], address: str, chance: Random) -> None:
    """Any permutation of a file means the same."""
    shuffled = patterns[:]
    chance.shuffle(shuffled)
    first, second = (SettingsRepository(map(entry, order)) for order in (patterns, shuffled))
    assert [one.match for one in first.matches(address)] == [one.match for one in second.matches(address)]


@pytest.mark.parametrize(
    ("text", "covers", "others"),
    [
        ("a*", ["ab", "a\n", "abc"], ["a", "b", "a.b", "ba"]),
        ("*b", ["ab", "xyb"], ["b", "ba"]),
        ("a*b*c", ["axbyc", "aabbcc"], ["abc", "axbc", "axby"]),
        ("x.a*.#", ["x.ab", "x.ab.c.d"], ["x.a", "x", "ab"]),
        ("a#", ["a", "a.b", "a.b.c"], ["ab"]),
        ("a.*", ["a.b"], ["a", "a."]),
        ("a+*", ["a+b"], ["aab"]),
        ("a\\#", ["a\\#"], ["a", "a.b", "a\\.b"]),
    ],
)
def test_wildcards_inside_of_words(text: str, covers: list[str], others: list[str]) -> None:
    """In files of Artemis: each stands for one character at least of its word."""
    repository = SettingsRepository([Entry(parse_artemis_match(text), layer_of(no_expiry=True))])
    assert [name for name in (*covers, *others) if repository.resolve(name).no_expiry] == covers


@pytest.mark.parametrize(
    "text, hint",
    [("x.a#", ", did you mean 'a.#'?"), ("a*.x", ", did you mean 'a.*'?"), ("a#b", ""), ("*a#", ""), ("#a*", "")],
)
def test_only_a_match_is_suggested(text: str, hint: str) -> None:
    """Where the wildcard was meant as a word; the suggestion can be used as it is."""
    with pytest.raises(MatchFault) as refused:
        parse_match(text)
    before, found, word = str(refused.value).partition(", did you mean")
    assert found + word == hint and before.startswith("a wildcard must be a whole word")
