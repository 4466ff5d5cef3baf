"""The writer: one thread that commits the records that the broker's turns have appended.

The broker's thread fills a block a turn at a time (`begin_turn`, `end_turn`); when the last commit has ended and no
turn is under way, the writer takes the block, writes it, syncs, and reports the LSN that it reached. No timer starts a
commit, except for records for which no answer waits: acknowledgements go with the next commit, at the latest after
`SYNC_DELAY_SECONDS`. A separate commit for them would cost as much as one of a hundred messages.

Where the kernel can sync on its own (`let_kernel_sync`), small blocks, as of single messages, need no thread: the
broker's thread writes them before it waits (`commit_small`), and the kernel wakes it after the fsync (`end_small`). The
two threads never commit at the same time.

States: running -> full (no room on the disk: `retry` writes the same octets again) -> running; any -> failed (another
error of a write, or any of an fsync: the journal is not trusted until its directory is opened again); closed. When
the system is out of descriptors or memory the writer stays running and tries again soon: confirms take longer.
`segment_file.py` writes and fsyncs, and decides when the mode wants an fsync.
Source: rulings 4 and 21; docs/journal-format.md, "The crash model".
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from enum import Enum, auto

from ..format.block import Block, BlockBuilder
from ..format.errors import DirectoryLost, JournalClosed, JournalError, JournalFailed, JournalFull
from .files import DIRECTORY_GONE, DISK_FULL, OUT_OF_RESOURCES, SyncError
from .kernel_sync import KernelSync
from .segment_file import Job, Roll, SegmentFile, as_block

logger = logging.getLogger("leveret.journal")

#: Octets of a block above which the next turn begins another; one commit may write several blocks.
BLOCK_SIZE_MAX = 1024 * 1024
#: Octets of a block up to which the broker's thread writes it: 10 us, as much as it costs to wake the other thread.
SMALL_BLOCK_MAX = 16 * 1024
#: Seconds that records with no answer waiting for them may wait for the commit of other records. At 20 messages a
#: second the acknowledgement of one goes with the next: one fsync a message instead of two.
SYNC_DELAY_SECONDS = 0.05
#: Seconds until a job that failed for lack of descriptors or memory is tried again, ...
RETRY_SECONDS = 0.1
#: ... and the number of such tries while the journal is being closed.
CLOSING_TRIES_MAX = 50


class WriterState(Enum):
    """State of the journal's writer."""

    RUNNING = auto()
    FULL = auto()
    FAILED = auto()
    CLOSED = auto()


RUNNING, FULL, FAILED, CLOSED = WriterState


