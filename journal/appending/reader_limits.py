"""Limits of age and octets for the segments that are kept for readers. A reader beyond a limit is dropped.

A dropped reader that comes back finds a note; the records that it needs may be deleted by then. No reader is dropped
for the age of its segments without a warning at least a day before.
"""

import logging
from dataclasses import dataclass

from ...engine import Clock
from ..disk.directory import Directory
from ..disk.files import DISK_FULL
from ..disk.options import JournalOptions
from ..disk.readers import NODE_PREFIX, DroppedReader, drop_reader, note_warned, reader_offsets, warned_since_ms
from .segment_usage import SegmentUsage

logger = logging.getLogger("leveret.journal")

#: Percent of a limit above which a warning is due.
WARNING_PERCENT = 80
DAY_MS = 86_400_000
#: The least time between the warning that a reader's segments are old and the drop of the reader.
NOTICE_MS = DAY_MS


@dataclass(slots=True, frozen=True)
class KeptForReader:
    """Segments that are kept for one reader alone: their octets, and the time since the end of the oldest."""

    size: int = 0
    age_ms: int = 0


class ReaderLimits:
    """The limits of one journal's readers.

    `kept`: name of a reader -> what was kept for it alone at the last `enforce`. `dropped`: the number of readers that
    were dropped since the start.

    Nodes of a cluster have no limit: a full copy needs all segments. A node's reader is deleted when its link ends.
    """

    def __init__(self, directory: Directory, options: JournalOptions, clock: Clock) -> None:
        self._files = directory.files
        self._path = directory.path
        self._has_nodes = directory.is_of_cluster
        self._options = options
        self._clock = clock
        self._warned: set[tuple[str, int]] = set()
        self.kept: dict[str, KeptForReader] = {}
        self.dropped = 0

    def enforce(self, usage: SegmentUsage, checkpoint_begin: int, keep_us: int | None) -> None:
        """Warn of readers near a limit, and drop those beyond it. `keep_us`: see `SegmentUsage.removable`.

        Raises: JournalError (a reader's file cannot be understood), OSError.
        """
        now_ms, options = self._clock.wall_ms(), self._options
        unneeded = usage.removable(checkpoint_begin, None, keep_us)
        self.kept = {}
        for name, lsn in reader_offsets(self._path, self._files).items():
            size, ended_us = usage.kept_for(lsn, unneeded)
            kept = KeptForReader(size, max(0, now_ms - ended_us // 1000) if size else 0)
            self.kept[name] = kept
            if self._has_nodes and name.startswith(NODE_PREFIX):
                continue
            is_large = 0 < options.reader_size < kept.size
            is_old = 0 < options.reader_age_ms < kept.age_ms
            if is_large or (is_old and self._is_warned_in_time(name, lsn, now_ms)):
                self._drop(name, lsn, kept, now_ms)
            elif is_old or self._is_near(kept):
                self._warn(name, lsn, kept, now_ms)

    def _is_warned_in_time(self, name: str, lsn: int, now_ms: int) -> bool:
        since_ms = warned_since_ms(self._path, name, lsn, self._files)
        return since_ms is not None and now_ms - since_ms >= NOTICE_MS

    def _is_near(self, kept: KeptForReader) -> bool:
        limits = ((kept.size, self._options.reader_size), (kept.age_ms, self._options.reader_age_ms))
        return any(limit and 100 * now > WARNING_PERCENT * limit for now, limit in limits)

    def _warn(self, name: str, lsn: int, kept: KeptForReader, now_ms: int) -> None:
        """Warn once while the reader needs the same record. The note is written when there is room for it."""
        if (name, lsn) not in self._warned:
            self._warned.add((name, lsn))
            logger.warning(
                "reader %s: %s are kept for it alone. It is dropped %s. `leveret pipeline readers --journal %s` shows"
                " all readers, and deletes one with --drop NAME",
                name, _words(kept), self._limits(), self._path,
            )  # fmt: skip
        if warned_since_ms(self._path, name, lsn, self._files) is None:
            try:
                note_warned(self._path, name, lsn, now_ms, self._files)
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise

    def _limits(self) -> str:
        options = self._options
        limits = [f"beyond {options.reader_size} octets ([journal] reader-size)"] * bool(options.reader_size)
        limits += [f"after {_days(options.reader_age_ms)} ([journal] reader-age)"] * bool(options.reader_age_ms)
        return " or ".join(limits)

    def _drop(self, name: str, lsn: int, kept: KeptForReader, now_ms: int) -> None:
        drop_reader(self._path, name, DroppedReader(lsn, now_ms, _words(kept)), self._files)
        self.dropped += 1
        del self.kept[name]
        logger.warning("reader %s is dropped at record %d: %s were kept for it alone", name, lsn, _words(kept))


def _words(kept: KeptForReader) -> str:
    return f"{kept.size} octets (the oldest {_days(kept.age_ms)} old)"


def _days(ms: int) -> str:
    """Whole days, or below three days a decimal place more."""
    return f"{ms // DAY_MS} days" if ms >= 3 * DAY_MS else f"{ms / DAY_MS:.1f} days"
