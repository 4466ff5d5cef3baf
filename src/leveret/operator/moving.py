"""Control commands for many messages: move, replay, discard, as jobs; which dead letters there are; pause, resume.

Source: management page 16; ruling 24.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ..engine import (
    DISCARDED,
    Aim,
    BadRequest,
    Broker,
    Choice,
    Client,
    EngineError,
    Looked,
    Moving,
    Queue,
    QueueGone,
    dead_letter_queues,
    discarding,
    origin_of,
    takes_all,
    to_exchange,
    to_origin,
    to_queue,
    why_not,
)
from .acting import Handlers, acting, vhost_of, vhosts_to_list
from .choosing import chosen
from .command_error import CommandError
from .jobs import Jobs
from .messages import shown_message
from .operator import refusals, until_idle
from .steps import Steps

logger = logging.getLogger("leveret.control")

#: Messages that a dry run looks at, and shows; octets of their bodies that it shows.
LOOKED_AT_MAX, SAMPLE, SAMPLE_OCTETS = 200_000, 10, 1_000
#: Positions in one request.
POSITIONS_MAX = 10_000
#: Queues with dead letters that are listed; messages of all of them that are looked at, of each at least one step's.
QUEUES_MAX, LETTERS_MAX, LETTERS_STEP = 100, 5_000, 100
MOVED, REPLAYED = "moved", "replayed"
_OF_LEASES = ("bookmark", "option")
#: Where messages go, in every command that takes them somewhere.
_PLACE = ("to-queue", "to-exchange", "to-key")


class MovingCommands:
    """`handlers` by the words of the command, for the control table."""

    def __init__(self, broker: Callable[[], Broker], jobs: Jobs) -> None:
        self._broker = broker
        self._jobs = jobs
        self.handlers: Handlers = {
            "move": self._move,
            "replay": self._replay,
            "discard": self._discard,
            "pause": lambda arguments: self._pause(arguments, True),
            "resume": lambda arguments: self._pause(arguments, False),
            "dead-letters": self._dead_letters,
            "jobs list": lambda arguments: [job.row() for job in jobs],
            "jobs show": lambda arguments: jobs.find(arguments["id"]).row(),
            "jobs cancel": self._cancel,
        }

    def _move(self, arguments: dict[str, Any]) -> Steps:
        client = acting(self._broker(), arguments)
        aim, words = _place("move", client, arguments)
        return (yield from self._begin("move", client, arguments, aim, MOVED, words))

    def _replay(self, arguments: dict[str, Any]) -> Steps:
        to = arguments.get("to", "exchange")
        if to not in ("exchange", "queue"):
            raise CommandError(
                f"replay: to must be exchange or queue, not {to!r}; to-queue and to-exchange name another place"
            )
        client = acting(self._broker(), arguments)
        if any(name in arguments for name in _PLACE):
            if "to" in arguments or "strip" in arguments:
                raise CommandError("replay: to and strip are about where each message came from, not another place")
            aim, words = _place("replay", client, arguments)
        else:
            aim = to_origin(client, into_queue=to == "queue", without_history=arguments.get("strip", False))
            words = "to the queue that each died in" if to == "queue" else "to where each came from"
        return (yield from self._begin("replay", client, arguments, aim, REPLAYED, words))

    def _discard(self, arguments: dict[str, Any]) -> Steps:
        """Of a leased queue as a request to amps.control, also what others hold (queues page A.6)."""
        client = acting(self._broker(), arguments)
        queue = client.vhost.queues.get(arguments["queue"])
        if queue is not None and queue.rules.leased is not None:
            return (yield from self._discard_leased(queue, client, arguments))
        if queue is not None and any(name in arguments for name in _OF_LEASES):
            raise CommandError(f"queue {queue.name!r} is no leased queue: discard by filter, header, text, positions")
        return (yield from self._begin("discard", client, arguments, None, DISCARDED, "discarded"))

    def _discard_leased(self, queue: Queue, client: Client, arguments: dict[str, Any]) -> Steps:
        known = {"queue", "vhost", "as-user", "filter", *_OF_LEASES}
        if not known.issuperset(arguments):
            raise CommandError("discard: of a leased queue by bookmark or filter alone, and without a rate")
        with refusals():
            client.user.require("read", "queue", queue.name, queue.vhost_name)
        try:
            done = yield from discarding(
                queue, arguments.get("bookmark"), arguments.get("filter"), arguments.get("option", "")
            )
        except BadRequest as error:
            raise CommandError(str(error)) from None
        return {"queue": queue.name, "vhost": queue.vhost_name, **asdict(done)}

    def _cancel(self, arguments: dict[str, Any]) -> dict[str, Any]:
        job = self._jobs.find(arguments["id"])
        if "as-user" in arguments:
            client = acting(self._broker(), {**arguments, "vhost": job.client.vhost.name})
            if not client.user.is_administrator and client.user.name != job.by:
                raise CommandError(f"job {job.id} is another user's")
        job.cancel()
        return job.row()

    def _pause(self, arguments: dict[str, Any], paused: bool) -> dict[str, Any]:
        vhost, name = vhost_of(self._broker(), arguments), arguments["queue"]
        with refusals():
            queue = vhost.queue(name)
        if queue.paused is not paused:
            logger.info("queue %r in %r is %s", name, vhost.name, "paused" if paused else "resumed")
            queue.pause(paused)
        return {"queue": name, "vhost": vhost.name, "paused": paused, "ready": queue.ready_count}

    # -- dead letters -----------------------------------------------------------------------------------------------

    def _dead_letters(self, arguments: dict[str, Any]) -> Steps:
        """Queues that dead letters go to, those with the most first; what is in them by cause and origin."""
        found: list[Queue] = []
        for vhost in vhosts_to_list(self._broker(), arguments):
            for some in dead_letter_queues(vhost):
                found += some
                yield
        found.sort(key=lambda queue: (-queue.ready_count, queue.vhost_name, queue.name))
        rows = []
        for queue in found[:QUEUES_MAX]:
            rows.append((yield from _letters_of(queue, LETTERS_MAX // len(found[:QUEUES_MAX]))))
        return {"queues": len(found), "items": rows}

    # -- jobs -------------------------------------------------------------------------------------------------------

    def _begin(
        self, command: str, client: Client, arguments: dict[str, Any], aim: Aim | None, why: str, to: str
    ) -> Steps:
        """The job, or what it would do."""
        name, vhost = arguments["queue"], vhost_of(self._broker(), arguments)
        with refusals():
            queue = vhost.queue_for_consumer(name, client)
            _check_owner(queue)
        if why_not(queue):
            raise CommandError(f"{command}: queue {name!r}: {why_not(queue)}")
        limit, rate = arguments.get("limit"), arguments.get("rate")
        if limit == 0 or rate == 0:
            raise CommandError(f"{command}: limit and rate are numbers from 1 on")
        yield from until_idle(vhost, name)
        moving = Moving(queue, client, _choice_of(command, arguments, limit), aim, why)
        if arguments.get("dry-run", False):
            return (yield from _dry_run(moving, limit))
        by = arguments.get("as-user")
        return self._jobs.begin(command, moving, client, by=by, to=to, rate=rate, limit=limit).row()


def _check_owner(queue: Queue) -> None:
    """Raises: CommandError."""
    if queue.exclusive:
        raise CommandError(f"queue {queue.name!r} is exclusive: its messages are its connection's")


def _choice_of(command: str, arguments: dict[str, Any], limit: int | None) -> Choice:
    positions = arguments.get("positions")
    if positions is not None and not (
        isinstance(positions, list)
        and len(positions) <= POSITIONS_MAX
        and all(type(one) is int and one > 0 for one in positions)
    ):
        raise CommandError(
            f"{command}: positions: expected a list of at most {POSITIONS_MAX} numbers, as `browse` shows"
        )
    takes = chosen(command, arguments) or takes_all
    return Choice(takes, None if positions is None else frozenset(positions), limit)


def _dry_run(moving: Moving, limit: int | None) -> Steps:
    """What the job would do, as far as it was looked: `is_complete` says whether that was all."""
    targets: Counter[str] = Counter()
    transient: set[str] = set()
    sample: list[dict[str, Any]] = []
    while not moving.is_done and moving.looked_at < LOOKED_AT_MAX:
        try:
            seen = moving.look()
        except QueueGone:
            raise CommandError("the queue is gone") from None
        for one in seen:
            _note(one, targets, transient)
            if len(sample) < SAMPLE:
                row = shown_message(one.position, one.message, SAMPLE_OCTETS)
                sample.append({**row, "to": one.place.title if one.place else "", "stays": one.reason})
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


def _note(one: Looked, targets: Counter[str], transient: set[str]) -> None:
    if one.place is not None:
        targets[one.place.title] += 1
        if one.message.envelope.facts.persistent:
            transient.update(queue.name for queue in one.place.queues if not queue.durable)


def _letters_of(queue: Queue, most: int) -> Steps:
    """How many of what, of about so many of the first ones."""
    causes: Counter[tuple[str, str, str]] = Counter()
    after = looked_at = oldest_s = 0
    while not queue.deleted and looked_at < most:
        try:
            seen = queue.store.scan(after, LETTERS_STEP)
            if seen.missing and not seen.found:
                queue.store.load_at(after, LETTERS_STEP)
                seen = queue.store.scan(after, LETTERS_STEP)
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


def _place(command: str, client: Client, arguments: dict[str, Any]) -> tuple[Aim, str]:
    """Where the arguments send messages, and that in words. Raises: CommandError."""
    queue, exchange, key = (arguments.get(name) for name in _PLACE)
    if queue is not None and exchange is None and key is None:
        if queue == arguments["queue"]:
            raise CommandError(f"{command}: to-queue is the queue itself")
        if queue not in client.vhost.queues:
            raise CommandError(f"no queue {queue!r} in virtual host {client.vhost.name!r}")
        with refusals():
            return to_queue(client, queue), f"to queue {queue}"
    if exchange is not None and queue is None:
        if exchange not in client.vhost.exchanges:
            raise CommandError(f"no exchange {exchange!r} in virtual host {client.vhost.name!r}")
        words = f"to exchange {exchange or '(default)'}" + (f", key {key}" if key else "")
        return to_exchange(client, exchange, key), words
    raise CommandError(f"{command}: expected to-queue, or to-exchange with or without to-key")
