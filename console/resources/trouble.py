"""Where messages pile up: growing queues, dead letters, unacknowledged deliveries.

Source: management page 16.
"""

from typing import Any

from ..api import Api
from ..dispatcher import Action, Level, Route
from ..http_messages import Request
from ..steps import Steps

#: Maximum growing queues, and consumers, in a list: those of the commands.
GROWING_MAX, CONSUMERS_MAX = 20, 200
#: Stands for an unknown time; its consumer comes last in the list.
_LAST = 1 << 62


def _growing(api: Api, request: Request) -> Steps:
    """List the queues that grew over the last minute, the fastest first."""
    found = yield from _of_vhosts(api, request, "growing")
    items = sorted((row for one in found for row in one["items"]), key=lambda row: -row["growth"])
    counts = {name: sum(one[name] for one in found) for name in ("total", "unknown")}
    return {**counts, "items": items[:GROWING_MAX]}


def _of_vhosts(api: Api, request: Request, command: str) -> Steps:
    """The answers of a command for the virtual hosts whose objects the user may see: one answer if these are all."""
    vhosts = api.vhosts_to_list(request)
    if len(vhosts) == len(api.broker.virtual_hosts):
        return [(yield from api.run(command))]
    found = []
    for vhost in vhosts:
        if vhost.name in api.broker.virtual_hosts:  # not deleted between two steps
            found.append((yield from api.run(command, vhost=vhost.name)))
    return found


def _dead_letters(api: Api, request: Request) -> Steps:
    """List the dead-letter queues that have messages, the longest first."""
    items: list[dict[str, Any]] = []
    count = 0
    for vhost in api.vhosts_to_list(request):
        if vhost.name not in api.broker.virtual_hosts:  # deleted between two steps
            continue
        found = yield from api.run("dead-letters", vhost=vhost.name, all=request.flag("all"))
        items += found["items"]
        count += found["queues"]
    items.sort(key=lambda row: (-row["messages"], row["vhost"], row["queue"]))
    return {"queues": count, "items": items}


def _unacknowledged(api: Api, request: Request) -> Steps:
    """List the consumers with unacknowledged deliveries, that with the oldest delivery first."""
    found = yield from _of_vhosts(api, request, "unacknowledged")
    items = [row for one in found for row in one["items"]]
    items.sort(key=lambda row: (row["oldest_unacked_since_ms"] or _LAST, row["vhost"], row["queue"], row["tag"]))
    return {"total": sum(one["total"] for one in found), "items": items[:CONSUMERS_MAX]}


ROUTES = [
    Route("leveret/growing", {"GET": Action(Level.MONITORING, _growing)}),
    Route("leveret/dead-letters", {"GET": Action(Level.MONITORING, _dead_letters)}),
    Route("leveret/unacknowledged", {"GET": Action(Level.MONITORING, _unacknowledged)}),
]
