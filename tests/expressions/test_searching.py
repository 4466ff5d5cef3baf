"""Patterns of filters: whichever engine finds them the answer is the same, and none takes long. Source: ruling 19."""

import re

import pytest
from expression_rows import Given
from hypothesis import given
from hypothesis import strategies as st

from leveret.expressions.compiling import Like
from leveret.expressions.language import AMPS, JMS, compiled
from leveret.expressions.patterns.automaton import Automaton
from leveret.expressions.patterns.backtracking import Backtracker
from leveret.expressions.patterns.pattern_syntax import PatternFault, parse_pattern
from leveret.expressions.patterns.searching import Searcher
from leveret.expressions.patterns.translated import Untranslatable, translated
from leveret.expressions.subject import COST_MAX

PIECES = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "(?i:K)", "\\w", "\\W", "^", "$", "\\b", "\\z", "a?", "b{0,2}", "(a|b)", "(?:ab|a)"]
    + ["a*", "(ab)*", "(a|b)+", "(?=a)", "(?!b)", "\n", "K", "(?s:.)"]
)
PATTERNS = st.lists(PIECES, max_size=5).map("".join)
SUBJECTS = st.text("abkK\n\u212a\u017f ", max_size=8)


def free(units: int) -> None:
    """Nothing is counted."""


@given(pattern=PATTERNS, text=SUBJECTS)
def test_all_engines_find_the_same(pattern: str, text: str) -> None:
    """The automaton, the search step by step, and `re` where it is taken."""
    tree = parse_pattern(pattern, references=True)
    found = Automaton(tree).search(text)
    assert (Backtracker(tree).find(text, 0, free) is not None) is found
    assert Searcher(pattern).search(text, free) is found
    try:
        assert (translated(tree).pattern.search(text) is not None) is found
    except Untranslatable:
        pass


@given(pattern=st.text("ab%_!", max_size=6), text=st.text("ab\n", max_size=8), escaped=st.booleans())
def test_like_is_as_sql_has_it(pattern: str, text: str, escaped: bool) -> None:
    """Against a pattern for `re` made character by character."""
    parts = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if escaped and character == "!" and position + 1 < len(pattern):
            position += 1
            parts.append(re.escape(pattern[position]))
        else:
            parts.append({"%": ".*", "_": "."}.get(character, re.escape(character)))
        position += 1
    expected = re.fullmatch("".join(parts), text, re.DOTALL) is not None
    assert Like(pattern, "!" if escaped else None).matches(text, free) is expected


@pytest.mark.parametrize(
    "pattern, text, found",
    [
        (r"(.)\1", "bookkeeper", True),
        (r"(.)\1", "abcabc", False),
        (r"^(a+)b\1$", "aabaa", True),
        (r"^(a+)b\1$", "aaba", False),
        (r"(?i)(x)\1", "xX", True),
        (r"(x)\1", "xX", False),
        (r"(?=(a))b|\1a", "ba", False),
        (r"(a*)*\1b", "aaab", True),
        (r"(?:(a)|b)+\1", "aba", True),
        (r"(?!(x))y\1?", "y", True),
        (r"\bcat\b(.)\1", "a cat!!", True),
        (r"(a){2}\Z\1?", "aa\n", True),
        (r"^(x*)*y\1$", "y", True),  # a turn that takes nothing is the loop's last, and its group is empty
        (r"^((a*)*)*b\2$", "aab", True),
        (r"^((?:)|b)*?a\1$", "a", True),
        (r"^(?:(?=(a)))*a\1?$", "aa", True),
        (r"^(?:(?=(a))){0}a\1?$", "a", True),
        (r"^(a){0}a\1", "aa", False),
    ],
)
def test_references(pattern: str, text: str, found: bool) -> None:
    """To the text that a group matched last."""
    assert Searcher(pattern).search(text, free) is found


WITH_GROUPS = st.sampled_from(
    ["a", "b", ".", "(a)", "(b|a)", "(a*)", "(ab|b)", "((a)|b)", "(?:a|(b))", "(a?)", "(?=(a))", "(?!(b)a)", r"\1"]
)
TIMES = st.sampled_from(["", "", "", "*", "*?", "+", "+?", "?", "??", "{2}", "{1,2}", "{1,2}?"])


