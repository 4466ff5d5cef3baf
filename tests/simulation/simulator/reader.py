"""Somebody reads the journal beside the broker, as the data pipeline does, and says how far it has come.

While it is registered no record that it needs goes; what it was allowed to see is never taken back. Source: ruling 21.
"""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

from leveret.journal import JournalReader
from leveret.journal.disk.readers import register_reader
from leveret.journal.format.record import Record

from .disk import DATA, Disk
from .ledger import Broken
from .loop import SECOND
from .schedule import Schedule

NAME = "simulated"
#: So many records behind what it has seen it looks at once more.
BEHIND = 20

Seen = tuple[int, int, int]


class Library(Protocol):
    """A world, as far as its journal is read."""

    disk: Disk
    schedule: Schedule
    host: Any  # None between two lives of the broker

    def note(self, text: str) -> None:
        pass


class Reader:
    """Reads now and then; now and then it says how far. `seen`: LSN -> what its record was, of the last ones."""

    def __init__(self, world: Library, every_s: float, chance: Random) -> None:
        self._world = world
        self._every_s = every_s
        self._chance = chance
        self._next_lsn = 0  # from which on it has seen nothing
        self._needs_lsn: int | None = None  # what it said; None: nothing yet
        self._seen: dict[int, Seen] = {}
        self._read_later()

    def _read_later(self) -> None:
        self._world.schedule.after(int(self._chance.expovariate(1 / self._every_s) * SECOND), self._read)

    def _read(self) -> None:
        """Raises: Broken."""
        self._read_later()
        disk = self._world.disk
        if disk.is_rotten or disk.is_troubled or disk.has_lost_files or not disk.segments():
            return
        with disk.looked_at() as files:
            reader = JournalReader(DATA, files)
            if self._needs_lsn is None:
                self._needs_lsn = self._next_lsn = reader.segments()[0]
                register_reader(DATA, NAME, self._needs_lsn, files)
            from_lsn = max(self._needs_lsn, self._next_lsn - BEHIND)
            there = [(lsn, _facts(record)) for lsn, record in reader.records(from_lsn, trust_open=True)]
            self._look(from_lsn, there, sum(1 for _ in reader.records(from_lsn)), self._synced_lsn())
            if self._chance.random() < 0.5:
                self._needs_lsn = self._chance.randint(self._needs_lsn, self._next_lsn)
                register_reader(DATA, NAME, self._needs_lsn, files)
        self._world.note(f"read up to {self._next_lsn}")

    def _synced_lsn(self) -> int | None:
        """What is below a power cut leaves; None: the broker has ended, and the next one may have begun a segment."""
        host = self._world.host
        return None if host is None or host.ended_by else host.supervisor.journal.durable_lsn

    def _look(self, from_lsn: int, found: list[tuple[int, Seen]], trusted: int, synced_lsn: int | None = None) -> None:
        """`found`: all that is there from an LSN on. Of that it may see so many records, all of them synced.

        What it saw is there, also where the block that proves it was lost: then it may see less for a while.
        """
        if (self._next_lsn > from_lsn and not found) or (found and found[0][0] != from_lsn):
            first = found[0][0] if found else None
            raise Broken(f"a reader of the journal needs {from_lsn}, the first that it finds is {first}")
        last = from_lsn + len(found)
        if last < self._next_lsn or [lsn for lsn, _ in found] != list(range(from_lsn, last)):
            raise Broken(f"a reader of the journal saw all up to {self._next_lsn}, and finds up to {last} now")
        if synced_lsn is not None and trusted and from_lsn + trusted > synced_lsn:
            raise Broken(
                f"a reader of the journal may see all up to {from_lsn + trusted}, synced is up to {synced_lsn}"
            )
        self._next_lsn = max(self._next_lsn, from_lsn + trusted)
        for lsn, facts in found:
            if lsn < self._next_lsn and self._seen.setdefault(lsn, facts) != facts:
                raise Broken(f"a reader of the journal saw {self._seen[lsn]} as {lsn}, and sees {facts} now")
        self._seen = {lsn: facts for lsn, facts in self._seen.items() if lsn >= self._next_lsn - BEHIND}


def _facts(record: Record) -> Seen:
    return record.kind, record.queue_id, record.msg_id
