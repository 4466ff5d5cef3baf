"""Rows of commands that are no functions yet, and arguments that many of them have."""

from collections.abc import Callable
from typing import Any, get_args

from . import command, kinds
from .kinds import NAME, Kind

ANY_PATTERN, DOCUMENT, LIMIT, PATTERN, QUEUE_TYPE, RING_SIZE, WORDS = (
    get_args(one)[1]
    for one in (
        kinds.AnyPattern,
        kinds.Document,
        kinds.Limit,
        kinds.Pattern,
        kinds.QueueType,
        kinds.RingSize,
        kinds.Words,
    )
)


def Argument(name: str, kind: Kind, text: str, is_required: bool = False, is_first: bool = False) -> command.Argument:
    """A row."""
    return command.Argument(name, kind, text, is_required, is_first)


def Command(
    words: str, text: str, arguments: tuple[command.Argument, ...] = (), reads: bool = False
) -> command.Command:
    """A command that `ControlTable.handlers` runs."""
    return command.Command(words, text, arguments, _run, None, reads, {})


def _run(handlers: dict[str, Callable[[dict[str, Any]], Any]], words: str, values: dict[str, Any]) -> Any:
    return handlers[words]({name.replace("_", "-"): value for name, value in values.items()})


def vhost(text: str = 'its virtual host (default "/")') -> command.Argument:
    """A virtual host."""
    return Argument("vhost", NAME, text)


IN_VHOST = vhost()
OF_VHOST = vhost("only in this virtual host")
AS_USER = Argument("as-user", NAME, "with the permissions of this user (default: all)")
OF_USER = Argument("user", NAME, "only of this user")


def named(text: str) -> command.Argument:
    """The name of what a command is about."""
    return Argument("name", NAME, text, is_required=True, is_first=True)
