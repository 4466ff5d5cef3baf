"""Commands about what piles up: growing queues, unacknowledged deliveries, blocked publishers.

Source: management page 16; ruling 24.
"""

from typing import Any

from ..console.dispatcher import Http, Level
from ..engine import Queue, dead_letter_queues
from .broker import status
from .command import command
from .command_error import CommandError
from .connections import consumers
from .kinds import AsUser, OnlyVhost
from .operator import Operator
from .steps import Steps

#: Messages a minute from which a queue counts as growing; maximum growing queues in an answer; queues of one step.
GROWTH_MIN, GROWING_MAX, QUEUES_A_STEP = 60, 20, 500
#: Maximum consumers in the list of unacknowledged deliveries.
CONSUMERS_MAX = 200
#: Stands for an unknown time; its consumer comes last in the list.
_LAST = 1 << 62


@command("growing", reads=True)
def growing(operator: Operator, *, vhost: OnlyVhost | None = None) -> Steps:
    """List the queues that grew over the last minute, but for streams, non-destructive, ring and dead-letter queues."""
    sampler = operator.sampler
    if sampler is None:
        raise CommandError("growth is not known: the console, which samples queues, is off; see `ctl --watch queues`")
    of_dead_letters: set[Queue] = set()
    rows: list[dict[str, Any]] = []
    unknown = 0
    for host in operator.vhosts(vhost):
        for some in dead_letter_queues(host.context):
            of_dead_letters.update(some)
            yield
        for count, queue in enumerate(list(host.queues.values()), 1):
            if count % QUEUES_A_STEP == 0:
                yield
            if queue.deleted or queue.keeps_acked or queue.rules.ring_size is not None or queue in of_dead_letters:
                continue
            growth = sampler.growth(queue)
            if growth is None:
                unknown += 1
            elif growth >= GROWTH_MIN:
                messages = queue.ready_count + queue.unacked
                rows.append({"vhost": host.name, "name": queue.name, "messages": messages, "growth": growth})
    rows.sort(key=lambda row: -row["growth"])
    return {"total": len(rows), "items": rows[:GROWING_MAX], "unknown": unknown}


@command("unacknowledged", reads=True)
def unacknowledged(operator: Operator, *, vhost: OnlyVhost | None = None) -> dict[str, Any]:
    """List the consumers with unacknowledged messages, the one with the oldest delivery first."""
    now_ms = operator.broker.context.clock.wall_ms()
    rows = [row for row in consumers(operator, vhost=vhost) if row["unacked"]]
    rows.sort(key=lambda row: (row["oldest_unacked_since_ms"] or _LAST, row["vhost"], row["queue"], row["tag"]))
    items = rows[:CONSUMERS_MAX]
    for row in items:
        since_ms = row["oldest_unacked_since_ms"]
        row["oldest_unacked_ms"] = None if since_ms is None else now_ms - since_ms
    return {"total": len(rows), "items": items}


@command("blocked", http=Http("GET", "leveret/blocked", Level.MONITORING), reads=True)
def blocked(operator: Operator, *, as_user: AsUser | None = None) -> Steps:
    """Show which publishers wait for room in what, since when, and the use of each limit."""
    found = yield from status(operator, as_user=as_user)
    return {key: found[key] for key in ("alarm", "blocked", "usage", "held", "slow_consumers")}
