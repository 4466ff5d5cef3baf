"""The command `browse`: the messages of one queue in place. Nothing is taken, marked or counted.

Source: management page 16.
"""

from typing import Annotated, Any

from ..console.dispatcher import Http, Level
from ..engine import MS, Consumer, holder_of
from .command import command
from .command_error import CommandError
from .kinds import AsUser, QueueName, VhostName, one_of
from .message_selection import Filter, selection_of
from .messages import Encoding, Truncate, check_encoding, shown_message
from .operator import Operator, until_idle
from .slices import READY, SCHEDULED, STATES, Seen, slices_of
from .steps import Steps

#: Default and maximum number of messages in an answer; messages converted to rows in one step.
BROWSED, BROWSED_MAX, BROWSED_AT_ONCE = 50, 500, 20
#: Maximum messages that a filter tests in one step, and in one request.
LOOKED_AT_ONCE, LOOKED_MAX = 100, 20_000


@command("browse", http=Http("POST", "leveret/queues/V/Q/browse", Level.VHOST), reads=True)
def browse(
    operator: Operator,
    queue: QueueName,
    *,
    count: int = BROWSED,
    after: int = 0,
    state: Annotated[str, one_of(STATES)] = READY,
    given: Filter,
    encoding: Encoding = "auto",
    truncate: Truncate | None = None,
    vhost: VhostName = "/",
    as_user: AsUser | None = None,
) -> Steps:
    """Look at the messages of a queue and change nothing.

    count: at most this many (default 50), and no more than 500 or management-browse-page-size
    after: only messages behind this position (default 0: from the head)
    state: ready (the default), unacked or scheduled

    Nothing is taken, marked or counted, and no order changes; contents on disk are read. The answer has `items`, each
    with its `position`; `next`, the value of `after` for the next page, null at the end; `total`; with a filter
    `looked_at`. A page ends at `count` items or after 20,000 tested messages.
    """
    if state not in STATES:
        raise CommandError(f"browse: state must be {', '.join(STATES[:-1])} or {STATES[-1]}, not {state!r}")
    check_encoding(encoding)
    matches = selection_of("browse", given)
    with operator.client(vhost, as_user) as (client, host):
        found = host.queues.for_consumer(queue, client)
        yield from until_idle(host, queue)
        settings = operator.broker.context.settings.resolve(found.address, vhost)
        page_size, shown_max = settings.management_browse_page_size, settings.management_message_attribute_size_limit
        count_max = BROWSED_MAX if page_size < 0 else min(page_size, BROWSED_MAX)
        count = min(count, count_max)
        rows: list[dict[str, Any]] = []
        looked_at, more = 0, False
        slices = slices_of(found, state, after, LOOKED_AT_ONCE if matches else BROWSED_AT_ONCE)
        for slice_ in slices if count else ():
            for seen in slice_:
                after = seen.position
                looked_at += 1
                if matches is None or matches(seen.message):
                    row = row_of(operator, seen, truncate, encoding)
                    rows.append(row if shown_max < 0 else {**row, "properties": cut(row["properties"], shown_max)})
                    if len(rows) == count:
                        break
            more = len(rows) == count or looked_at >= LOOKED_MAX
            if more:
                break
            yield
        total = {READY: found.ready_count, SCHEDULED: len(found.scheduled)}.get(state, found.unacked)
        answer = {"items": rows, "next": after if more else None, "total": total}
        return answer if matches is None else {**answer, "looked_at": looked_at}


def row_of(operator: Operator, seen: Seen, truncate: int | None, encoding: str = "auto") -> dict[str, Any]:
    """A message in JSON, with the consumer that holds it, or the time when it is due."""
    message = seen.message
    row = shown_message(seen.position, message, truncate, encoding)
    row["id"] = message.id
    if seen.due_ns:
        clock = operator.broker.context.clock
        row["due_ms"] = clock.wall_ms() + (seen.due_ns - clock.monotonic_ns()) // MS
    if message.holder is not None:
        holder = holder_of(message)
        tag = holder.tag if isinstance(holder, Consumer) else None
        session = holder.session
        client = {"connection": session.client.name, "connection_name": session.client.given_name}
        row["holder"] = {**client, "channel": session.number, "consumer": tag}
    return row


def cut(value: Any, length: int) -> Any:
    """Cut texts in a value after `length` characters and append the number of the others, as Artemis does."""
    if isinstance(value, str) and len(value) > length:
        return f"{value[:length]}, + {len(value) - length} more"
    if isinstance(value, list):
        return [cut(one, length) for one in value]
    return {name: cut(one, length) for name, one in value.items()} if isinstance(value, dict) else value
