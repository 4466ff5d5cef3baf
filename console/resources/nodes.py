"""Nodes, and resources that only RabbitMQ's nodes have. Source: management page 2, 4."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..api import Api
from ..bodies import json_object
from ..cluster import NodeFacts
from ..commands import Adapter
from ..counters import CHURN
from ..dispatcher import Action, Level, Route
from ..http_messages import JSON_MEDIA, Answer, Request, bad_request, existing, not_authorised
from ..listing import Columns, listed
from ..node_rates import NodeRates
from ..permissions import is_administrator, missing_tag
from ..ranges import ranges_of
from ..steps import Steps
from ..views.nodes import binary_view, down_view, memory_view, node_view, own_facts, plain_node_view

NS_A_MS = 1_000_000
#: RabbitMQ's value for memory and logins of a node that is down.
NOT_AVAILABLE = "not_available"
#: The feature flags of RabbitMQ 3.10. All are enabled: Leveret has these features.
FEATURES = (
    "classic_mirrored_queue_version", "drop_unroutable_metric", "empty_basic_get_metric", "implicit_default_bindings",
    "maintenance_mode_status", "quorum_queue", "stream_queue", "user_limits", "virtual_host_metadata",
)  # fmt: skip

#: The fields about churn of a node that serves no clients.
_NO_CHURN = {name: value for one in CHURN for name, value in ((one, 0), (f"{one}_details", {"rate": 0.0}))}


def _view(api: Api, request: Request, facts: NodeFacts) -> dict[str, Any]:
    """A node, with rates. The answering node also has samples, if a range asks for them."""
    if request.flag("disable_stats"):
        return {**plain_node_view(facts), **_memory_of(api, request, facts)}
    if facts.host is None:
        return down_view(facts)
    is_own, clock = facts.name == api.options.node, api.broker.context.clock
    churn = api.sampler.churn() if is_own else _NO_CHURN
    view = {**node_view(facts, facts.host, api.options, clock.wall_ms()), **churn}
    view |= api.node_rates.setdefault(facts.name, NodeRates()).update(view, clock.monotonic_ns() // NS_A_MS)
    if is_own:
        view |= api.sampler.of_node(view, ranges_of(request))
    return {**view, **_memory_of(api, request, facts)}


def _memory_of(api: Api, request: Request, facts: NodeFacts) -> dict[str, Any]:
    """The parts of a running node's memory that the request asks for."""
    view: dict[str, Any] = {}
    if facts.host is not None and request.flag("memory"):
        view["memory"] = memory_view(facts.host, _bodies(api, facts.name))
    if facts.host is not None and request.flag("binary"):
        view["binary"] = binary_view(_bodies(api, facts.name))
    return view


def _nodes(api: Api) -> list[NodeFacts]:
    options = api.options
    cluster, own = options.cluster(), own_facts(api.broker, options)
    if cluster is None:
        return [own]
    return [replace(own, is_drained=node.is_drained) if node.name == options.node else node for node in cluster.nodes]


def _node(api: Api, request: Request) -> NodeFacts:
    """The node in the path. Raises: Refusal."""
    name = api.node(request)
    return next(node for node in _nodes(api) if node.name == name)


def _bodies(api: Api, node: str) -> int:
    """Octets of bodies in a node's memory: 0 for all but the answering node, which has the broker."""
    return api.broker.context.storage.memory.total if node == api.options.node else 0


def _list(api: Api, request: Request) -> Steps:
    return listed(request, [_view(api, request, node) for node in _nodes(api)], lambda row: row)


def _show(api: Api, request: Request) -> Any:
    return Columns(request).selected(_view(api, request, _node(api, request)))


def _memory(api: Api, request: Request) -> Any:
    node = _node(api, request)
    return {"memory": NOT_AVAILABLE if node.host is None else memory_view(node.host, _bodies(api, node.name))}


def _relative(api: Api, request: Request) -> Any:
    """Show the parts of the memory in per cent."""
    node = _node(api, request)
    if node.host is None:
        return {"memory": NOT_AVAILABLE}
    view = memory_view(node.host, _bodies(api, node.name))
    total, strategy = view.pop("total"), view.pop("strategy")
    whole = max(1, total["rss"])
    shares = {name: round(value * 100 / whole) for name, value in view.items()}
    return {"memory": {**shares, "strategy": strategy, "total": 100}}


