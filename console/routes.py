"""All routes of the API, family by family."""

from .resources import (
    bindings,
    connections,
    definitions,
    exchanges,
    health,
    login,
    messages,
    moving,
    nodes,
    ours,
    overview,
    policies,
    queues,
    quorum,
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
    *definitions.ROUTES,
    *nodes.ROUTES,
    *health.ROUTES,
    *login.ROUTES,
    *ours.ROUTES,
]
