"""A restart is rehearsed while the broker works: on a copy of its files, as a kill or a power cut would leave them now.

What the second broker finds is held to the same books as after a real end; the world goes on as if nothing had been.
"""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

from leveret.serving.composition import BuiltBroker, Data, build_broker
from leveret.settings import Configuration

from .books import Books
from .disk import DATA, Disk
from .host import Host
from .ledger import Broken, Ledger
from .loop import SimulatedClock
from .objects import Objects
from .plan import Plan
from .second_lives import SecondLife

#: Of the brokers that start so many go on alone.
GOES_ON = 0.3


class Rehearsed(Protocol):
    """A world, as far as its broker could start again."""

    clock: SimulatedClock
    configuration: Configuration
    disk: Disk
    ledger: Ledger
    objects: Objects
    books: Books
    plan: Plan


class Rehearsals:
    """After some turns, by chance."""

    def __init__(self, world: Rehearsed, chance: Random) -> None:
        self._world = world
        self._chance = chance
        self.count = 0

    def turn_ended(self, host: Host) -> None:
        """Raises: Broken."""
        plan = self._world.plan
        if plan.sites or not plan.rehearsed or self._chance.random() >= plan.rehearsed:
            return
        if self._world.disk.is_troubled or self._world.disk.is_rotten or host.supervisor.recorder.takes_nothing:
            return
        self.count += 1
        goes_on = Random(self._chance.getrandbits(32))  # what it does then changes nothing for later rehearsals
        self._rehearse(
            host, loses_power=self._chance.random() < 0.5 and not self._world.disk.is_undermined, goes_on=goes_on
        )

    def _rehearse(self, host: Host, *, loses_power: bool, goes_on: Random) -> None:
        world, there = self._world, self._world.disk.files
        files = there.power_cut(self._chance) if loses_power else there.crash()
        written_lsn = None if loses_power else host.writer.file.written_lsn
        how = "a power cut" if loses_power else "a kill"
        try:
            built = self._built(files)
            world.ledger.compare_restart(built.broker, written_lsn)
            world.objects.compare_restart(built.broker, written_lsn)
            if not loses_power:
                world.books.compare_restart(built.broker)
            if goes_on.random() < GOES_ON:
                life = SecondLife(built, goes_on, world.ledger.present)
                life.live()
                loses_again = goes_on.random() < 0.5 and '\nfsync = "commit"' in world.plan.configuration
                loses_again = loses_again and not world.disk.will_be_undermined
                life.compare(self._built(files.power_cut(goes_on) if loses_again else files.crash()).broker)
        except Exception as error:
            raise Broken(f"{how} at this moment: {error!r}") from error

    def _built(self, files: Any) -> BuiltBroker:
        return build_broker(self._world.configuration, self._world.clock, self._chance.random, Data(DATA, files=files))
