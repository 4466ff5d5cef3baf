"""Values in ActiveMQ's XML: sizes, switches, times. Each reader takes text; ValueError has what is expected.

Source: queues page H.3, "sizes", "booleans", "percent".
"""

import re
from collections.abc import Callable

from ..values import INT_MAX, LONG_MAX, integer, parse_integer, parse_number, rate_or_off

TextReader = Callable[[str], object]

_SIZE = re.compile(r"\s*([0-9]{1,19})\s*(?:([KMG])?B?)\s*", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3}
_FLAGS = {"true": True, "false": False}


def size(content: str) -> int:
    """Octets: "64 mb", "512 KB", "1g", "1048576"; in powers of 1024."""
    if match := _SIZE.fullmatch(content):
        octets: int = int(match[1]) * 1024 ** _POWERS[(match[2] or "").upper()]
        if octets <= LONG_MAX:
            return octets
    raise ValueError('a size: octets, or a whole number of them with b, kb, mb or gb, such as "64 mb"')


def flag(content: str) -> bool:
    """true or false in any case."""
    try:
        return _FLAGS[content.strip().lower()]
    except KeyError:
        raise ValueError("true or false") from None


def flag_or_unset(content: str) -> bool | None:
    """true or 1, false or 0; -1: None."""
    known = {**_FLAGS, "1": True, "0": False, "-1": None}
    try:
        return known[content.strip().lower()]
    except KeyError:
        raise ValueError("true, false, or -1 for that of <systemUsage>") from None


def _integer(low: int, high: int) -> TextReader:
    read = integer(low, high)
    return lambda content: read(parse_integer(content))


milliseconds = _integer(0, LONG_MAX)
milliseconds_or_off = _integer(-1, LONG_MAX)
period = _integer(1, LONG_MAX)
count = _integer(0, INT_MAX)
count_or_off = _integer(-1, INT_MAX)
limit = _integer(-1, LONG_MAX)
percent = _integer(1, 100)
whole_number = _integer(-LONG_MAX - 1, LONG_MAX)


def milliseconds_or_unset(content: str) -> object:
    """Milliseconds; -1: None."""
    value = milliseconds_or_off(content)
    return None if value == -1 else value


def multiplier(content: str) -> float:
    """A number from 0."""
    value = parse_number(content)
    if value == -1:
        raise ValueError("a number from 0")
    return rate_or_off(value)


def name(content: str) -> str:
    """Any text that is not empty."""
    if content.strip():
        return content.strip()
    raise ValueError("a name")


def anything(content: str) -> str:
    """Of attributes that mean nothing here."""
    return content