class Writer:
    """Writes to one open segment; rolls to the next on request.

    `on_durable(lsn)`: `SegmentFile.committed_lsn` has reached `lsn`. Also called, perhaps with the same LSN again, when
    a full disk has room again and all is written. `on_failure(error)`: JournalFull or JournalFailed, once for each
    change of state. Both are called in any thread, without a lock held, and must not raise.
    """

    def __init__(self, file: SegmentFile) -> None:
        self.file = file
        self.on_durable: Callable[[int], object] = lambda lsn: None
        self.on_failure: Callable[[JournalError], object] = lambda error: None
        self._lock = lock = threading.Lock()  # taken directly each turn: entering a condition costs 0.2 us more
        self._work = threading.Condition(lock)  # notified of new jobs
        self._progress = threading.Condition(lock)  # notified after each commit
        self._in_turn = False
        self._is_awaited = False  # an answer waits for records of the open block
        self._had_answers = False  # answers waited for the last commit: acknowledgements of its messages will come
        self._is_idle = False  # the thread waits without the limit of SYNC_DELAY_SECONDS
        self._is_waiting = False  # the thread waits, and commits nothing
        self._kernel_sync: KernelSync | None = None  # set: the broker's thread commits small blocks
        self._is_syncing = False  # the broker's thread has a commit under way
        self._unawaited_until_s: float | None = None  # when small records that no answer waits for are committed
        self._closing = False
        self._has_segment = False  # a roll has been asked for
        self._open = BlockBuilder(file.written_lsn)
        self._jobs: list[Job] = []
        self._taken: list[Job] = []  # jobs that the thread is writing, or could not write
        self._thread: threading.Thread | None = None

        # The thread changes the attributes below; `retry`, `close` and `abandon` change `state`, too.
        self.state = RUNNING
        self.error: JournalError | None = None
        self.commit_count = 0
        self._retry_count = 0  # tries in a row that found no descriptor or memory
        self._was_full = False  # the disk was full, and not all jobs of that time are written yet

    # -- the broker's thread ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. Without it, `run_once` does one commit in the caller's thread."""
        self._thread = threading.Thread(target=self._run, name="leveret-journal", daemon=True)
        self._thread.start()

    def begin_turn(self, ts_us: int) -> BlockBuilder:
        """The block to append to, until `end_turn`. Raises: JournalFailed, JournalClosed."""
        with self._lock:
            if self.state is FAILED:
                raise JournalFailed(str(self.error))
            if self.state is CLOSED or self._closing:
                raise JournalClosed("the journal is closed")
            self._in_turn = True
            block = self._open
            if block.size >= BLOCK_SIZE_MAX:
                self._jobs.append(block)
                block = self._open = BlockBuilder(block.next_lsn)
        block.stamp(ts_us)
        return block

    def end_turn(self, *, is_awaited: bool = True) -> int:
        """Let the writer take the turn's records. Returns the LSN after them.

        is_awaited: an answer waits for these records, or for earlier ones; otherwise they may go with the next commit.
        """
        with self._lock:
            self._in_turn = False
            self._is_awaited |= is_awaited
            if self._is_awaited or self._is_idle:
                self._notify_thread()
            return self._open.next_lsn

    def _notify_thread(self) -> None:
        """Have the open block committed by the thread, unless `commit_small` will do it, or a commit is under way."""
        if self._kernel_sync is None or (self._open.size > SMALL_BLOCK_MAX and not self._is_syncing):
            self._work.notify()

    def commit_now(self) -> None:
        """Between turns: commit now, because an answer began to wait for records that were appended before."""
        with self._lock:
            self._is_awaited = True
            self._notify_thread()

    def roll(self, ts_us: int, checkpoint: tuple[int, int], fill: Callable[[BlockBuilder], object]) -> int:
        """Between turns: begin a new segment for all later records. `fill` writes its head.

        Returns the base LSN of the new segment (the footer of the old one has the LSN before it).
        """
        with self._work:
            block = self._open
            if block.count:
                self._jobs.append(block)
            head = BlockBuilder(block.next_lsn + self._has_segment)  # the footer takes one
            head.stamp(ts_us)
            fill(head)
            self._jobs.append(Roll(ts_us, head, checkpoint))
            self._has_segment = True
            self._open = BlockBuilder(head.next_lsn)
            self._work.notify()
        return head.base_lsn

    def add(self, job: Job) -> None:
        """Add a job. It is done after all turns that ended before the open block was begun; between turns, after all.

        Work of several turns of the broker is one turn here: its records stay together, also if a job comes meanwhile.
        """
        with self._work:
            block = self._open
            if block.count and not self._in_turn:
                self._jobs.append(block)
                self._open = BlockBuilder(block.next_lsn)
            self._jobs.append(job)
            self._work.notify()

    def let_kernel_sync(self, kernel_sync: KernelSync) -> None:
        """Let the broker's thread commit small blocks: it has to call `commit_small` before it waits, and `end_small`
        after each fsync.
        """
        assert self.file.syncs_each_commit and self._thread is not None
        self._kernel_sync = kernel_sync

    def stop_kernel_sync(self) -> None:
        """Let the thread commit small blocks again, after the fsync under way."""
        self.end_small(waits=True)
        with self._work:
            kernel_sync, self._kernel_sync = self._kernel_sync, None
            self._work.notify()  # of records for which no answer waits
        if kernel_sync is not None:
            kernel_sync.close()

    def commit_small(self) -> float:
        """Between turns: write a small block that answers wait for, or that waited long enough, and begin its fsync.

        Returns: the seconds after which this is to be called again at the latest.
        """
        with self._lock:
            block, sync = self._open, self._kernel_sync
            if not block.count or self._in_turn or self._is_syncing or sync is None or self.state is not RUNNING:
                return math.inf
            if not self._is_waiting:
                return SYNC_DELAY_SECONDS  # the thread takes this block next, if answers wait for it
            if not self._is_awaited:
                now_s = self.file.now_s()
                if self._unawaited_until_s is None:
                    self._unawaited_until_s = now_s + SYNC_DELAY_SECONDS
                if now_s < self._unawaited_until_s:
                    return self._unawaited_until_s - now_s
            if self._jobs or self._taken or block.size > SMALL_BLOCK_MAX:
                self._is_awaited = True
                self._work.notify()
                return SYNC_DELAY_SECONDS
            self._take_open()
            self._is_syncing = True
        before = self.file.committed_lsn
        failure = self._write_taken()
        if failure is None and not self._taken:
            try:
                self.file.begin_sync(sync)
            except OSError:  # nothing was begun: this kernel cannot do it
                self._end_commit(before, self._sync())
                self.stop_kernel_sync()
        else:
            self._end_commit(before, failure)
        return math.inf

    def end_small(self, *, waits: bool = False) -> None:
        """Note the end of the fsync that `commit_small` began, without `on_durable`. `waits`: wait for the end."""
        if not self._is_syncing:
            return
        before, failure = self.file.committed_lsn, None
        assert self._kernel_sync is not None
        try:
            if not self.file.end_sync(self._kernel_sync, waits=waits):
                return
        except (OSError, DirectoryLost) as error:
            failure = self._sync_failure(error)
        self._end_commit(before, failure, reports=False)

    @property
    def next_lsn(self) -> int:
        """LSN of the next record to be appended."""
        return self._open.next_lsn

    def unwritten(self, lsn: int) -> Block | None:
        """The block with this record, as far as it is filled; None if it is already written. Encodes it each time."""
        if lsn < self.file.written_lsn:
            return None
        with self._lock:
            jobs = (*self._taken, *self._jobs, self._open)
        for job in jobs:
            block = job.head if isinstance(job, Roll) else job
            if isinstance(block, BlockBuilder) and block.base_lsn <= lsn < block.next_lsn:
                durable_lsn = min(self.file.durable_lsn, block.base_lsn)  # the thread may have just written this block
                return as_block(block.encode(self.file.flags, durable_lsn), 0)
        return None

    @property
    def backlog_bytes(self) -> int:
        """Octets that were appended and are not yet written."""
        waiting = sum(job.size for job in (*self._jobs, *self._taken) if isinstance(job, BlockBuilder | Roll))
        return waiting + (self._open.size if self._open.count else 0)

    def retry(self, *, spends_reserve: bool = False) -> None:
        """Try again to write the jobs that did not fit. `spends_reserve`: release the reserve for them."""
        with self._work:
            if self.state is FULL:
                if spends_reserve:
                    self.file.reserve.release()
                self.state, self.error = RUNNING, None
                self._work.notify()

    def wait(self, lsn: int, timeout_s: float | None = None, *, on_own_disk: bool = False) -> bool:
        """Block until all records below `lsn` are committed; False: timeout or failure. For tests and shutdown.

        `on_own_disk`: until this node has fsynced them, whatever the mode promises or a cluster has agreed.
        """
        file = self.file

        def is_committed() -> bool:
            return (file.durable_lsn if on_own_disk else file.committed_lsn) >= lsn

        if self._thread is None:
            while not is_committed() and self.run_once():
                pass
            return is_committed()
        self.end_small(waits=True)
        with self._progress:
            self._is_awaited = True
            self._work.notify()
            self._progress.wait_for(lambda: is_committed() or self.state is not RUNNING, timeout_s)
            return is_committed()

    def agree(self, lsn: int, *, reports: bool = True) -> None:
        """Note that all nodes in sync have fsynced the records below `lsn`; for the leader of a cluster."""
        cluster = self.file.cluster
        assert cluster is not None and lsn <= self.file.durable_lsn
        if lsn > cluster.agreed_lsn:
            with self._progress:
                cluster.agreed_lsn = lsn
                self._progress.notify_all()
            if reports:
                self.on_durable(lsn)

    def abandon(self, timeout_s: float | None = None) -> bool:
        """End the thread after its commit, and close the file: seal nothing, and drop the pending jobs.

        False: a write or fsync has not returned within the time; call it again.
        """
        self.stop_kernel_sync()
        with self._work:
            self._closing = True
            if self.state is not FAILED:
                self.state = CLOSED
            self.on_durable = lambda lsn: None
            self.on_failure = lambda error: None
            self._work.notify()
        if self._thread is None:
            self._finish()
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Write the pending jobs, seal the segment, end the thread.

        Raises: JournalFull, JournalFailed (the next opening finds the records that were written).
        """
        self.stop_kernel_sync()
        with self._work:
            if self._closing or self.state is CLOSED:
                return
            self._closing = True
            if self.state is FULL:
                self.state, self.error = RUNNING, None  # a last try
            self._work.notify()
        if self._thread is not None:
            self._thread.join()
        else:
            while self.run_once():
                pass
            self._finish()
        if self.error is not None:
            raise self.error

    # -- the writer's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._take(wait=True):
            self.commit_taken()
            if self._retry_count:
                time.sleep(RETRY_SECONDS)
        self._finish()

    def run_once(self) -> bool:
        """Do one commit in this thread. False: there was nothing to commit, or it failed."""
        return self.take_now() and self.commit_taken()

    def take_now(self) -> bool:
        """The first half of `run_once`: take the jobs of the commit. False: there are none."""
        return self.state is RUNNING and self._take(wait=False)

    def _take(self, *, wait: bool) -> bool:
        """Take the jobs of the next commit. False: there are none (without `wait`), or the writer closed or failed."""
        is_patient = wait  # an open block for which no answer waits stays open
        with self._work:
            while True:
                if self.state is FAILED:
                    return False
                if self._is_syncing:
                    if not wait:
                        return False
                    self._wait_for_work(None)
                    continue
                if self.state is RUNNING:
                    self._taken += self._jobs
                    self._jobs = []
                    is_wanted = self._is_awaited or self._taken or self._closing or not is_patient
                    if is_wanted and self._open.count and not self._in_turn:
                        self._take_open()
                    if self._taken:
                        return True
                until_sync_s = self.file.until_sync_s() if self.state is RUNNING else None
                if until_sync_s == 0:
                    break  # the interval is over
                if self._closing or not wait:
                    return False
                self._is_idle = not (is_patient and (self._open.count or self._had_answers))
                if self._is_idle:
                    timeout_s = until_sync_s
                elif until_sync_s is None:
                    timeout_s = SYNC_DELAY_SECONDS
                else:
                    timeout_s = min(SYNC_DELAY_SECONDS, until_sync_s)
                is_patient = self._wait_for_work(timeout_s)
                self._is_idle = False
        if self.file.durable_lsn < self.file.written_lsn:
            self._report(self.file.committed_lsn, self._sync())
        return self.state is not FAILED

    def _wait_for_work(self, timeout_s: float | None) -> bool:
        """Returns: False after the timeout."""
        self._is_waiting = True
        is_notified = self._work.wait(timeout_s)
        self._is_waiting = False
        return is_notified

    def _take_open(self) -> None:
        """Take the open block for the next commit, and open another."""
        self._taken.append(self._open)
        self._open = BlockBuilder(self._open.next_lsn)
        self._had_answers, self._is_awaited = self._is_awaited, False
        self._unawaited_until_s = None

    def commit_taken(self) -> bool:
        """Write the jobs that were taken, and sync if the mode requires it. Jobs that did not fit stay.

        The second half of `run_once`, perhaps some turns later, as with a thread. False: it failed.
        """
        before = self.file.committed_lsn
        cluster = self.file.cluster
        if cluster is not None:
            cluster.busy_since_s = self.file.now_s()
        failure = self._write_taken()
        if not isinstance(failure, JournalFailed) and self.file.wants_sync():
            failure = self._sync() or failure
        return self._end_commit(before, failure)

    def _write_taken(self) -> JournalError | None:
        """Write the jobs that were taken; those that did not fit stay. Returns: the failure that stopped it."""
        jobs = self._taken
        failure: JournalError | None = None
        done = 0
        try:
            for job in jobs:
                self.file.do(job)
                done += 1
        except DirectoryLost as error:
            failure = error
        except OSError as error:
            failure = self._failure_of(error)
        self._taken = jobs[done:]
        self.commit_count += 1
        if isinstance(failure, JournalFull):
            self._was_full = True
        if not self._taken and self._retry_count:
            self._retry_count = 0
            logger.warning("the journal is written again")
        return failure

    def _end_commit(self, before: int, failure: JournalError | None, *, reports: bool = True) -> bool:
        """Returns: whether all that was taken is as safe as the mode promises. `reports`: to `on_durable`."""
        is_done = failure is None and not self._taken
        has_room_again = is_done and self._was_full  # reported also if no LSN shows it: a job may write no records
        if is_done:
            self._was_full = False
        if self.file.cluster is not None:
            self.file.cluster.busy_since_s = None
        self._report(before, failure, has_room_again=has_room_again, reports=reports)
        return is_done

    def _failure_of(self, error: OSError) -> JournalError | None:
        """The failure that an error of a write means; None: it is tried again later."""
        text = f"{self.file.path}: {error}"
        if isinstance(error, SyncError):
            return JournalFailed(text)
        if error.errno in DISK_FULL:
            return JournalFull(text)
        if error.errno in DIRECTORY_GONE:
            return DirectoryLost(f"{self.file.path}: {error.strerror}")
        if error.errno not in OUT_OF_RESOURCES or (self._closing and self._retry_count >= CLOSING_TRIES_MAX):
            return JournalFailed(text)
        self._retry_count += 1
        if self._retry_count == 1:
            logger.warning("%s; the write waits and is tried again", text)
        return None

    def _sync(self) -> JournalFailed | None:
        """Fsync what was written. Returns: the failure that stopped it."""
        try:
            self.file.sync()
        except (OSError, DirectoryLost) as error:
            return self._sync_failure(error)
        return None

    def _sync_failure(self, error: OSError | DirectoryLost) -> JournalFailed:
        return error if isinstance(error, DirectoryLost) else JournalFailed(f"{self.file.path}: {error}")

    def _report(
        self, before: int, failure: JournalError | None, *, has_room_again: bool = False, reports: bool = True
    ) -> None:
        with self._progress:
            if self._is_syncing:
                self._is_syncing = False
                if self._jobs or self._taken or self._open.size > SMALL_BLOCK_MAX:
                    self._work.notify()
            if failure is not None:
                self.state = FULL if isinstance(failure, JournalFull) else FAILED
                self.error = failure
            self._progress.notify_all()
        if reports and (self.file.committed_lsn > before or has_room_again):
            self.on_durable(self.file.committed_lsn)
        if failure is not None:
            self.on_failure(failure)

    def _finish(self) -> None:
        """Close the file. If the writer is running, seal the segment before."""
        failure: JournalError | None = None
        before = self.file.committed_lsn
        if self.file.segment is not None:
            try:
                try:
                    if self.state is RUNNING and self._taken:
                        failure = JournalFailed(f"{self.file.path}: closed before all was written")
                    elif self.state is RUNNING:
                        self.file.seal(self.file.segment.ts_max)
                finally:
                    self.file.close()
            except DirectoryLost as error:
                failure = error
            except OSError as error:
                failure = JournalFailed(f"{self.file.path}: {error}")
        self._report(before, failure)
        if self.state is not FAILED:
            self.state = CLOSED
