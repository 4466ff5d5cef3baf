"""Where messages pile up: growing queues, dead letters, unacknowledged deliveries.

Source: management page 16.
"""

from typing import Any

from ..api import Api
from ..dispatcher import Action, Level, Route
from ..http_messages import Request
from ..steps import Steps


def _growing(api: Api, request: Request) -> Steps:
    """List the queues that grew over the last minute, the fastest first."""
    return (yield from api.run("growing", vhost=_only_vhost(request)))


def _only_vhost(request: Request) -> str | None:
    """The virtual host that the page shows alone."""
    return request.headers.get("x-vhost") or None


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
    return (yield from api.run("unacknowledged", vhost=_only_vhost(request)))


ROUTES = [
    Route("leveret/growing", {"GET": Action(Level.MONITORING, _growing)}),
    Route("leveret/dead-letters", {"GET": Action(Level.MONITORING, _dead_letters)}),
    Route("leveret/unacknowledged", {"GET": Action(Level.MONITORING, _unacknowledged)}),
]
