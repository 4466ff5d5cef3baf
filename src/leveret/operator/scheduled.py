"""Commands about scheduled messages: list them, make one due now or later, delete one. Source: management page 16."""

from collections.abc import Callable
from typing import Annotated, Any

from ..engine import MS, Queue, scheduled
from .command import command
from .command_error import CommandError
from .kinds import NUMBERS, Milliseconds, QueueName, VhostName
from .operator import Operator
from .slices import SCHEDULED, slices_of
from .steps import Steps

#: Default and maximum number of messages in an answer; messages that are read in one step.
LISTED, LISTED_MAX, LISTED_AT_ONCE = 1000, 5000, 100

#: Maximum messages that one command changes: finding each of them costs O(scheduled messages).
CHANGED_MAX = 500

ScheduledIds = Annotated[list[int], NUMBERS, "the message's id in `scheduled list`, or several"]


@command("scheduled list", reads=True)
def list_scheduled(
    operator: Operator,
    queue: QueueName,
    *,
    after: int = 0,
    count: int = LISTED,
    routing_key: str | None = None,
    vhost: VhostName = "/",
) -> Steps:
    """List the messages that are scheduled, soonest first.

    after: skip this many messages, whatever their routing keys are
    count: at most this many (default 1000, at most 5000)
    routing_key: only messages with this one
    """
    found, clock = operator.queue(vhost, queue), operator.broker.context.clock
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
            if routing_key in (None, seen.message.envelope.routing_key)
        ]
        if len(rows) >= count:
            break
        yield
    return rows[:count]


@command("scheduled fire")
def fire(operator: Operator, queue: QueueName, id: ScheduledIds, *, vhost: VhostName = "/") -> Steps:
    """Make scheduled messages ready now."""
    return _change("fire", operator.queue(vhost, queue), id, lambda found, one: scheduled.reschedule(found, one, 0))


@command("scheduled cancel")
def cancel(operator: Operator, queue: QueueName, id: ScheduledIds, *, vhost: VhostName = "/") -> Steps:
    """Delete scheduled messages."""
    return _change("cancel", operator.queue(vhost, queue), id, scheduled.cancel)


@command("scheduled reschedule")
def reschedule(
    operator: Operator, queue: QueueName, id: ScheduledIds, delay: Milliseconds, *, vhost: VhostName = "/"
) -> Steps:
    """Change the time at which scheduled messages are due.

    delay: ms from now, or a time like 10s, 5m, 2h
    """
    return _change(
        "reschedule", operator.queue(vhost, queue), id, lambda found, one: scheduled.reschedule(found, one, delay)
    )


def _change(what: str, queue: Queue, ids: list[int], change: Callable[[Queue, int], bool]) -> Steps:
    """Change the messages that are still scheduled. Raises: CommandError: none of them is.

    Returns {"done": what, "ids": [changed], "missing": [delivered or deleted meanwhile]}.
    """
    if len(ids) > CHANGED_MAX:
        raise CommandError(f"scheduled {what}: at most {CHANGED_MAX} messages at once, not {len(ids)}")
    changed: list[int] = []
    for one in ids:
        if not queue.deleted and change(queue, one):
            changed.append(one)
        yield
    missing = [one for one in ids if one not in changed]
    if not changed:
        raise CommandError(f"no message {', '.join(map(str, missing[:10]))} waits in queue {queue.name!r}")
    return {"done": what, "ids": changed, "missing": missing}
