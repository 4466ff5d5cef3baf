"""The supervisor of the journal: opens it, restores the broker from it, and serves it while the broker runs.

The journal's thread reports its progress; everything else runs in the broker's thread, between turns.
Source: ruling 21; interfaces page, [journal].
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import trio

from ..configured.options import journal_options
from ..engine import Broker, Unreadable
from ..journal import (
    ClusterJournal,
    Damaged,
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

#: Seconds until a write to a full disk is tried again.
RETRY_SECONDS = 1.0
#: Seconds until what has to come between turns of the journal is tried again, if it came within one.
SOON_SECONDS = 0.01
#: Spare descriptors for writing (the next segment, the directory, readers' offsets), and for reading.
WRITER_SPARES, READER_SPARES = 4, 1
#: Idle seconds after which the journal states that its last records are durable, for its readers.
TICK_SECONDS = 0.25


def _restored(path: str, broker: Broker, configuration: Configuration, journal: Journal) -> Recorder:
    """Restore the broker from its journal, and return the recorder of its changes."""
    recorder = (FullRecorder if journal.options.scope == "all" else Recorder)(
        broker,
        journal,
        persists_deliveries=configuration.broker.persist_delivery_count_before_delivery,
        counts_max=configuration.broker.max_redelivery_records,
        keeps_ids=configuration.broker.persist_id_cache,
    )
    if journal.leads_cluster:
        recorder.hold_deliveries()
    pager = JournalPager(broker, journal, recorder, configuration.broker_limits.memory)
    broker.context.storage.pager = pager
    found = journal.recovered
    objects_count = len(found.objects)
    try:
        count = restore(broker, journal, recorder, took_over=journal.leads_cluster)
    except BaseException:
        if journal.leads_cluster:
            journal.abandon()
        else:
            journal.close()
        raise
    if found.torn_bytes:
        logger.warning("%s: a write that was interrupted was cut off: %d octets", path, found.torn_bytes)
    logger.info("%s: %d messages, %d objects restored", path, count, objects_count)
    return recorder


def why_unusable(path: str, error: JournalError | OSError) -> str:
    """A sentence for the operator with the data directory and the reason."""
    if isinstance(error, JournalError):
        what = str(error).removeprefix(f"{path}: ")
    else:
        what = error.strerror or str(error)
        if isinstance(error.filename, str) and error.filename != path:
            what = f"{error.filename}: {what}"
    if isinstance(error, Damaged):
        what += f"; leveret journal repair {path} --out DIRECTORY saves what can be read"
    return f"data directory {path}: {what}"


class Supervisor:
    """Keeps the journal of one broker. Made by `open`; `commit` ends each turn; `tend` is a task beside the broker."""

    def __init__(
        self, broker: Broker, journal: Journal, recorder: Recorder, spares: tuple[SpareFiles, ...] = ()
    ) -> None:
        self.broker = broker
        self.journal = journal
        self.recorder = recorder
        self._spares = spares
        broker.context.storage.on_unreadable = self._stop_for
        self._unreadable: Unreadable | DirectoryLost | None = None
        self._failure: JournalFull | None = None  # came while the broker was unfinished; handled when it is finished
        self._wake = trio.Event()
        self._checkpoint: Iterator[None] | None = None
        self._needs_checkpoint = False
        self._is_tick_set = False
        self._is_retry_set = False
        self._ticked_lsn = 0  # records below it are stated as durable
        self._seen_lsn = 0  # `next_lsn` when `_tick` was set
        self._is_closed = False  # later reports of the journal's thread are ignored
        if journal.has_spent_reserve:
            self._begin_low()
        if journal.recovered.has_moved_times:
            self._request_checkpoint()  # writes the moved times, which the next start would otherwise move again

    @classmethod
    def open(
        cls,
        path: str,
        broker: Broker,
        configuration: Configuration,
        *,
        holds_reserve: bool = True,
        files: Files | None = None,
        cluster: ClusterJournal | None = None,
    ) -> "Supervisor":
        """Open the journal and restore the broker. `files`, `cluster`: as in `composition.Data`.

        Raises: JournalError (locked, foreign or damaged, with a text for the operator), OSError.
        """
        options = journal_options(configuration)
        options = options if holds_reserve else replace(options, reserve_size=0)
        spares = () if files is not None else (SpareFiles(WRITER_SPARES), SpareFiles(READER_SPARES))
        writing, reading = spares or (files, None)
        assert writing is not None
        try:
            journal = Journal.open(
                path,
                broker.context.clock,
                options,
                files=writing,
                content_files=reading,
                threaded=files is None,
                cluster=cluster,
            )
            recorder = _restored(path, broker, configuration, journal)
        except BaseException:
            for spare in spares:
                spare.release()
            raise
        return cls(broker, journal, recorder, spares)

    def commit(self) -> None:
        self._end_turn()
        if self._checkpoint is None and self.journal.checkpoints.is_due and not self.recorder.takes_nothing:
            self._checkpoint = checkpoint(self.broker, self.journal, self.recorder)
            self._wake.set()

    def agree(self, lsn: int, *, at_once: bool) -> None:
        """Note that all nodes in sync have the records below `lsn`. See `cluster.node_process.LeadingBroker`."""
        self.journal.agree(lsn, reports=not at_once)
        if at_once:
            self.release_awaiting()

    def _end_turn(self) -> int:
        """Release the records for writing, unless the broker is unfinished. Returns the LSN after them.

        The deaths of messages are recorded some turns before their dead letters: if a release came in between, a kill
        after it would lose the messages. A transaction is released as a whole, too.
        """
        if self.broker.is_unfinished:
            return self.journal.next_lsn
        lsn = self.journal.commit()
        if self.broker.context.next_id - self.journal.next_message_id > IDS_UNNOTED_MAX:
            self.journal.record_next_id(self.broker.context.next_id)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self._failed(failure)
        return lsn

    async def tend(self, request_report: Callable[[], object] | None = None) -> None:
        """Handle reports of the journal's thread, make checkpoints, reclaim, until cancelled.

        `request_report`: called in any thread to have the event loop call `release_awaiting` soon; None: trio does it.
        Raises: Unreadable: content on disk could not be read, so the broker must stop; DirectoryLost:
        nothing can be stored.
        """
        token = trio.lowlevel.current_trio_token()

        def report_through_trio() -> None:
            try:
                token.run_sync_soon(self.release_awaiting, idempotent=True)
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
            if self._needs_checkpoint and not self.recorder.takes_nothing:  # also after the one just made
                self._needs_checkpoint = False
                self._checkpoint = checkpoint(self.broker, self.journal, self.recorder)
                if await self._make_checkpoint(self._checkpoint):
                    self.recorder.checkpoint_done()
                    self.broker.release_awaiting()
                self._checkpoint = None  # if it is not durable, `release_awaiting` requests another later

    def _stop_for(self, error: Unreadable | DirectoryLost) -> None:
        self._unreadable = error
        self._wake.set()

    def committed(self) -> None:
        """A commit has ended. Called in the event loop's thread."""
        self.journal.writer.end_small()
        self.release_awaiting()

    def release_awaiting(self) -> None:
        """Release what waits for the journal, which has written more. Called in the event loop's thread."""
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
            self._tick_later()
        self.broker.release_awaiting()

    def _request_checkpoint(self) -> None:
        """Begin a checkpoint, e.g. because changes made while the disk was full have no records."""
        self._needs_checkpoint = True
        self._wake.set()

    def _tick(self) -> None:
        """After idle time, write a block that states the last records as durable: only a later block can."""
        journal = self.journal
        lsn = journal.next_lsn
        if journal.state is not WriterState.RUNNING:
            self._is_tick_set = False
        elif lsn != self._seen_lsn or journal.trusted_lsn < lsn:
            self._tick_later()  # the journal was not idle, or records are still being written
        else:
            self._is_tick_set = False
            if self._ticked_lsn < lsn:
                self._ticked_lsn = lsn
                journal.tick()

    def _tick_later(self) -> None:
        self._seen_lsn = self.journal.next_lsn
        self._call_later(TICK_SECONDS, self._tick)

    def _call_later(self, seconds: float, action: Callable[[], object]) -> None:
        self.broker.context.deadlines.set(self.broker.context.clock.monotonic_ns() + int(seconds * 1e9), action)

    def _call_between_turns(self, action: Callable[[], object]) -> None:
        """Call an action after `RETRY_SECONDS` that may begin a segment.

        Several deadlines share a turn, and work of several turns is released as one: then a little later.
        """

        def call() -> None:
            if self.broker.is_unfinished or self.journal.turns.block is not None:
                self._call_later(SOON_SECONDS, call)
            else:
                action()

        self._call_later(RETRY_SECONDS, call)

    def _failed(self, error: JournalError) -> None:
        """Handle a failure: log it once, and refuse waiting publishers. Consumers are still served."""
        if self._is_closed:
            return
        if isinstance(error, JournalFull) and self.broker.is_unfinished:
            self._failure = error
            return
        had_failed = self.recorder.takes_nothing
        self.recorder.fail(for_good=not isinstance(error, JournalFull))
        if isinstance(error, JournalFull):
            self._retry_later()
            if had_failed:
                return  # a failed retry, or the same failure again
            logger.error("%s; publishers of persistent messages are refused until there is room", error)
        elif isinstance(error, DirectoryLost):
            self._stop_for(error)
        else:
            logger.critical("%s; nothing durable is stored until the broker is restarted", error)
        self.broker.release_awaiting()

    def _retry_later(self) -> None:
        if not self._is_retry_set:
            self._is_retry_set = True
            self._call_between_turns(self._retry)

    def _retry(self) -> None:
        """Try the write again. Spend the reserve instead if consumers freed more than the unrecorded changes take.

        If it fails, `_failed` is called again, and sets the time of the next try.
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
            "only records that free room are written, into %d octets of reserve; publishers of persistent messages are"
            " refused until it is restored",
            self.journal.options.reserve_size,
        )
        self._call_between_turns(self._while_low)

    def _while_low(self) -> None:
        journal = self.journal
        if journal.state is WriterState.FAILED:
            return
        if not journal.has_spent_reserve:
            self.recorder.set_low(False)
            if not self.recorder.takes_nothing:
                logger.warning("the journal has room again")
            self.broker.release_awaiting()
            return
        if journal.state is WriterState.RUNNING and not self.recorder.is_behind:
            if self._checkpoint is None and self._can_make_room():
                journal.begin_segment()
                self._request_checkpoint()
            journal.refill_reserve()
        self._call_between_turns(self._while_low)

    async def _make_checkpoint(self, checkpoint: Iterator[None]) -> bool:
        """Write a checkpoint. Returns whether it is durable, and nothing happened meanwhile that was not recorded."""
        while self.broker.is_unfinished:  # a checkpoint begins between turns
            await trio.lowlevel.checkpoint()
        missed = self.recorder.missed
        try:
            for _ in checkpoint:
                self._end_turn()
                await trio.lowlevel.checkpoint()  # other connections' turns come between
        except JournalFailed:  # the journal's thread reports why
            return False
        lsn = self._end_turn()
        is_sealed = self.journal.options.fsync != "never"
        while self.journal.state is WriterState.RUNNING and self.journal.trusted_lsn < lsn:
            if self._unreadable is not None:  # with fsync = never the sync may be hours away
                return False
            if not is_sealed and self.recorder.is_behind and not self.broker.is_unfinished:
                is_sealed = True  # with fsync = never only ended segments are synced, and the recorder waits for that
                self.journal.begin_segment()
            await trio.sleep(0.01)
        if self.journal.state is not WriterState.RUNNING:
            return False
        while self.broker.is_unfinished:
            await trio.lowlevel.checkpoint()  # old segments may hold the content of unpublished dead letters
        if self.recorder.missed != missed:  # it may state messages that have left without a record
            return False
        try:
            gone = self.journal.old_segments.reclaim()
            base_lsn = self.journal.old_segments.worth_emptying()
            if base_lsn is not None:
                for _ in empty_segment(self.broker, self.journal, self.recorder, base_lsn):
                    self._end_turn()
                    await trio.lowlevel.checkpoint()
        except (JournalError, OSError) as error:
            logger.error("reclaiming: %s", error)
            return True
        if gone:
            logger.info("%d segments reclaimed", len(gone))
        return True

    def abandon(self) -> None:
        """Close without writing or recording, because this node no longer leads. Waits for a write that has begun."""
        self.recorder.fail(for_good=True)
        self.journal.abandon()
        self._close_files()

    def close(self) -> None:
        """Write the waiting records, then a last checkpoint for a quick start."""
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
            pass  # the reason why the broker stops
        except JournalError as error:
            logger.error("closing the journal: %s", error)
        finally:
            self._close_files()

    def _close_files(self) -> None:
        self.broker.context.storage.close()
        for files in self._spares:
            files.release()
