"""The journal as the broker's thread has it: turns of records in, LSNs out, checkpoints, reclaiming.

    journal = Journal.open(path, clock)
    recovered = journal.recovered            # topology, queues and their messages
    ...
    queue = journal.define(QUEUE, vhost, "orders")
    lsn = journal.published(ids, exchange, b"key", blobs, queue_ids=[queue])
    journal.enqueued(queue, ids, lsn, sizes)
    end = journal.commit()                   # ends the turn; confirm when on_durable says `end` or more

No method waits for the disk but `open`, `close` and `wait`. All are for one thread.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..engine.clock import Clock
from ..engine.events import EventKind
from ..engine.messages.content import PLAIN, Framing
from .disk.directory import Directory, reader_offsets
from .disk.files import REAL, Files
from .disk.reserve import Reserve
from .disk.writer import NO_ROOM, Writer, WriterState
from .format.block import BlockBuilder
from .format.errors import JournalError
from .format.heap import (
    Bound,
    Declared,
    Head,
    content_prefix,
    encode_bound,
    encode_declared,
    encode_head,
    encode_runs,
    encode_text,
)
from .format.names import Names
from .format.record import (
    ATTEMPT_MAX,
    BOUND,
    CHECKPOINT,
    CODE_OF,
    DECLARED,
    DURABLE,
    EXCHANGE,
    HEAD,
    KEPT,
    OTHER_REASON,
    QUEUE,
    RANGE,
    REASON_CODES,
    RESTATED,
    SETTINGS_CHANGED,
    TERMINAL_CODES,
    TRANSACTION,
    UNBOUND,
    UNDECLARED,
    Record,
)
from .reading.content_reader import ContentReader
from .reading.moving import contents_of, moved_record
from .recovery.opening import prepare
from .recovery.reclaim import Ledger
from .recovery.recovered import RecoveredMessage
from .recovery.replay import Recovered
from .recovery.snapshot import snapshot_parts

PROGRAM = "leveret"
#: A message that a checkpoint states pays for itself when so many octets were appended.
STATED_OCTETS = 256
#: What a checkpoint takes at most, for each message, for each name, and beside these.
SNAPSHOT_OCTETS, NAMED_OCTETS, HEAD_OCTETS = 64, 512, 64 * 1024


@dataclass(slots=True, frozen=True)
class JournalOptions:
    """As in the configuration's `[journal]` table; sizes in octets, times in milliseconds."""

    fsync: str = "commit"
    fsync_interval_ms: int = 200
    segment_size: int = 64 * 1024 * 1024
    segment_age_ms: int = 3_600_000
    retain_ms: int | None = None
    scope: str = "durable"
    preallocate_size: int = 4 * 1024 * 1024
    reserve_size: int = 0  # held back for what makes room on a full disk


@dataclass(slots=True, frozen=True)
class JournalStatistics:
    """A snapshot of the journal itself."""

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


