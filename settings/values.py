"""Values as operators write them: durations, sizes, words. Each reader raises ValueError with the expected form."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from ipaddress import IPv4Network, IPv6Network, ip_network
from types import MappingProxyType
from typing import Any

from .frozen import frozen

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1

_DURATION = re.compile(r"\s*([0-9]{1,19})\s*(ms|s|m|h|d)\s*")
#: Artemis has K, M and G, with or without B; "10T" it refuses, and so a terabyte is written with its B.
_SIZE = re.compile(r"\s*([0-9]{1,19})\s*(?:(?:([KMG])I?)?B?|(T)I?B)\s*", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}

Reader = Callable[[object], Any]

NO_UNITS: Mapping[str, int] = MappingProxyType({})
#: Types of message bodies, of logged topics and of the queues that capture them; expressions look only into JSON.
MESSAGE_TYPES = ("json", "binary", "xml", "fix", "nvfix", "bson", "msgpack")
#: Units in which durations are printed, the largest first.
DURATION_UNITS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_UNITS_MS = {**DURATION_UNITS, "d": 86_400_000}
SIZE_UNITS = {"TiB": 1024**4, "GiB": 1024**3, "MiB": 1024**2, "KiB": 1024}


@frozen
class Kind:
    """A type of value: `read` takes TOML's value; `parse` converts the text of an XML or .properties file to it.

    `units`: for printing values.
    """

    read: Reader
    parse: Callable[[str], object] = str.strip
    units: Mapping[str, int] = field(default_factory=lambda: NO_UNITS, compare=False)

    def read_text(self, content: str) -> Any:
        """The value of some text. Raises: ValueError with the expected form."""
        return self.read(self.parse(content))

    def rendered(self, value: object) -> object:
        """A value in the largest unit in which it is whole: "30m" rather than 1800000. 0 and -1 do not change."""
        if isinstance(value, int) and value > 0:
            return next((f"{value // size}{unit}" for unit, size in self.units.items() if value % size == 0), value)
        return value


# -- text to what TOML would have given -------------------------------------------------------------------------------


def parse_integer(content: str) -> object:
    """An int, or the text itself, which the reader refuses."""
    stripped = content.strip()
    return int(stripped) if re.fullmatch(r"[+-]?[0-9]{1,19}", stripped) else stripped


def parse_number(content: str) -> object:
    """A float, or the text itself."""
    stripped = content.strip()
    plain = re.fullmatch(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,4})?", stripped)
    return float(stripped) if plain else stripped


def parse_boolean(content: str) -> object:
    """true, false, 1, 0, ignoring case; else the text itself. (Artemis reads 1 as false: not copied.)"""
    return {"true": True, "1": True, "false": False, "0": False}.get(content.strip().lower(), content.strip())


# -- readers ----------------------------------------------------------------------------------------------------------


def duration_ms(value: object) -> int:
    """Milliseconds from an integer or text such as "5s", "15m"."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LONG_MAX:
        return value
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        milliseconds = int(match[1]) * _UNITS_MS[match[2]]
        if milliseconds <= LONG_MAX:
            return milliseconds
    raise ValueError('a duration: milliseconds, or text like "5s", "15m", "1h"')


def duration_or_off_ms(value: object) -> int:
    """A duration, or -1 for none."""
    if value == -1 and isinstance(value, int):
        return -1
    try:
        return duration_ms(value)
    except ValueError as error:
        raise ValueError(f"{error}, or -1 for none") from None


def heartbeat_ms(value: object) -> int:
    """A duration that AMQP can carry as an interval of heartbeats, in seconds of 16 bits."""
    try:
        milliseconds = duration_ms(value)
    except ValueError as error:
        raise ValueError(f"{error}, at most 65535s") from None
    if milliseconds > 65_535_000:
        raise ValueError("a duration of at most 65535s")
    return milliseconds


def period_ms(value: object) -> int:
    """A duration that is not zero, for a period."""
    try:
        milliseconds = duration_ms(value)
    except ValueError as error:
        raise ValueError(f"{error}, above 0") from None
    if milliseconds == 0:
        raise ValueError("a duration above 0")
    return milliseconds


def size_bytes(value: object) -> int:
    """Octets from an integer or text such as "64KiB", "10 mb" (all in powers of 1024, as Artemis reads them)."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LONG_MAX:
        return value
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        octets: int = int(match[1]) * 1024 ** _POWERS[(match[2] or match[3] or "").upper()]
        if octets <= LONG_MAX:
            return octets
    raise ValueError('a size: octets, or text like "64KiB", "10MB"')


def size_between(low: int, high: int = LONG_MAX, *, or_off: bool = False) -> Reader:
    """A size within bounds; with `or_off`, -1 as well."""
    expected = 'a size: octets, or text like "64KiB", "10MB"'
    expected += (f", at least {low}" if low > 0 else "") + (f", at most {high}" if high < LONG_MAX else "")
    expected += ", or -1 for none" if or_off else ""

    def read(value: object) -> int:
        if or_off and isinstance(value, int | str) and not isinstance(value, bool) and str(value).strip() == "-1":
            return -1
        try:
            size = size_bytes(value)
        except ValueError:
            raise ValueError(expected) from None
        if not low <= size <= high:
            raise ValueError(expected)
        return size

    return read


def boolean(value: object) -> bool:
    """true or false."""
    if isinstance(value, bool):
        return value
    raise ValueError("true or false")


def text(value: object) -> str:
    """Any text."""
    if isinstance(value, str):
        return value
    raise ValueError("text")


def name_text(value: object) -> str:
    """Text that AMQP can carry as a name: 1 to 255 octets."""
    if isinstance(value, str) and 0 < len(value.encode("utf-8", "replace")) <= 255:
        return value
    raise ValueError("a name of 1 to 255 octets")


def address_text(value: object) -> str:
    """A name, or empty text for none."""
    if value == "":
        return ""
    try:
        return name_text(value)
    except ValueError:
        raise ValueError('an address of at most 255 octets, or "" for none') from None


def texts(value: object) -> tuple[str, ...]:
    """A list of texts, or a single text."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise ValueError("a list of texts")


