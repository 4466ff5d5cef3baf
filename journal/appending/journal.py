"""The journal of one directory: turns of records in, LSNs out; checkpoints; deletion of old segments.

    journal = Journal.open(path, clock)
    recovered = journal.recovered            # topology, queues and their messages
    ...
    queue = journal.objects.define(QUEUE, vhost, "orders")
    lsn = journal.messages.published(ids, exchange, b"key", framing.columns(contents), queue_ids=[queue])
    journal.messages.enqueued(queue, ids, lsn, sizes)
    end = journal.commit()                   # ends the turn; confirm when on_durable reports `end` or more

Only `open`, `close`, `abandon` and `wait` wait for writes of records. Methods are for one thread, unless they say
otherwise.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from ...engine import Clock
from ..disk.directory import Directory, read_terms
from ..disk.files import DISK_FULL, REAL, Files
from ..disk.options import ClusterJournal, JournalOptions
from ..disk.reserve import Reserve
from ..disk.segment_file import SegmentFile, probe
from ..disk.writer import Writer, WriterState
from ..format.errors import JournalError
from ..recovery.content_reader import ContentReader
from ..recovery.recovery import IDS_SKIPPED, prepare
from ..recovery.replay import Recovered
from .old_segments import OldSegments
from .records import MessageRecords, ObjectRecords
from .turns import Checkpoints, Turns


@dataclass(slots=True, frozen=True)
class JournalStatistics:
    """Figures of a journal at one moment."""

    state: str
    next_lsn: int
    durable_lsn: int
    backlog_bytes: int
    written_bytes: int
    commits: int
    syncs: int
    segments: int
    live: int  # (message, queue) pairs
    names: int
    checkpoint_lsn: int
    sync_seconds: float
    sync_counts: tuple[int, ...]  # syncs by duration, see `SyncTimes.counts`


class Journal:
    """The journal of one directory. `messages`, `objects`, `checkpoints` and `old_segments` append its records."""

    def __init__(
        self,
        directory: Directory,
        clock: Clock,
        options: JournalOptions,
        recovered: Recovered,
        *,
        threaded: bool,
        content_files: Files,
        reserve: Reserve,
        cluster: ClusterJournal | None = None,
    ) -> None:
        self._directory = directory
        self._reserve = reserve
        self.options = options
        self.recovered = recovered
        now_s = time.monotonic if threaded else lambda: clock.monotonic_ns() / 1e9
        self.writer = writer = Writer(SegmentFile(directory, options, recovered.next_lsn, reserve, now_s, cluster))
        self.contents = ContentReader(
            directory.path,
            content_files,
            open_segment=lambda: writer.file.segment,
            unwritten=writer.unwritten,
            ahead=threaded,
        )
        self.turns = turns = Turns(writer, clock, options, directory.journal_id, recovered)
        self.names = turns.names
        self.usage = turns.usage
        self.messages = MessageRecords(turns)
        self.objects = ObjectRecords(turns)
        self.checkpoints = Checkpoints(turns)
        self.old_segments = OldSegments(turns, directory, clock, reserve, self.contents)

    # -- life ---------------------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: str,
        clock: Clock,
        options: JournalOptions | None = None,
        *,
        files: Files = REAL,
        content_files: Files | None = None,
        threaded: bool = True,
        new_id: bytes | None = None,
        cluster: ClusterJournal | None = None,
    ) -> "Journal":
        """Lock the directory, recover, cut a torn tail, begin a new segment.

        `content_files`: for reading contents; None: `files`.
        `threaded=False`: commits happen in `wait` and in the writer's `run_once`, by the broker's clock, and nothing is
        read ahead (for tests and simulations).
        `cluster`: this node leads a cluster. Its directory is locked already, and is unlocked after an error.
        Raises: JournalError: DirectoryLocked, ForeignDirectory, ClusterDirectory, UnknownType or Damaged (nothing was
        changed), or the base class if the term table of a node cannot be read; OSError.
        """
        directory = Directory.open(path, files, new_id=new_id) if cluster is None else cluster.directory
        agreed_lsn = None if cluster is None else cluster.agreed_lsn
        try:
            options = options or JournalOptions()
            assert cluster is None or options.fsync == "commit"
            reserve = Reserve(files, path, options.reserve_size)
            try:
                recovered = prepare(files, path, directory.journal_id, clock.wall_ms(), agreed_lsn=agreed_lsn)
            except OSError as error:
                if error.errno not in DISK_FULL or not reserve.release():
                    raise
                recovered = prepare(files, path, directory.journal_id, clock.wall_ms(), agreed_lsn=agreed_lsn)
            if cluster is not None:
                cls._apply_cluster(cluster, recovered)
            journal = cls(
                directory,
                clock,
                options,
                recovered,
                threaded=threaded,
                content_files=content_files or files,
                reserve=reserve,
                cluster=cluster,
            )
            journal.turns.roll()
            if threaded:
                journal.writer.start()
            journal._wait_for_head()
            return journal
        except BaseException:
            directory.close()
            raise

    @staticmethod
    def _apply_cluster(cluster: ClusterJournal, recovered: Recovered) -> None:
        """Set the agreed LSN and the next message id of a leader after recovery. Raises: JournalError."""
        # A block that calls records durable was written when all nodes in sync had them.
        cluster.agreed_lsn = max(cluster.agreed_lsn, min(recovered.durable_lsn, recovered.next_lsn))
        terms = read_terms(cluster.directory.path, cluster.directory.files)
        assert terms is not None and terms.starts, "a node writes its term before it leads"
        # Each term has its own range of ids, which clients may have seen. Terms without records here count, too: their
        # records may have been cut, or the disks of their leaders had no room for a head.
        headed_lsn = recovered.segments[-1].base_lsn if recovered.segments else 0
        since = terms.terms_since(headed_lsn + 1)
        recovered.next_message_id += IDS_SKIPPED * (since - 1)

    def _wait_for_head(self) -> None:
        """Wait until the new segment's head, with the first message id of this start, is on disk.

        Otherwise two kills in a row could assign an id twice. If the disk is full, the reserve is released for the
        head. If that is not enough, the broker starts nevertheless, and accepts no durable messages.
        """
        if not self.writer.wait(self.next_lsn, on_own_disk=True) and self.state is WriterState.FULL:
            self.writer.retry(spends_reserve=True)
            self.writer.wait(self.next_lsn, on_own_disk=True)

    def record_next_id(self, next_id: int) -> None:
        """Between turns: record that all ids below this one were used, also by messages that are not recorded."""
        self.turns.next_message_id = max(self.turns.next_message_id, next_id)
        self.turns.roll()

    def close(self) -> None:
        """Write the pending jobs, seal, unlock. Raises: JournalFull, JournalFailed (unlocked all the same)."""
        self.commit()
        try:
            self.writer.close()
        finally:
            self.contents.close()
            self._directory.close()

    # -- the leader of a cluster --------------------------------------------------------------------------------------

    @property
    def leads_cluster(self) -> bool:
        """Whether the leader of a cluster has opened this journal."""
        return self.writer.file.cluster is not None

    def agree(self, lsn: int, *, reports: bool = True) -> None:
        """Note that all nodes in sync have fsynced the records below `lsn`. A lower LSN than before changes nothing.

        reports: whether `on_durable` is called.
        """
        self.writer.agree(lsn, reports=reports)

    def stalled_s(self) -> float:
        """Seconds since the writer began its current commit; 0: it is idle, or there is no cluster. For any thread."""
        file = self.writer.file
        since_s = None if file.cluster is None else file.cluster.busy_since_s
        return 0.0 if since_s is None else file.now_s() - since_s

    def probe(self) -> None:
        """When idle: write a small file, so that `stalled_s` shows a disk that hangs."""
        self.writer.add(lambda file: probe(file.path, self._directory.files))

    def may_write(self, *features: str) -> bool:
        """Whether records of these features may be written, see `Turns.may_write`."""
        return self.turns.may_write(frozenset(features))

    def raise_level(self, level: int) -> None:
        """Allow records of features of this level: all nodes of the cluster read it, as etcd says."""
        cluster = self.writer.file.cluster
        assert cluster is not None
        cluster.level = level

    @property
    def needs(self) -> frozenset[str]:
        """Features that a program must know to open its directory."""
        return self._directory.needs

    def abandon(self, timeout_s: float | None = None) -> bool:
        """Close the journal of a node that no longer leads: seal nothing, and drop what is not written yet.

        True: nothing more can be written, and the directory is unlocked. False: a write or fsync has not returned
        within `timeout_s`; call this again.
        """
        if not self.writer.abandon(timeout_s):
            return False
        self.contents.close()
        self._directory.close()
        return True

    # -- turns --------------------------------------------------------------------------------------------------------

    def commit(self) -> int:
        """End the turn, see `Turns`. Returns the LSN after it."""
        return self.turns.commit()

    @property
    def next_lsn(self) -> int:
        """LSN of the next record."""
        return self.turns.next_lsn

    @property
    def next_message_id(self) -> int:
        """Greater than the id of every recorded message."""
        return self.turns.next_message_id

    # -- state --------------------------------------------------------------------------------------------------------

    def wait(self, lsn: int, timeout_s: float | None = None) -> bool:
        """Block until all records below `lsn` are committed (for start, shutdown, tests). False: timeout or failure."""
        return self.writer.wait(lsn, timeout_s)

    def retry(self) -> None:
        """After JournalFull: try to write again."""
        self.writer.retry()

    def spend_reserve(self) -> None:
        """After JournalFull, between turns: release the reserve, and write to a new segment."""
        self.begin_segment()
        self.writer.retry(spends_reserve=True)

    def begin_segment(self) -> None:
        """Between turns: put later records, such as the next checkpoint, into a new segment."""
        self.turns.roll()

    def refill_reserve(self) -> None:
        """Fill the reserve again as soon as the disk has room for it."""
        self.writer.add(lambda file: file.reserve.fill())

    @property
    def has_spent_reserve(self) -> bool:
        """Whether the reserve was released and could not be filled again."""
        return self._reserve.is_spent

    def tick(self) -> None:
        """Between turns, when idle: append a block that tells readers that the last records are durable."""
        self.writer.add(SegmentFile.tick)

    def set_callbacks(self, on_durable: Callable[[int], object], on_failure: Callable[[JournalError], object]) -> None:
        """Set the functions that the writer calls, see `Writer`."""
        self.writer.on_durable, self.writer.on_failure = on_durable, on_failure

    @property
    def state(self) -> WriterState:
        """RUNNING, FULL, FAILED or CLOSED."""
        return self.writer.state

    @property
    def failure(self) -> JournalError | None:
        """The error that stopped the journal; None: it is running, or was closed without an error."""
        return self.writer.error

    @property
    def committed_lsn(self) -> int:
        """All records below it are as safe as the mode promises; in a cluster, they are agreed."""
        return self.writer.file.committed_lsn

    @property
    def trusted_lsn(self) -> int:
        """All records below it are fsynced; in a cluster, on all nodes that are in sync."""
        return self.writer.file.trusted_lsn

    @property
    def durable_lsn(self) -> int:
        """All records below it are fsynced on this node."""
        return self.writer.file.durable_lsn

    @property
    def backlog_bytes(self) -> int:
        """Octets appended and not yet written. Publishers are throttled when there are many."""
        return self.writer.backlog_bytes

    @property
    def path(self) -> str:
        return self._directory.path

    @property
    def is_there(self) -> bool:
        """Whether the journal's directory still exists. Reads the disk."""
        return self._directory.is_there

    def statistics(self) -> JournalStatistics:
        """The journal's figures now. O(segments)."""
        writer = self.writer
        return JournalStatistics(
            state=writer.state.name.lower(),
            next_lsn=self.next_lsn,
            durable_lsn=writer.file.durable_lsn,
            backlog_bytes=writer.backlog_bytes,
            written_bytes=writer.file.written_bytes,
            commits=writer.commit_count,
            syncs=writer.file.sync_count,
            segments=len(self.usage.segments),
            live=sum(row.live for row in self.usage.segments),
            names=len(self.names),
            checkpoint_lsn=self.turns.checkpoint[0],
            sync_seconds=writer.file.sync_times.seconds,
            sync_counts=tuple(writer.file.sync_times.counts),
        )
