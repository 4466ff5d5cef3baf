"""The selection of messages by a command's arguments. Source: management page 16."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from ..engine import BadRequest, Message, chosen_by
from .command_error import CommandError
from .kinds import JSON, TEXT

Matches = Callable[[Message], bool]


@dataclass(slots=True, frozen=True, kw_only=True)
class Filter:
    """Arguments that select messages: those that match all given arguments."""

    filter: Annotated[str, TEXT, "like /amount > 100 AND tenant = 'acme' (docs/expressions.md)"] | None = None
    header: Annotated[Any, JSON, 'like {"tenant": "acme"}: with these values'] = None
    routing_key: Annotated[str, TEXT, "published with exactly this one"] | None = None
    text: Annotated[str, TEXT, "with this in the body"] | None = None
    cause: (
        Annotated[str, TEXT, "dead letters: of this last reason: rejected, expired, maxlen, delivery_limit"] | None
    ) = None
    origin: Annotated[str, TEXT, "dead letters: those that died last in this queue"] | None = None


def selection_of(
    command: str, given: Filter, *, message_id: str | None = None, correlation_id: str | None = None
) -> Matches | None:
    """A predicate for the selected messages; None: all. Raises: CommandError."""
    headers = given.header
    if headers is not None and not isinstance(headers, dict):
        raise CommandError(f'{command}: header: expected an object, like {{"name": "value"}}')
    wanted: dict[str, Any] = {
        "filter_text": given.filter,
        "headers": headers,
        "routing_key": given.routing_key,
        "text": given.text,
        "cause": given.cause,
        "origin": given.origin,
        "message_id": message_id,
        "correlation_id": correlation_id,
    }
    if all(value is None for value in wanted.values()):
        return None
    try:
        return chosen_by(**wanted)
    except BadRequest as error:
        raise CommandError(f"{command}: {error}") from None
