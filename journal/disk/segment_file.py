"""The open segment: its file, the jobs of the writer, and the LSNs up to which it is written and synced.

The broker's thread makes jobs. One commit at a time calls the methods of `SegmentFile`; any thread may read LSNs.
Source: docs/journal-format.md, "The crash model".
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..format.block import HAS_ALL, HEADER, IS_HEAD, MODES, Block, BlockBuilder, Header, encode_block
from ..format.errors import DirectoryLost
from .directory import PROBE, Directory
from .files import DIRECTORY_GONE, DISK_FULL, OUT_OF_RESOURCES, Files, Preallocation, SyncError, sync_file, write_all
from .kernel_sync import KernelSync
from .options import ClusterJournal, JournalOptions
from .reserve import Reserve
from .segment import SegmentSummary, path_of

#: Upper bounds of the buckets of `SyncTimes`, in seconds.
SYNC_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


@dataclass(slots=True)
class Roll:
    """A job: seal the open segment, and begin another with the block `head`. `checkpoint`: LSNs of begin and end."""

    ts_us: int
    head: BlockBuilder
    checkpoint: tuple[int, int]

    @property
    def size(self) -> int:
        """Octets of the head."""
        return self.head.size


#: A job of the writer: a block to write, a roll, or a function to call.
Job = BlockBuilder | Roll | Callable[["SegmentFile"], object]


class SyncTimes:
    """A histogram of sync times. `counts`: syncs for each bound, and above the last one; `seconds`: the sum of all."""

    def __init__(self) -> None:
        self.counts = [0] * (len(SYNC_SECONDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(SYNC_SECONDS, seconds)] += 1
        self.seconds += seconds


class SegmentFile:
    """Writes and syncs the open segment. Records below `written_lsn` can be read, below `durable_lsn` are fsynced.

    `segment`: None before the first roll. `cluster`: set if the broker leads a cluster; None: it is in no cluster.
    """

    def __init__(
        self,
        directory: Directory,
        options: JournalOptions,
        next_lsn: int,
        reserve: Reserve,
        now_s: Callable[[], float],
        cluster: ClusterJournal | None = None,
    ) -> None:
        self.path = directory.path
        self.flags = MODES.index(options.fsync) | (HAS_ALL if options.scope == "all" else 0)
        self.segment: SegmentSummary | None = None
        self.written_lsn = self.durable_lsn = next_lsn
        self.written_bytes = 0
        self.undeleted: list[int] = []  # segments that are not needed, and whose deletion failed
        self.sync_count = 0
        self.sync_times = SyncTimes()
        self.reserve = reserve
        self.cluster = cluster
        self._directory = directory
        self._files = directory.files
        self._mode = options.fsync
        self.syncs_each_commit = options.fsync == "commit" and cluster is None
        self._interval_s = options.fsync_interval_ms / 1000
        self._room = Preallocation(self._files, options.preallocate_size)
        self.now_s = now_s
        self._sync_began_s = self._last_sync_s = 0.0
        self._handle = -1
        self._reports_links = True

    @property
    def committed_lsn(self) -> int:
        """All records below it are as safe as promised: agreed in a cluster, else fsynced (mode commit) or written."""
        if self.syncs_each_commit:
            return self.durable_lsn
        return self.written_lsn if self.cluster is None else self.cluster.agreed_lsn

    @property
    def trusted_lsn(self) -> int:
        """Readers and recovery may count on all records below it: they are fsynced and, in a cluster, agreed."""
        return self._trusted(self.durable_lsn)

    def _trusted(self, fsynced_lsn: int) -> int:
        return fsynced_lsn if self.cluster is None else min(fsynced_lsn, self.cluster.agreed_lsn)

    def wants_sync(self) -> bool:
        """Whether the mode requires a sync now."""
        if self.durable_lsn == self.written_lsn or self._mode == "never":
            return False
        return self._mode == "commit" or self.now_s() - self._last_sync_s >= self._interval_s

    def until_sync_s(self) -> float | None:
        """Seconds until the mode `interval` requires a sync; None: another mode, or all records are synced."""
        if self._mode != "interval" or self.durable_lsn == self.written_lsn:
            return None
        return max(self._last_sync_s + self._interval_s - self.now_s(), 0)

    def do(self, job: Job) -> None:
        """Do one job. Raises: OSError (it can be repeated), SyncError or DirectoryLost (it cannot)."""
        if isinstance(job, BlockBuilder):
            if job.needs:
                self._add_needs(job.needs)
            self.write(job.encode(self.flags, self._trusted(self.durable_lsn)))
        elif isinstance(job, Roll):
            self._add_needs(job.head.needs)
            self.roll(job)
        else:
            job(self)

    def _add_needs(self, needs: frozenset[str]) -> None:
        directory = self._directory
        known = directory.needs
        directory.add_needs(needs)
        if self.cluster is not None and directory.needs != known:
            self.cluster.on_needs(directory.needs)

    def _sync_directory(self) -> None:
        """Raises: SyncError; OSError if the directory is gone or cannot be opened for lack of descriptors or memory."""
        try:
            self._files.sync_directory(self.path)
        except OSError as error:
            if error.errno in OUT_OF_RESOURCES or error.errno in DIRECTORY_GONE:
                raise
            raise SyncError(error.errno, f"fsync: {error.strerror}") from error

    def write(self, data: bytearray) -> None:
        """Append a block. Raises: OSError."""
        segment = self.segment
        assert segment is not None
        self._room.reserve(self._handle, segment.size + len(data))
        write_all(self._files, self._handle, data, segment.size)
        block = as_block(data, segment.size)
        segment.add(block)
        self.written_bytes += len(data)
        self.written_lsn = block.end_lsn
        if self.cluster is not None:
            self.cluster.on_written(segment.base_lsn, block.offset, data, block.end_lsn)

    def sync(self) -> None:
        """Fsync the written blocks. Raises: SyncError, DirectoryLost."""
        self._sync_began_s = self.now_s()
        sync_file(self._files, self._handle)
        self._synced()

    def begin_sync(self, kernel_sync: KernelSync) -> None:
        """Begin to fsync the written blocks. The file must not be used until `end_sync` is true. Raises: OSError."""
        self._sync_began_s = self.now_s()
        kernel_sync.begin(self._handle)

    def end_sync(self, kernel_sync: KernelSync, *, waits: bool = False) -> bool:
        """Whether the fsync has ended; `waits`: wait until it has. Raises: SyncError, DirectoryLost."""
        if not kernel_sync.has_ended(waits=waits):
            return False
        self._synced()
        return True

    def _synced(self) -> None:
        """Note that an fsync has ended. Raises: DirectoryLost."""
        if self._reports_links and not self._files.is_linked(self._handle):
            # A file without a name is lost when the process ends.
            raise DirectoryLost(f"{self.path}: the open segment was deleted")
        self.sync_count += 1
        self._last_sync_s = self.now_s()
        self.sync_times.add(self._last_sync_s - self._sync_began_s)
        self.durable_lsn = self.written_lsn
        if self.cluster is not None:
            self.cluster.on_synced(self.durable_lsn)

    def roll(self, job: Roll) -> None:
        """Seal the segment and begin another with the block `job.head`.

        It can be repeated after a full disk: `seal` is idempotent, and the new segment is set last.
        Raises: SyncError, OSError, DirectoryLost.
        """
        if self.segment is not None:
            self.seal(job.ts_us)
        base_lsn = job.head.base_lsn
        handle = self._files.open(path_of(self.path, base_lsn), create=True)
        try:
            self._files.truncate(handle, 0)
            data = job.head.encode(self.flags | IS_HEAD, self._trusted(base_lsn))
            write_all(self._files, handle, data, 0)
            sync_file(self._files, handle)
            self._sync_directory()
            self._reports_links = self._files.is_linked(handle)  # not every file system does
        except OSError:
            self._files.close(handle)
            raise
        if self.segment is not None:
            self._files.close(self._handle)
        block = as_block(data, 0)
        segment = SegmentSummary(base_lsn, *job.checkpoint)
        segment.add(block)
        self.segment, self._handle, self._room.end = segment, handle, 0
        self.written_bytes += len(data)
        self.written_lsn = self.durable_lsn = segment.end_lsn
        if self.cluster is not None:
            self.cluster.on_written(base_lsn, 0, data, segment.end_lsn)
            self.cluster.on_synced(self.durable_lsn)
        self.reserve.fill()

    def seal(self, ts_us: int) -> None:
        """Sync the records, write the footer (which states the trusted LSN), sync again.

        Idempotent. Raises: SyncError, OSError, DirectoryLost.
        """
        segment = self.segment
        assert segment is not None
        if segment.sealed:
            return
        self.sync()
        data = segment.footer(ts_us, self.flags, segment.end_lsn - self._trusted(segment.end_lsn))
        end = write_all(self._files, self._handle, data, segment.size)
        self._files.truncate(self._handle, end)
        sync_file(self._files, self._handle)
        block = as_block(data, segment.size)
        segment.add(block)
        segment.sealed = True
        self.written_lsn = self.durable_lsn = segment.end_lsn
        if self.cluster is not None:
            self.cluster.on_written(segment.base_lsn, block.offset, data, segment.end_lsn)
            self.cluster.on_synced(self.durable_lsn)

    def tick(self) -> None:
        """Write an empty block that carries the trusted LSN to readers. Raises: OSError."""
        if self.segment is not None:
            lag = self.written_lsn - self.trusted_lsn
            self.write(encode_block(self.written_lsn, self.flags, lag, 0, (), (), 0))

    def unlink(self, base_lsns: Sequence[int]) -> None:
        """Delete segments, oldest first, up to one that cannot be deleted; the next call tries that one again.

        Raises: see `_sync_directory`.
        """
        gone: list[int] = []
        doomed = [*self.undeleted, *base_lsns]
        for base_lsn in doomed:
            try:
                self._files.unlink(path_of(self.path, base_lsn))
            except FileNotFoundError:
                pass  # removed by an earlier attempt, which then failed to sync the directory
            except OSError:
                break  # the later ones stay, too, so that there is no gap
            self._sync_directory()  # after each one: a power cut could bring back any of several
            gone.append(base_lsn)
        self.undeleted = doomed[len(gone) :]
        if self.cluster is not None and gone:
            self.cluster.on_unlinked(gone)
        self.reserve.fill()

    def close(self) -> None:
        """Close the file. Raises: OSError."""
        self._files.close(self._handle)


def probe(path: str, files: Files) -> None:
    """Write and sync a small file in a directory. Lack of room, descriptors or memory is no error.

    Raises: OSError; SyncError, also if the fsync fails for lack of room.
    """
    try:
        handle = files.open(os.path.join(path, PROBE), create=True)
        try:
            write_all(files, handle, b"\n", 0)
            sync_file(files, handle)
        finally:
            files.close(handle)
    except OSError as error:
        if isinstance(error, SyncError) or error.errno not in DISK_FULL | OUT_OF_RESOURCES:
            raise


def as_block(data: bytearray, offset: int) -> Block:
    return Block(offset, Header._make(HEADER.unpack_from(data)), memoryview(data))
