"""Hypothesis strategies: trees as the parser makes them, bodies, and texts that are nearly expressions."""

from typing import Any

from hypothesis import strategies as st

from leveret.expressions.language import AMPS, JMS, Dialect
from leveret.expressions.syntax import (
    Affix,
    Between,
    Call,
    Chain,
    Comparison,
    Header,
    In,
    Is,
    Literal,
    Logic,
    Match,
    Node,
    Not,
    Path,
    Sign,
    Step,
)

NAMES = ("a", "b", "c")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NUMBERS = st.integers(0, 1 << 64) | st.floats(0, 1e300) | st.integers(0, 20)
PATTERNS = ("a", "^a.*b$", "(?i)x|y", "[0-9]+", r"(.)\1", "it's", "a{1,3}$", r"\\", "")
#: Arguments of functions that take any values: (name, how many).
CALLS = (
    ("UPPER", 1), ("LENGTH", 1), ("CONCAT", 2), ("INSTR", 2), ("SUBSTR", 3), ("TRIM", 1), ("REPLACE", 3), ("ABS", 1),
    ("ROUND", 2), ("SQRT", 1), ("POWER", 2), ("LN", 1), ("GREATEST", 2), ("ARRAY_COUNT", 1), ("ARRAY_SUM", 1),
    ("ARRAY_TO_STRING", 3), ("IF", 3), ("COALESCE", 2), ("CRC32", 1), ("MD5", 1), ("STRFTIME", 2), ("STRPTIME", 2),
    ("CHAR_VALUE", 1), ("MESSAGE_SIZE", 0), ("ROUTING_KEY", 0), ("TRUE_VALUE", 0), ("NAN_VALUE", 0), ("BOOKMARK", 0),
    ("FLOOR", 1), ("CEILING", 1), ("EXP", 1), ("REVERSE", 1), ("LEFT", 2), ("RIGHT", 2), ("SIGN", 1), ("USER", 0),
)  # fmt: skip


def leaves(dialect: Dialect) -> st.SearchStrategy[Node]:
    """Constants, headers and, in filters, paths."""
    constants = st.builds(Literal, st.none() | st.booleans() | NUMBERS | TEXTS)
    headers = st.builds(Header, st.sampled_from((*NAMES, "x.y", "JMSPriority", "ends")))
    if dialect is JMS:
        return constants | headers | st.builds(Header, TEXTS.filter(bool))
    plain = st.builds(Step, st.sampled_from((*NAMES, "21", "a-b", "@x")), st.none() | st.integers(0, 3))
    odd = st.builds(Step, TEXTS.filter(lambda name: name and not set(name) & set("/]")), st.none())
    paths = st.lists(plain, min_size=1, max_size=3) | st.lists(odd, min_size=1, max_size=2)
    return constants | headers | st.builds(Path, paths.map(tuple))


def trees(dialect: Dialect) -> st.SearchStrategy[Node]:
    """Trees of few levels."""
    return st.recursive(leaves(dialect), lambda inner: _deeper(inner, dialect), max_leaves=12)


def _deeper(inner: st.SearchStrategy[Node], dialect: Dialect) -> st.SearchStrategy[Node]:
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    two = st.lists(inner, min_size=2, max_size=3).map(tuple)
    negated = st.booleans()
    ordered = inner if dialect is AMPS else inner.filter(lambda one: not _is_text(one))
    symbols = st.sampled_from(("=", "<>"))
    chains = [
        st.builds(Chain, inner, st.lists(st.tuples(st.sampled_from(signs), inner), min_size=1, max_size=3).map(tuple))
        for signs in (("+", "-"), ("*", "/", "%"))
    ]
    if dialect is AMPS:
        matches = st.builds(Match, inner, st.just("regex"), st.sampled_from(PATTERNS), st.none(), negated)
        matches |= st.builds(Match, inner, st.just("text"), TEXTS, st.none(), negated)
    else:
        escapes = st.none() | st.sampled_from(["\\", "'", "%"])
        matches = st.builds(Match, inner, st.just("like"), TEXTS | st.sampled_from(["a%", "_b%"]), escapes, negated)
    return st.one_of(
        st.builds(Logic, st.sampled_from(("AND", "OR")), two),
        st.builds(Not, inner),
        st.builds(Comparison, symbols, inner, inner),
        st.builds(Comparison, st.sampled_from(("<", "<=", ">", ">=")), ordered, ordered),
        st.builds(Is, inner, st.sampled_from(("NULL", "NAN")), negated),
        st.builds(In, inner, several, negated),
        st.builds(Between, ordered, ordered, ordered, negated),
        st.builds(Affix, inner, st.sampled_from(("BEGINS", "ENDS")), several, negated),
        matches,
        *chains,
        st.builds(Sign, st.sampled_from(("-", "+")), inner),
        st.sampled_from(CALLS).flatmap(lambda call: _call(call[0], call[1], inner)),
    )


def _call(name: str, count: int, inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.lists(inner, min_size=count, max_size=count).map(lambda found: Call(name, tuple(found)))


def _is_text(node: Node) -> bool:
    return isinstance(node, Literal) and isinstance(node.value, str)


#: What JSON can hold.
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
DOCUMENTS: st.SearchStrategy[Any] = st.recursive(
    SCALARS | st.sampled_from("ab"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from((*NAMES, "x")), inner, max_size=4),
    max_leaves=12,
)
HEADERS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from((*NAMES, "x", "x.y", "ends")), DOCUMENTS, max_size=4
)
#: Texts that are almost expressions.
WORDS = """a /a /b[0] [/x y] 'x' "x" r'x' 1 1.5 .5e3 ( ) , + - * / % = <> < >= AND OR NOT IN LIKE BETWEEN IS NULL NAN
BEGINS WITH ESCAPE '\\' MATCHES '(' IF( UPPER( CONCAT( TRUE MOD -- /* */ convert_string_expressions: $ @ [ ]"""
NEARLY = st.lists(st.sampled_from(WORDS.split()) | st.text(max_size=4), max_size=14).map(" ".join)
