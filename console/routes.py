"""All routes of the API, family by family: those of commands, and the others."""

from collections.abc import Iterable
from importlib import import_module

from .commands import Before, View, with_commands
from .dispatcher import CommandRoute, Route
from .plugins import PACKAGES
from .resources import (
    bindings,
    connections,
    definitions,
    events,
    exchanges,
    health,
    log,
    login,
    messages,
    moving,
    nodes,
    ours,
    overview,
    parameters,
    policies,
    queues,
    quorum,
    session,
    users,
    vhosts,
)

ROUTES = [
    *overview.ROUTES,
    *queues.ROUTES,
    *quorum.ROUTES,
    *exchanges.ROUTES,
    *bindings.ROUTES,
    *messages.ROUTES,
    *moving.ROUTES,
    *connections.ROUTES,
    *vhosts.ROUTES,
    *users.ROUTES,
    *policies.ROUTES,
    *parameters.ROUTES,
    *definitions.ROUTES,
    *nodes.ROUTES,
    *health.ROUTES,
    *login.ROUTES,
    *session.ROUTES,
    *events.ROUTES,
    *log.ROUTES,
    *ours.ROUTES,
    *(route for name in PACKAGES for route in import_module(f"{__package__}.resources.{name}").ROUTES),
]

BEFORE: dict[str, Before] = {
    **queues.BEFORE,
    **exchanges.BEFORE,
    **moving.BEFORE,
    **users.BEFORE,
    **policies.BEFORE,
    **parameters.BEFORE,
    **ours.BEFORE,
}
VIEWS: dict[str, View] = {**moving.VIEWS}


def routes_with(commands: Iterable[CommandRoute]) -> list[Route]:
    """All routes, with those of commands."""
    return with_commands(ROUTES, commands, BEFORE, VIEWS)
