"""The supervisor of the journal: opens it, restores the broker from it, and serves it while the broker runs.

The journal's thread reports its progress; everything else runs in the broker's thread, between turns.
Source: ruling 21; interfaces page, [journal].
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import trio

from ..configured.options import journal_options, recording_options
from ..engine import Broker, Unreadable
from ..journal import (
    ClusterJournal,
    DirectoryLost,
    Files,
    Journal,
    JournalError,
    JournalFailed,
    JournalFull,
    WriterState,
)
from ..journal.disk.files import SpareFiles
from ..journal.recording.checkpoint import checkpoint, empty_segment
from ..journal.recording.full_recorder import FullRecorder
from ..journal.recording.pager import JournalPager
from ..journal.recording.recorder import Recorder
from ..journal.recording.restore import restore
from ..journal.recovery.recovery import IDS_UNNOTED_MAX
from ..settings import Configuration

logger = logging.getLogger("leveret.journal")

#: While the disk is full: seconds until the same octets are tried again.
RETRY_SECONDS = 1.0
#: Descriptors reserved for writing (the next segment, the directory, readers' offsets), and for reading.
WRITER_SPARES, READER_SPARES = 4, 1
#: Idle time in seconds after which readers of the journal learn that its last records are durable.
TICK_SECONDS = 0.25


def why_unusable(path: str, error: JournalError | OSError) -> str:
    """A sentence for the operator: the data directory, and the reason why it is unusable."""
    if isinstance(error, JournalError):
        what = str(error).removeprefix(f"{path}: ")
    else:
        what = error.strerror or str(error)
        if isinstance(error.filename, str) and error.filename != path:
            what = f"{error.filename}: {what}"
    return f"data directory {path}: {what}"


class Supervisor:
    """Made by `open`. `commit` ends each turn; `tend` is a task that runs as long as the broker."""

    def __init__(
        self,
        broker: Broker,
        journal: Journal,
        recorder: Recorder,
        spares: tuple[SpareFiles, ...] = (),
    ) -> None:
        self.broker = broker
        self.journal = journal
        self.recorder = recorder
        self._spares = spares
        broker.context.storage.on_unreadable = self._stop_for
        self._unreadable: Unreadable | DirectoryLost | None = None
        self._failure: JournalFull | None = None  # occurred in the middle of an atomic record
        self._wake = trio.Event()
        self._checkpoint: Iterator[None] | None = None
        self._needs_checkpoint = False
        self._is_tick_set = False
        self._is_retry_set = False
        self._ticked_lsn = 0  # readers know that records up to here are durable
        self._is_closed = False  # reports of the journal's thread may still come
        if journal.has_spent_reserve:
            self._begin_low()
        if journal.recovered.is_moved:
            self._request_checkpoint()  # with this clock: else they are moved again at the next start

    @classmethod
    def open(
        cls,
        path: str,
        broker: Broker,
        configuration: Configuration,
        *,
        holds_reserve: bool = True,
        files: Files | None = None,
        took_over: bool = False,
        cluster: ClusterJournal | None = None,
    ) -> "Supervisor":
        """`files`, `cluster`: as in `composition.Data`. `took_over`: see `restore`.

        Raises: JournalError (locked, foreign, damaged: the text is for the operator), OSError.
        """
        options = journal_options(configuration)
        options = options if holds_reserve else replace(options, reserve_size=0)
        if files is not None:
            journal = Journal.open(path, broker.context.clock, options, files=files, threaded=False, cluster=cluster)
            return cls._open(path, broker, configuration, journal, took_over=took_over)
        spares = SpareFiles(WRITER_SPARES), SpareFiles(READER_SPARES)
        try:
            journal = Journal.open(
                path, broker.context.clock, options, files=spares[0], content_files=spares[1], cluster=cluster
            )
            return cls._open(path, broker, configuration, journal, spares=spares, took_over=took_over)
        except BaseException:
            for spare in spares:
                spare.release()
            raise

    @classmethod
    def _open(
        cls,
        path: str,
        broker: Broker,
        configuration: Configuration,
        journal: Journal,
        *,
        spares: tuple[SpareFiles, ...] = (),
        took_over: bool,
    ) -> "Supervisor":
        recording = recording_options(configuration)
        recorder = (FullRecorder if journal.options.scope == "all" else Recorder)(
            broker,
            journal,
            persists_deliveries=recording.persists_deliveries,
            counts_max=recording.counts_max,
            keeps_ids=recording.keeps_ids,
        )
        if journal.leads_cluster:
            recorder.hold_deliveries()
        broker.context.storage.pager = JournalPager(broker, journal, recorder, recording.memory_size)
        found = journal.recovered
        try:
            count = restore(broker, journal, recorder, took_over=took_over)
        except BaseException:
            if journal.leads_cluster:
                journal.abandon()
            else:
                journal.close()
            raise
        if found.torn_bytes:
            logger.warning("%s: a write that was interrupted was cut off: %d octets", path, found.torn_bytes)
        logger.info("%s: %d messages, %d objects restored", path, count, len(found.objects))
        return cls(broker, journal, recorder, spares)

    def commit(self) -> None:
        self._end_turn()
        if self._checkpoint is None and self.journal.checkpoints.is_due:
            self._checkpoint = checkpoint(self.broker, self.journal, self.recorder)
            self._wake.set()

    def agree(self, lsn: int, *, at_once: bool) -> None:
        """All nodes of a cluster that are in sync have what is below `lsn`. See `cluster.front.Leadership`."""
        self.journal.agree(lsn, reports=not at_once)
        if at_once:
            self.more_is_safe()

    def _end_turn(self) -> int:
        """Release the records for writing. Returns the LSN behind them.

        Only when all dead letters are published, which may take more than one turn: their deaths are recorded already,
        and a kill between the two would lose the messages. Nor in the middle of a transaction.
        """
        if self.broker.is_unfinished:
            return self.journal.next_lsn
        lsn = self.journal.commit()
        if self.broker.context.next_id - self.journal.next_message_id > IDS_UNNOTED_MAX:
            self.journal.note_ids(self.broker.context.next_id)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self._failed(failure)
        return lsn

    async def tend(self, request_report: Callable[[], object] | None = None) -> None:
        """Handle reports of the journal's thread, make checkpoints, reclaim, until cancelled.

        `request_report`: called by that thread, has the loop call `more_is_safe` soon; None: through trio.
        Raises: Unreadable, when content that is only on disk could not be read: the broker must not go on without it;
        DirectoryLost, when nothing can be stored any longer.
        """
        token = trio.lowlevel.current_trio_token()

        def report_through_trio() -> None:
            try:
                token.run_sync_soon(self.more_is_safe, idempotent=True)
            except trio.RunFinishedError:
                pass

        def failed(error: JournalError) -> None:
            try:
                token.run_sync_soon(self._failed, error)
            except trio.RunFinishedError:
                pass

        request = request_report or report_through_trio
        self.journal.set_callbacks(lambda lsn: request(), failed)
        if self.journal.failure is not None:  # before the callbacks were set
            self._failed(self.journal.failure)
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            if self._unreadable is not None:
                raise self._unreadable
            if self._checkpoint is not None:
                await self._make_checkpoint(self._checkpoint)
                self._checkpoint = None
            if self._needs_checkpoint and not self.recorder.takes_nothing:  # also if one is in progress
                self._needs_checkpoint = False
                self._checkpoint = checkpoint(self.broker, self.journal, self.recorder)
                if await self._make_checkpoint(self._checkpoint):
                    self.recorder.all_is_stated()
                    self.broker.more_is_safe()
                else:
                    self._needs_checkpoint = True
                self._checkpoint = None

    def _stop_for(self, error: Unreadable | DirectoryLost) -> None:
        self._unreadable = error
        self._wake.set()

    def more_is_safe(self) -> None:
        """Answers may go out: more records are safe. Called by the loop's thread."""
        if self._is_closed:
            return
        recorder = self.recorder
        if recorder.takes_nothing and self.journal.state is WriterState.RUNNING:
            recorder.recover()
            if not recorder.is_low:
                logger.warning("the journal has room again")
            self._request_checkpoint()
        if not self._is_tick_set and self.journal.options.fsync != "never":
            self._is_tick_set = True
            self._call_later(TICK_SECONDS, self._tick)
        self.broker.more_is_safe()

    def _request_checkpoint(self) -> None:
        """Begin a checkpoint: changes made while the disk was full have no records."""
        self._needs_checkpoint = True
        self._wake.set()

    def _tick(self) -> None:
        """After idle time, write that the last records are durable, which only a later block can state."""
        journal = self.journal
        lsn = journal.next_lsn
        if journal.state is not WriterState.RUNNING:
            self._is_tick_set = False
        elif journal.trusted_lsn < lsn:
            self._call_later(TICK_SECONDS, self._tick)  # more is being written
        else:
            self._is_tick_set = False
            if self._ticked_lsn < lsn:
                self._ticked_lsn = lsn
                journal.tick()

    def _call_later(self, seconds: float, action: Callable[[], object]) -> None:
        self.broker.context.deadlines.set(self.broker.context.clock.monotonic_ns() + int(seconds * 1e9), action)

    def _failed(self, error: JournalError) -> None:
        """Handle a failure: log it once, refuse waiting publishers, and keep serving consumers."""
        if self._is_closed:
            return
        if isinstance(error, JournalFull) and self.broker.is_unfinished:
            self._failure = error
            return
        is_known = self.recorder.takes_nothing
        self.recorder.fail(for_good=not isinstance(error, JournalFull))
        if isinstance(error, JournalFull):
            self._retry_later()
            if is_known:
                return  # a retry that failed, or a repetition
            logger.error("%s; publishers of persistent messages are refused until there is room", error)
        elif isinstance(error, DirectoryLost):
            self._stop_for(error)
        else:
            logger.critical("%s; nothing durable is taken any more until the broker is started anew", error)
        self.broker.more_is_safe()

    def _retry_later(self) -> None:
        if not self._is_retry_set:
            self._is_retry_set = True
            self._call_later(RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        """Try again, as there may be room now. If not, but consumers freed more than recording it takes, spend the
        reserve.
        """
        self._is_retry_set = False
        journal = self.journal
        if journal.state is not WriterState.FULL:
            return
        if not journal.has_spent_reserve and self._can_make_room():
            self._begin_low()
            journal.spend_reserve()
        else:
            journal.retry()
        self._retry_later()

    def _can_make_room(self) -> bool:
        try:
            unrecorded = self.recorder.late_octets + self.recorder.duplicate_ids.octets
            return self.journal.old_segments.can_make_room(unrecorded)
        except (JournalError, OSError) as error:
            logger.error("reclaiming: %s", error)
            return False

    def _begin_low(self) -> None:
        """Begin the low state: only records that free room are accepted, until the reserve is restored."""
        self.recorder.set_low(True)
        logger.warning(
            "what makes room is written in the %d octets that were held back; publishers of persistent messages are"
            " refused until they are free again",
            self.journal.options.reserve_size,
        )
        self._call_later(RETRY_SECONDS, self._while_low)

    def _while_low(self) -> None:
        journal = self.journal
        if journal.state is WriterState.FAILED:
            return
        if not journal.has_spent_reserve:
            self.recorder.set_low(False)
            if not self.recorder.takes_nothing:
                logger.warning("the journal has room again")
            self.broker.more_is_safe()
            return
        if journal.state is WriterState.RUNNING and not self.recorder.is_behind:
            if self._checkpoint is None and self._can_make_room():
                journal.begin_segment()
                self._request_checkpoint()
            journal.hold_back()
        self._call_later(RETRY_SECONDS, self._while_low)

    async def _make_checkpoint(self, checkpoint: Iterator[None]) -> bool:
        """Write a checkpoint. Returns whether it is durable."""
        while self.broker.is_unfinished:  # a checkpoint begins between turns
            await trio.lowlevel.checkpoint()
        try:
            for _ in checkpoint:
                self._end_turn()
                await trio.lowlevel.checkpoint()  # other connections' turns come between
        except JournalFailed:  # its thread reports why
            return False
        lsn = self._end_turn()
        is_sealed = self.journal.options.fsync != "never"
        while self.journal.state is WriterState.RUNNING and self.journal.trusted_lsn < lsn:
            if not is_sealed and self.recorder.is_behind and not self.broker.is_unfinished:
                is_sealed = True  # that alone is synced, and no more records come: all wait for the sync
                self.journal.begin_segment()
            await trio.sleep(0.01)
        if self.journal.state is not WriterState.RUNNING:
            return False
        while self.broker.is_unfinished:
            await trio.lowlevel.checkpoint()  # old segments may contain messages that only became dead letters
        try:
            gone = self.journal.old_segments.reclaim()
            base_lsn = self.journal.old_segments.to_empty()
            if base_lsn is not None:
                await self._empty(base_lsn)
        except (JournalError, OSError) as error:
            logger.error("reclaiming: %s", error)
            return True
        if gone:
            logger.info("%d segments reclaimed", len(gone))
        return True

    async def _empty(self, base_lsn: int) -> None:
        """Move the live messages of an old segment forward, so that the segment can be deleted."""
        for _ in empty_segment(self.broker, self.journal, self.recorder, base_lsn):
            self._end_turn()
            await trio.lowlevel.checkpoint()

    def abandon(self, timeout_s: float | None = None) -> bool:
        """Instead of `close`, of a node that leads its cluster no more: nothing more is written or recorded.

        False: a write or fsync has not come back within the time; call it again.
        """
        self.recorder.fail(for_good=True)
        if not self.journal.abandon(timeout_s):
            return False
        self._close_files()
        return True

    def close(self) -> None:
        """Write what waits, then a last checkpoint for a quick start."""
        self._is_closed = True
        try:
            while self.broker.is_unfinished:
                self.broker.end_turn()
            self.journal.commit()
            if self.journal.state is WriterState.RUNNING:
                for _ in checkpoint(self.broker, self.journal, self.recorder):
                    self.journal.commit()
                self.journal.commit()
            self.journal.close()
        except DirectoryLost:
            pass  # that is why the broker stops
        except JournalError as error:
            logger.error("closing the journal: %s", error)
        finally:
            self._close_files()

    def _close_files(self) -> None:
        self.broker.context.storage.close()
        for files in self._spares:
            files.release()
