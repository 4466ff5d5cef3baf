"""Where messages pile up: blocked publishers, growing queues, dead letters, unacknowledged deliveries.

Source: management page 16.
"""

from typing import Any

from ...engine import Queue, dead_letter_queues
from ..api import Api
from ..dispatcher import Action, Level, Route
from ..http_messages import Request
from ..steps import Steps

#: Least growth, in messages a minute, of a growing queue. Maximum growing queues in an answer. Queues in one step.
GROWTH_MIN, GROWING_MAX, QUEUES_A_STEP = 60, 20, 500
#: Maximum consumers in the list of unacknowledged deliveries.
CONSUMERS_MAX = 200
#: Replaces an unknown time, so that its consumer is sorted last.
_LAST = 1 << 62


def _blocked(api: Api, request: Request) -> Steps:
    status = yield from api.run("status")
    return {key: status[key] for key in ("alarm", "usage", "blocked", "held", "slow_consumers")}


def _growing(api: Api, request: Request) -> Steps:
    """List the queues that grew over the last minute, the fastest first.

    Streams, ring queues and dead-letter queues are left out: they keep messages by design. `unknown`: the number of
    queues that have not been sampled for a minute yet.
    """
    of_dead_letters: set[Queue] = set()
    rows: list[dict[str, Any]] = []
    unknown = 0
    for vhost in api.vhosts_to_list(request):
        for some in dead_letter_queues(vhost.context):
            of_dead_letters.update(some)
            yield
        for count, queue in enumerate(list(vhost.queues.values()), 1):
            if count % QUEUES_A_STEP == 0:
                yield
            if queue.deleted or queue.keeps or queue.rules.ring_size is not None or queue in of_dead_letters:
                continue
            growth = api.sampler.growth(queue)
            if growth is None:
                unknown += 1
            elif growth >= GROWTH_MIN:
                messages = queue.ready_count + queue.unacked
                rows.append({"vhost": vhost.name, "name": queue.name, "messages": messages, "growth": growth})
    rows.sort(key=lambda row: -row["growth"])
    return {"total": len(rows), "items": rows[:GROWING_MAX], "unknown": unknown}


def _dead_letters(api: Api, request: Request) -> Steps:
    """List the dead-letter queues that have messages, the longest first."""
    items: list[dict[str, Any]] = []
    count = 0
    for vhost in api.vhosts_to_list(request):
        found = yield from api.run("dead-letters", vhost=vhost.name, all=request.flag("all"))
        items += found["items"]
        count += found["queues"]
    items.sort(key=lambda row: (-row["messages"], row["vhost"], row["queue"]))
    return {"queues": count, "items": items}


def _unacknowledged(api: Api, request: Request) -> dict[str, Any]:
    """List the consumers with unacknowledged deliveries, that with the oldest delivery first."""
    vhost, now_ms = request.headers.get("x-vhost"), api.broker.context.clock.wall_ms()
    rows = [row for row in api.ask("consumers") if row["unacked"] and vhost in (None, "", row["vhost"])]
    rows.sort(key=lambda row: (row["oldest_unacked_since_ms"] or _LAST, row["vhost"], row["queue"], row["tag"]))
    items = rows[:CONSUMERS_MAX]
    for row in items:
        since_ms = row["oldest_unacked_since_ms"]
        row["oldest_unacked_ms"] = None if since_ms is None else now_ms - since_ms
    return {"total": len(rows), "items": items}


ROUTES = [
    Route("leveret/blocked", {"GET": Action(Level.MONITORING, _blocked)}),
    Route("leveret/growing", {"GET": Action(Level.MONITORING, _growing)}),
    Route("leveret/dead-letters", {"GET": Action(Level.MONITORING, _dead_letters)}),
    Route("leveret/unacknowledged", {"GET": Action(Level.MONITORING, _unacknowledged)}),
]
