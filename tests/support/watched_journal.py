"""A journal on simulated files whose thread is watched: when it sleeps, and what it says to be safe."""

import threading
from collections.abc import Callable
from typing import Any

from journal_workload import Driver
from simulated_files import SimulatedFiles

from leveret.journal import Journal, JournalError

#: A thread that has not done by then what it was woken for sleeps on.
SECONDS_MAX = 60


class WatchedJournal:
    """One queue with three messages. `told`: LSNs that were said to be safe; `sleeps`: times its thread fell asleep."""

    def __init__(self, files: SimulatedFiles, journal: Journal) -> None:
        self.files, self.journal = files, journal
        self.changed = threading.Condition()
        self.sleeps = 0
        self.told: list[int] = []
        self.errors: list[JournalError] = []
        self.driver = Driver(journal)
        self.driver.declare("a")
        self.driver.publish([b"1", b"2", b"3"], "a")
        assert journal.wait(journal.commit(), SECONDS_MAX)

    def watch(self) -> None:
        """From now on."""
        self.journal.set_callbacks(self.durable, self._failed)
        work: Any = self.journal.writer._work
        wait = work.wait

        def sleep(timeout_s: float | None) -> bool:
            with self.changed:
                self.sleeps += 1
                self.changed.notify_all()
            return bool(wait(timeout_s))

        work.wait = sleep

    def durable(self, lsn: int) -> None:
        """The journal says that records are safe."""
        with self.changed:
            self.told.append(lsn)
            self.changed.notify_all()

    def _failed(self, error: JournalError) -> None:
        with self.changed:
            self.errors.append(error)
            self.changed.notify_all()

    def until(self, is_so: Callable[[], bool]) -> bool:
        """Whether that comes, without anything else being done."""
        with self.changed:
            return self.changed.wait_for(is_so, SECONDS_MAX)

    def publish(self, size: int = 1) -> int:
        """A turn that somebody waits for. Returns the LSN after it."""
        self.driver.publish([b"x" * size], "a")
        return self.journal.commit()

    def acknowledge(self) -> int:
        """A turn that nobody waits for."""
        self.driver.settle("a", sorted(self.driver.model["a"])[:1])
        return self.journal.commit()
