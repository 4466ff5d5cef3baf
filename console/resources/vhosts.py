"""Virtual hosts and their limits. Source: management page 2, 8.3."""

from collections.abc import Mapping
from typing import Any

from ...engine import VirtualHost
from ...settings.policies.policy_keys import erlang, erlang_list
from ..api import Api
from ..bodies import boolean, json_object, require
from ..dispatcher import Action, Level, Route
from ..http_messages import JSON_MEDIA, Answer, Request, bad_request
from ..listing import Columns, listed
from ..permissions import may_list
from ..ranges import Range, ranges_of
from ..steps import Steps
from ..views.access import permission_rows, vhost_limits, vhost_view

LIMITS = ("max-connections", "max-queues")


def _running(api: Api) -> list[str]:
    """The nodes that run all virtual hosts."""
    cluster = api.options.cluster()
    return [api.options.node] if cluster is None else cluster.running


def _row(api: Api, vhost: VirtualHost, running: list[str], ranges: Mapping[str, Range] | None) -> Steps:
    """A virtual host. `ranges`: None: leave out statistics, which need sums over all its queues."""
    view = vhost_view(vhost, running, api.ask("vhosts about", name=vhost.name))
    return view if ranges is None else {**view, **(yield from api.sampler.vhost(vhost, ranges))}


def _list(api: Api, request: Request) -> Steps:
    ranges = None if request.flag("disable_stats") else ranges_of(request, "invalid_range_parameters")
    rows, running = [], _running(api)
    for vhost in list(api.broker.virtual_hosts.values()):
        if may_list(request.user, vhost.name) and vhost.name in api.broker.virtual_hosts:
            rows.append((yield from _row(api, vhost, running, ranges)))
            yield
    return (
        yield from listed(
            request,
            rows,
            lambda row: row,
            name=lambda row: str(row["name"]),
            order=lambda row: row["name"],
            has_pages=True,
        )
    )


def _show(api: Api, request: Request) -> Steps:
    ranges = None if request.flag("disable_stats") else ranges_of(request)
    return Columns(request).selected((yield from _row(api, api.vhost(request), _running(api), ranges)))


def _put(api: Api, request: Request) -> Steps:
    """Create or change a virtual host. The creator gets all permissions in it, as in RabbitMQ."""
    given, name = json_object(request), request.names["V"]
    tracing = boolean(given["tracing"]) if "tracing" in given else None
    description, tags = given.get("description", ""), given.get("tags", "")
    if not isinstance(description, str):
        raise bad_request(["not_string", "description"])
    if not isinstance(tags, str) and not (isinstance(tags, list) and all(isinstance(one, str) for one in tags)):
        raise bad_request("tags: expected text or a list of words")
    queue_type = given.get("default_queue_type", given.get("defaultqueuetype"))
    if queue_type in ("", "undefined"):
        queue_type = None
    if queue_type is not None and queue_type not in ("classic", "quorum", "stream"):
        raise bad_request(f"default_queue_type: expected classic, quorum or stream, not {str(queue_type)[:40]}")
    is_there = name in api.broker.virtual_hosts
    yield from api.run("vhosts add", name=name, default_queue_type=queue_type)
    if is_there and queue_type is not None:
        yield from api.run("vhosts default-queue-type", name=name, type=queue_type)
    yield from api.run("vhosts describe", name=name, description=description, tags=tags)
    if tracing is not None:
        yield from api.run("trace-on" if tracing else "trace-off", vhost=name)
    if not is_there:
        yield from give_all_permissions(api, request, name)
    return Answer(204 if is_there else 201)


def give_all_permissions(api: Api, request: Request, vhost: str) -> Steps:
    """Give the user of the request all permissions in a virtual host, unless the user has permissions there already."""
    user = api.broker.users.find(request.user.name)
    if user is not None and all(row["vhost"] != vhost for row in permission_rows(user, api.broker)):
        yield from api.run("permissions set", user=user.name, vhost=vhost, configure=".*", write=".*", read=".*")


def _start(api: Api, request: Request) -> Answer:
    """Start a virtual host on a node. All of them run, so this only checks the names."""
    api.vhost(request)
    name, cluster = request.names["N"], api.options.cluster()
    node = api.find_node(name)
    if node is None or (cluster is not None and not cluster.by_name[node].is_running):
        raise bad_request(f"Request to node {name} failed with nodedown")
    return Answer(204)


def _limits(api: Api, request: Request) -> Steps:
    rows = [
        {"vhost": vhost.name, "value": limits}
        for vhost in api.vhosts_to_list(request)
        if may_list(request.user, vhost.name) and (limits := vhost_limits(vhost))
    ]
    return listed(request, rows, lambda row: row)


def _set_limit(api: Api, request: Request) -> Steps:
    vhost, name = api.vhost_to_change(request), request.names["NAME"]
    (value,) = require(json_object(request), "value")
    faults = faults_of_limits("limits", {name: value})
    if faults:
        raise bad_request(faults)
    yield from change_limits(api, vhost.name, {name: value})
    return Answer(204)


def faults_of_limits(name: str, limits: Mapping[str, Any]) -> str:
    """RabbitMQ's text for invalid limits; "": they are valid. `name`: the name of the limits, for the text."""
    unknown = {one: value for one, value in limits.items() if one not in LIMITS}
    faults = [f"Unrecognised terms {erlang_list(unknown)} in {name}"] if unknown else []
    faults += [
        f"{one} should be a number, actually was {erlang(limits[one])}"
        for one in sorted(limits.keys() & set(LIMITS), reverse=True)
        if isinstance(limits[one], bool) or not isinstance(limits[one], int)
    ]
    return "Validation failed\n\n" + "".join(f"{fault}\n" for fault in faults) if faults else ""


def change_limits(api: Api, vhost: str, limits: Mapping[str, Any]) -> Steps:
    """Set limits of a virtual host. They must be valid; -1: no limit. Raises: Refusal."""
    yield from api.run("vhosts limits", name=vhost, **{name.replace("-", "_"): limits[name] for name in limits})


def _clear_limit(api: Api, request: Request) -> Steps:
    vhost, name = api.vhost(request), request.names["NAME"]
    if name not in LIMITS:  # RabbitMQ does not refuse unknown limits here
        return Answer(204)
    yield from api.run("vhosts limits", name=vhost.name, **{name.replace("-", "_"): -1})
    return Answer(204)


_ADMINISTRATOR = Level.ADMINISTRATOR
ROUTES = [
    Route("vhosts", {"GET": Action(Level.ANY, _list)}),
    Route("vhosts/V", {"GET": Action(_ADMINISTRATOR, _show), "PUT": Action(_ADMINISTRATOR, _put)}),
    Route("vhosts/V/start/N", {"POST": Action(_ADMINISTRATOR, _start)}),
    Route("vhost-limits", {"GET": Action(Level.ANY, _limits)}, has_head=False),
    Route("vhost-limits/V", {"GET": Action(Level.VHOST, _limits)}, has_head=False),
    Route(
        "vhost-limits/V/NAME",
        {"PUT": Action(_ADMINISTRATOR, _set_limit, JSON_MEDIA), "DELETE": Action(_ADMINISTRATOR, _clear_limit)},
    ),
]
