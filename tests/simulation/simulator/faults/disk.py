"""The disk is slow, fails, is full, rots, or loses files; the system has no descriptors or memory for it."""

from __future__ import annotations

import errno
from functools import partial
from random import Random

from ..disk import Trouble
from ..loop import SECOND, now_ns
from .victim import Fault, Victim, some_time_ns

WRITES = frozenset({"write", "truncate"})
SYNCS = frozenset({"sync", "sync_directory"})
OPENS = frozenset({"open", "sync_directory"})


def _slow(world: Victim, chance: Random) -> None:
    world.disk.slow_until_ns = now_ns() + some_time_ns(chance, 5)


def _short_writes(world: Victim, chance: Random) -> None:
    world.disk.write_short(chance.choice((1, 100, 512, 5000)) * chance.randint(1, 3))
    world.schedule.after(some_time_ns(chance, 1), lambda: world.disk.write_short(None))


def _trouble(world: Victim, chance: Random, operations: frozenset[str], error: int, odds: float, where: str) -> None:
    trouble = Trouble(operations, error, odds, where)
    world.disk.troubles.append(trouble)
    world.schedule.after(some_time_ns(chance, 3), partial(_end, world, trouble, int(chance.expovariate(1) * SECOND)))


def _end(world: Victim, trouble: Trouble, until_noticed_ns: int) -> None:
    world.disk.troubles.remove(trouble)
    world.schedule.after(until_noticed_ns, partial(start_anew, world))


def start_anew(world: Victim) -> None:
    """Somebody notices that nothing durable is taken any more."""
    host = world.host
    if host is not None and host.is_alive and host.has_failed:
        world.knowledge.happened["started anew after a failure"] += 1
        host.stop()


def _failing_writes(world: Victim, chance: Random) -> None:
    _trouble(world, chance, WRITES, errno.EIO, chance.choice((0.1, 1)), ".log")


def _failing_syncs(world: Victim, chance: Random) -> None:
    _trouble(world, chance, SYNCS, errno.EIO, chance.choice((0.1, 1)), "")


def _failing_reads(world: Victim, chance: Random) -> None:
    _trouble(world, chance, frozenset({"read"}), errno.EIO, chance.choice((0.1, 1)), ".log")


def _no_descriptors(world: Victim, chance: Random) -> None:
    _trouble(world, chance, OPENS, chance.choice((errno.EMFILE, errno.ENFILE)), chance.choice((0.3, 1)), "")


def _no_memory(world: Victim, chance: Random) -> None:
    operations = WRITES | OPENS | {"preallocate", "read"}
    _trouble(world, chance, operations, errno.ENOMEM, chance.choice((0.05, 0.5)), "")


def _full(world: Victim, chance: Random) -> None:
    """For a while there is room for so much more, or for nothing."""
    world.disk.limit(chance.choice((0, 1000, 20_000, 200_000)))
    world.schedule.after(some_time_ns(chance, 8), lambda: world.disk.limit(None))


def _read_only(world: Victim, chance: Random) -> None:
    """As a file system becomes after an error of the disk."""
    _trouble(world, chance, WRITES | {"rename", "unlink"}, errno.EROFS, 1, "")


def _rot(world: Victim, chance: Random) -> None:
    """A broker ends, and before the next one starts an octet of a sealed segment is another."""
    host = world.host
    if host is None or not host.is_alive:
        return
    world.lives.rots_next = chance
    luck = chance.random()
    if luck < 0.3:
        host.stop()
    else:
        host.kill("killed" if luck < 0.6 else "power cut")


def _delete(world: Victim, chance: Random) -> None:
    """Somebody deletes a segment beneath the broker; there is a copy."""
    segments = world.disk.segments()
    if segments and world.host is not None and world.host.is_alive:
        world.disk.delete(segments[-1] if chance.random() < 0.5 else chance.choice(segments))
        world.schedule.after(some_time_ns(chance, 10), world.disk.put_back)


DISK_FAULTS: dict[str, Fault] = {
    "slow disk": _slow,
    "short writes": _short_writes,
    "failing writes": _failing_writes,
    "failing syncs": _failing_syncs,
    "failing reads": _failing_reads,
    "no descriptors": _no_descriptors,
    "no memory": _no_memory,
    "full disk": _full,
    "read-only disk": _read_only,
    "bit rot": _rot,
    "deleted segment": _delete,
}