@given(parts=st.lists(st.tuples(WITH_GROUPS, TIMES), min_size=1, max_size=4), text=st.text("abc", max_size=6))
def test_what_is_found_and_what_its_groups_hold(parts: list[tuple[str, str]], text: str) -> None:
    """All matches, as `re` has them where it takes the pattern: the leftmost, lazy or not, the last turn's groups."""
    pattern = "".join(piece + (times if piece[:2] not in ("(?=", "(?!") else "") for piece, times in parts)
    try:
        theirs = re.compile(pattern)
    except re.error:
        return
    found = list(Searcher(pattern).spans(text, free))
    expected = [[place for n in range(theirs.groups + 1) for place in one.span(n)] for one in theirs.finditer(text)]
    assert found == expected, (pattern, text)


@pytest.mark.parametrize("pattern", [r"\1", r"(a)\2", r"(a)\12", r"\g1", r"(?P=name)", r"\k<name>", "(?<=a)b", "a++"])
def test_what_no_engine_takes(pattern: str) -> None:
    """References to nothing, other spellings of them, and what makes engines explode."""
    with pytest.raises(PatternFault):
        Searcher(pattern)


@pytest.mark.parametrize(
    "pattern, subject",
    [
        ("(a+)+$", "a" * 40 + "b"),
        ("^(a|a)*$", "a" * 5000 + "b"),
        ("(a|aa)+$", "a" * 5000 + "b"),
        ("(.*)(.*)(.*)(.*)x", "a" * 5000),
        ("a*a*a*a*a*b", "a" * 5000),
        ("(x+x+)+y", "x" * 60_000),
        ("(?:a?){30}a{30}", "a" * 29),
        ("^(a{0,100}){3}$", "a" * 300 + "b"),
    ],
)
def test_hostile_patterns_have_their_true_answer(pattern: str, subject: str) -> None:
    """The automaton does not mind what makes other engines explode: the answer is false, not unknown.

    Source: queues page, row B04.
    """
    message = Given(headers={"s": subject})
    expression = compiled(f"s LIKE '{pattern}'", AMPS)
    assert expression.truth(message) is False
    assert message.spent <= COST_MAX


@pytest.mark.parametrize("negated, found", [("", None), ("NOT ", None)])
def test_like_has_a_budget(negated: str, found: bool | None) -> None:
    """Very many parts of a pattern over a long text are unknown, not false: as the queues page has it for patterns."""
    message = Given(headers={"s": "b" * 65_536})
    assert compiled(f"s {negated}LIKE '{'%a' * 100}%'", JMS).truth(message) is found


def test_each_member_of_a_list_is_work() -> None:
    """A turn counts what filters took: ten times as many members that differ by message, ten times as much."""
    spent = []
    for count in (100, 1_000):
        message = Given(headers={"s": "x"})
        members = ", ".join(f"/a{number}" for number in range(count))
        assert compiled(f"'x' IN ({members})", AMPS).truth(message) is None
        spent.append(message.spent)
    assert spent[1] >= 9 * spent[0] > 0


@pytest.mark.parametrize(
    "text, value",
    [
        (r"s LIKE '(a*)(a*)(a*)(a*)\1\2\3\4b'", "a" * 2000),
        (r"REGEXP_REPLACE(s, '(a*)*(a*)*(a*)*b', '') = 'x'", "a" * 3000),
        ("REPLACE(REPLACE(REPLACE(s, 'a', s), 'a', s), 'a', s) = 'x'", "a" * 500),
        (f"CONCAT({', '.join(['s'] * 1000)}) = 'x'", "a" * 60_000),
        (" OR ".join(["CRC32(s) = 1"] * 100), "a" * 60_000),
        (" AND ".join(f"s NOT LIKE '(a|b)*{number}'" for number in range(200)), "ab" * 30_000),
        (" OR ".join(["l = m"] * 100), "a"),
    ],
)
def test_what_takes_too_long_is_unknown(text: str, value: str) -> None:
    """After 50 ms of work or so the evaluation ends (choice 10)."""
    message = Given(headers={"s": value, "l": list(range(3000)), "m": list(range(4000, 7000))})
    expression = compiled(text, AMPS)
    assert expression.truth(message) is None
    assert message.spent > COST_MAX
    assert expression.value(message) is None


def test_long_texts_are_not_searched() -> None:
    """More than 64 KiB: unknown."""
    assert compiled("s LIKE 'a'", AMPS).truth(Given(headers={"s": "a" * 65_536})) is True
    assert compiled("s LIKE 'a'", AMPS).truth(Given(headers={"s": "a" * 65_537})) is None
    assert compiled("s LIKE 'a%'", JMS).truth(Given(headers={"s": "a" * 65_537})) is None
