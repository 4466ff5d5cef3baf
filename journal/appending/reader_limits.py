"""Limits of age and octets for the segments that are kept for readers. A reader beyond a limit is dropped.

A dropped reader learns of it when it comes back, by a note in its place (`readers/NAME.dropped`); the records that it
needs may be gone then.
Before the limit of age a warning is logged, and noted (`readers/NAME.warned`), so that none is dropped without one.
"""

import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass

from ...engine import Clock
from ..disk.directory import DROPPED, OF_NODE, READERS, WARNED, Directory, forget_reader, reader_offsets
from ..disk.files import read_file, replace_file
from ..disk.options import JournalOptions
from .ledger import Ledger

logger = logging.getLogger("leveret.journal")

#: Share of a limit from which on a warning is due, in percent.
WARNED_AT = 80
#: Time from the warning of a reader's age until it is dropped, at least.
NOTICE_MS = 86_400_000
DAY_MS = 86_400_000


@dataclass(slots=True, frozen=True)
class Kept:
    """What is kept for a reader alone, which the broker does not need: octets, and how long ago the oldest ended."""

    size: int = 0
    age_ms: int = 0


class ReaderLimits:
    """The readers of one journal. `kept`: by reader, as of the last look; `dropped`: how many were, since the start.

    Those of a cluster's nodes have no limit: a node that makes a full copy needs all of it, and its link ends in time.
    """

    def __init__(self, directory: Directory, options: JournalOptions, clock: Clock) -> None:
        self._files = directory.files
        self._path = directory.path
        self._has_nodes = directory.is_of_cluster
        self._options = options
        self._clock = clock
        self._has_warned: set[tuple[str, int]] = set()
        self.kept: dict[str, Kept] = {}
        self.dropped = 0

    def enforce(self, ledger: Ledger, checkpoint_begin: int, keep_us: int | None) -> None:
        """Warn of readers that come near a limit, and drop those beyond it. `keep_us`: see `Ledger.removable`.

        Raises: JournalError (a reader's file cannot be understood), OSError.
        """
        now_ms, options = self._clock.wall_ms(), self._options
        unneeded = ledger.removable(checkpoint_begin, None, keep_us)
        self.kept = {}
        for name, lsn in reader_offsets(self._path, self._files).items():
            size, ended_us = ledger.kept_for(lsn, unneeded)
            kept = Kept(size, max(0, now_ms - ended_us // 1000) if size else 0)
            self.kept[name] = kept
            if self._has_nodes and name.startswith(OF_NODE):
                continue
            is_large = 0 < options.reader_size < kept.size
            is_old = 0 < options.reader_age_ms < kept.age_ms
            if is_large or (is_old and self._notice_ms(name, lsn, now_ms) >= NOTICE_MS):
                self._drop(name, lsn, kept, now_ms)
            elif is_old or self._is_near(kept):
                self._warn(name, lsn, kept, now_ms)

    def _is_near(self, kept: Kept) -> bool:
        limits = ((kept.size, self._options.reader_size), (kept.age_ms, self._options.reader_age_ms))
        return any(limit and 100 * now > WARNED_AT * limit for now, limit in limits)

    def _warn(self, name: str, lsn: int, kept: Kept, now_ms: int) -> None:
        """Once for each place at which the reader stays."""
        if (name, lsn) in self._has_warned:
            return
        self._has_warned.add((name, lsn))
        logger.warning(
            "reader %s: %s, are kept for it alone, and it is dropped %s; `leveret pipeline readers --journal %s` shows"
            " all, with --drop NAME one goes",
            name, _words(kept), self._limits(), self._path,
        )  # fmt: skip
        if not self._notice_ms(name, lsn, now_ms):
            self._note(f"{name}{WARNED}", {"lsn": lsn, "at_ms": now_ms})

    def _limits(self) -> str:
        options = self._options
        said = [f"beyond {options.reader_size} octets ([journal] reader-size)"] * bool(options.reader_size)
        said += [f"after {options.reader_age_ms // DAY_MS} days ([journal] reader-age)"] * bool(options.reader_age_ms)
        return " or ".join(said)

    def _drop(self, name: str, lsn: int, kept: Kept, now_ms: int) -> None:
        forget_reader(self._path, name, self._files)
        with suppress(OSError):  # without the note it learns less; on a full disk there is no room for it
            self._note(f"{name}{DROPPED}", {"lsn": lsn, "at_ms": now_ms, "why": _words(kept)})
        self.dropped += 1
        del self.kept[name]
        logger.warning("reader %s is dropped at record %d: %s, were kept for it alone", name, lsn, _words(kept))

    def _notice_ms(self, name: str, lsn: int, now_ms: int) -> int:
        """For how long it has been warned, at this place of its."""
        path = os.path.join(self._path, READERS)
        if f"{name}{WARNED}" not in self._files.names(path):
            return 0
        try:
            said = json.loads(read_file(self._files, os.path.join(path, f"{name}{WARNED}")))
            return max(1, now_ms - int(said["at_ms"])) if said["lsn"] == lsn else 0
        except (ValueError, KeyError, TypeError):
            return 0

    def _note(self, name: str, said: dict[str, object]) -> None:
        replace_file(self._files, os.path.join(self._path, READERS), name, json.dumps(said).encode() + b"\n")


def _words(kept: Kept) -> str:
    return f"{kept.size} octets, the oldest of them {kept.age_ms // DAY_MS} days old"
