"""Operators' patterns: the answers of Perl's regular expressions, in linear time, within bounds. Source: ruling 19."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steps import steps

from leveret.expressions.patterns.automaton import CACHED_MAX, Automaton
from leveret.expressions.patterns.pattern_syntax import PATTERN_MAX, PatternFault, parse_pattern
from leveret.expressions.patterns.patterns import Pattern, permission_pattern


@pytest.mark.parametrize(
    "pattern, name, found",
    [
        (".*", "", True),
        (".*", "anything", True),
        ("", "", True),
        ("", "a", False),
        ("^$", "a", False),
        ("^p\\.", "p.q", True),
        ("^p\\.", "px", False),
        ("^p\\.", "a.p.q", False),
        ("orders", "my orders queue", True),
        ("^(a|b)$", "b", True),
        ("^(a|b)$", "ab", False),
        ("^amq\\.gen.*", "amq.gen-x", True),
        ("^(?!amq\\.).*", "amq.gen-x", False),
        ("^(?!amq\\.).*", "mine", True),
        ("^(?=.*x)(?=.*y)", "a y x", True),
        ("^(?=.*x)(?=.*y)", "a x", False),
        ("a$", "a\n", True),
        ("a\\z", "a\n", False),
        ("^a.b$", "a\nb", False),
        ("(?s)^a.b$", "a\nb", True),
        ("(?i)^ORDERS", "orders", True),
        ("(?i:O)rders", "orders", True),
        ("(?i:O)RDERS", "orders", False),
        ("^[[:alpha:]]+$", "abc", True),
        ("^[[:^alpha:]]+$", "123", True),
        ("^[^]a]$", "]", False),
        ("^[a\\-z]$", "-", True),
        ("^\\Qa.b\\E+$", "a.bbb", True),
        ("^\\Qa.b\\E$", "axb", False),
        ("^a{2,3}$", "aaaa", False),
        ("^a{,3}$", "a{,3}", True),
        ("\\bcat\\b", "a cat!", True),
        ("\\Bcat", "a cat", False),
        ("^(?<name>a)(?P<other>b)(?'third'c)$", "abc", True),
        ("^a(?#comment)b$", "ab", True),
        ("^\\x61\\x{62}$", "ab", True),
        ("^.$", "\U0001f407", True),
        ("^[^a]$", "\x00", True),
    ],
)
def test_patterns(pattern: str, name: str, found: bool) -> None:
    """Searched, not matched: anchors anchor. Empty text matches the empty name alone."""
    assert permission_pattern(pattern).search(name) is found


@pytest.mark.parametrize(
    "pattern, why",
    [
        ("(a)\\1", "a back-reference is not supported"),
        ("(?<=a)b", "look-behind"),
        ("(?<!a)b", "look-behind"),
        ("(?>a+)b", "an atomic group"),
        ("a++b", "possessive"),
        ("(?R)", "recursion"),
        ("(?(1)a|b)", "a condition"),
        ("(*FAIL)", "a control verb"),
        ("(a", "missing )"),
        ("a)", "unmatched )"),
        ("[a", "ends too early"),
        ("*a", "nothing to repeat"),
        ("a{3,2}", "minimum is above its maximum"),
        ("[z-a]", "begin is above its end"),
        ("a{256}", "a repetition of more than 255"),
        ("[[:nope:]]", "no such class"),
        ("\\p{L}", "\\p is not supported"),
        ("\\", "ends too early"),
        ("x" * (PATTERN_MAX + 1), "is longer than 1024"),
        ("(((a{30}){30}){30})", "is too large"),
        ("(" * 51 + ")" * 51, "more than 50 nested groups"),
        ("".join("(" for _ in range(40)) + "".join("){255}" for _ in range(40)), "is too large"),
    ],
)
def test_what_is_refused(pattern: str, why: str) -> None:
    """By name: what cannot be matched in linear time, what is no pattern, and what is too large. At once."""

    def refused() -> None:
        with pytest.raises(PatternFault, match=re.escape(why)):
            permission_pattern(pattern)

    assert steps(refused) < 200_000


@pytest.mark.parametrize(
    "pattern",
    ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "^(([a-z])+.)+[A-Z]$", "(a*)*b", "^(.*a){20}$", "(?!(a+)+b)^(a?){60}a{60}$"],
)
def test_catastrophic_patterns_cost_no_more_for_each_letter(pattern: str) -> None:
    """What backtracks for ages elsewhere: twice the name is at most twice the work, also with nothing remembered."""
    work = [steps(lambda length=length: Pattern(pattern).search("a" * length + "!")) for length in (60, 120, 240)]
    start = steps(lambda: Pattern(pattern).search(""))
    assert work[1] - start <= 2.2 * (work[0] - start)
    assert work[2] - start <= 2.2 * (work[1] - start)


def test_names_that_no_two_are_alike() -> None:
    """The hundredth name costs no more than the first."""
    compiled = Pattern("^(([a-z])+.)+[A-Z]$")
    first = steps(lambda: compiled.search("a" * 250 + "0!"))
    for number in range(1, 100):
        assert steps(lambda number=number: compiled.search("a" * 250 + f"{number}!")) <= 1.2 * first


_PIECES = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", r"\w", r"\d", "^", "$", r"\b"]
    + ["(a|b)", "(?:ab|c)", "(?=a)", "(?!b)", "(?!a.*b)", "(?:(?!a)b)", "|"]
)
_TIMES = st.sampled_from(["", "", "", "*", "+", "?", "*?", "{2}", "{0,2}", "{1,}"])


@given(
    st.lists(st.tuples(_PIECES, _TIMES), max_size=6),
    st.sampled_from(["", "*", "+", "?"]),
    st.lists(st.text("abc1-\n", max_size=9), max_size=6),
)
def test_the_answers_are_those_of_re(parts: list[tuple[str, str]], outer: str, names: list[str]) -> None:
    """Python's engine, where it takes the pattern, says the same of every name."""
    pattern = "".join(piece if piece in ("^", "$", "\\b", "|") else piece + times for piece, times in parts)
    pattern = f"(?:{pattern}){outer}"
    try:
        theirs = re.compile(pattern, re.ASCII)
        ours = Pattern(pattern)
    except (re.error, PatternFault):
        return
    for name in names:
        assert ours.search(name) is bool(theirs.search(name)), (pattern, name)


