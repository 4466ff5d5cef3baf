"""Resources of leased queues: their leases, and discarding messages.

Source: management page 16; queues page A.
"""

from typing import Any

from ...engine.leases import is_leased
from ..api import Api
from ..bodies import json_object, text
from ..dispatcher import Action, Level, Route
from ..http_messages import Request
from ..steps import Steps
from .ours import MESSAGES_MAX, QUEUES_MAX, page_of, paged, readable, visible_queues


def _leases(api: Api, request: Request) -> Steps:
    found = [queue for queue in visible_queues(api, request) if is_leased(queue)]
    items: list[dict[str, Any]] = []
    for queue in found[:QUEUES_MAX]:
        leases = api.ask("leases", queue=queue.name, vhost=queue.vhost_name)
        items.append(
            {
                "vhost": queue.vhost_name,
                "queue": queue.name,
                "ready": queue.ready_count,
                "leased": queue.unacked,
                "leases": leases[:MESSAGES_MAX],
            }
        )
        yield
    return {"queues": len(found), "items": items}


def _discard_leased(api: Api, request: Request) -> Steps:
    queue = readable(api, request)
    given = json_object(request)
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


def _leases_of(api: Api, request: Request) -> dict[str, Any]:
    queue, page = readable(api, request), page_of(request)
    rows = api.ask("leases", queue=queue.name, vhost=queue.vhost_name, **page)
    return paged(rows, page, queue.unacked)


ROUTES = [
    Route("leveret/leases", {"GET": Action(Level.MONITORING, _leases)}),
    Route("leveret/leases/V/Q", {"GET": Action(Level.VHOST, _leases_of)}),
    Route("leveret/leases/V/Q/discard", {"POST": Action(Level.VHOST, _discard_leased)}),
]
