"""Commands for many messages: jobs that move, replay or discard them; lists of dead letters; pause and resume.

Source: management page 16; ruling 24.
"""

import logging
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from ..configured.configured import text_of
from ..console.dispatcher import Http, Level
from ..engine import (
    DISCARDED,
    BadRequest,
    Choice,
    Client,
    Clock,
    EngineError,
    FindTarget,
    Moving,
    Queue,
    QueueGone,
    consumers,
    dead_letter_queues,
    origin_of,
    takes_all,
    to_exchange,
    to_origin,
    to_queue,
)
from .command import command
from .command_error import CommandError
from .kinds import FLAG, JSON, NAME, NUMBER, TEXT, AsUser, OnlyVhost, QueueName, VhostName, one_of
from .message_selection import Filter, selection_of
from .messages import shown_message
from .operator import Operator, refusals, until_idle
from .steps import Steps

logger = logging.getLogger("leveret.control")

#: Maximum messages that a dry run tests, and that it shows; maximum octets of a body in it.
LOOKED_AT_MAX, SAMPLE, SAMPLE_OCTETS = 200_000, 10, 1_000
#: Maximum positions in one request.
POSITIONS_MAX = 10_000
#: Maximum queues in a list of dead letters; messages tested in all of them together; messages of one scan.
QUEUES_MAX, LETTERS_MAX, LETTERS_STEP = 100, 5_000, 100
#: Maximum nanoseconds for which all dead letters are counted.
COUNTED_NS = 10_000_000_000
MOVED, REPLAYED = "moved", "replayed"


@dataclass(slots=True, frozen=True, kw_only=True)
class Destination:
    """Arguments for the destination of messages, which several commands share."""

    to_queue: Annotated[str, NAME, "to this queue; or"] | None = None
    to_exchange: Annotated[str, TEXT, "to this exchange, which routes them"] | None = None
    to_key: Annotated[str, TEXT, "the routing key there (default: each message's own)"] | None = None


@dataclass(slots=True, frozen=True, kw_only=True)
class JobRequest(Filter):
    """Arguments of all jobs: the messages, the rate, and the user whose permissions apply."""

    positions: Annotated[Any, JSON, "a list of numbers, as `browse` shows them"] = None
    limit: Annotated[int, NUMBER, "at most this many, from the head"] | None = None
    rate: Annotated[int, NUMBER, "messages a second (default: as fast as possible)"] | None = None
    dry_run: Annotated[bool, FLAG, "true: only tell what would be done"] | None = None
    vhost: VhostName = "/"
    as_user: AsUser | None = None


JobId = Annotated[int, NUMBER, "the job's id in `jobs list`"]


def _accepted(result: dict[str, Any]) -> int:
    return 202 if "id" in result else 200


@command("move", http=Http("POST", "leveret/queues/V/Q/move", Level.VHOST, _accepted))
def move(operator: Operator, queue: QueueName, destination: Destination, request: JobRequest) -> Steps:
    """Move messages of a queue to another one, or to an exchange, as a job."""
    with operator.client(request.vhost, request.as_user) as (client, _):
        find_target, words = _target_of("move", client, queue, destination)
        return (yield from _begin(operator, "move", client, queue, request, find_target, MOVED, words))


@command("replay", http=Http("POST", "leveret/queues/V/Q/replay", Level.VHOST, _accepted))
def replay(
    operator: Operator,
    queue: QueueName,
    destination: Destination,
    *,
    to: Annotated[str, one_of(("exchange", "queue"))] | None = None,
    strip: bool | None = None,
    request: JobRequest,
) -> Steps:
    """Send dead letters back to where they came from, or elsewhere as `move` does, as a job.

    to: exchange (the default), with the routing key; or queue: the one each died in
    strip: true: without the headers about their deaths (default false)
    """
    if to not in (None, "exchange", "queue"):
        raise CommandError(
            f"replay: to must be exchange or queue, not {to!r}; to-queue and to-exchange name another place"
        )
    with operator.client(request.vhost, request.as_user) as (client, _):
        if destination != Destination():
            if to is not None or strip is not None:
                raise CommandError("replay: to and strip are about where each message came from, not another place")
            find_target, words = _target_of("replay", client, queue, destination)
        else:
            find_target = to_origin(client, into_queue=to == "queue", without_history=bool(strip))
            words = "to the queue that each died in" if to == "queue" else "to where each came from"
        return (yield from _begin(operator, "replay", client, queue, request, find_target, REPLAYED, words))


