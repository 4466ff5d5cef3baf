"""The segment that is being written: its file, and how far it is written and synced.

Only the writer's thread calls this; other threads may read how far it is.
Source: docs/journal-format.md, "The crash model".
"""

import errno
from collections.abc import Callable, Sequence, Set

from ..format.block import HAS_ALL, HEADER, IS_HEAD, MODES, Block, BlockBuilder, Header, encode_block
from ..format.errors import DirectoryLost
from .files import LATER, Files, SyncError, write_all
from .jobs import Hold, Job, Roll, Tick
from .reserve import Reserve
from .segment import Segment, path_of
from .sync_times import SyncTimes

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
#: What was a directory that can be written in is that no more.
LOST = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EROFS, errno.EACCES, errno.EPERM})


class SegmentFile:
    """All records below `written_lsn` can be read, all below `durable_lsn` are fsynced.

    `segment`: None before the first roll. `add_needs`: see `Directory`.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        next_lsn: int,
        *,
        mode: str,
        scope: str,
        interval_ms: int,
        preallocate_size: int,
        reserve: Reserve | None,
        now_s: Callable[[], float],
        add_needs: Callable[[Set[str]], object],
    ) -> None:
        self._now_s = now_s
        self.flags = MODES.index(mode) | (HAS_ALL if scope == "all" else 0)
        self._mode = mode
        self._interval_s = interval_ms / 1000
        self.segment: Segment | None = None
        self.written_lsn = next_lsn
        self.durable_lsn = next_lsn
        self.sync_count = 0
        self.sync_times = SyncTimes()
        self.written_bytes = 0
        self._synced_at = 0.0
        self._files = files
        self._directory = directory
        self._preallocate_size = preallocate_size
        self._reserve = reserve
        self._add_needs = add_needs
        self._handle = -1
        self._allocated = 0
        self._counts_links = True

    @property
    def committed_lsn(self) -> int:
        """All records below it are as safe as the mode promises."""
        return self.durable_lsn if self._mode == "commit" else self.written_lsn

    def wants_sync(self) -> bool:
        """Whether what was written is to be synced now, by the mode."""
        if self.durable_lsn == self.written_lsn or self._mode == "never":
            return False
        return self._mode == "commit" or self._now_s() - self._synced_at >= self._interval_s

    def until_sync_s(self) -> float | None:
        """How long until what was written is to be synced although nothing more comes; None: not at all."""
        if self._mode != "interval" or self.durable_lsn == self.written_lsn:
            return None
        return max(self._synced_at + self._interval_s - self._now_s(), 0)

    def do(self, job: Job) -> None:
        """One job, which can be repeated after an error. Raises: OSError, SyncError, DirectoryLost."""
        if isinstance(job, BlockBuilder):
            if job.needs:
                self._add_needs(job.needs)
            self.write(job.encode(self.flags, self.durable_lsn))
        elif isinstance(job, Roll):
            self._add_needs(job.head.needs)
            self.roll(job)
        elif isinstance(job, Tick):
            self.tick()
        elif isinstance(job, Hold):
            self.hold_back()
        else:
            self.unlink(job.base_lsns)

    def _sync_directory(self) -> None:
        """Raises: SyncError, or OSError: it could not be opened for want of descriptors or memory, or is gone."""
        try:
            self._files.sync_directory(self._directory)
        except OSError as error:
            if error.errno in LATER or error.errno in LOST:
                raise
            raise SyncError(error.errno, f"fsync: {error.strerror}") from error

    def write(self, data: bytearray) -> None:
        """A block behind what is there. Raises: OSError."""
        segment = self.segment
        assert segment is not None
        self._preallocate(segment.size + len(data))
        write_all(self._files, self._handle, data, segment.size)
        block = as_block(data, segment.size)
        segment.note(block)
        self.written_bytes += len(data)
        self.written_lsn = block.end_lsn

    def _preallocate(self, size: int) -> None:
        """Room ahead of what is written; where the system does not know how, never again."""
        if not self._preallocate_size or size <= self._allocated:
            return
        length = max(self._preallocate_size, size - self._allocated)
        try:
            self._files.preallocate(self._handle, self._allocated, length)
        except OSError as error:
            if error.errno in NO_ROOM or error.errno in LATER:
                return  # the write itself fails, if it does not fit
            self._preallocate_size = 0
        else:
            self._allocated += length

    def sync(self) -> None:
        """Raises: SyncError, DirectoryLost."""
        began_s = self._now_s()
        _sync_file(self._files, self._handle)
        if self._counts_links and not self._files.is_linked(self._handle):
            # A file without a name is lost at a restart.
            raise DirectoryLost(f"{self._directory}: the open segment was deleted")
        self.sync_count += 1
        self._synced_at = self._now_s()
        self.sync_times.add(self._synced_at - began_s)
        self.durable_lsn = self.written_lsn

    def roll(self, job: Roll) -> None:
        """Seal the segment and begin another with this block.

        Every step can be repeated after a full disk: nothing of ours changes before all have succeeded.
        Raises: SyncError, OSError.
        """
        if self.segment is not None:
            self.seal(job.ts_us)
        base_lsn = job.head.base_lsn
        handle = self._files.open(path_of(self._directory, base_lsn), create=True)
        try:
            self._files.truncate(handle, 0)
            data = job.head.encode(self.flags | IS_HEAD, base_lsn)
            write_all(self._files, handle, data, 0)
            _sync_file(self._files, handle)
            self._sync_directory()
            self._counts_links = self._files.is_linked(handle)  # not every file system does
        except OSError:
            self._files.close(handle)
            raise
        if self.segment is not None:
            self._files.close(self._handle)
        block = as_block(data, 0)
        segment = Segment(base_lsn, *job.checkpoint)
        segment.note(block)
        self.segment, self._handle, self._allocated = segment, handle, 0
        self.written_bytes += len(data)
        self.written_lsn = self.durable_lsn = segment.end_lsn
        self.hold_back()

    def seal(self, ts_us: int) -> None:
        """Footer and fsync; the records before it are synced first, so that it can say so. Idempotent."""
        segment = self.segment
        assert segment is not None
        if segment.sealed:
            return
        self.sync()
        data = segment.footer(ts_us, self.flags)
        end = write_all(self._files, self._handle, data, segment.size)
        self._files.truncate(self._handle, end)
        _sync_file(self._files, self._handle)
        block = as_block(data, segment.size)
        segment.note(block)
        segment.sealed = True
        self.written_lsn = self.durable_lsn = segment.end_lsn

    def tick(self) -> None:
        """An empty block that carries the durable LSN to readers. Raises: OSError."""
        if self.segment is not None:
            lag = self.written_lsn - self.durable_lsn
            self.write(encode_block(self.written_lsn, self.flags, lag, 0, (), (), 0))

    def unlink(self, base_lsns: Sequence[int]) -> None:
        """Delete segments, oldest first. Raises: SyncError, OSError: see `_sync_directory`."""
        for base_lsn in base_lsns:
            try:
                self._files.unlink(path_of(self._directory, base_lsn))
            except FileNotFoundError:
                pass  # taken away before the directory could not be synced
            except OSError:
                break  # it stays, and those after it, so that there is no gap; the next opening may be luckier
            self._sync_directory()  # of several, a power cut may bring any back
        self.hold_back()

    def hold_back(self) -> None:
        """The reserve, if there is one and room for it."""
        if self._reserve is not None:
            self._reserve.hold()

    def close(self) -> None:
        """The file. Raises: OSError."""
        self._files.close(self._handle)


def as_block(data: bytearray, offset: int) -> Block:
    return Block(offset, Header._make(HEADER.unpack_from(data)), memoryview(data))


def _sync_file(files: Files, handle: int) -> None:
    """Raises: SyncError."""
    try:
        files.sync(handle)
    except OSError as error:
        raise SyncError(error.errno, f"fsync: {error.strerror}") from error
