"""Every operator between values of every two kinds, in each dialect, wherever constants stand. Queues page B.1, B.2.

The answers are those of a model: the rules of the page, one after the other, without any way to be quick.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any

import pytest
from expression_rows import Given

from leveret.expressions.language import AMPS, JMS, Dialect, Expression, ExpressionError, compiled

#: As they come in headers. Longer digits than 400 are no number.
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -2,
    2.5,
    1 << 70,
    (1 << 70) + 1,
    float("nan"),
    "",
    "a",
    "b",
    "1",
    " 2.50 ",
    "9" * 401,
    [1, "a"],
    ["1", None],
    [[2.5], [0, "b"]],
    ["", "b"],
    [],
    {"k": 1},
]
ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
#: Name of the dialect -> it, and what stands before its texts.
DIALECTS: dict[str, tuple[Dialect, str]] = {
    "filter": (AMPS, ""),
    "selector": (JMS, ""),
    "converting": (JMS, "convert_string_expressions:"),
}
KINDS = pytest.mark.parametrize("kind", DIALECTS)


# -- the model --------------------------------------------------------------------------------------------------------


def number_of(value: Any) -> int | float | None:
    """Of a text that is one, or a value that is one already."""
    if not isinstance(value, str):
        return float(value) if abs(value) > 1 << 64 else value  # type: ignore[no-any-return]
    try:
        return float(value) if len(value) <= 400 else None
    except ValueError:
        return None


def elements(value: Any, kind: str) -> Iterator[Any]:
    for one in value:
        if isinstance(one, list):
            yield from elements(one, kind)
        else:
            yield None if is_null(one, kind) else one


def any_of(answers: Iterable[bool | None]) -> bool | None:
    known = list(answers)
    return True if True in known else None if None in known else False


def negated(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def is_null(value: Any, kind: str) -> bool:
    return value is None or (kind == "filter" and value in ("", []))


def compared(symbol: str, left: Any, right: Any, kind: str) -> bool | None:
    """True, false, or None: unknown."""
    compare = ORDERINGS[symbol]
    if is_null(left, kind) or is_null(right, kind):
        return None
    if isinstance(left, list) or isinstance(right, list):
        several = [list(elements(one, kind)) if isinstance(one, list) else [one] for one in (left, right)]
        return any_of(compared(symbol, one, other, kind) for one, other in product(*several))
    if isinstance(left, dict) or isinstance(right, dict):
        return None
    if isinstance(left, str) and isinstance(right, str):
        return compare(left, right) if kind == "filter" or symbol in ("=", "<>") else None
    if kind != "filter" and isinstance(left, bool) != isinstance(right, bool):
        other = left if isinstance(right, bool) else right
        if not isinstance(other, str):
            return symbol == "<>"
    one, another = left, right
    if isinstance(left, str) or isinstance(right, str):
        converted = [number_of(one) for one in (left, right)]
        if kind == "selector" or None in converted:
            if kind != "filter":
                return symbol == "<>"
            return compare(isinstance(left, str), isinstance(right, str))  # greater than any number
        one, another = converted
    one, another = number_of(one), number_of(another)
    return None if one != one or another != another else compare(one, another)


def is_member(value: Any, members: Iterable[Any], kind: str) -> bool | None:
    return any_of(compared("=", value, one, kind) for one in members)


def is_between(value: Any, low: Any, high: Any, kind: str) -> bool | None:
    if isinstance(value, list) and not is_null(value, kind):
        return any_of(is_between(one, low, high, kind) for one in elements(value, kind))
    both = compared(">=", value, low, kind), compared("<=", value, high, kind)
    return False if False in both else None if None in both else True


# -- and the room ------------------------------------------------------------------------------------------------------


def written(value: Any) -> str | None:
    """As a constant; None: there is none for it."""
    if isinstance(value, list | dict) or value != value:
        return None
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    return repr(value)


def expression(text: str, kind: str, *constants: Any) -> Expression | None:
    """None: selectors refuse to order by a constant text."""
    dialect, prefix = DIALECTS[kind]
    try:
        return compiled(prefix + text, dialect)
    except ExpressionError:
        assert kind == "selector" and any(isinstance(one, str) for one in constants), text
        return None


def holding(left: Any = None, right: Any = None, third: Any = None) -> Given:
    return Given(b"", headers={"l": left, "r": right, "t": third})


@KINDS
@pytest.mark.parametrize("symbol", ORDERINGS)
def test_two_values_of_a_message(symbol: str, kind: str) -> None:
    """And the same denied: what is unknown stays so."""
    plain, denied = expression(f"l {symbol} r", kind), expression(f"NOT (l {symbol} r)", kind)
    assert plain is not None and denied is not None
    for left, right in product(VALUES, VALUES):
        expected = compared(symbol, left, right, kind)
        assert plain.truth(holding(left, right)) is expected, (left, symbol, right)
        assert denied.truth(holding(left, right)) is negated(expected), (left, symbol, right)


@KINDS
@pytest.mark.parametrize("symbol", ORDERINGS)
def test_a_constant_on_either_side(symbol: str, kind: str) -> None:
    """It is computed once, and exchanged with the other side where that is quicker: the answer is the same."""
    for constant in VALUES:
        text = written(constant)
        if text is None:
            continue
        left, right = (
            expression(f"{text} {symbol} l", kind, constant),
            expression(f"l {symbol} {text}", kind, constant),
        )
        for value in VALUES:
            if left is not None:
                assert left.truth(holding(value)) is compared(symbol, constant, value, kind), (constant, symbol, value)
            if right is not None:
                assert right.truth(holding(value)) is compared(symbol, value, constant, kind), (value, symbol, constant)
        for other in VALUES:
            if (words := written(other)) is not None:
                both = expression(f"{text} {symbol} {words}", kind, constant, other)
                assert both is None or both.truth(holding()) is compared(symbol, constant, other, kind)


@KINDS
def test_members(kind: str) -> None:
    """IN is equality with any; a member that is NULL, or of no kind to compare, leaves it unknown, and NOT IN too."""
    plain, denied = expression("l IN (r, t)", kind), expression("l NOT IN (r, t)", kind)
    assert plain is not None and denied is not None
    for values in product(VALUES[::2], VALUES[1::3], VALUES):
        expected = is_member(values[0], values[1:], kind)
        assert plain.truth(holding(*values)) is expected, values
        assert denied.truth(holding(*values)) is negated(expected), values
    for constant in VALUES:
        if (text := written(constant)) is not None:
            constants = expression(f"l IN ({text}, 'b', 1)", kind)
            assert constants is not None
            for value in VALUES:
                assert constants.truth(holding(value)) is is_member(value, (constant, "b", 1), kind), (value, constant)


@KINDS
def test_ranges(kind: str) -> None:
    """BETWEEN has both ends, and of an array one element has to be between them."""
    plain, denied = expression("l BETWEEN r AND t", kind), expression("l NOT BETWEEN r AND t", kind)
    assert plain is not None and denied is not None
    for values in product(VALUES, VALUES[::2], VALUES[1::2]):
        expected = is_between(*values, kind)
        assert plain.truth(holding(*values)) is expected, values
        assert denied.truth(holding(*values)) is negated(expected), values


@KINDS
def test_null_alone_is_null(kind: str) -> None:
    """Not what is false, 0, or an object; an empty text or array where the dialect has it so."""
    plain, denied = expression("l IS NULL", kind), expression("l IS NOT NULL", kind)
    nan = expression("l IS NAN", kind)
    assert plain is not None and denied is not None and nan is not None
    for value in VALUES:
        assert plain.truth(holding(value)) is is_null(value, kind), value
        assert denied.truth(holding(value)) is not is_null(value, kind), value
        assert nan.truth(holding(value)) is (isinstance(value, float) and value != value), value


@KINDS
def test_what_is_true_by_itself(kind: str) -> None:
    """Choice 5: in filters numbers other than 0, also as texts; in selectors booleans alone."""
    plain, denied = expression("l", kind), expression("NOT l", kind)
    assert plain is not None and denied is not None

    def truth(value: Any) -> bool | None:
        if is_null(value, kind):
            return None
        if kind != "filter":
            return value is True
        if isinstance(value, list):
            return any_of(None if one is None else truth(one) for one in elements(value, kind))
        number = None if isinstance(value, dict) else number_of(value)
        return None if number is None or number != number else number != 0

    for value in VALUES:
        assert plain.truth(holding(value)) is truth(value), value
        assert denied.truth(holding(value)) is negated(truth(value)), value


@pytest.mark.parametrize("digits", ["0" * 400, "0" * 401, "1" + "0" * 399, "1" + "0" * 400, " " * 400 + "1"])
def test_how_long_a_number_in_a_text_may_be(digits: str) -> None:
    """400 characters: longer ones are texts, however they look, so that nobody has to read a million digits."""
    is_number = len(digits) <= 400
    subject = Given(b"", headers={"l": digits})
    assert compiled("l IS NAN", AMPS).truth(subject) is False
    assert compiled("l + 1 IS NAN", AMPS).truth(subject) is not is_number
    assert compiled("l = 0", AMPS).truth(subject) is (is_number and not digits.strip("0"))
    assert compiled("l > 1", AMPS).truth(subject) is (not is_number or digits[0] == "1")


@pytest.mark.parametrize("words", ["l LIKE 'a{}'", "l BEGINS WITH ('a')", "l ENDS WITH ('a')"])
def test_an_empty_text_in_an_array_meets_a_pattern_as_it_is_compared(words: str) -> None:
    """In a selector it is a text that does not fit, so NOT takes the message; in a filter it is NULL, so none does."""
    subject = Given(b"", headers={"l": ["", "b"]})
    assert compiled(words.format("%"), JMS).truth(subject) is False
    assert compiled(words.format(""), AMPS).truth(subject) is None
