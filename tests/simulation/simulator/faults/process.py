"""The broker's process is killed, loses its power, is stopped, stands still; somebody sets its clock."""

from __future__ import annotations

from functools import partial
from random import Random

from ..host import Host
from ..loop import SECOND
from .victim import Fault, Victim, some_time_ns

MINUTE_MS, DAY_MS = 60_000, 86_400_000


def _kill(world: Victim, chance: Random) -> None:
    if world.host is not None:
        world.host.kill()


def _cut_power(world: Victim, chance: Random) -> None:
    if world.host is not None:
        world.host.kill("power cut")


def _strike(world: Victim, chance: Random) -> None:
    """A power cut in the middle of what the broker does with its files."""
    world.disk.strike_after(chance.randrange(30))


def _strike_change(world: Victim, chance: Random) -> None:
    """A power cut soon after a file was made, renamed or deleted, as where a segment begins or goes."""
    world.disk.strike_change(chance.randrange(8))


def _strike_process(world: Victim, chance: Random) -> None:
    """A kill there: half of what was to be written may be, but all of what was written stays."""
    world.disk.write_short(chance.choice((64, 512, 4096)))
    world.disk.strike_after(chance.randrange(60), "killed while it wrote")
    world.schedule.after(2 * SECOND, lambda: world.disk.write_short(None))


def _stop(world: Victim, chance: Random) -> None:
    if world.host is not None:
        world.host.stop()


def _strike_start(world: Victim, chance: Random) -> None:
    """The next start does not come to its end either."""
    (_kill if chance.random() < 0.5 else _cut_power)(world, chance)
    world.disk.strikes_next = chance.randrange(60)


def _kill_while_stopping(world: Victim, chance: Random) -> None:
    host = world.host
    if host is None or not host.is_alive:
        return
    host.stop()
    if chance.random() < 0.5:
        world.disk.strike_after(chance.randrange(20))  # in the middle of its last checkpoint
    else:
        world.schedule.after(int(chance.expovariate(50) * SECOND), partial(_kill_if_alive, host))


def _kill_if_alive(host: Host) -> None:
    if host.is_alive:
        host.kill("killed while it stopped")


def _pause(world: Victim, chance: Random) -> None:
    """The process stands still, as a laptop's does, or one that is swapped out; everybody else goes on."""
    world.schedule.stand_still(some_time_ns(chance, chance.choice((0.1, 3, 20))))


def _jump(world: Victim, chance: Random) -> None:
    """Somebody sets the clock, forward or back."""
    world.clock.jump_wall_ms(int(chance.uniform(-1, 1) * chance.choice((1000, MINUTE_MS, DAY_MS))))


PROCESS_FAULTS: dict[str, Fault] = {
    "kill": _kill,
    "power cut": _cut_power,
    "strike": _strike,
    "strike where files change": _strike_change,
    "strike the process": _strike_process,
    "strike the start": _strike_start,
    "stop": _stop,
    "kill while stopping": _kill_while_stopping,
    "pause": _pause,
    "clock jump": _jump,
}
