"""What operators do with the messages of the world's queues: move, discard and purge them, make what waits for its time
due at another one or delete it, and pause their delivery.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from ..books.redelivery import MS
from ..inhabitants import DEAD
from .operators import run
from .victim import Fault, Victim, some_time_ns

#: More than any queue has.
EVERYTHING = 1 << 32


def _queue(world: Victim, chance: Random) -> str:
    """The dead letters are moved to, not away: their queue has messages of all others."""
    return chance.choice([queue.name for queue in world.plan.queues if queue.name != DEAD] or [DEAD])


def _move(world: Victim, chance: Random) -> None:
    """All of what is ready, or the first few; at once or slowly."""
    more = {"rate": chance.choice((20, 200))} if chance.random() < 0.3 else {}
    limit = chance.choice((1, 7, 60)) if chance.random() < 0.5 else None
    _take_out(world, "move", _queue(world, chance), limit, **{"to-queue": DEAD}, **more)


def _discard(world: Victim, chance: Random) -> None:
    _take_out(world, "discard", _queue(world, chance), chance.choice((1, 7, 60)))


def _take_out(world: Victim, command: str, queue: str, limit: int | None, **more: Any) -> None:
    """The first of it goes before the command is answered."""
    given = {} if limit is None else {"limit": limit}
    world.books.moves.requested["/", queue] += EVERYTHING if limit is None else limit
    run(world, command, queue=queue, **more, **given)


def _purge(world: Victim, chance: Random) -> None:
    queue = _queue(world, chance)
    world.books.moves.purges.add(("/", queue))
    run(world, "purge", queue=queue)


def _schedule(world: Victim, chance: Random) -> None:
    """One that waits for its time: due now, at another time, or never."""
    names = [queue.name for queue in world.plan.queues if queue.features.keys() & {"delays", "delay_ms"}]
    queue = chance.choice(names) if names else DEAD
    listed = run(world, "scheduled", action="list", queue=queue, count=20)
    if not listed:
        return
    id_, book = chance.choice(listed)["id"], world.books.redelivery
    key = ("/", queue), id_
    what = chance.choice(("fire", "cancel", "reschedule", "reschedule"))
    more = {"delay": chance.choice((1, 50, 1000, 3000))} if what == "reschedule" else {}
    if what == "cancel":
        book.cancelled.add(key)
    else:
        book.rescheduled[key] = world.clock.monotonic_ns() + more.get("delay", 0) * MS
    run(world, "scheduled", action=what, queue=queue, id=id_, **more)


def _pause(world: Victim, chance: Random) -> None:
    queue = _queue(world, chance)
    run(world, "pause", queue=queue)
    resume = partial(run, world, "resume", queue=queue)
    world.schedule.after(some_time_ns(chance, 1), partial(world.schedule.in_the_process, resume))


_ACTS: dict[str, Fault] = {
    "moves messages": _move,
    "discards messages": _discard,
    "purges a queue": _purge,
    "pauses a queue": _pause,
    "changes what is scheduled": _schedule,
}
#: Only short worlds have them.
MESSAGE_FAULTS: dict[str, Fault] = {f"operator {name}": act for name, act in _ACTS.items()}
