"""Comparisons of values, by the rules of each dialect. Source: queues page B.1, B.2 (choices 3, 5, 6, 8 and the flags).

A comparison with an array is true if it is true for any element. A comparison with an object, NULL or NaN is unknown.
"""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .subject import Subject
from .values import Truth, Value, flat, number_in, truth, truth_in_selectors, whole

#: Cost of comparing a pair of elements, in units (measured: 10 to 40).
PAIR = 20

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
#: Operators with their sides exchanged.
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

#: Three-valued: None is unknown.
Compare = Callable[[Value, Value, Subject], "bool | None"]


@dataclass(slots=True, frozen=True)
class Rules:
    """The rules of a dialect for values.

    `converts`: texts become numbers when compared with numbers. `orders_texts`: texts are ordered. `empty_is_null`: an
    empty text is NULL. `text_is_greater`: a text that is not a number is greater than any number; else the two only
    differ.
    """

    truth: Truth
    converts: bool
    orders_texts: bool
    empty_is_null: bool
    text_is_greater: bool

    @property
    def empty(self) -> Value:
        """The value of an empty text in an array."""
        return None if self.empty_is_null else ""


FILTERS = Rules(truth, converts=True, orders_texts=True, empty_is_null=True, text_is_greater=True)
SELECTORS = Rules(truth_in_selectors, converts=False, orders_texts=False, empty_is_null=False, text_is_greater=False)
CONVERTING_SELECTORS = Rules(
    truth_in_selectors, converts=True, orders_texts=False, empty_is_null=False, text_is_greater=False
)


def comparison(symbol: str, rules: Rules) -> Compare:
    """A function that compares two values with an operator."""
    compare, empty = OPERATORS[symbol], rules.empty
    is_equality = symbol in ("=", "<>")

    def with_plain_text(is_left: bool) -> bool:
        """The result for a number and a text that is not a number; `is_left`: the text is on the left."""
        if rules.text_is_greater:
            return compare(1, 0) if is_left else compare(0, 1)
        return symbol == "<>"

    def compared(left: Any, right: Any, subject: Subject) -> bool | None:
        kind, other_kind = type(left), type(right)
        if left is None or right is None:
            return None
        if kind is list or other_kind is list:
            return any_pair(left, right, subject)
        if kind is dict or other_kind is dict:
            return None
        if kind is str:
            if other_kind is str:
                return compare(left, right) if is_equality or rules.orders_texts else None
            number = number_in(left) if rules.converts else None
            if number is None:
                return with_plain_text(is_left=True)
            left = number
        elif other_kind is str:
            number = number_in(right) if rules.converts else None
            if number is None:
                return with_plain_text(is_left=False)
            right = number
        elif not rules.text_is_greater and (kind is bool) != (other_kind is bool):
            return symbol == "<>"
        if kind is int:
            left = whole(left)
        if other_kind is int:
            right = whole(right)
        if left != left or right != right:
            return None
        return compare(left, right)

    def any_pair(left: Value, right: Value, subject: Subject) -> bool | None:
        found: bool | None = False
        others = flat(right, empty)
        for one in flat(left, empty):
            subject.charge(PAIR * len(others))
            kind = type(one)
            is_quick = kind is int or (kind is str and one != "" and (is_equality or rules.orders_texts))
            for other in others:
                if is_quick and type(other) is kind and other != "":
                    answer: bool | None = compare(one, other)
                elif empty is None and (one == "" or other == ""):
                    answer = None
                else:
                    answer = compared(one, other, subject)
                if answer:
                    return True
                if answer is None:
                    found = None
        return found

    return compared


def any_equal(equal: Compare, value: Value, members: Iterable[Value], subject: Subject) -> bool | None:
    """IN: whether a value is equal to any of the members."""
    found: bool | None = False
    for member in members:
        subject.charge(PAIR)
        answer = equal(value, member, subject)
        if answer:
            return True
        if answer is None:
            found = None
    return found
