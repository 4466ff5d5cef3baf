"""Times as texts and as seconds since 1970, UTC. Source: queues page B.4, B.1 (timestamps).

A formatter of our own: C's accepts widths that fill the memory, and its words depend on the machine's language.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from ..subject import Subject
from ..values import Value, number_of, text_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
#: Conversions that are short for several others.
_SHORT = {"F": "%Y-%m-%d", "T": "%H:%M:%S", "D": "%m/%d/%y", "R": "%H:%M"}
#: Conversions for parsing: a pattern, and the part of a time.
_READ = {
    "Y": (r"[0-9]{4}", "year"),
    "m": (r"[0-9]{1,2}", "month"),
    "d": (r"[0-9]{1,2}", "day"),
    "H": (r"[0-9]{1,2}", "hour"),
    "M": (r"[0-9]{1,2}", "minute"),
    "S": (r"[0-9]{1,2}", "second"),
    "f": (r"[0-9]{1,6}", "fraction"),
    "y": (r"[0-9]{2}", "short year"),
    "s": (r"[0-9]{1,11}", "since 1970"),
}
_FORMAT_MAX = 256


def strftime(subject: Subject, format_: Value, value: Value) -> Value:
    """A time as a text: %Y %m %d %H %M %S %f %y %j %a %A %b %B %p %I %s %z %Z %F %T %D %R %%; others are kept."""
    text, seconds = text_of(format_), number_of(value)
    if text is None or seconds is None or seconds != seconds or len(text) > _FORMAT_MAX:
        return None
    try:
        time = _EPOCH + timedelta(microseconds=round(seconds * 1_000_000))
    except (OverflowError, ValueError):
        return None
    subject.charge(500 + 50 * len(text))
    return _formatted(text, time)


def _formatted(text: str, time: datetime) -> str:
    return "".join(_converted(part, time) if index % 2 else part for index, part in enumerate(_parts(text)))


def _parts(text: str) -> list[str]:
    """Literal texts (with even index), and between them the letters of conversions (with odd index)."""
    text = re.sub(r"%(.)", lambda found: _SHORT.get(found[1], found[0]), text, flags=re.DOTALL)
    return re.split(r"%(.)", text, flags=re.DOTALL)


def _converted(letter: str, time: datetime) -> str:
    day = (time.weekday() + 1) % 7
    known = {
        "Y": f"{time.year:04}",
        "y": f"{time.year % 100:02}",
        "m": f"{time.month:02}",
        "d": f"{time.day:02}",
        "H": f"{time.hour:02}",
        "I": f"{time.hour % 12 or 12:02}",
        "M": f"{time.minute:02}",
        "S": f"{time.second:02}",
        "f": f"{time.microsecond:06}",
        "j": f"{time.timetuple().tm_yday:03}",
        "p": "AM" if time.hour < 12 else "PM",
        "a": _DAYS[day][:3],
        "A": _DAYS[day],
        "b": _MONTHS[time.month - 1][:3],
        "B": _MONTHS[time.month - 1],
        "s": str((time - _EPOCH) // timedelta(seconds=1)),
        "z": "+0000",
        "Z": "UTC",
        "%": "%",
    }
    return known.get(letter, f"%{letter}")


def strptime(subject: Subject, value: Value, format_: Value) -> Value:
    """A text as seconds since 1970, a float; NULL if it does not fit. %Y %m %d %H %M %S %f %y %s %F %T %D %R %%."""
    text, pattern = text_of(value), text_of(format_)
    if text is None or pattern is None or max(len(text), len(pattern)) > _FORMAT_MAX:
        return None
    subject.charge(1000 + 100 * len(pattern))
    found: dict[str, int] = {}
    position = 0
    for index, part in enumerate(_parts(pattern)):
        is_conversion = index % 2 == 1
        if is_conversion and part in _READ:
            digits, name = _READ[part]
            match = re.compile(digits, re.ASCII).match(text, position)
            if match is None:
                return None
            found[name] = int(match[0].ljust(6, "0")) if name == "fraction" else int(match[0])
            position = match.end()
        else:
            literal = f"%{part}" if is_conversion and part != "%" else part
            if not text.startswith(literal, position):
                return None
            position += len(literal)
    if position < len(text):
        return None
    return _seconds(found)


def _seconds(found: dict[str, int]) -> float | None:
    fraction = found.get("fraction", 0) / 1_000_000
    if "since 1970" in found:
        return found["since 1970"] + fraction
    short = found.get("short year")
    year = found.get("year", 1970 if short is None else short + (2000 if short < 69 else 1900))
    try:
        time = datetime(
            year,
            found.get("month", 1),
            found.get("day", 1),
            found.get("hour", 0),
            found.get("minute", 0),
            found.get("second", 0),
            tzinfo=UTC,
        )
    except ValueError:
        return None
    return (time - _EPOCH).total_seconds() + fraction


TIMES: dict[str, Callable[..., Value]] = {"STRFTIME": strftime, "STRPTIME": strptime}
