"""Scheduled messages: lists, and the changes `fire`, `cancel` and `reschedule`. Source: management page 16."""

from typing import Any

from ..api import Api
from ..bodies import integer, json_object, require
from ..dispatcher import Action, Level, Route
from ..http_messages import Request, bad_request
from ..offset_pages import MESSAGES_MAX, QUEUES_MAX, OffsetPage
from ..permissions import check_access
from ..steps import Steps

_CHANGES = ("fire", "cancel", "reschedule")


def _list(api: Api, request: Request) -> Steps:
    """List the first messages of the queues that have most, soonest first. `?routing_key=`: only with that key."""
    key = request.query.get("routing_key") or None
    queues = [queue for queue in api.queues_to_list(request) if len(queue.scheduled)]
    queues.sort(key=lambda queue: (-len(queue.scheduled), queue.vhost_name, queue.name))
    rows: list[dict[str, Any]] = []
    for queue in queues[:QUEUES_MAX]:
        if not api.has(queue):
            continue
        names = {"vhost": queue.vhost_name, "queue": queue.name}
        messages = yield from api.run("scheduled list", **names, count=MESSAGES_MAX, routing_key=key)
        rows += [{**names, **one} for one in messages]
        yield
    rows.sort(key=lambda row: row["due_ms"])
    return {"total": sum(len(queue.scheduled) for queue in queues), "queues": len(queues), "items": rows}


def _list_of_queue(api: Api, request: Request) -> Steps:
    queue, page = api.readable_queue(request), OffsetPage.from_request(request)
    rows = yield from api.run(
        "scheduled list", queue=queue.name, vhost=queue.vhost_name, after=page.after, count=page.count
    )
    return page.view(rows, total=len(queue.scheduled))


def _change(api: Api, request: Request) -> Steps:
    """Change the message in the path, or the messages in the body."""
    queue, given = api.queue(request), json_object(request)
    (action,) = require(given, "action")
    if action not in _CHANGES:
        raise bad_request(f"action: expected one of {', '.join(_CHANGES)}")
    check_access(request.user, "write", queue)
    delay = integer(require(given, "delay")[0]) if action == "reschedule" else None
    if delay is not None and delay < 0:
        raise bad_request("delay: expected milliseconds")
    ids = [integer(request.names["ID"])] if "ID" in request.names else require(given, "ids")[0]
    if not isinstance(ids, list) or not ids:
        raise bad_request("ids: expected a list of numbers")
    return (yield from api.run(f"scheduled {action}", queue=queue.name, vhost=queue.vhost_name, id=ids, delay=delay))


ROUTES = [
    Route("leveret/scheduled", {"GET": Action(Level.MONITORING, _list)}),
    Route("leveret/scheduled/V/Q", {"GET": Action(Level.VHOST, _list_of_queue), "POST": Action(Level.VHOST, _change)}),
    Route("leveret/scheduled/V/Q/ID", {"POST": Action(Level.VHOST, _change)}),
]
