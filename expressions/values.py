"""Values, and conversions between their kinds: numbers, texts, truth.

None is NULL; as an answer it means unknown. An array is a list, an object a dict: both come only from bodies and
headers.
Source: queues page B.1, B.2.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from .tokens import INTEGER_MAX, INTEGER_MIN

Value: TypeAlias = "None | bool | int | float | str | list[Any] | dict[str, Any]"
Number: TypeAlias = int | float

NAN = float("nan")
INFINITY = float("inf")
#: The form of texts that are numbers: no NaN, no infinity, only ASCII digits.
_NUMBER = re.compile(r"\s*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?)\s*")
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")
#: Maximum characters of a text that counts as a number: parsing longer ones would take long.
DIGITS_MAX = 400


class TooCostly(Exception):
    """An evaluation has exceeded its cost: its answer is unknown. It never leaves an expression."""


def whole(number: int) -> Number:
    """An integer result, floating if it exceeds 64 bits (queues page B.2, choice 7)."""
    if INTEGER_MIN <= number <= INTEGER_MAX:
        return number
    return floating(number)


def floating(number: Number) -> float:
    """A floating number, infinite if it is too large."""
    try:
        return float(number)
    except OverflowError:
        return INFINITY if number > 0 else -INFINITY


def number_in(text: str) -> Number | None:
    """The number in a text, which may have blanks around it; None: it is no number, or too long."""
    if len(text) > DIGITS_MAX:
        return None
    if _WHOLE.fullmatch(text) is not None:
        return int(text)
    found = _NUMBER.fullmatch(text)
    return None if found is None else float(found[1])


def scalar(value: Value) -> Value:
    """The first element of an array (NULL of an empty one), for functions and arithmetic; other values themselves."""
    while type(value) is list:
        value = value[0] if value else None
    return value


def number_of(value: Value) -> Number | None:
    """The number for arithmetic: None for NULL, empty text and empty arrays; NaN for other values without a number."""
    kind = type(value)
    if kind is float:
        return value  # type: ignore[return-value]
    if kind is int:
        return whole(value)  # type: ignore[arg-type]
    if kind is list:
        return number_of(scalar(value))
    if kind is bool:
        return int(value)  # type: ignore[arg-type]
    if kind is str:
        if not value:
            return None
        found = number_in(value)  # type: ignore[arg-type]
        return NAN if found is None else found
    return None if value is None else NAN


def text_of(value: Value) -> str | None:
    """The text for functions of texts and patterns; None for NULL, empty arrays and objects."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[return-value]
    if kind is list:
        return text_of(scalar(value))
    if kind is bool:
        return "1" if value else "0"
    if kind is int:
        return repr(whole(value))  # type: ignore[arg-type]
    if kind is float:
        text = repr(value)
        return text[:-2] if text.endswith(".0") else text
    return None


def elements(value: Value, empty: Value = None) -> Iterator[Value]:
    """The elements of an array and of the arrays in it; of another value, the value. `empty` replaces empty texts."""
    waiting: list[Iterator[Value]] = [iter((value,))]
    while waiting:
        for one in waiting[-1]:
            if type(one) is list:
                waiting.append(iter(one))
                break
            yield empty if one == "" else one
        else:
            waiting.pop()


def flat(value: Value, empty: Value) -> list[Any]:
    """The elements as a list. `empty` replaces the empty texts of an array with arrays in it.

    Another array is returned as it is, and a value that is no array is the only element: `empty` replaces nothing.
    """
    if type(value) is not list:
        return [value]
    return list(elements(value, empty)) if list in map(type, value) else value


#: The truth of a value, three-valued.
Truth: TypeAlias = Callable[[Value], "bool | None"]


def truth(value: Value) -> bool | None:
    """Whether a value counts as true in a content filter: a number other than 0, also as text, or an array with one.

    None is unknown: NULL, NaN, an object, a text that is no number, or an array with one of them and nothing true.

    Source: queues page B.2, choice 5.
    """
    kind = type(value)
    if kind is bool:
        return value  # type: ignore[return-value]
    if kind is int:
        return value != 0
    if kind is float:
        return None if value != value else value != 0
    if kind is str:
        number = number_in(value)  # type: ignore[arg-type]
        return None if number is None else number != 0
    if kind is list:
        return any_of(truth(one) for one in elements(value))
    return None


def truth_in_selectors(value: Value) -> bool | None:
    """The truth of a value in a selector: of a boolean itself, of NULL unknown; all other values are false."""
    if value is None or isinstance(value, bool):
        return value
    return False


def any_of(answers: Iterator[bool | None]) -> bool | None:
    """OR: true if any is, else unknown if any is."""
    found: bool | None = False
    for answer in answers:
        if answer:
            return True
        if answer is None:
            found = None
    return found
