"""Whatever takes long is charged for it: an evaluation that is too long ends, wherever the time goes. Queues page B.5.

Work is counted, not time: what is charged for twice as much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from expression_rows import Given

from leveret.expressions.language import AMPS, JMS, Dialect, compiled
from leveret.expressions.subject import COST_MAX


def array(size: int) -> dict[str, Any]:
    return {"l": list(range(size)), "m": [-1], "s": "x"}


def arrays(size: int) -> dict[str, Any]:
    return {"l": list(range(size)), "m": [-1] * size}


def deep(size: int) -> dict[str, Any]:
    return {"l": [[one] for one in range(size)], "m": [[-1]]}


def texts(size: int) -> dict[str, Any]:
    return {"l": [f"x{one}" for one in range(size)], "m": ["y"], "s": "y"}


def text(size: int) -> dict[str, Any]:
    return {"s": "a" * size, "t": "ab" * (size // 2)}


def digits(size: int) -> dict[str, Any]:
    return {"l": ["1"] * size}


#: Dialect, expression, headers of a size; units for each of the size at least; whether twice as much takes four times.
LINEAR: list[tuple[Dialect, str, Callable[[int], dict[str, Any]], float]] = [
    (AMPS, "l = m", array, 10),
    (AMPS, "m = l", array, 10),
    (AMPS, "l = -1", array, 10),
    (AMPS, "-1 < l AND -1 = l", array, 10),
    (JMS, "l = m", array, 10),
    (AMPS, "l > s", texts, 10),
    (AMPS, "l = m", deep, 10),
    (AMPS, "l IN (-1, -2)", array, 20),
    (AMPS, "l BETWEEN -2 AND -1", array, 0),
    (AMPS, "l BEGINS WITH ('y', 'z')", texts, 20),
    (AMPS, "l ENDS WITH ('y', 'z')", texts, 20),
    (AMPS, "ARRAY_SUM(l) = -1", digits, 10),
    (AMPS, "ARRAY_MAX(l) = -1", digits, 10),
    (AMPS, "ARRAY_TO_STRING(l, '-') = 'x'", digits, 1),
    (JMS, "s LIKE '%b%'", text, 1),
    (JMS, "s LIKE '_%b_'", text, 3),
    (JMS, "s LIKE '%b%b%b%b%b'", text, 5),
    (AMPS, "s LIKE 'b'", text, 1),
    (AMPS, "s LIKE '^(a|b)*c'", text, 1),
    (AMPS, "s LIKE '(?:(a)|b)*c'", text, 1),
    (AMPS, r"s LIKE '(b)\1'", text, 80),
    (AMPS, r"s LIKE '^(a)\1*b'", text, 80),
    (AMPS, r"s LIKE '^(?=(a*))\1b'", text, 80),
    (AMPS, r"s LIKE '^(?!(a*)b\1)c'", text, 80),
    (AMPS, "REGEXP_REPLACE(s, 'a', 'bc') = 'x'", text, 10),
    (AMPS, r"REGEXP_REPLACE(s, '(a)\\1', 'bc') = 'x'", text, 80),
    (AMPS, r"REGEXP_REPLACE(s, 'a', '\\0\\0') = 'x'", text, 100),
    (AMPS, "REPLACE(s, 'a', 'bc') = 'x'", text, 3),
    (AMPS, "CONCAT(s, s) = 'x'", text, 2),
    (AMPS, "UPPER(s) = 'x'", text, 1),
    (AMPS, "REVERSE(s) = 'x'", text, 0),
    (AMPS, "CRC32(s) = 1", text, 1),
    (AMPS, "MD5(s) = 'x'", text, 1),
]
QUADRATIC: list[tuple[Dialect, str, Callable[[int], dict[str, Any]]]] = [
    (AMPS, "l = m", arrays),
    (AMPS, "m > l", arrays),
    (JMS, "l = m", arrays),
    (AMPS, r"s LIKE '^(a*)(a*)\1\2b'", text),
    (AMPS, r"s LIKE '(a*)\1b'", text),
    (AMPS, "REPLACE(s, 'a', s) = 'x'", text),
]


def spent(dialect: Dialect, words: str, headers: dict[str, Any]) -> int:
    expression = compiled(words, dialect)
    subject = Given(b"", headers=headers)
    expression.truth(subject)
    assert subject.spent <= COST_MAX, "the size is too large for this test"
    return subject.spent


@pytest.mark.parametrize(
    ("dialect", "words", "make", "least"), LINEAR, ids=[f"{row[0].value} {row[1]}" for row in LINEAR]
)
def test_more_costs_more(dialect: Dialect, words: str, make: Callable[[int], dict[str, Any]], least: float) -> None:
    """For each element, character or step."""
    few, many = spent(dialect, words, make(200)), spent(dialect, words, make(400))
    assert many - few >= 200 * least


@pytest.mark.parametrize(("dialect", "words", "make"), QUADRATIC, ids=[f"{row[0].value} {row[1]}" for row in QUADRATIC])
def test_what_is_squared_costs_the_square(dialect: Dialect, words: str, make: Callable[[int], dict[str, Any]]) -> None:
    """Each with each: twice as much of both is four times the work."""
    assert spent(dialect, words, make(80)) >= 3.2 * spent(dialect, words, make(40)) > 0


def test_each_member_costs() -> None:
    """Of IN, of BEGINS WITH and of a path through an array, whether or not it is the first that fits."""
    for words in ("s IN ({})", "s BEGINS WITH ({})"):
        costs = [
            spent(AMPS, words.format(", ".join(f"h{one}" for one in range(count))), {"s": "x"}) for count in (50, 100)
        ]
        assert costs[1] - costs[0] >= 50 * 10
    bodies = [Given(b'{"l": [' + b", ".join([b'{"v": 1}'] * count) + b"]}") for count in (100, 200)]
    for body in bodies:
        assert compiled("/l/v = 2", AMPS).truth(body) is False
    assert bodies[1].spent - bodies[0].spent >= 100 * 10


@pytest.mark.parametrize(
    ("dialect", "words", "headers"),
    [
        (AMPS, "l = m", {"l": list(range(3000)), "m": [-1] * 3000}),
        (AMPS, r"s LIKE '^(a*)(a*)(a*)\1\2\3b'", {"s": "a" * 400}),
        (AMPS, r"s LIKE '^(?=(a*)(a*)(a*)\1\2\3b)'", {"s": "a" * 400}),
        (AMPS, "REPLACE(REPLACE(s, 'a', s), 'a', s) = 'x'", {"s": "a" * 300}),
        (JMS, "s LIKE '" + "%a" * 200 + "%b'", {"s": "a" * 40_000}),
    ],
)
def test_what_is_too_much_ends_and_is_unknown(dialect: Dialect, words: str, headers: dict[str, Any]) -> None:
    """Soon behind what any may take."""
    expression, subject = compiled(words, dialect), Given(b"", headers=headers)
    assert expression.truth(subject) is None
    assert subject.spent > COST_MAX


@pytest.mark.parametrize(
    ("pattern", "value", "found"),
    [
        (r"^(a?)*\1b", "aab", True),
        (r"^(a*)*\1c", "aab", False),
        (r"^(?:(a)?|b*)*\1$", "bbaa", True),
        (r"^((a*)*)*b\2$", "aab", True),
        (r"^(?:(?=(a)))*a\1?$", "aa", True),
        (r"^(x*)*y\1$", "y", True),
        (r"^(?:\b|(a))*\1?$", "aa", True),
        (r"^((?:)|b)*?a\1$", "a", True),
    ],
)
def test_a_repetition_of_what_may_be_empty_ends(pattern: str, value: str, found: bool) -> None:
    """With an answer, at little cost: a turn that took nothing is the last one."""
    expression, subject = compiled(f"s LIKE '{pattern}'", AMPS), Given(b"", headers={"s": value})
    assert expression.truth(subject) is found
    assert subject.spent < 50_000
