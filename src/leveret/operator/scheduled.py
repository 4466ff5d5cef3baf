"""Commands about scheduled messages: list them, make one due now or later, delete one. Source: management page 16."""

from typing import Annotated, Any

from ..engine import MS, Queue, scheduled
from .command import command
from .command_error import CommandError
from .kinds import NUMBER, Milliseconds, QueueName, VhostName
from .operator import Operator
from .slices import SCHEDULED, slices_of
from .steps import Steps

#: Messages in an answer by default, and at most; messages that are read in one step.
LISTED, LISTED_MAX, LISTED_AT_ONCE = 1000, 5000, 100

ScheduledId = Annotated[int, NUMBER, "the message's id in `scheduled list`"]


@command("scheduled list")
def list_scheduled(
    at: Operator, queue: QueueName, *, after: int = 0, count: int = LISTED, vhost: VhostName = "/"
) -> Steps:
    """List the messages that are scheduled, soonest first.

    after: without this many of the first
    count: at most this many (default 1000, at most 5000)
    """
    found, clock = at.queue(vhost, queue), at.broker.context.clock
    now_ns, wall_ms = clock.monotonic_ns(), clock.wall_ms()
    count = min(count, LISTED_MAX)
    rows: list[dict[str, Any]] = []
    for slice_ in slices_of(found, SCHEDULED, after, LISTED_AT_ONCE) if count else ():
        rows += [
            {
                "id": seen.message.id,
                "due_ms": wall_ms + (seen.due_ns - now_ns) // MS,
                "due_in_ms": max(0, (seen.due_ns - now_ns) // MS),
                "exchange": seen.message.envelope.exchange,
                "routing_key": seen.message.envelope.routing_key,
                "attempts": seen.message.deliveries - seen.message.uncounted,
            }
            for seen in slice_
        ]
        if len(rows) >= count:
            break
        yield
    return rows[:count]


@command("scheduled fire")
def fire(at: Operator, queue: QueueName, id: ScheduledId, *, vhost: VhostName = "/") -> dict[str, Any]:
    """Make one ready now."""
    found = at.queue(vhost, queue)
    return _done("fire", found, id, scheduled.reschedule(found, id, 0))


@command("scheduled cancel")
def cancel(at: Operator, queue: QueueName, id: ScheduledId, *, vhost: VhostName = "/") -> dict[str, Any]:
    """Delete one."""
    found = at.queue(vhost, queue)
    return _done("cancel", found, id, scheduled.cancel(found, id))


@command("scheduled reschedule")
def reschedule(
    at: Operator, queue: QueueName, id: ScheduledId, delay: Milliseconds, *, vhost: VhostName = "/"
) -> dict[str, Any]:
    """Make one due later, or sooner.

    delay: ms from now, or a time like 10s, 5m, 2h
    """
    found = at.queue(vhost, queue)
    return _done("reschedule", found, id, scheduled.reschedule(found, id, delay))


def _done(what: str, queue: Queue, id_: int, is_there: bool) -> dict[str, Any]:
    if not is_there:
        raise CommandError(f"no message {id_} waits in queue {queue.name!r}")
    return {"id": id_, "done": what}