@command("discard", http=Http("POST", "leveret/queues/V/Q/discard", Level.VHOST, _accepted))
def discard(
    operator: Operator, queue: QueueName, request: JobRequest, *, bookmark: str | None = None, option: str | None = None
) -> Steps:
    """Discard messages of a queue, as a job; of a leased queue at once, including leased messages.

    bookmark: of a leased queue: those with these bookmarks, separated by commas
    option: of a leased queue: cancel: break the leases; expire: as dead letters
    """
    with operator.client(request.vhost, request.as_user) as (client, host):
        found = host.queues.get(queue)
        if found is None or found.kind.discarding is None:
            if found is not None and (bookmark is not None or option is not None):
                why = "takes no bookmark, no option: discard by filter, header, text, positions"
                raise CommandError(f"queue {queue!r} {why}")
            return (yield from _begin(operator, "discard", client, queue, request, None, DISCARDED, "discarded"))
        if replace(request, filter=None) != JobRequest(vhost=request.vhost, as_user=request.as_user):
            raise CommandError(f"discard: of a {found.kind.name} queue by bookmark or filter alone, and without a rate")
        client.user.require("read", "queue", queue, request.vhost)
        try:  # as a request to amps.control (queues page A.6)
            done = yield from found.kind.discarding(found, bookmark, request.filter, option or "")
        except BadRequest as error:
            raise CommandError(str(error)) from None
    return {"queue": queue, "vhost": request.vhost, **asdict(done)}


@command("pause")
def pause(operator: Operator, queue: QueueName, *, vhost: VhostName = "/") -> dict[str, Any]:
    """Stop deliveries from a queue, until `resume` or a restart."""
    return _set_paused(operator, vhost, queue, paused=True)


@command("resume")
def resume(operator: Operator, queue: QueueName, *, vhost: VhostName = "/") -> dict[str, Any]:
    """Resume deliveries from a paused queue."""
    return _set_paused(operator, vhost, queue, paused=False)


def _set_paused(operator: Operator, vhost: str, name: str, *, paused: bool) -> dict[str, Any]:
    with refusals():
        queue = operator.vhost(vhost).queues.named(name)
    if queue.paused is not paused:
        logger.info("queue %r in %r is %s", name, vhost, "paused" if paused else "resumed")
        consumers.pause(queue, paused)
    return {"queue": name, "vhost": vhost, "paused": paused, "ready": queue.ready_count}


@command("dead-letters", reads=True)
def dead_letters(operator: Operator, *, all: bool = True, vhost: OnlyVhost | None = None) -> Steps:
    """List the queues that get dead letters, with numbers of messages by cause and origin.

    all: true: count all of them, for 10 s at most; false: about the first 5,000 (default true)
    """
    found: list[Queue] = []
    for host in operator.vhosts(vhost):
        for batch in dead_letter_queues(host.context):
            found += batch
            yield
    found.sort(key=lambda queue: (-queue.ready_count, queue.vhost_name, queue.name))
    rows, clock = [], operator.broker.context.clock
    until_ns = clock.monotonic_ns() + COUNTED_NS
    shown = found[:QUEUES_MAX]
    for queue in shown:
        most = queue.ready_count if all else LETTERS_MAX // len(shown)
        rows.append((yield from _count_letters(queue, most, clock, until_ns)))
    return {"queues": len(found), "items": rows}


# -- jobs -----------------------------------------------------------------------------------------------------------


@command("jobs list", reads=True)
def list_jobs(operator: Operator) -> list[dict[str, Any]]:
    """List moves, replays and discards: those under way, and the last ones that ended."""
    return [job.row() for job in operator.jobs]


@command("jobs show", reads=True)
def show_job(operator: Operator, id: JobId) -> dict[str, Any]:
    """Show a job."""
    return operator.jobs.find(id).row()


@command("jobs cancel")
def cancel_job(operator: Operator, id: JobId, *, as_user: AsUser | None = None) -> dict[str, Any]:
    """Cancel a job; messages that it has moved stay moved."""
    job = operator.jobs.find(id)
    if as_user is not None:
        with operator.client(job.client.vhost.name, as_user) as (client, _):
            if not client.user.is_administrator and client.user.name != job.by:
                raise CommandError(f"job {job.id} is another user's")
    job.cancel()
    return job.row()


def _begin(
    operator: Operator,
    command: str,
    client: Client,
    name: str,
    request: JobRequest,
    find_target: FindTarget | None,
    why: str,
    to: str,
) -> Steps:
    """Begin a job, or do a dry run of it. `to`: the destination, in words."""
    host, limit, rate = operator.vhost(request.vhost), request.limit, request.rate
    queue = host.queues.for_consumer(name, client)
    if queue.exclusive:
        raise CommandError(f"queue {queue.name!r} is exclusive: its messages are its connection's")
    if queue.kind.move_refusal:
        raise CommandError(f"{command}: queue {name!r}: {queue.kind.move_refusal}")
    if limit == 0 or rate == 0:
        raise CommandError(f"{command}: limit and rate are numbers from 1 on")
    yield from until_idle(host, name)
    moving = Moving(queue, client, _choice_of(command, request), find_target, why, text_of)
    if request.dry_run:
        return (yield from _dry_run(moving))
    return operator.jobs.begin(command, moving, client, by=request.as_user, to=to, rate=rate, limit=limit).row()


