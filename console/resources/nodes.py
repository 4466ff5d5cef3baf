"""The node, and resources that only nodes of RabbitMQ have. Source: management page 2, 4."""

from typing import Any

from ..api import Api
from ..bodies import json_object
from ..dispatcher import Action, Level, Route
from ..listing import Columns, listed
from ..messages import JSON_MEDIA, Answer, Request, bad_request, not_found
from ..options import Steps
from ..views.nodes import binary_view, memory_view, node_view

NS_A_MS = 1_000_000
#: Feature flags of RabbitMQ 3.10, all on: we have these features.
FEATURES = (
    "classic_mirrored_queue_version",
    "drop_unroutable_metric",
    "empty_basic_get_metric",
    "implicit_default_bindings",
    "maintenance_mode_status",
    "quorum_queue",
    "stream_queue",
    "user_limits",
    "virtual_host_metadata",
)


def _view(api: Api, request: Request) -> dict[str, Any]:
    view = {**node_view(api.broker, api.options), **api.sampler.churn()}
    view |= api.node_rates.of(view, api.broker.context.clock.monotonic_ns() // NS_A_MS)
    if request.flag("memory"):
        view["memory"] = memory_view(api.options.machine(), api.broker)
    if request.flag("binary"):
        view["binary"] = binary_view(api.broker)
    return view


def _list(api: Api, request: Request) -> Steps:
    return listed(request, [_view(api, request)], lambda row: row)


def _check(api: Api, request: Request) -> None:
    if not api.is_node(request.names["N"]):
        raise not_found()


def _show(api: Api, request: Request) -> Any:
    _check(api, request)
    return Columns(request).of(_view(api, request))


def _memory(api: Api, request: Request) -> Any:
    _check(api, request)
    return {"memory": memory_view(api.options.machine(), api.broker)}


def _relative(api: Api, request: Request) -> Any:
    """Memory in per cent of the whole."""
    _check(api, request)
    view = memory_view(api.options.machine(), api.broker)
    total, strategy = view.pop("total"), view.pop("strategy")
    whole = max(1, total["rss"])
    shares = {name: round(value * 100 / whole) for name, value in view.items()}
    return {"memory": {**shares, "strategy": strategy, "total": 100}}


def _tables(api: Api, request: Request) -> Any:
    """Erlang's tables: there are none."""
    _check(api, request)
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
    _check(api, request)
    rows = []
    for protocol, (succeeded, failed) in api.broker.users.attempts.items():
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
    _check(api, request)
    for counts in api.broker.users.attempts.values():
        counts[:] = [0, 0]
    return Answer(204)


def _by_source(api: Api, request: Request) -> list[Any]:
    """Connections by source, which are not tracked."""
    _check(api, request)
    return []


def _reset(api: Api, request: Request) -> Answer:
    """Forget the samples."""
    if "N" in request.names:
        _check(api, request)
    api.sampler.forget()
    return Answer(204)


_MONITORING, _ADMINISTRATOR = Level.MONITORING, Level.ADMINISTRATOR


def _turns(api: Api, request: Request) -> dict[str, Any]:
    """Delays of the event loop, measured four times a second since the start: `counts` of each bucket alone."""
    if api.facts is None:
        raise not_found()
    delays = api.facts.delays
    return {"bounds_ms": [bound * 1000 for bound in delays.bounds], "counts": list(delays.counts)}


ROUTES = [
    Route("leveret/turns", {"GET": Action(Level.MONITORING, _turns)}),
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
    Route(
        "auth/attempts/N",
        {"GET": Action(_MONITORING, _attempts), "DELETE": Action(_MONITORING, _forget_attempts)},
    ),
    Route(
        "auth/attempts/N/source",
        {"GET": Action(_MONITORING, _by_source), "DELETE": Action(_MONITORING, _forget_attempts)},
    ),
    Route("reset", {"DELETE": Action(_ADMINISTRATOR, _reset)}),
    Route("reset/N", {"DELETE": Action(_ADMINISTRATOR, _reset)}),
]