_ENDS = st.sampled_from(
    ["", "", "^", "^.*", ".*", ".+", "^.+", "(?s)", "(?s)^.*", "(?s).*", "(?i)", "(?i)^", ".*.*", "\\A"]
)
_TAILS = st.sampled_from(["", "", "$", ".*$", ".*", ".+", ".+$", ".*\\z", "\\Z", "(?s:.*)$"])


@given(_ENDS, st.lists(st.tuples(_PIECES, _TIMES), max_size=4), _TAILS, st.lists(st.text("abcA1-.\n"), max_size=6))
def test_what_is_found_quickly_is_what_the_automaton_finds(
    start: str, parts: list[tuple[str, str]], tail: str, names: list[str]
) -> None:
    """Whatever is open at the ends of a pattern, and whatever line ends are in the name."""
    middle = "".join(piece if piece in ("^", "$", "\\b", "|") else piece + times for piece, times in parts)
    try:
        pattern = Pattern(f"{start}{middle}{tail}")
    except PatternFault:
        return
    automaton = Automaton(parse_pattern(pattern.text))
    for name in names:
        assert pattern.search(name) is automaton.search(name), (pattern, name)
        assert pattern.measured(name)[0] is automaton.search(name)
        assert name.startswith(pattern.start) or not pattern.search(name)


@pytest.mark.parametrize(
    ("pattern", "is_quick"),
    [
        ("^team1\\.", True),
        ("^(?!amq\\.).*", True),
        (".*", True),
        ("^.*orders.*$", True),
        (".*\\.dlq$", True),
        ("^[a-z]+\\.dlq$", True),
        ("^(a|b|c)[0-9]+", True),
        ("a.*b", False),  # each a, times each b
        ("^.*a.*b", False),
        ("^(a?){6}b", False),
        ("[a-z]{200}x", False),
        ("^(a+)+$", False),
    ],
)
def test_what_re_may_find(pattern: str, is_quick: bool) -> None:
    """Where it takes a time that is linear in the name; it is one unit of cost then, else one for some characters."""
    found, cost = Pattern(pattern).measured("x" * 250)
    assert (cost == 1) is is_quick
    assert cost < 20_000


@given(st.text(max_size=60))
def test_any_text_is_a_pattern_or_a_fault(text: str) -> None:
    """Whatever an operator writes, there is no other error; and it can be searched."""
    try:
        pattern = Pattern(text)
    except PatternFault:
        return
    pattern.search("amq.gen-\u20ac\n\x00")


@given(st.text(min_size=1, max_size=30), st.text(max_size=30))
def test_what_a_user_is_called_is_no_pattern(user: str, other: str) -> None:
    """`{username}` stands for the name letter by letter (RabbitMQ CVE-2026-44838 is about a name that did not)."""
    pattern = permission_pattern("^{username}$", {"username": user})
    assert pattern.search(user)
    assert pattern.search(other) is (other in (user, user + "\n"))


def test_the_memory_of_a_pattern_is_bounded() -> None:
    """A million names would fill it; it starts anew when it is full."""
    automaton = Automaton(parse_pattern("^[^x]*[a-f][^x]{3}[^y]*z$"))
    for number in range(20_000):
        automaton.search(f"{chr(0x4E00 + number)}{number:x}z")
    assert len(automaton._known) <= CACHED_MAX
