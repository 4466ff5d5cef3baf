"""Leased queues: listing leases, and discarding messages.

Source: management page 16; queues page A.
"""

from typing import Any

from ...engine.leases import is_leased
from ..api import Api
from ..bodies import json_object, text
from ..dispatcher import Action, Level, Route
from ..http_messages import Request, bad_request
from ..offset_pages import MESSAGES_MAX, QUEUES_MAX, OffsetPage
from ..steps import Steps


def _list(api: Api, request: Request) -> Steps:
    """List the first leases of each leased queue."""
    queues = [queue for queue in api.queues_to_list(request) if is_leased(queue)]
    items: list[dict[str, Any]] = []
    for queue in queues[:QUEUES_MAX]:
        if not api.has(queue):
            continue
        names = {"vhost": queue.vhost_name, "queue": queue.name}
        leases = api.ask("leases", **names)[:MESSAGES_MAX]
        items.append({**names, "ready": queue.ready_count, "leased": queue.unacked, "leases": leases})
        yield
    return {"queues": len(queues), "items": items}


def _list_of_queue(api: Api, request: Request) -> dict[str, Any]:
    queue, page = api.readable_queue(request), OffsetPage.from_request(request)
    rows = api.ask("leases", queue=queue.name, vhost=queue.vhost_name, after=page.after, count=page.count)
    return page.view(rows, total=queue.unacked)


def _discard(api: Api, request: Request) -> Steps:
    queue, given = api.readable_queue(request), json_object(request)
    if not is_leased(queue):  # the command would discard all messages of another one
        raise bad_request(f"queue {queue.name!r} is not a leased queue")
    for name in ("bookmark", "filter", "option"):
        text(given.get(name, ""), name)
    return (
        yield from api.run(
            "discard",
            queue=queue.name,
            vhost=queue.vhost_name,
            bookmark=given.get("bookmark"),
            filter=given.get("filter"),
            option=given.get("option"),
        )
    )


ROUTES = [
    Route("leveret/leases", {"GET": Action(Level.MONITORING, _list)}),
    Route("leveret/leases/V/Q", {"GET": Action(Level.VHOST, _list_of_queue)}),
    Route("leveret/leases/V/Q/discard", {"POST": Action(Level.VHOST, _discard)}),
]
