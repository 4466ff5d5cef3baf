"""Arithmetic, and functions of numbers and arrays. NULL gives NULL, except in an array and in the lists of GREATEST and
LEAST; other values that are not numbers give NaN.

Source: queues page B.1 (promotion), B.2 (choice 7), B.4.
"""

import math
from collections.abc import Callable

from ..subject import Subject
from ..values import NAN, Number, Value, elements, number_of, text_of, whole

#: Decimal places beyond which rounding changes nothing.
_PLACES_MAX = 330


# -- operators --------------------------------------------------------------------------------------------------------


def _in_range(number: Number) -> Number:
    """An integer result is floating if it is too large."""
    return whole(number) if type(number) is int else number


def add(left: Number, right: Number) -> Number:
    return _in_range(left + right)


def subtract(left: Number, right: Number) -> Number:
    return _in_range(left - right)


def multiply(left: Number, right: Number) -> Number:
    return _in_range(left * right)


def divide(left: Number, right: Number) -> Number:
    """The quotient, of two integers without its fraction. NaN if the divisor is 0."""
    if not right:
        return NAN
    if type(left) is int and type(right) is int:
        found = abs(left) // abs(right)
        return found if (left < 0) == (right < 0) else -found
    return left / right


def remainder(left: Number, right: Number) -> Number:
    """The remainder, with the sign of the dividend. NaN if the divisor is 0."""
    if not right:
        return NAN
    if type(left) is int and type(right) is int:
        found = abs(left) % abs(right)
        return -found if left < 0 else found
    try:
        return math.fmod(left, right)
    except ValueError:
        return NAN


ARITHMETIC: dict[str, Callable[[Number, Number], Number]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "%": remainder,
}


# -- functions of one number ------------------------------------------------------------------------------------------


def _of_number(compute: Callable[[Number], Number]) -> Callable[[Subject, Value], Value]:
    """A function of a number. It gives NaN outside its domain, and infinity if the result is too large."""

    def function(subject: Subject, value: Value) -> Value:
        number = number_of(value)
        if number is None or number != number:
            return number
        try:
            found = compute(number)
        except ValueError:
            return NAN
        except OverflowError:
            return math.inf
        return _in_range(found)

    return function


def _sign(number: Number) -> int:
    return (number > 0) - (number < 0)


def _floor(number: Number) -> Number:
    return math.floor(number) if math.isfinite(number) else number


def _ceiling(number: Number) -> Number:
    return math.ceil(number) if math.isfinite(number) else number


def _rounded(number: Number, places: int) -> Number:
    """Round half away from zero."""
    if not math.isfinite(number) or (places >= 0 and (type(number) is int or places > _PLACES_MAX)):
        return number
    if places < -_PLACES_MAX:
        return 0
    try:
        scaled = abs(number) * 10.0**places
        if not math.isfinite(scaled):
            return number
        found = math.floor(scaled + 0.5) / 10.0**places
    except (OverflowError, ZeroDivisionError):
        return number
    found = -found if number < 0 else found
    return int(found) if places <= 0 else found


def round_(subject: Subject, value: Value, places: Value = 0) -> Value:
    """Round to decimal places, half away from zero."""
    number, count = number_of(value), number_of(places)
    if number is None or count is None:
        return None
    if number != number or count != count:
        return NAN
    return _in_range(_rounded(number, int(max(-1000, min(1000, count)))))


def power(subject: Subject, base: Value, exponent: Value) -> Value:
    left, right = number_of(base), number_of(exponent)
    if left is None or right is None:
        return None
    try:
        return math.pow(left, right)
    except ValueError:
        return NAN
    except OverflowError:
        return math.inf


# -- the greatest and the least, and arrays ---------------------------------------------------------------------------


def _numbers(values: "tuple[Value, ...]") -> list[Number]:
    found = (number_of(value) for value in values)
    return [number for number in found if number is not None and number == number]


def greatest(subject: Subject, *values: Value) -> Value:
    """The greatest number among the values; NaN if there is none."""
    return max(_numbers(values), default=NAN)


def least(subject: Subject, *values: Value) -> Value:
    """The least number among the values; NaN if there is none."""
    return min(_numbers(values), default=NAN)


def _items(subject: Subject, value: Value) -> tuple[Value, ...]:
    """The elements of an array. NULL has none; another value counts as an array of one element."""
    if value is None:
        return ()
    found = tuple(elements(value))
    subject.charge(10 * len(found))
    return found


def array_count(subject: Subject, value: Value) -> Value:
    """The number of elements."""
    return len(_items(subject, value))


def array_max(subject: Subject, value: Value) -> Value:
    """The greatest number; NULL if there is none."""
    return max(_numbers(_items(subject, value)), default=None)


def array_min(subject: Subject, value: Value) -> Value:
    """The least number; NULL if there is none."""
    return min(_numbers(_items(subject, value)), default=None)


def array_sum(subject: Subject, value: Value) -> Value:
    """The sum of all numbers; NULL if there is none."""
    numbers = _numbers(_items(subject, value))
    if not numbers:
        return None
    total: Number = 0
    for number in numbers:
        total = add(total, number)
    return total


def array_to_string(subject: Subject, value: Value, delimiter: Value, null: Value = None) -> Value:
    """All elements, joined by a text; NULL is left out, or replaced by the third argument."""
    between, absent = text_of(delimiter) or "", text_of(null)
    texts = [absent if (text := text_of(one)) is None else text for one in _items(subject, value)]
    parts = [text for text in texts if text is not None]
    subject.charge(sum(len(part) + len(between) for part in parts))
    return between.join(parts)


NUMBERS: dict[str, Callable[..., Value]] = {
    "ABS": _of_number(abs),
    "SIGN": _of_number(_sign),
    "FLOOR": _of_number(_floor),
    "CEILING": _of_number(_ceiling),
    "ROUND": round_,
    "SQRT": _of_number(lambda number: math.sqrt(number)),
    "POWER": power,
    "EXP": _of_number(lambda number: math.exp(number)),
    "LN": _of_number(lambda number: math.log(number)),
    "LOG2": _of_number(lambda number: math.log2(number)),
    "LOG10": _of_number(lambda number: math.log10(number)),
    "GREATEST": greatest,
    "LEAST": least,
    "ARRAY_COUNT": array_count,
    "ARRAY_MAX": array_max,
    "ARRAY_MIN": array_min,
    "ARRAY_SUM": array_sum,
    "ARRAY_TO_STRING": array_to_string,
}
