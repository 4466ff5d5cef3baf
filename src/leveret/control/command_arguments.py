"""The arguments of control commands by name and kind, read from JSON or from text of the command line.

Usage lines, help and refusals are made here for both. Source: ruling 24.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..engine import QUEUE_TYPES
from ..settings.faults import nearest
from ..settings.values import LONG_MAX, shown
from .command_error import CommandError

OCTETS_MAX = 255


class _NotOfItsKind(ValueError):
    """A value of another kind; the message is the expected kind alone."""


@dataclass(slots=True, frozen=True)
class Kind:
    """`word`: its name in usage lines. `read(name, value)`: the value; raises ValueError with the whole fault."""

    word: str
    read: Callable[[str, object], Any]


def _read_name(name: str, value: object) -> str:
    if not isinstance(value, str) or not value or len(value.encode(errors="replace")) > OCTETS_MAX:
        raise _NotOfItsKind
    return value


def _read_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _NotOfItsKind
    return value


def _read_number(name: str, value: object) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ValueError(f"{name} must be a number, not {shown(value)}")
    return int(text)


def _read_limit(name: str, value: object) -> int | None:
    """Anything below zero is no limit, as in RabbitMQ."""
    text = str(value)
    if text.startswith("-") and text[1:].isascii() and text[1:].isdigit():
        return None
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
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError(f"{name}: is not JSON") from None


def _read_queue_type(name: str, value: object) -> str:
    if not isinstance(value, str) or value not in QUEUE_TYPES:
        raise ValueError(f"{name} must be classic, quorum or stream, not {shown(value)}")
    return value


def _read_flag(name: str, value: object) -> bool:
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise ValueError(f"{name} must be true or false, not {shown(value)}")


def _read_anything(name: str, value: object) -> object:
    return value


#: A name is never empty; the text of a pattern, a password or a reason may be.
NAME = Kind("NAME", _read_name)
TEXT = Kind("TEXT", _read_text)
PATTERN = Kind("PATTERN", _read_text)
NUMBER = Kind("NUMBER", _read_number)
LIMIT = Kind("NUMBER", _read_limit)
JSON = Kind("JSON", _read_json)
RING_SIZE = Kind("NUMBER", _read_ring_size)
QUEUE_TYPE = Kind("TYPE", _read_queue_type)
FLAG = Kind("BOOLEAN", _read_flag)
#: One of a few, which the command knows.
WORD = Kind("WORD", _read_name)
#: Checked by the command itself, with messages of its own.
WORDS = Kind("WORD,WORD", _read_anything)
ANY_PATTERN = Kind("PATTERN", _read_anything)
DOCUMENT = Kind("FILE", _read_anything)


@dataclass(slots=True, frozen=True)
class Argument:
    """`is_first`: on the command line it may be given without its name, in the order of the table. `typed`: its name
    there, if it differs."""

    name: str
    kind: Kind
    help: str
    is_required: bool = False
    is_first: bool = False
    typed: str = ""

    @property
    def usage(self) -> str:
        """Its form in usage lines."""
        word = (self.typed or self.name).upper() if self.is_first else f"{self.typed or self.name}={self.kind.word}"
        return word if self.is_required else f"[{word}]"


@dataclass(slots=True, frozen=True)
class Command:
    """One command. `words`: its name, and its action if it has any."""

    words: str
    help: str
    arguments: tuple[Argument, ...] = ()

    @property
    def usage(self) -> str:
        """The command with its arguments, on one line."""
        return " ".join((self.words, *(argument.usage for argument in self.arguments)))

    def read(self, given: dict[str, Any]) -> dict[str, Any]:
        """The given arguments, each read by its kind. Raises: CommandError."""
        known = {argument.name: argument for argument in self.arguments}
        for name in given:
            if name not in known:
                near = nearest(name, known) if isinstance(name, str) else ""
                raise self.error(f"unknown argument {shown(name)}{near}", with_usage=True)
        values: dict[str, Any] = {}
        for argument in self.arguments:
            value = given.get(argument.name)
            if value is None:
                if argument.is_required:
                    raise self.error(f"expected {argument.name}={argument.kind.word}", with_usage=True)
                continue
            try:
                values[argument.name] = argument.kind.read(argument.name, value)
            except _NotOfItsKind:
                raise self.error(f"expected {argument.name}={argument.kind.word}", with_usage=True) from None
            except ValueError as error:
                raise self.error(str(error)) from None
        return values

    def error(self, text: str, *, with_usage: bool = False) -> CommandError:
        """A fault, with the command's name."""
        return CommandError(f"{self.words}: {text}" + (f"\nusage: {self.usage}" if with_usage else ""))