class Journal:
    """See the module. `on_durable(lsn)` and `on_failure(error)` may be set; the writer's thread calls them."""

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
    ) -> None:
        self._directory = directory
        self._files = directory.files
        self._clock = clock
        self.options = options
        self.recovered = recovered
        self.names: Names = recovered.names
        self.next_message_id = recovered.next_message_id
        self.ledger = Ledger()
        self._checkpoint = (recovered.checkpoint_begin, recovered.checkpoint_end)
        self._checkpoint_started = 0
        self._checkpoint_bytes = 0  # appended since the last checkpoint
        self._checkpoint_look = self.options.segment_size  # with so many, see whether another is due
        self._appended = 0  # octets in this segment
        self._segment_began_ms = 0
        self._reserve = reserve
        self._block: BlockBuilder | None = None
        self._size_at_turn = 0
        self.writer = Writer(
            self._files,
            directory.path,
            recovered.next_lsn,
            mode=options.fsync,
            scope=options.scope,
            interval_ms=options.fsync_interval_ms,
            preallocate_size=options.preallocate_size,
            reserve=reserve,
        )
        self.contents = ContentReader(
            directory.path,
            content_files,
            open_segment=lambda: self.writer.segment,
            unwritten=self.writer.unwritten,
            ahead=threaded,
        )

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
    ) -> "Journal":
        """Lock the directory, recover, cut a torn tail, begin a new segment.

        `content_files`: what contents are read with, if not `files`.
        `threaded=False`: commits happen in `wait`, and nothing is read ahead (for tests).
        Raises: DirectoryLocked, ForeignDirectory, Damaged (nothing was changed), OSError.
        """
        directory = Directory.open(path, files, new_id=new_id)
        try:
            options = options or JournalOptions()
            reserve = Reserve(files, path, options.reserve_size)
            try:
                recovered = prepare(files, path, directory.journal_id)
            except OSError as error:
                if error.errno not in NO_ROOM or not reserve.release():
                    raise
                recovered = prepare(files, path, directory.journal_id)
            journal = cls(
                directory,
                clock,
                options,
                recovered,
                threaded=threaded,
                content_files=content_files or files,
                reserve=reserve,
            )
            journal._begin_ledger(recovered)
            journal._roll()
            if threaded:
                journal.writer.start()
            return journal
        except BaseException:
            directory.close()
            raise

    def close(self) -> None:
        """Write what waits, seal, unlock. Raises: JournalFull, JournalFailed (unlocked all the same)."""
        self.commit()
        try:
            self.writer.close()
        finally:
            self.contents.close()
            self._directory.close()

    def _begin_ledger(self, recovered: Recovered) -> None:
        ledger = self.ledger
        for segment in recovered.segments:
            ledger.begin(segment.base_lsn, segment.ts_max, 0)
        for row, segment in zip(ledger.rows, recovered.segments):
            row.size, row.ended_us = segment.size, segment.ts_max or 1
        ledger.set_first_ids([segment.first_id for segment in recovered.segments])
        if ledger.rows:
            for queue in recovered.queues.values():
                ledger.recovered(recovered.next_message_id - 1, queue)

    # -- turns --------------------------------------------------------------------------------------------------------

    def _turn(self) -> BlockBuilder:
        now_ms = self._clock.wall_ms()
        options = self.options
        if self._appended >= options.segment_size or now_ms - self._segment_began_ms >= options.segment_age_ms:
            self._roll()
        block = self._block = self.writer.begin_turn(now_ms * 1000)
        self._size_at_turn = block.size
        return block

    def _roll(self) -> None:
        """A new segment. Its head makes it whole: names, ids, where the last checkpoint is."""
        now_ms = self._clock.wall_ms()
        self.names.drop_retired(self.ledger.first_live_lsn(self.writer.next_lsn))

        def fill(head: BlockBuilder) -> None:
            begin, end = self._checkpoint
            heap = encode_head(Head(self._directory.journal_id, begin, end, PROGRAM))
            head.add(Record(HEAD, arg=self.names.next_id, msg_id=self.next_message_id, heap=heap))
            for record in self.names.records():
                head.add(record)

        base_lsn = self.writer.roll(now_ms * 1000, self._checkpoint, fill)
        self.ledger.begin(base_lsn, now_ms * 1000, self._appended)
        self._appended = 0
        self._segment_began_ms = now_ms

    def commit(self) -> int:
        """End the turn: what was appended is written as soon as the commit under way has ended.

        Returns the LSN behind it: safe when `committed_lsn`, or what `on_durable` says, has reached it.
        """
        block = self._block
        if block is None:
            return self.writer.next_lsn
        grown = block.size - self._size_at_turn
        self._appended += grown
        self._checkpoint_bytes += grown
        self._block = None
        return self.writer.end_turn()

    def append(self, records: Iterable[Record]) -> int:
        """Any records, as they are; returns the LSN of the first. They count for no segment's life."""
        block = self._block or self._turn()
        lsn = block.next_lsn
        for record in records:
            block.add(record)
        return lsn

    # -- messages -----------------------------------------------------------------------------------------------------

    def published(
        self,
        ids: Sequence[int],
        exchange_id: int,
        routing_key: bytes,
        blobs: Sequence[bytes],
        *,
        framing: Framing = PLAIN,
        queue_ids: Sequence[int] = (),
        expires_ms: int = 0,
        cause_id: int = 0,
        priority: int = 0,
        conn_id: int = 0,
        durable: bool = True,
    ) -> int:
        """A run of new messages with their contents, which share the rest. O(messages).

        ids: rising. expires_ms: wall time by the message's own TTL, 0 never. cause_id: what it is a copy of.
        Returns: LSN of the first, the next has the next: where their contents are.
        Raises: JournalFailed, JournalClosed, BadRecord (key over 255 octets).
        """
        block = self._block or self._turn()
        self.next_message_id = max(self.next_message_id, ids[-1] + 1)
        if durable:
            self.ledger.published(ids)
        return block.published(
            ids,
            content_prefix(routing_key, queue_ids, expires_ms, cause_id),
            blobs,
            framing,
            arg=expires_ms,
            flags=DURABLE if durable else 0,
            priority=priority,
            address_id=exchange_id,
            conn_id=conn_id,
        )

    def enqueued(
        self,
        queue_id: int,
        ids: Sequence[int],
        content_lsn: int,
        sizes: Sequence[int],
        *,
        expires_ms: int = 0,
        priority: int = 0,
        durable: bool = True,
    ) -> int:
        """Messages into a queue. `content_lsn`: what `published` returned for the first of them.

        sizes: octets of body of each. expires_ms: wall time in this queue (its own TTL or the message's), 0 never.
        durable: a persistent message in a durable queue: it is restored.
        """
        block = self._block or self._turn()
        if durable:
            self.ledger.enqueued(ids, content_lsn)
        return block.enqueued(
            queue_id, ids, content_lsn, sizes, arg=expires_ms, flags=DURABLE if durable else 0, priority=priority
        )

    def happened(
        self,
        kind: EventKind,
        queue_id: int,
        ids: Sequence[int],
        *,
        durable: bool = True,
        kept: bool = False,
        reason: str = "",
        target_id: int = 0,
        deliveries: int = 0,
        uncounted: int = 0,
        due_ms: int = 0,
        consumer_id: int = 0,
        conn_id: int = 0,
        flags: int = 0,
    ) -> int:
        """Any other event of messages in a queue: one record each, alike. Returns the LSN of the first.

        reason: a word of `REASONS` (another is written as text, a record each). target_id: exchange of a dead letter.
        deliveries, uncounted, due_ms: of `requeued`, `scheduled`, `delivered`: absolute, not differences.
        """
        block = self._block or self._turn()
        code = CODE_OF[kind]
        flags |= (DURABLE if durable else 0) | (KEPT if kept else 0)
        if code in TERMINAL_CODES and durable and not kept:
            self.ledger.settled(ids)
        reason_code = REASON_CODES.get(reason, OTHER_REASON)
        if reason_code == OTHER_REASON:
            heap, lsn = encode_text(reason), block.next_lsn
            for id_ in ids:
                other = Record(
                    code, 0, id_, due_ms, flags, 0, OTHER_REASON, target_id, queue_id, consumer_id, conn_id,
                    min(deliveries, ATTEMPT_MAX), 0, uncounted, heap,
                )  # fmt: skip
                block.add(other)
            return lsn
        return block.run(
            code,
            queue_id,
            ids,
            arg=due_ms,
            flags=flags,
            reason=reason_code,
            address_id=target_id,
            consumer_id=consumer_id,
            conn_id=conn_id,
            attempt=min(deliveries, ATTEMPT_MAX),
            link=uncounted,
        )

    def settled_range(
        self,
        kind: EventKind,
        queue_id: int,
        ids: Sequence[int],
        *,
        durable: bool = True,
        reason: str = "",
        consumer_id: int = 0,
        conn_id: int = 0,
    ) -> int:
        """A terminal event of many messages as one record: purge, delete. Returns its LSN.

        ids: of durable messages (or of transient ones), rising; no other of the queue's has an id between first and
        last.
        """
        assert CODE_OF[kind] in TERMINAL_CODES
        block = self._block or self._turn()
        if durable:
            self.ledger.settled(ids)
        reason_code = REASON_CODES.get(reason, 0)
        first, last = ids[0], ids[-1]
        flags = (DURABLE if durable else 0) | RANGE
        heap = b"" if last - first + 1 == len(ids) else encode_runs(ids)
        return block.add(
            Record(
                CODE_OF[kind], 0, first, last, flags, 0, reason_code, 0, queue_id, consumer_id, conn_id,
                size=len(ids), heap=heap,
            )
        )  # fmt: skip

    def transaction(self, *, opens: bool) -> None:
        """A bracket around what one transaction did. A turn is in one block, so it is durable whole or not at all."""
        (self._block or self._turn()).add(Record(TRANSACTION, arg=int(opens)))

    # -- names and topology -------------------------------------------------------------------------------------------

    def define(self, what: int, vhost_id: int, name: str) -> int:
        """The id of a name (`VHOST`, `EXCHANGE`, `QUEUE`, `CONSUMER`, ... of record.py), new or as it is."""
        id_ = self.names.id_of(what, vhost_id, name)
        return self.define_another(what, vhost_id, name) if id_ is None else id_

    def define_another(self, what: int, vhost_id: int, name: str) -> int:
        """A new id for a name that may have one: of connections and consumers, several can be called alike."""
        id_, record = self.names.new(what, vhost_id, name)
        (self._block or self._turn()).add(record)
        return id_

    def forget(self, id_: int) -> None:
        """A connection or consumer is gone: later segments don't define it."""
        self.names.forget(id_)

    def retire(self, id_: int) -> None:
        """An exchange is gone of which no `undeclared` has to tell: later messages don't speak of it."""
        self.names.retire(id_, self.next_lsn)

    def declared(self, id_: int, declared: Declared, *, restated: bool = False) -> int:
        """A queue, exchange, virtual host, ... is there; restored if its properties say durable. Returns the LSN."""
        return self._object(DECLARED, id_, declared, restated)

    def undeclared(self, id_: int, what: int, *, forgets: bool = True) -> int:
        """It is gone, with its bindings; the id means nothing any more but what an exchange was called, to messages.

        Messages in it: `deleted` before this.

        A virtual host is gone with all that is in it. `forgets=False`: records that speak of that are still to come.
        """
        lsn = self._object(UNDECLARED, id_, Declared(what, 0, "", b""), False)
        if forgets:
            self.names.retire(id_, lsn)
        return lsn

    def _object(self, kind: int, id_: int, declared: Declared, restated: bool) -> int:
        what = declared.what
        record = Record(
            kind,
            flags=(DURABLE if declared.properties & 1 else 0) | (RESTATED if restated else 0),
            arg=0 if what in (QUEUE, EXCHANGE) else id_,
            queue_id=id_ if what == QUEUE else 0,
            address_id=id_ if what == EXCHANGE else 0,
            heap=encode_declared(declared),
        )
        return (self._block or self._turn()).add(record)

    def bound(self, source_id: int, bound: Bound, *, durable: bool = True, restated: bool = False) -> int:
        """A binding from an exchange. Returns the LSN."""
        return self._binding(BOUND, source_id, bound, (DURABLE if durable else 0) | (RESTATED if restated else 0))

    def unbound(self, source_id: int, bound: Bound, *, durable: bool = True) -> int:
        """The binding is gone. Returns the LSN."""
        return self._binding(UNBOUND, source_id, bound, DURABLE if durable else 0)

    def _binding(self, kind: int, source_id: int, bound: Bound, flags: int) -> int:
        queue_id = bound.target_id if bound.what == QUEUE else 0
        record = Record(kind, flags=flags, address_id=source_id, queue_id=queue_id, heap=encode_bound(bound))
        return (self._block or self._turn()).add(record)

    def settings_changed(self, key: int, text: str) -> int:
        """Settings of something (`key`: an id, 0 for the broker) are these now (JSON). Returns the LSN."""
        return (self._block or self._turn()).add(
            Record(SETTINGS_CHANGED, arg=key, flags=DURABLE, heap=encode_text(text))
        )

    # -- checkpoints --------------------------------------------------------------------------------------------------

    @property
    def checkpoint_due(self) -> bool:
        """Whether so much was appended since the last checkpoint that another pays.

        With many messages to state it waits longer, so that filling a deep queue stays linear.
        """
        appended = self._checkpoint_bytes
        if appended < self._checkpoint_look:
            return False
        live = sum(row.live for row in self.ledger.rows)
        if appended >= max(self.options.segment_size, live * STATED_OCTETS):
            return True
        self._checkpoint_look = appended + self.options.segment_size // 4
        return False

    def begin_checkpoint(self) -> None:
        """Between turns. From here on state all that is there, in as many turns as it takes: `declared`, `bound` with
        `restated=True`, `settings_changed`, `snapshot`; other records may come between. Then `end_checkpoint`."""
        assert self._block is None
        self._checkpoint_started = self.writer.next_lsn

    def snapshot(self, queue_id: int, messages: Iterator[RecoveredMessage]) -> Iterator[int]:
        """The durable messages that are in a queue, ids rising. A part is appended for each `next`; gives its LSN.

        The queue may change between parts if `messages` follows it.
        """
        for record in snapshot_parts(queue_id, messages):
            yield (self._block or self._turn()).add(record)

    def end_checkpoint(self) -> int:
        """The snapshot is whole. Recovery starts at its begin once this is durable. Returns the LSN."""
        assert self._checkpoint_started
        block = self._block or self._turn()
        lsn = block.add(Record(CHECKPOINT, arg=self._checkpoint_started, msg_id=self.next_message_id, flags=RESTATED))
        self._checkpoint = (self._checkpoint_started, lsn + 1)
        self._checkpoint_started = 0
        self._checkpoint_bytes = 0
        self._checkpoint_look = self.options.segment_size
        return lsn

    # -- reclaiming ---------------------------------------------------------------------------------------------------

    def reclaim(self) -> list[int]:
        """Between turns: delete the segments that nobody needs (in the writer's thread). Returns their base LSNs.

        Raises: JournalError when a reader's file cannot be understood (nothing is deleted).
        """
        begin, end = self._checkpoint
        if not begin or self.writer.durable_lsn < end:
            return []
        keep = min(reader_offsets(self._directory.path, self._files).values(), default=None)
        retain_ms = self.options.retain_ms
        keep_us = None if retain_ms is None else (self._clock.wall_ms() - retain_ms) * 1000
        gone = self.ledger.removable(begin, keep, keep_us)
        if gone:
            self.ledger.remove(gone)
            for base_lsn in gone:
                self.contents.forget(base_lsn)
            self.writer.unlink(gone)
        return gone

    def move_forward(
        self,
        base_lsn: int,
        queues_of: Callable[[int], Sequence[int]],
        moved: Callable[[int, int], object],
        *,
        slice_messages: int = 256,
    ) -> Iterator[int]:
        """Copy what is alive in an old segment (`ledger.to_empty()`) forward, a slice a turn; yields how many.

        queues_of(message id): ids of the durable queues it is in now. moved(message id, new content LSN). The segment
        can be reclaimed after the next checkpoint. Raises: NotInJournal, Damaged, OSError.
        """
        count = 0
        for lsn, record in contents_of(self._files, self._directory.path, base_lsn):
            if self.ledger.holds(record.msg_id, base_lsn) and (queue_ids := tuple(queues_of(record.msg_id))):
                block = self._block or self._turn()
                self.ledger.moved(record.msg_id, len(queue_ids))
                moved_lsn = block.add(moved_record(lsn, record, queue_ids))
                if self.names.is_retired(record.address_id):
                    self.names.retire(record.address_id, moved_lsn + 1)
                moved(record.msg_id, moved_lsn)
                count += 1
                if count == slice_messages:
                    yield count
                    count = 0
        yield count

    # -- how it is ----------------------------------------------------------------------------------------------------

    def read_content(self, lsn: int) -> bytes:
        """The content at an LSN below `written_lsn`, a blob of the plain framing: one or two reads of the file.

        Raises: NotInJournal, Damaged, OSError.
        """
        return self.contents.read(lsn)

    def wait(self, lsn: int, timeout_s: float | None = None) -> bool:
        """Block until all below `lsn` is committed (for start, shutdown, tests). False: time is up, or it failed."""
        return self.writer.wait(lsn, timeout_s)

    def retry(self) -> None:
        """After JournalFull: there may be room now."""
        self.writer.retry()

    def spend_reserve(self) -> None:
        """After JournalFull, between turns: write on, in a new segment, in the room that was held back."""
        self.begin_segment()
        self.writer.retry(spends_reserve=True)

    def begin_segment(self) -> None:
        """Between turns: what is recorded from now on, as the next checkpoint, is in a new segment."""
        assert self._block is None
        self._roll()

    def hold_back(self) -> None:
        """Between turns: the reserve is held back again, as soon as there is room for it."""
        self.writer.hold_back()

    @property
    def has_spent_reserve(self) -> bool:
        """Whether it was spent and could not be held back again."""
        return self._reserve.is_spent

    def can_make_room(self, unrecorded: int) -> bool:
        """Whether a checkpoint would give more room back than it takes, which must be in the reserve if it is held.

        `unrecorded`: octets of what it has to state with its content. O(segments), reads the readers' files.
        Raises: JournalError, OSError.
        """
        if self._reserve.is_held or self._reserve.is_spent:
            keep = min(reader_offsets(self._directory.path, self._files).values(), default=None)
            retain_ms = self.options.retain_ms
            keep_us = None if retain_ms is None else (self._clock.wall_ms() - retain_ms) * 1000
            live = sum(row.live for row in self.ledger.rows)
            need = live * SNAPSHOT_OCTETS + len(self.names) * NAMED_OCTETS + HEAD_OCTETS + unrecorded
            need += self.backlog_bytes
            fits = self._reserve.is_spent or need <= self._reserve.size
            return fits and self.ledger.dead_size(self._appended, keep, keep_us) > need
        return False

    def tick(self) -> None:
        """Between turns, when idle: let readers know that the last records are durable."""
        self.writer.tick()

    def set_callbacks(self, on_durable: Callable[[int], object], on_failure: Callable[[JournalError], object]) -> None:
        """Whom the writer's thread tells."""
        self.writer.on_durable, self.writer.on_failure = on_durable, on_failure

    @property
    def state(self) -> WriterState:
        """RUNNING, FULL, FAILED or CLOSED."""
        return self.writer.state

    @property
    def failure(self) -> JournalError | None:
        """Why it is not running; None: it is, or was closed."""
        return self.writer.error

    @property
    def next_lsn(self) -> int:
        """LSN of the next record."""
        return self._block.next_lsn if self._block is not None else self.writer.next_lsn

    @property
    def committed_lsn(self) -> int:
        """All below it is as safe as the mode promises."""
        return self.writer.committed_lsn

    @property
    def durable_lsn(self) -> int:
        """All below it is fsynced."""
        return self.writer.durable_lsn

    @property
    def written_lsn(self) -> int:
        """All below it can be read."""
        return self.writer.written_lsn

    @property
    def backlog_bytes(self) -> int:
        """Octets appended and not yet written: block publishers when this grows."""
        return self.writer.backlog_bytes

    @property
    def path(self) -> str:
        """Of its directory."""
        return self._directory.path

    @property
    def is_there(self) -> bool:
        """Whether its directory still is. Reads it."""
        return self._directory.is_there

    def statistics(self) -> JournalStatistics:
        """A snapshot. O(segments)."""
        writer = self.writer
        return JournalStatistics(
            state=writer.state.name.lower(),
            next_lsn=self.next_lsn,
            durable_lsn=writer.durable_lsn,
            backlog_bytes=writer.backlog_bytes,
            written_bytes=writer.written_bytes,
            commits=writer.commit_count,
            syncs=writer.sync_count,
            segments=len(self.ledger.rows),
            live=sum(row.live for row in self.ledger.rows),
            names=len(self.names),
            checkpoint_lsn=self._checkpoint[0],
        )
