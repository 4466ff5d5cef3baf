"""The disk of the simulated broker: files in memory that are slow, fail, fill up, rot, and lose what was not synced."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from simulated_files import SimulatedFiles

from .ledger import Broken
from .loop import now_ns

MS = 1_000_000
DATA = "data"
#: How much longer a commit takes on a slow disk.
SLOWNESS = 1000
#: A record is written so much later at most, unless a commit was slow.
WRITTEN_LATE_NS = 10 * MS


class Struck(BaseException):
    """The process is gone, in the middle of something."""


@dataclass(slots=True, eq=False)
class Trouble:
    """These operations fail, now and then. `where`: the end of a path."""

    operations: frozenset[str]
    errno: int
    odds: float
    where: str = ""


class Disk:
    """What outlives a broker. `files`: what the next one finds; `strike`: see `strike_after`."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.latency_ns = 2 * MS  # of a commit, on average
        self.slow_until_ns = 0  # until then commits take much longer
        self._late_until_ns = 0  # until then records may be written that came long before: while a slow commit lasted
        self.fault: Callable[[str, str], object] | None = None  # raises OSError; asked before each operation
        self.strike: Callable[[], object] = lambda: None
        self.strike_as = "struck"  # what is said of a broker that was hit
        self.struck_before = ""  # which operation, of which kind of file
        self.strikes_next: int | None = None  # the process that starts next is hit before so many operations
        self.operations = 0
        self.troubles: list[Trouble] = []
        self._operations_left: int | None = None
        self._left_after_change: int | None = None
        self._capacity: int | None = None
        self.has_been_full = False  # in this life of the broker: its refusals may still be on their way
        self._write_max: int | None = None
        self._deleted: list[tuple[str, Any]] = []
        self._rotten: list[tuple[str, int, int]] = []  # path, offset, what to add to the octet to have the old one
        self.has_lost_power = False  # since somebody looked
        self.has_failed = False  # since `begin`
        self._has_failed_sync = False
        #: An fsync failed in an earlier life: some octets are in no place but the system's cache, which no start can
        #: know (journal-format.md). A power cut would damage the journal for good.
        self.is_undermined = False
        self.retain_ns = 0  # how long segments are kept that nobody needs
        self._written_ns: dict[str, int] = {}  # each file last, in this life
        self.files = self._watched(SimulatedFiles())

    def _watched(self, files: SimulatedFiles) -> SimulatedFiles:
        files.fault = self._asked
        files.keeps_log = False
        files.capacity, files.write_max = self._capacity, self._write_max
        self._operations_left = self._left_after_change = None
        return files

    def _asked(self, operation: str, path: str) -> None:
        self.operations += 1
        if self._operations_left is not None:
            self._operations_left -= 1
            if self._operations_left < 0:
                self.struck_before = f"{operation} of {os.path.splitext(path)[1] or 'another file'}"
                self.strike()
                raise Struck
        elif self._left_after_change is not None and self._changes_names(operation, path):
            self.strike_after(self._left_after_change)
            self._left_after_change = None
        for trouble in self.troubles:
            if (
                operation in trouble.operations
                and path.endswith(trouble.where)
                and self._chance.random() < trouble.odds
            ):
                self.has_failed = True
                self._has_failed_sync = self._has_failed_sync or operation == "sync"
                raise OSError(trouble.errno, os.strerror(trouble.errno), path)
        if operation == "write":
            self._written_ns[path] = now_ns()
        elif operation == "unlink":  # what the broker deletes itself nobody puts back
            self._deleted = [one for one in self._deleted if one[0] != path]
            self._check_retained(path)
        if self.fault is not None:
            self.fault(operation, path)

    def _check_retained(self, path: str) -> None:
        """A segment ends with its last record, in this life or in one before. Raises: Broken."""
        written_ns = self._written_ns.get(path, -self.retain_ns)
        age_ns = now_ns() - written_ns
        recorded_ns = WRITTEN_LATE_NS if written_ns >= self._late_until_ns else self.retain_ns
        if path.endswith(".log") and age_ns + recorded_ns < self.retain_ns and not self.is_troubled:
            raise Broken(f"{path} was deleted {age_ns / MS} ms after its end, to be were {self.retain_ns / MS}")

    # -- lives --------------------------------------------------------------------------------------------------------

    @property
    def will_be_undermined(self) -> bool:
        """Whether the disk is undermined for the life after this one."""
        return self.is_undermined or self._has_failed_sync

    def begin(self) -> None:
        """A process starts."""
        self._operations_left, self.strikes_next = self.strikes_next, None
        self.has_failed = bool(self._rotten)
        self.is_undermined = self.will_be_undermined
        self._written_ns.clear()

    def started(self) -> None:
        """It has sealed what the process before left: when that ended nobody here knows."""
        self._written_ns.clear()

    def strike_after(self, operations: int, how: str = "struck") -> None:
        """The broker is hit before the operation after so many: `strike` is called, and `Struck` raised."""
        self._operations_left, self.strike_as = operations, how

    def strike_change(self, operations: int) -> None:
        """As `strike_after`, from the next file on that is made, renamed or deleted."""
        self._left_after_change = operations

    def _changes_names(self, operation: str, path: str) -> bool:
        return operation in ("rename", "unlink") or operation == "open" and path not in self.files.names_now

    def cut_power(self) -> None:
        """What was not synced is lost, in whole or in part. Of a disk that is undermined only the process is lost."""
        if self.is_undermined:
            self.lose_process()
            return
        self.put_back()
        self.has_lost_power = True
        self.has_been_full = False
        self.files = self._watched(self.files.power_cut(self._chance))

    def lose_process(self) -> None:
        """The process was killed: what it wrote is there."""
        self.put_back()
        self.has_been_full = False
        self.files = self._watched(self.files.crash())

    # -- what it is like ----------------------------------------------------------------------------------------------

    def commit_ns(self, now_ns: int) -> int:
        """How long the commit takes that begins now. The one after it writes what came meanwhile."""
        is_slow = now_ns < self.slow_until_ns
        took_ns = int(self.latency_ns * (SLOWNESS if is_slow else 1) * (0.2 + 1.6 * self._chance.random()))
        if is_slow:
            self._late_until_ns = now_ns + took_ns + WRITTEN_LATE_NS
        return took_ns

    @property
    def is_troubled(self) -> bool:
        """Whether the broker may have refused to start, or stopped by itself, because of it."""
        return self.has_failed or self._capacity is not None

    @property
    def is_full(self) -> bool:
        """Whether there is room for some octets only, or for none."""
        return self._capacity is not None

    @property
    def is_rotten(self) -> bool:
        """Whether an octet is not what it was."""
        return bool(self._rotten)

    @property
    def has_lost_files(self) -> bool:
        """Whether somebody has deleted one, which is not back yet."""
        return bool(self._deleted)

    def limit(self, room: int | None) -> None:
        """So many more octets fit; None: as many as you like. Room that segments have ahead is no room for others."""
        self.has_been_full = True
        used = sum(
            len(file.now.data) if path.endswith(".log") else file.size for path, file in self.files.names_now.items()
        )
        self._capacity = self.files.capacity = None if room is None else used + room

    @property
    def size(self) -> int:
        """Octets of all files."""
        return sum(file.size for file in self.files.names_now.values())

    def write_short(self, octets: int | None) -> None:
        """A write takes so many at most; None: all."""
        self._write_max = self.files.write_max = octets

    # -- damage -------------------------------------------------------------------------------------------------------

    @contextmanager
    def looked_at(self) -> Iterator[SimulatedFiles]:
        """By somebody who has no trouble with it."""
        self.files.fault = lambda operation, path: None
        try:
            yield self.files
        finally:
            self.files.fault = self._asked

    def segments(self) -> list[str]:
        """Paths, oldest first."""
        return sorted(path for path in self.files.names_now if path.endswith(".log"))

    def rot(self, chance: Random) -> str | None:
        """An octet of a sealed segment is not what it was. Between lives only. Returns the path; None: none is."""
        sealed = self.segments()[:-1]
        if not sealed:
            return None
        path = chance.choice(sealed)
        file = self.files.names_now[path]
        offset, change = chance.randrange(len(file.now.data)), chance.randrange(1, 256)
        _change(file, offset, change)
        self._rotten.append((path, offset, 256 - change))
        return path

    def delete(self, path: str) -> None:
        """Somebody deletes a file beneath the broker."""
        self._deleted.append((path, self.files.lose(path)))
        self.has_failed = True

    def put_back(self) -> None:
        """And has a copy, which is older than a file that the broker has made under that name since."""
        for path, file in self._deleted:
            if path not in self.files.names_now:
                self.files.names_now[path] = self.files.names_durable[path] = file
        self._deleted.clear()

    def repair(self) -> None:
        """Damage is made good, where it still matters."""
        self.put_back()
        for path, offset, change in self._rotten:
            file = self.files.names_now.get(path)
            if file is not None:
                _change(file, offset, change)
        self._rotten.clear()


def _change(file: Any, offset: int, change: int) -> None:
    for data in (file.now.data, file.durable.data):
        if offset < len(data):
            data[offset] = (data[offset] + change) % 256
