"""Values of AMPS' elements, as text of XML or as values of AMQP and TOML. Each reader raises BadValue.

Source: queues page A.2, H.2.
"""

import re
from collections.abc import Callable
from typing import Any

from ..values import shown

Reader = Callable[[object], Any]

_DURATION = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*(us|ms|s|m|h|d|w)?\s*")
_UNITS_US = {
    "us": 1,
    "ms": 1000,
    "s": 10**6,
    "m": 60 * 10**6,
    "h": 3600 * 10**6,
    "d": 86_400 * 10**6,
    "w": 604_800 * 10**6,
}
HUNDRED_YEARS_MS = 100 * 365 * 86_400_000
INTEGER_MAX = 2**63 - 1
_BOOKMARK = re.compile(r"[0-9]{1,20}\|[0-9]{1,20}\|")
_TIMESTAMP = re.compile(r"([0-9]{8}T[0-9]{6})(\.[0-9]{1,9})?Z?")
#: Reasons for which messages of a queue expire, in AMPS' order.
REASONS = ("time_limit", "forced_expire", "max_cancels", "max_deliveries")
#: Variables in a template of a dead letter's body.
TEMPLATE_VARIABLES = ("AMPS_DATA", "AMPS_REASON", "AMPS_TOPIC", "AMPS_DATA_LENGTH", "AMPS_CORRELATION_ID")
_VARIABLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
RECOVERY_WORDS = ("epoch", "now", "creation")


class BadValue(ValueError):
    """A value that an element does not accept. `code`: of the fault (`leased_settings.CONDITIONS`)."""

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(problem)
        self.code = code


def duration(value: object) -> int:
    """1 ms to 100 years in milliseconds, from an integer (ms) or text like `15m`; text without a unit is seconds."""
    if isinstance(value, int) and not isinstance(value, bool):
        milliseconds = value
    else:
        found = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            raise BadValue("E-DUR", f"{shown(value)}, expected a duration like 250ms, 15m, 2h, 1d")
        whole, _, fraction = found[1].partition(".")
        femtoseconds = int(whole + fraction.ljust(9, "0")) * _UNITS_US[found[2] or "s"]
        milliseconds = -(-femtoseconds // 10**12)  # rounded up
    if not 1 <= milliseconds <= HUNDRED_YEARS_MS:
        raise BadValue("E-DUR", f"{shown(value)}, expected 1 ms to 100 years")
    return milliseconds


def integer(low: int) -> Reader:
    """A decimal integer from `low` to 2^63 - 1, also as text."""

    def read(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,19}\s*", value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value > INTEGER_MAX:
            raise BadValue("E-INT", f"{shown(value)}, expected a decimal integer")
        if value < low:
            raise BadValue("E-MIN", f"{value}, expected at least {low}")
        return value

    return read


def one_of(*words: str) -> Reader:
    """One of some words, without the surrounding blanks; case-sensitive."""

    def read(value: object) -> str:
        if not isinstance(value, str) or value.strip() not in words:
            raise BadValue("E-ENUM", f"{shown(value)}, expected one of {', '.join(words)}")
        return value.strip()

    return read


def text(code: str) -> Reader:
    """Text without the surrounding blanks; 1 to 8192 characters with them. `code`: of the fault."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not value.strip() or len(value) > 8192:
            raise BadValue(code, f"{shown(value)}, expected text")
        return value.strip()

    return read


def topic(code: str) -> Reader:
    """The name of a topic, or of an instance: 1 to 255 bytes. Blanks are significant in AMQP."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not 0 < len(value.encode("utf-8", "replace")) <= 255:
            raise BadValue(code, f"{shown(value)}, expected a name of 1 to 255 bytes")
        return value

    return read


def reasons(value: object) -> str:
    """Some of `REASONS`, separated by commas, in the order of that list."""
    given = {word.strip() for word in value.split(",")} if isinstance(value, str) else set()
    if not given or not given <= {*REASONS}:
        raise BadValue("E-ENUM", f"{shown(value)}, expected some of {', '.join(REASONS)}")
    return ",".join(reason for reason in REASONS if reason in given)


def template(value: object) -> str:
    """A text of 1 to 8192 characters, in which each NAME in `{{NAME}}` is one of `TEMPLATE_VARIABLES`."""
    if not isinstance(value, str) or not 0 < len(value) <= 8192:
        raise BadValue("E-EXPR", f"{shown(value)}, expected text")
    for name in _VARIABLE.findall(value):
        if name not in TEMPLATE_VARIABLES:
            known = ", ".join(TEMPLATE_VARIABLES)
            raise BadValue("E-EXPR", f"{shown('{{' + name + '}}')} is unknown, expected some of {known}")
    return value


def enabled(value: object) -> bool:
    """`enabled` in XML, a boolean in AMQP and TOML."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip() == "enabled":
        return True
    raise BadValue("E-FBM", f"{shown(value)}, expected enabled")


def recovery_point(value: object) -> str:
    """A word, a bookmark, or a time in UTC like 20240601T000000Z."""
    if isinstance(value, str):
        point = value.strip()
        if point in RECOVERY_WORDS or _BOOKMARK.fullmatch(point) or is_timestamp(point):
            return point
    raise BadValue(
        "E-RP", f"{shown(value)}, expected epoch, now, creation, a bookmark, or a time like 20240601T000000Z"
    )


def is_timestamp(point: str) -> bool:
    """Whether it is a valid time in AMPS' format."""
    from datetime import datetime  # 3 ms that other values save

    found = _TIMESTAMP.fullmatch(point)
    if found is None:
        return False
    try:
        datetime.strptime(found[1], "%Y%m%dT%H%M%S")
    except ValueError:
        return False
    return True
