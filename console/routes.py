"""All routes of the API, family by family: those of commands, and the others."""

from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec

from .commands import Before, View, with_commands
from .dispatcher import CommandRoute, Route
from .resources import (
    bindings,
    connections,
    definitions,
    events,
    exchanges,
    health,
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
    users,
    vhosts,
)

#: Modules of resources that a package brings; without it they are missing.
OPTIONAL = ("leases",)


def _optional() -> Iterator[Route]:
    for name in OPTIONAL:
        module = f"{__package__}.resources.{name}"
        if find_spec(module) is not None:
            yield from import_module(module).ROUTES


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
    *events.ROUTES,
    *ours.ROUTES,
    *_optional(),
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
