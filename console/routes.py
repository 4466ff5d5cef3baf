"""All routes of the API: those of resources and those of commands."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from .commands import Adapter, with_commands
from .dispatcher import CommandRoute, Route
from .plugins import PLUGINS
from .resources import (
    bindings,
    connections,
    definitions,
    drafts,
    events,
    exchanges,
    health,
    jobs,
    log,
    messages,
    nodes,
    overview,
    parameters,
    policies,
    queues,
    quorum,
    scheduled,
    search,
    session,
    trouble,
    users,
    vhosts,
)

_RESOURCES: list[Any] = [
    bindings, connections, definitions, drafts, events, exchanges, health, jobs, log, messages, nodes, overview,
    parameters, policies, queues, quorum, scheduled, search, session, trouble, users, vhosts,
    *(import_module(f"{__package__}.resources.{name}") for name in PLUGINS),
]  # fmt: skip
ROUTES: list[Route] = [route for resource in _RESOURCES for route in resource.ROUTES]
#: Words of a command -> the adapter for RabbitMQ's API.
ADAPTERS: dict[str, Adapter] = {}
for _resource in _RESOURCES:
    ADAPTERS |= getattr(_resource, "ADAPTERS", {})


def routes_with(commands: Iterable[CommandRoute]) -> list[Route]:
    """All routes, with those of `commands`."""
    return with_commands(ROUTES, commands, ADAPTERS)
