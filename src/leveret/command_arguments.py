"""Arguments of control commands: JSON from a program, or text from the command line."""

from typing import Any


class CommandError(Exception):
    """The command cannot be done; the message is for the operator."""


def number(name: str, value: object) -> int:
    """A count from JSON, or from the command line's text."""
    text = str(value)
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or len(text) > 18:
        raise CommandError(f"{name} must be a number, not {value!r}")
    return int(text)


def limit(name: str, value: object) -> int | None:
    """A limit; anything below zero is none, as in RabbitMQ."""
    text = str(value)
    if text.startswith("-") and text[1:].isascii() and text[1:].isdigit():
        return None
    return number(name, value)


def named(command: str, arguments: dict[str, Any], key: str, default: str | None = None) -> str:
    """A text of at most 255 octets that is taken out of the arguments; empty only when that is the default."""
    value = arguments.pop(key, default)
    if not isinstance(value, str) or (not value and default is None) or len(value.encode(errors="replace")) > 255:
        raise CommandError(f"{command}: expected {key}=NAME")
    return value


def no_arguments(command: str, arguments: dict[str, Any]) -> None:
    """Whatever is left is unknown."""
    if arguments:
        raise CommandError(f"{command}: unknown argument {next(iter(arguments))!r}")
