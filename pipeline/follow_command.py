"""The command `follow`: ingests the journals of running brokers in rounds, until it is interrupted.

A round ingests each journal that has grown; each row comes once, also after kills. Small files are compacted meanwhile,
and with --retain old days are dropped once a day. A journal that cannot be read does not delay the others; it is tried
again in later rounds, less often after each failure, unless only the lake was busy. A directory or a list of journals
is read again in each round.
"""

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..journal import JournalError
from ..journal.disk.directory import find_journal
from ..journal.disk.segment import path_of, segments_in
from .error_texts import error_text, lost_cluster_text
from .ingest_command import choose_sources, ingest_one, progress_of, runs_on_this_machine
from .lake import retention
from .lake.lake import LakeBusy, is_lake
from .lazy_engines import LazyEngines
from .progress import say
from .reading.arrow_files import locate

if TYPE_CHECKING:
    from .lake.ingest_sources import IngestSource

#: Errors that may not recur in the next round.
TEMPORARY = (JournalError, LakeBusy, OSError, ValueError)
Mark = tuple[str, int, int]
#: The longest time until an unreadable journal is tried again. Each failure doubles the time.
RETRY_MAX_S = 300


class JournalFollower:
    """Runs the rounds. `options`: of the command. `wait`: called between two rounds; by default sleeps for --every."""

    def __init__(
        self, engines: LazyEngines, options: argparse.Namespace, wait: Callable[[], object] | None = None
    ) -> None:
        self._engines, self._options = engines, options
        self._wait = wait or (lambda: time.sleep(options.every))
        self._read: dict[str, list[Mark | None]] = {}  # journal -> the marks of its copies before it was last read
        self._searched: dict[Any, Any] = {}  # see `fill_holes`
        self._failures: Counter[str] = Counter()  # journal -> consecutive failures
        self._due: dict[str, int] = {}  # journal -> the round of the next attempt
        self._last_texts: dict[str, str] = {}  # subject -> the last sentence about it
        self._retained: object = None  # the day of the last retention
        self._rounds = 0
        self._rows: Counter[str] = Counter()

    def follow(self) -> dict[str, Any]:
        """Do rounds until an interrupt. Returns the number of rounds, and rows by table."""
        try:
            while True:
                self.round()
                self._wait()
        except KeyboardInterrupt:
            return {"lake": self._options.lake, "rounds": self._rounds, "rows": dict(self._rows)}

    def round(self) -> None:
        """Bring the lake up to date. Temporary errors are reported, unless Spark's cluster is lost.

        Raises: other exceptions of Spark; all when its cluster is lost.
        """
        self._rounds += 1
        try:
            choose_sources(self._options)
        except TEMPORARY as error:
            self._fail("journals", error)
            return
        self._tell("journals", "; ".join(self._options.problems))
        for source in self._options.sources:
            if self._rounds < self._due.get(source.journal_id, 0):
                continue
            try:
                self._ingest(source)
            except TEMPORARY as error:
                self._fail(source.journal_id, error, f"node {source.name}: " if source.name else "")
                if not isinstance(error, LakeBusy):
                    self._delay_retry(source.journal_id)
            else:
                self._tell(source.journal_id, "")
                del self._failures[source.journal_id]
        try:
            self._retain()
        except TEMPORARY as error:
            self._fail("retention", error)
        else:
            self._tell("retention", "")

    def _delay_retry(self, journal: str) -> None:
        """Delay the next attempt, longer after each failure: a failed attempt may leave files on a full disk."""
        self._failures[journal] += 1
        longest = max(1, int(RETRY_MAX_S / self._options.every))
        self._due[journal] = self._rounds + min(2 ** (self._failures[journal] - 1), longest)

    def _ingest(self, source: "IngestSource") -> None:
        """Ingest a journal if it has grown. Raises: as `ingest`."""
        marks = [_mark(place) for place in source.copies]
        if None not in marks and marks == self._read.get(source.journal_id):
            return
        options = self._options
        result = ingest_one(self._engines, options, options.payloads, source, self._searched)
        lost = result.get("copies", {})
        self._tell(f"{source.journal_id}, copies", "; ".join(f"{at} fills no holes: {why}" for at, why in lost.items()))
        self._read[source.journal_id] = marks
        self._rows.update(result["rows"])
        rows = {table: count for table, count in result["rows"].items() if count}
        if rows:
            with progress_of(self._options) as progress:
                node = {"node": source.name} if source.name else {}
                progress.say("read", **node, lsn=result["lsn"], took=result["seconds"], **rows)

    def _retain(self) -> None:
        """Drop old days, once on each UTC day. Raises: LakeBusy, ValueError, OSError."""
        today, lake = retention.today(), self._options.lake
        if self._options.retain is None or self._retained == today or not is_lake(lake):
            return
        with progress_of(self._options) as progress:
            retention.retain_after_ingest(lake, self._options.retain, progress)
        self._retained = today

    def _fail(self, what: str, error: Exception, where: str = "") -> None:
        """Report a failure. Raises: the error, if Spark's cluster is lost: the session cannot recover."""
        if not runs_on_this_machine(self._options) and lost_cluster_text(error, self._options.master):
            raise error
        self._tell(what, f"{where}{error_text(error)}")

    def _tell(self, what: str, text: str) -> None:
        """Report a sentence about a subject, unless it was the last one about it. "": nothing is wrong now."""
        if text and self._last_texts.get(what) != text:
            say("follow", text)
        self._last_texts[what] = text


def _mark(place: str) -> Mark | None:
    """The path, size and time of the newest segment, which change when a journal grows. None: unknown."""
    if "://" in place:
        return None
    try:
        files, path = locate(place)
        directory = find_journal(path, files)
        bases = segments_in(files, directory)
        if not bases:
            return None
        newest = path_of(directory, bases[-1])
        about = os.stat(newest)
    except (JournalError, OSError):
        return None  # the ingest reports it
    return newest, about.st_size, about.st_mtime_ns
