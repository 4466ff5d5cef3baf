"""The overview, the current user, the cluster's name, and constants that tools expect. Source: management page 2, 3."""

from collections.abc import Mapping
from typing import Any

from ..api import Api
from ..bodies import check_size, require, text
from ..commands import Adapter
from ..dispatcher import Action, Level, Route
from ..http_messages import Answer, Request, bad_request
from ..listing import Columns
from ..permissions import is_monitor, may_list
from ..ranges import ranges_of
from ..steps import Steps
from ..views.overview import overview_view, totals_of

#: RabbitMQ's answer at /api/extensions: the script of its management page.
_EXTENSIONS = [{"javascript": "dispatcher.js"}]
#: The lists `stream/...` of clients with the stream protocol. They are empty here.
_STREAM_CLIENTS = ("connections", "publishers", "consumers")


def _overview(api: Api, request: Request) -> Steps:
    has_statistics = not request.flag("disable_stats")
    ranges = ranges_of(request) if has_statistics else {}
    name: str = api.ask("cluster-name")["name"]
    totals = yield from totals_of(api.broker, request.user, has_consumers=has_statistics)
    node = request.peer.node or api.options.node
    view = overview_view(totals, api.options, request.user, name, node, has_statistics=has_statistics)
    view["enable_queue_totals"] = request.flag("enable_queue_totals")
    if has_statistics:
        visible = [vhost for vhost in api.broker.virtual_hosts.values() if may_list(request.user, vhost.name)]
        view |= yield from api.sampler.totals(ranges, None if is_monitor(request.user) else visible)
        if ranges:
            view["leveret"] = {"sampled_since_ms": api.sampler.since_ms()}
    return Columns(request).selected(view)


def _whoami(api: Api, request: Request) -> Any:
    return Columns(request).selected({"name": request.user.name, "tags": list(request.user.tags)})


def _cluster_name(api: Api, request: Request) -> Any:
    return api.ask("cluster-name")


def _check_cluster_name(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    (name,) = require(given, "name")
    name = text(name, "name")
    if not name:
        raise bad_request("the name must not be empty")
    check_size("name", name)
    return {"name": name}


def _extensions(api: Api, request: Request) -> list[Any]:
    return _EXTENSIONS


def _auth(api: Api, request: Request) -> dict[str, Any]:
    return {"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""}


def _nothing(api: Api, request: Request) -> list[Any]:
    """An empty list: these plug-ins and features do not exist here."""
    return []


def _nothing_of_vhost(api: Api, request: Request) -> list[Any]:
    api.vhost(request)
    return []


def _nothing_of_queue(api: Api, request: Request) -> list[Any]:
    api.queue(request)
    return []


def _rebalance(api: Api, request: Request) -> Answer:
    """Balance the leaders of queues. Nothing is done: the leader of a cluster leads all queues."""
    return Answer(204)


def _version(api: Api, request: Request) -> str:
    return api.options.version


ADAPTERS = {"cluster-name": Adapter(_check_cluster_name)}
ROUTES = [
    Route("overview", {"GET": Action(Level.ANY, _overview)}),
    Route("whoami", {"GET": Action(Level.ANY, _whoami)}),
    Route("cluster-name", {"GET": Action(Level.ANY, _cluster_name)}),
    Route("extensions", {"GET": Action(Level.ANY, _extensions)}),
    Route("auth", {"GET": Action(Level.OPEN, _auth)}),
    Route("version", {"GET": Action(Level.OPEN, _version)}),
    Route("rebalance/queues", {"POST": Action(Level.ADMINISTRATOR, _rebalance)}),
    Route("shovels", {"GET": Action(Level.MONITORING, _nothing)}),
    Route("federation-links", {"GET": Action(Level.MONITORING, _nothing)}),
    Route("shovels/V", {"GET": Action(Level.MONITORING, _nothing_of_vhost)}),
    Route("federation-links/V", {"GET": Action(Level.MONITORING, _nothing_of_vhost)}),
    Route("federation-links/state/down", {"GET": Action(Level.MONITORING, _nothing)}),
    Route("federation-links/V/state/down", {"GET": Action(Level.MONITORING, _nothing_of_vhost)}),
    *(Route(f"stream/{kind}", {"GET": Action(Level.MONITORING, _nothing)}) for kind in _STREAM_CLIENTS),
    *(Route(f"stream/{kind}/V", {"GET": Action(Level.MONITORING, _nothing_of_vhost)}) for kind in _STREAM_CLIENTS),
    Route("stream/publishers/V/Q", {"GET": Action(Level.MONITORING, _nothing_of_queue)}),
    Route("deprecated-features", {"GET": Action(Level.ANY, _nothing)}),
    Route("deprecated-features/used", {"GET": Action(Level.ANY, _nothing)}),
]
