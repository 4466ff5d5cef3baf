"""Health checks: 200 or 503, with the reason. Source: management page 3, 9."""

from typing import Any

from ..api import Api
from ..dispatcher import Action, Handler, Level, Route
from ..health_checks import CHECKS, Check, Subject, node_check
from ..http_messages import Request
from ..node_facts import HostFacts
from ..views.nodes import alarms_of

#: Checks for load balancers: they need no login.
_OPEN = frozenset(
    {"is-in-service", "below-node-connection-limit", "ready-to-serve-clients", "reached-target-cluster-size"}
)
_NO_HOST = HostFacts(0, 0, 0, 0, 0, 0, 0, 0)


def _subject(api: Api, node: str) -> Subject:
    """The subject of a check: the answering node, or what it knows about another one."""
    options, broker = api.options, api.broker
    cluster = options.cluster()
    others = () if cluster is None else tuple(one for one in cluster.nodes if one.name != options.node)
    other = next((one for one in others if one.name == node), None)

    def alarms() -> list[tuple[str, str]]:
        own = [(options.node, resource) for resource in alarms_of(broker)]
        return [*own, *((one.name, resource) for one in others for resource in one.alarms)]

    return Subject(
        node,
        host_facts=options.host_facts if other is None else lambda: other.host or _NO_HOST,
        listeners=options.listeners if cluster is None else lambda: cluster.by_name[node].listeners,
        certificates=options.certificates if other is None else list,
        wall_ms=broker.context.clock.wall_ms,
        alarms=alarms,
        cluster=cluster,
        queues=lambda: list(broker.virtual_hosts.queues()),
    )


def _handler(check: Check) -> Handler:
    def handle(api: Api, request: Request) -> Any:
        node = api.node(request) if "N" in request.names else request.peer.node or api.options.node
        return check(_subject(api, node), request.names)

    return handle


def _action(check: Check, *, is_open: bool = False) -> Action:
    return Action(Level.OPEN if is_open else Level.ANY, _handler(check), is_probe=True)


ROUTES = [
    *(Route(f"health/checks/{path}", {"GET": _action(one, is_open=path in _OPEN)}) for path, one in CHECKS.items()),
    Route("healthchecks/node", {"GET": _action(node_check)}),
    Route("healthchecks/node/N", {"GET": _action(node_check)}),
]
