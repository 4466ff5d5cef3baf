"""Connections stall, break, are refused, or come from strangers."""

from __future__ import annotations

from random import Random

from ..loop import SECOND, now_ns
from ..network import Link
from ..strangers import Stranger
from .victim import Fault, Victim, some_time_ns


def _link(world: Victim, chance: Random) -> Link | None:
    links = [link for link in world.network.links if link.is_open]
    return chance.choice(links) if links else None


def _reset(world: Victim, chance: Random) -> None:
    if (link := _link(world, chance)) is not None:
        link.reset()


def _reset_in_frame(world: Victim, chance: Random) -> None:
    """After so many more octets of the client."""
    if (link := _link(world, chance)) is not None:
        link.reset_after(chance.randrange(1, 2000))


def _half_open(world: Victim, chance: Random) -> None:
    if (link := _link(world, chance)) is not None:
        link.go_dead()


def _half_closed(world: Victim, chance: Random) -> None:
    """The client sends nothing more, but would read on."""
    if (link := _link(world, chance)) is not None:
        link.shut()


def _stall(world: Victim, chance: Random) -> None:
    if (link := _link(world, chance)) is not None:
        link.stall(int(chance.expovariate(1) * SECOND))


def _one_way_stall(world: Victim, chance: Random) -> None:
    """What the client sends comes later."""
    if (link := _link(world, chance)) is not None:
        link.delay(some_time_ns(chance, chance.choice((1, 15))))


def _slow_reader(world: Victim, chance: Random) -> None:
    if (link := _link(world, chance)) is not None:
        link.read_slowly(some_time_ns(chance, 10), chance.choice((1_000, 20_000)))


def _storm(world: Victim, chance: Random) -> None:
    """Everything takes a thousand times as long."""
    weather = world.network.weather
    weather.factor = chance.choice((100, 1000, 10_000))
    world.schedule.after(some_time_ns(chance, 4), weather.calm)


def _refuse(world: Victim, chance: Random) -> None:
    world.network.refused_until_ns = now_ns() + some_time_ns(chance, 4)
    if chance.random() < 0.5:
        for link in world.network.links:
            link.reset()


def _strangers(world: Victim, chance: Random) -> None:
    """Many who never come as far as to be clients, at once."""
    for _ in range(chance.choice((3, 30, 300))):
        Stranger(world, Random(chance.getrandbits(32)))


NETWORK_FAULTS: dict[str, Fault] = {
    "reset": _reset,
    "reset in a frame": _reset_in_frame,
    "half-open": _half_open,
    "half-closed": _half_closed,
    "stalled client": _stall,
    "one-way stall": _one_way_stall,
    "slow reader": _slow_reader,
    "latency": _storm,
    "refused connections": _refuse,
    "strangers": _strangers,
}