def some_texts(value: object) -> tuple[str, ...]:
    """At least one text."""
    if found := texts(value):
        return found
    raise ValueError("a list of texts that is not empty")


def networks(value: object) -> tuple[IPv4Network | IPv6Network, ...]:
    """A list of networks and single addresses, or one of them."""
    try:
        return tuple(ip_network(item) for item in texts(value))
    except ValueError:
        raise ValueError('a list of networks ("10.0.0.0/8", with no bits set behind the mask) and addresses') from None


def integer(low: int, high: int, *, except_zero: bool = False) -> Reader:
    """An integer between two bounds. `except_zero`: 0 is refused, and -1, which `low` must be, means no limit."""
    expected = f"-1 or an integer from 1 to {high}" if except_zero else f"an integer from {low} to {high}"

    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(expected)
        if except_zero and value == 0:
            raise ValueError(expected)
        return value

    return read


def number(low: float, high: float, *, above_low: bool = False) -> Reader:
    """A finite number between two bounds; with `above_low` the lower one itself is excluded."""
    expected = f"a number above {low:g}" if above_low else f"a number from {low:g} to {high:g}"

    def read(value: object) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                real = float(value)
            except OverflowError:
                raise ValueError(expected) from None
            if math.isfinite(real) and low <= real <= high and not (above_low and real == low):
                return real
        raise ValueError(expected)

    return read


def rate_or_off(value: object) -> float:
    """A number from 0, or -1 for none."""
    if value == -1 and not isinstance(value, bool):
        return -1.0
    try:
        rate: float = number(0, math.inf)(value)
        return rate
    except ValueError:
        raise ValueError("a number from 0, or -1 for none") from None


def word(*words: str) -> Reader:
    """One of some words."""

    def read(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise ValueError("one of " + ", ".join(words))

    return read


def word_any_case(*words: str) -> Reader:
    """One of some words, ignoring case; the result has the spelling of the list."""
    known = {word_.lower(): word_ for word_ in words}

    def read(value: object) -> str:
        if isinstance(value, str) and (found := known.get(value.strip().lower())) is not None:
            return found
        raise ValueError("one of " + ", ".join(words))

    return read


# -- kinds ------------------------------------------------------------------------------------------------------------

BOOLEAN = Kind(boolean, parse_boolean)
TEXT = Kind(text)
TEXTS = Kind(texts)
SOME_TEXTS = Kind(some_texts)
NETWORKS = Kind(networks)
ADDRESS = Kind(address_text)
DELAY = Kind(duration_ms, parse_integer, DURATION_UNITS)
DELAY_OR_OFF = Kind(duration_or_off_ms, parse_integer, DURATION_UNITS)
HEARTBEAT = Kind(heartbeat_ms, parse_integer, DURATION_UNITS)
PERIOD = Kind(period_ms, parse_integer, DURATION_UNITS)
LIMIT = Kind(integer(-1, LONG_MAX), parse_integer)  # -1: none
LIMIT_NOT_ZERO = Kind(integer(-1, LONG_MAX, except_zero=True), parse_integer)
COUNT = Kind(integer(0, LONG_MAX), parse_integer)
COUNT_INT = Kind(integer(0, INT_MAX), parse_integer)
ANY_INT = Kind(integer(-LONG_MAX - 1, LONG_MAX), parse_integer)
BYTES = Kind(size_between(0), parse_integer, SIZE_UNITS)
BYTES_OR_OFF = Kind(size_between(0, or_off=True), parse_integer, SIZE_UNITS)
POSITIVE_BYTES_OR_OFF = Kind(size_between(1, or_off=True), parse_integer, SIZE_UNITS)
PAGE_SIZE = Kind(size_between(1, INT_MAX), parse_integer, SIZE_UNITS)
MULTIPLIER = Kind(number(0, math.inf, above_low=True), parse_number)
RATE_OR_OFF = Kind(rate_or_off, parse_number)
FACTOR = Kind(number(0, 1), parse_number)
ATTEMPTS = Kind(integer(-1, INT_MAX), parse_integer)


def in_range(low: int, high: int) -> Kind:
    """An integer between two bounds."""
    return Kind(integer(low, high), parse_integer)


def one_of(*words: str) -> Kind:
    """One of some words; case-sensitive."""
    return Kind(word(*words))


def one_of_any_case(*words: str) -> Kind:
    """One of some words, ignoring case."""
    return Kind(word_any_case(*words))


ROUTING_TYPE = one_of_any_case("ANYCAST", "MULTICAST")
DELETION = one_of_any_case("OFF", "FORCE")

# -- values as text ---------------------------------------------------------------------------------------------------


def value_text(value: object) -> str:
    """A value as TOML writes it, which for these types is as JSON does; networks as texts."""
    import json  # loaded only for reports

    return json.dumps(value, ensure_ascii=False, default=str)


def text_or_unset(value: object) -> str:
    """A value as TOML writes it; "unset" for None."""
    return "unset" if value is None else value_text(value)


def in_vhost(vhost: str) -> str:
    """A virtual host after the name of an object in texts; nothing for the default one."""
    return "" if vhost == "/" else f" in vhost {vhost!r}"


def shown(value: object) -> str:
    """A value as texts of errors quote it, cut to 80 characters."""
    try:
        content = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits
        content = f"this {type(value).__name__}"
    return content if len(content) <= 80 else content[:77] + "..."
