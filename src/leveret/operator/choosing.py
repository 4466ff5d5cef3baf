"""The messages that a command means, by its arguments. Source: management page 16."""

from collections.abc import Callable
from typing import Any

from ..engine import BadRequest, Message, chosen_by
from .command_error import CommandError

Takes = Callable[[Message], bool]


def chosen(command: str, arguments: dict[str, Any]) -> Takes | None:
    """What takes the messages that the arguments mean; None: all. Raises: CommandError."""
    headers = arguments.get("header")
    if headers is not None and not isinstance(headers, dict):
        raise CommandError(f'{command}: header: expected an object, like {{"name": "value"}}')
    given: dict[str, Any] = {
        "filter_text": arguments.get("filter"),
        "headers": headers,
        "routing_key": arguments.get("routing-key"),
        "text": arguments.get("text"),
        "cause": arguments.get("cause"),
        "origin": arguments.get("origin"),
        "message_id": arguments.get("message-id"),
        "correlation_id": arguments.get("correlation-id"),
    }
    if all(value is None for value in given.values()):
        return None
    try:
        return chosen_by(**given)
    except BadRequest as error:
        raise CommandError(f"{command}: {error}") from None
