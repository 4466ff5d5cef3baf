"""Commands that act as a user: with the user's permissions, or as the broker's own with all of them.

Refusals of the engine become the command's, with their cause, so that who runs it in another language of errors can
tell. Source: ruling 24; management page 1.5, 6.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..configured.configured import text_of
from ..engine import Broker, Client, EngineError, Field, FieldTable, Queue, User, VirtualHost, table_of_json
from ..settings.faults import nearest
from .command_error import CommandError

#: Who acts where nobody is named.
BROKER_ITSELF = "leveret.control"


def acting(broker: Broker, arguments: dict[str, Any]) -> Client:
    """Somebody in the virtual host of a command, with the permissions of `as-user`. Not in the list of connections.

    Raises: CommandError.
    """
    vhost = vhost_of(broker, arguments)
    name = arguments.get("as-user")
    user = User(BROKER_ITSELF, tags=("administrator",))
    if name is not None:
        found = broker.users.find(name)
        if found is None:
            raise CommandError(f"no user {name!r}")
        user = found
    with refusals():
        user.check_vhost(vhost.name)
    return Client(vhost, user, BROKER_ITSELF, _nobody_listens, broker.unsent_max, {})


def _nobody_listens() -> None:
    """What is sent to it goes nowhere."""


def vhost_of(broker: Broker, arguments: dict[str, Any]) -> VirtualHost:
    """The virtual host of a command. Raises: CommandError."""
    name = arguments.get("vhost", "/")
    found = broker.virtual_hosts.get(name)
    if found is None:
        raise CommandError(f"no virtual host {name!r}")
    return found


def queue_of(broker: Broker, arguments: dict[str, Any]) -> Queue:
    """The queue of a command. Raises: CommandError, with the nearest name."""
    vhost, name = vhost_of(broker, arguments), arguments["queue"]
    if name not in vhost.queues:
        raise CommandError(f"no queue {name!r} in virtual host {vhost.name!r}{nearest(name, vhost.queues)}")
    return vhost.queues[name]


def vhosts_to_list(broker: Broker, arguments: dict[str, Any]) -> list[VirtualHost]:
    """That of a command, or all. Raises: CommandError."""
    return [vhost_of(broker, arguments)] if "vhost" in arguments else list(broker.virtual_hosts.values())


@contextmanager
def refusals() -> Iterator[None]:
    """What the engine refuses the command refuses, for the same cause."""
    try:
        yield
    except EngineError as error:
        raise CommandError(text_of(error)) from error


def table_of(command: str, arguments: dict[str, Any]) -> FieldTable:
    """The arguments of a declaration or binding; integers are long, as in RabbitMQ's API. Raises: CommandError."""
    try:
        return wide(table_of_json(arguments.get("arguments") or {}))
    except ValueError as error:
        raise CommandError(f"{command}: arguments: expected {error}") from None


def wide(table: FieldTable) -> FieldTable:
    """The same with integers of 64 bits."""
    return {key: _wide(field) for key, field in table.items()}


def _wide(field: Field) -> Field:
    value = field.value
    if field.tag == "I":
        return Field("l", value)
    if isinstance(value, list):
        return Field(field.tag, [_wide(item) for item in value])
    return Field(field.tag, wide(value)) if isinstance(value, dict) else field


#: Runs one command.
Handlers = dict[str, Callable[[dict[str, Any]], Any]]
