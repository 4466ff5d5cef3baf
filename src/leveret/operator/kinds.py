"""The kinds of arguments of commands. A kind converts a value from JSON, or from text of the command line.

The annotation of a parameter contains its kind, and optionally its help.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

from ..engine import EXCHANGE_TYPES, QUEUE_TYPES
from ..settings.json_values import value_of_json
from ..settings.policies.policy import APPLY_TO as APPLY_TO_WORDS
from ..settings.values import LONG_MAX, duration_ms, shown
from .known_keys import Key

OCTETS_MAX = 255


class NotOfItsKind(ValueError):
    """A value of another kind. It has no message: the caller knows the argument and its kind."""


@dataclass(slots=True, frozen=True)
class Kind:
    """A kind of argument.

    `word`: its name in usage lines. `read(name, value)`: converts a value; raises NotOfItsKind, or ValueError with the
    whole message. `typed`: the argument's name on the command line, if it differs from the parameter's name. `options`:
    the words that forms offer; the command checks them. `keys`: the keys that forms offer for an object.
    """

    word: str
    read: Callable[[str, object], Any]
    typed: str = ""
    options: Iterable[str] = field(default=(), hash=False)
    keys: tuple[Key, ...] = ()


def _read_name(name: str, value: object) -> str:
    if not isinstance(value, str) or not value or len(value.encode(errors="replace")) > OCTETS_MAX:
        raise NotOfItsKind
    return value


def _read_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise NotOfItsKind
    return value


def _read_number(name: str, value: object) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ValueError(f"{name} must be a number, not {shown(value)}")
    return int(text)


def _read_numbers(name: str, value: object) -> list[int]:
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
    return [_read_number(name, part) for part in parts]


def _read_time(name: str, value: object) -> int:
    if isinstance(value, str) and not value.isdigit():
        try:
            return duration_ms(value)
        except ValueError:
            raise ValueError(f"{name} must be milliseconds, or a time like 10s, 5m, 2h, not {shown(value)}") from None
    return _read_number(name, value)


def _read_limit(name: str, value: object) -> int:
    """A limit. Any number below zero means no limit, as in RabbitMQ."""
    text = str(value)
    if text.startswith("-") and text[1:].isascii() and text[1:].isdigit():
        return -1
    return _read_number(name, value)


def _read_ring_size(name: str, value: object) -> int:
    size = -1 if str(value) == "-1" else _read_number(name, value)
    if not (size == -1 or 1 <= size <= LONG_MAX):
        raise ValueError(f"{name} must be -1 or a number from 1, not {shown(value)}")
    return size


def _read_json(name: str, value: object) -> object:
    """Text of the command line parsed as JSON; anything else unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return value_of_json(value)
    except (ValueError, RecursionError):
        raise ValueError(f"{name}: is not JSON") from None


def _read_queue_type(name: str, value: object) -> str:
    if not isinstance(value, str) or value not in QUEUE_TYPES:
        raise ValueError(f"{name} must be one of {', '.join(QUEUE_TYPES)}, not {shown(value)}")
    return value


def _read_flag(name: str, value: object) -> bool:
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise ValueError(f"{name} must be true or false, not {shown(value)}")


def _read_anything(name: str, value: object) -> Any:
    return value


def one_of(words: Iterable[str]) -> Kind:
    """A `WORD`; `words`: those that forms offer."""
    return Kind("WORD", _read_name, options=words)


def object_with(keys: tuple[Key, ...]) -> Kind:
    """A `JSON` object; `keys`: those that forms offer."""
    return Kind("JSON", _read_json, keys=keys)


NAME, TEXT = Kind("NAME", _read_name), Kind("TEXT", _read_text)
NUMBER, FLAG, JSON = Kind("NUMBER", _read_number), Kind("BOOLEAN", _read_flag), Kind("JSON", _read_json)
NUMBERS = Kind("NUMBER[,NUMBER]", _read_numbers)
WORD = Kind("WORD", _read_name)
TIME = Kind("TIME", _read_time)

#: A name is never empty; the text of a pattern, a password or a reason may be.
Name = Annotated[str, NAME]
#: Any value: the command checks the pattern.
ANY_PATTERN = Kind("PATTERN", _read_anything)
#: The objects that a policy applies to, which the command checks.
APPLY_TO = Kind("TEXT", _read_anything, options=APPLY_TO_WORDS)
Pattern = Annotated[str, Kind("PATTERN", _read_text)]
#: One of a few words, which the command checks.
Word = Annotated[str, WORD]
#: -1: no limit.
Limit = Annotated[int, Kind("NUMBER", _read_limit)]
RingSize = Annotated[int, Kind("NUMBER", _read_ring_size)]
QueueType = Annotated[str, Kind("TYPE", _read_queue_type, options=QUEUE_TYPES)]
Milliseconds = Annotated[int, TIME]
Json = Annotated[Any, JSON]
#: Checked by the command itself.
Words = Annotated[Any, Kind("WORD,WORD", _read_anything)]
Document = Annotated[Any, Kind("FILE", _read_anything, typed="file")]

QueueName = Annotated[str, NAME, "the queue's name"]
ExchangeName = Annotated[str, NAME, "the exchange's name"]
ExchangeType = Annotated[str, Kind("NAME", _read_name, options=EXCHANGE_TYPES)]
UserName = Annotated[str, NAME, "the user's name"]
VhostName = Annotated[str, NAME, 'its virtual host (default "/")']
HostName = Annotated[str, NAME, "of the virtual host"]
OnlyVhost = Annotated[str, NAME, "only in this virtual host"]
IntoVhost = Annotated[str, NAME, "everything in it is for this virtual host"]
OnlyUser = Annotated[str, NAME, "only of this user"]
AsUser = Annotated[str, NAME, "with the permissions of this user (default: all)"]
