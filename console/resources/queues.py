"""Queues: lists, one, declaring, deleting, purging, and its bindings. Source: management page 2, 4, 10."""

from collections.abc import Callable, Mapping
from typing import Any

from ...engine import Queue
from ..api import Api
from ..bodies import arguments, boolean, json_object, require
from ..dispatcher import Action, Level, Route
from ..listing import Columns, listed
from ..messages import Answer, Request, bad_request, not_found
from ..options import Steps
from ..ranges import Range, ranges_of
from ..views.bindings import binding_view, default_binding_view
from ..views.queues import plain_queue_view, queue_details, queue_view, totals_view
from ..views.tables import with_time

OCTETS_MAX = 255


def _row(api: Api, request: Request) -> Any:
    node = api.options.node
    if not request.flag("disable_stats"):
        ranges = ranges_of(request, "invalid_range_parameters")
        return lambda queue: _view(api, queue, ranges)
    view = totals_view if request.flag("enable_queue_totals") else plain_queue_view
    return lambda queue: view(queue, node)


def _view(api: Api, queue: Queue, ranges: Mapping[str, Range]) -> dict[str, Any]:
    view, rates = queue_view(queue, api.options.node), with_time(api.sampler.queue(queue, ranges))
    if "backing_queue_status" in view:
        view["backing_queue_status"] |= rates.pop("backing_queue_status", {})
    return {**view, **rates}


#: Fields of a queue that need no row.
_QUICK: dict[str, Callable[[Queue], Any]] = {
    "name": lambda queue: queue.name,
    "vhost": lambda queue: queue.vhost_name,
    "messages": lambda queue: queue.ready_count + queue.unacked,
    "messages_ready": lambda queue: queue.ready_count,
    "messages_unacknowledged": lambda queue: queue.unacked,
    "consumers": lambda queue: len(queue.consumers),
}


def _list(api: Api, request: Request) -> Steps:
    queues = [queue for vhost in api.vhosts_to_list(request) for queue in vhost.queues.values()]
    return listed(
        request,
        queues,
        _row(api, request),
        name=lambda queue: queue.name,
        order=lambda queue: (queue.vhost_name, queue.name),
        has_pages=True,
        quick=_QUICK,
    )


def _show(api: Api, request: Request) -> Any:
    queue = api.queue(request)
    node = api.options.node
    return Columns(request).of({**_view(api, queue, ranges_of(request)), **queue_details(queue, node)})


def _declare(api: Api, request: Request) -> Steps:
    vhost = api.vhost_to_change(request)
    given, name = json_object(request), request.names["Q"]
    size = len(name.encode())
    if size > OCTETS_MAX:
        raise bad_request(f"queue should be less than 255 bytes, actually was {size}\n")
    node = given.get("node")
    if node is not None and node != api.options.node:
        raise bad_request(f"Node {node} could not be contacted")
    is_there = name in vhost.queues
    yield from api.run(
        "declare-queue",
        queue=name,
        vhost=vhost.name,
        durable=boolean(given.get("durable", False)),
        auto_delete=boolean(given.get("auto_delete", False)),
        arguments=arguments(given),
        as_user=request.user.name,
    )
    return Answer(204 if is_there else 201)


def _delete(api: Api, request: Request) -> Steps:
    queue = api.queue(request)
    yield from api.run(
        "delete-queue",
        queue=queue.name,
        vhost=queue.vhost_name,
        if_empty=request.flag("if-empty"),
        if_unused=request.flag("if-unused"),
        as_user=request.user.name,
    )
    return Answer(204)


def _purge(api: Api, request: Request) -> Steps:
    queue = api.queue(request)
    yield from api.run("purge", queue=queue.name, vhost=queue.vhost_name, as_user=request.user.name)
    return Answer(204)


def _bindings(api: Api, request: Request) -> Steps:
    queue = api.queue(request)
    yield from ()
    rows = [default_binding_view(queue), *(binding_view(one, queue.vhost_name) for one in queue.incoming)]
    return (yield from listed(request, rows, lambda row: row))


def _act(api: Api, request: Request) -> Answer:
    """Mirrors are never out of step: there are none."""
    vhost = api.vhost(request)
    if request.names["Q"] not in vhost.queues:
        raise not_found()
    (action,) = require(json_object(request), "action")
    if action not in ("sync", "cancel_sync"):
        raise bad_request(["unknown", action])
    return Answer(204)


ROUTES = [
    Route("queues", {"GET": Action(Level.ANY, _list)}),
    Route("queues/detailed", {"GET": Action(Level.ANY, _list)}),
    Route("queues/V", {"GET": Action(Level.VHOST, _list)}),
    Route(
        "queues/V/Q",
        {
            "GET": Action(Level.VHOST, _show),
            "PUT": Action(Level.VHOST, _declare),
            "DELETE": Action(Level.VHOST, _delete),
        },
    ),
    Route("queues/V/Q/bindings", {"GET": Action(Level.VHOST, _bindings)}),
    Route("queues/V/Q/contents", {"DELETE": Action(Level.VHOST, _purge)}),
    Route("queues/V/Q/actions", {"POST": Action(Level.ADMINISTRATOR, _act)}),
]
