"""Commands that act as a user: with the user's permissions, or as the broker's own with all of them.

Refusals of the engine become the command's, with their cause, so that who runs it in another language of errors can
tell. Source: ruling 24; management page 1.5, 6.
"""

from collections.abc import Callable
from typing import Any

from ..engine import Broker, Client, Queue, User, VirtualHost
from ..settings.faults import nearest
from .command_error import CommandError
from .operator import refusals

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


#: Runs one command.
Handlers = dict[str, Callable[[dict[str, Any]], Any]]