def _tables(api: Api, request: Request) -> Any:
    """Show the memory of Erlang's tables, of which there are none."""
    api.node(request)
    return {"ets_tables_memory": "no_tables"}


def _features(api: Api, request: Request) -> Steps:
    rows = [
        {"name": name, "desc": "", "doc_url": "", "state": "enabled", "stability": "stable", "provided_by": "rabbit"}
        for name in FEATURES
    ]
    return listed(request, rows, lambda row: row)


def _enable(api: Api, request: Request) -> Answer:
    json_object(request)
    if request.names["NAME"] not in FEATURES:
        raise bad_request("unsupported")
    return Answer(204)


def _attempts(api: Api, request: Request) -> Any:
    """Show the numbers of logins at a node: 0 for all but the answering node, which checks all logins."""
    node = _node(api, request)
    if node.host is None:
        return NOT_AVAILABLE
    is_own = node.name == api.options.node
    rows = []
    for protocol, counts in api.broker.users.attempts.items():
        succeeded, failed = counts if is_own else (0, 0)
        rows.append(
            {
                "protocol": protocol,
                "auth_attempts": succeeded + failed,
                "auth_attempts_failed": failed,
                "auth_attempts_succeeded": succeeded,
            }
        )
    return rows


def _forget_attempts(api: Api, request: Request) -> Answer:
    if api.node(request) != api.options.node:
        return Answer(204)
    for counts in api.broker.users.attempts.values():
        counts[:] = [0, 0]
    return Answer(204)


def _by_source(api: Api, request: Request) -> list[Any]:
    """List logins by address: they are not counted."""
    api.node(request)
    return []


def _reset(api: Api, request: Request) -> Answer:
    if "N" not in request.names or api.node(request) == api.options.node:
        api.sampler.forget()
    return Answer(204)


def _arguments_of_differences(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Only administrators compare digests of their own: the answer would name all objects of the configuration."""
    if given.get("parts") and not is_administrator(request.user):
        raise not_authorised("Not administrator user", missing_tag(request.user, "administrator"))
    return given


_MONITORING, _ADMINISTRATOR = Level.MONITORING, Level.ADMINISTRATOR


def _turns(api: Api, request: Request) -> dict[str, Any]:
    """Show the histogram of the event loop's delays, measured once a second. `counts`: not cumulative."""
    delays = existing(api.facts).delays
    return {"bounds_ms": [bound * 1000 for bound in delays.bounds], "counts": list(delays.counts)}


ADAPTERS = {"cluster differences": Adapter(_arguments_of_differences)}
ROUTES = [
    Route("leveret/turns", {"GET": Action(_MONITORING, _turns)}),
    Route("nodes", {"GET": Action(_MONITORING, _list)}),
    Route("nodes/N", {"GET": Action(_MONITORING, _show)}),
    Route("nodes/N/memory", {"GET": Action(_MONITORING, _memory)}),
    Route("nodes/N/memory/relative", {"GET": Action(_MONITORING, _relative)}),
    Route("nodes/N/memory/ets", {"GET": Action(_MONITORING, _tables)}),
    Route("nodes/N/memory/ets/relative", {"GET": Action(_MONITORING, _tables)}),
    Route("nodes/N/memory/ets/FILTER", {"GET": Action(_MONITORING, _tables)}),
    Route("nodes/N/memory/ets/FILTER/relative", {"GET": Action(_MONITORING, _tables)}),
    Route("feature-flags", {"GET": Action(_ADMINISTRATOR, _features)}),
    Route("feature-flags/NAME/enable", {"PUT": Action(_ADMINISTRATOR, _enable, JSON_MEDIA)}),
    Route("auth/attempts/N", {"GET": Action(_MONITORING, _attempts), "DELETE": Action(_MONITORING, _forget_attempts)}),
    Route(
        "auth/attempts/N/source",
        {"GET": Action(_MONITORING, _by_source), "DELETE": Action(_MONITORING, _forget_attempts)},
    ),
    Route("reset", {"DELETE": Action(_ADMINISTRATOR, _reset)}),
    Route("reset/N", {"DELETE": Action(_ADMINISTRATOR, _reset)}),
]