def _choice_of(command: str, request: JobRequest) -> Choice:
    positions = request.positions
    if positions is not None and not (
        isinstance(positions, list)
        and len(positions) <= POSITIONS_MAX
        and all(type(one) is int and one > 0 for one in positions)
    ):
        raise CommandError(
            f"{command}: positions: expected a list of at most {POSITIONS_MAX} numbers, as `browse` shows"
        )
    takes = selection_of(command, request) or takes_all
    return Choice(takes, None if positions is None else frozenset(positions), request.limit)


def _dry_run(moving: Moving) -> Steps:
    """The result of a dry run. `is_complete`: all messages were tested."""
    targets: Counter[str] = Counter()
    transient: set[str] = set()
    sample: list[dict[str, Any]] = []
    while not moving.is_done and moving.looked_at < LOOKED_AT_MAX:
        try:
            seen = moving.dry_work()
        except QueueGone:
            raise CommandError("the queue was deleted") from None
        for one in seen:
            if one.target is not None:
                targets[one.target.title] += 1
                if one.message.envelope.summary.persistent:
                    transient.update(queue.name for queue in one.target.queues if not queue.durable)
            if len(sample) < SAMPLE:
                row = shown_message(one.position, one.message, SAMPLE_OCTETS)
                sample.append({**row, "to": one.target.title if one.target else "", "stays": one.reason})
        yield
    queue = moving.queue
    return {
        "dry_run": True,
        "vhost": queue.vhost_name,
        "queue": queue.name,
        "matched": moving.done,
        "looked_at": moving.looked_at,
        "total": moving.total,
        "is_complete": moving.is_done,
        "targets": [{"to": title, "count": count} for title, count in targets.most_common()],
        "kept": [{"reason": reason, "count": count} for reason, count in moving.kept.items()],
        "warnings": [f"queue {name!r} is not durable: a restart loses what is moved there" for name in transient],
        "sample": sample,
    }


def _count_letters(queue: Queue, most: int, clock: Clock, until_ns: int) -> Steps:
    """Count about `most` of a queue's first messages by cause and origin. Stop at `until_ns`."""
    causes: Counter[tuple[str, str, str]] = Counter()
    after = looked_at = oldest_s = 0
    while not queue.deleted and looked_at < most and clock.monotonic_ns() <= until_ns:
        try:
            seen = queue.scan(after, LETTERS_STEP)
        except EngineError:
            break
        for position, message in seen.found:
            origin = origin_of(message)
            after, looked_at = position, looked_at + 1
            if origin is None:
                causes["", "", ""] += 1
                continue
            causes[origin.reason, origin.queue or origin.address, origin.exchange] += 1
            oldest_s = min(oldest_s or origin.time_s, origin.time_s) if origin.time_s else oldest_s
        if not seen.found or (len(seen.found) < LETTERS_STEP and not seen.missing):
            break
        yield
    return {
        "vhost": queue.vhost_name,
        "queue": queue.name,
        "messages": queue.ready_count,
        "looked_at": looked_at,
        "oldest": oldest_s or None,
        "causes": [
            {"cause": cause, "origin": origin, "exchange": exchange, "count": count}
            for (cause, origin, exchange), count in causes.most_common(50)
        ],
    }


def _target_of(command: str, client: Client, source: str, destination: Destination) -> tuple[FindTarget, str]:
    """The function that finds destinations by these arguments, and the destination in words. Raises: CommandError."""
    queue, exchange, key = destination.to_queue, destination.to_exchange, destination.to_key
    if queue is not None and exchange is None and key is None:
        if queue == source:
            raise CommandError(f"{command}: to-queue is the queue itself")
        if queue not in client.vhost.queues:
            raise CommandError(f"no queue {queue!r} in virtual host {client.vhost.name!r}")
        return to_queue(client, queue), f"to queue {queue}"
    if exchange is not None and queue is None:
        if exchange not in client.vhost.exchanges:
            raise CommandError(f"no exchange {exchange!r} in virtual host {client.vhost.name!r}")
        words = f"to exchange {exchange or '(default)'}" + (f", key {key}" if key else "")
        return to_exchange(client, exchange, key), words
    raise CommandError(f"{command}: expected to-queue, or to-exchange with or without to-key")
