"""Turns: groups of records that become durable together, in blocks and segments; and when a checkpoint is due.

recording/checkpoint.py writes the records of a checkpoint; `Checkpoints.end` appends the last one.
"""

from collections.abc import Iterator

from ...engine import Clock
from ..disk.options import JournalOptions
from ..disk.writer import Writer
from ..format.block import BlockBuilder
from ..format.heap import Head, encode_head
from ..format.names import Names
from ..format.needs import DUPLICATE_IDS, level_of, needs_of
from ..format.record import CHECKPOINT, HEAD, RESTATED, Record
from ..recovery.recovered import RecoveredMessage
from ..recovery.replay import Recovered
from ..recovery.snapshot import snapshot_parts
from .segment_usage import SegmentUsage

PROGRAM = "leveret"


class Turns:
    """Fills the writer's blocks. `block`: that of the turn under way; None between turns.

    `log_ms`: as in `JournalOptions`, until a reload changes it.

    Code that appends uses `turns.block or turns.begin()`. `unawaited_count`: records of the turn for which no answer
    waits, such as acks. `is_awaited`: an answer waits for these or for earlier records.
    """

    def __init__(
        self, writer: Writer, clock: Clock, options: JournalOptions, journal_id: bytes, recovered: Recovered
    ) -> None:
        self.writer = writer
        self.options = options
        self.names: Names = recovered.names
        self.usage = _usage_of(recovered)
        self.next_message_id = recovered.next_message_id
        self.checkpoint = (recovered.checkpoint_begin, recovered.checkpoint_end)  # the last one that is whole
        self.uncovered_bytes = recovered.uncovered_bytes  # appended since then, also before this start
        self.ids_bytes = 0  # duplicate ids: octets in the last checkpoint, and appended since then
        self.segment_bytes = self.usage.segments[-1].size if self.usage.segments else 0  # in the newest segment
        self.block: BlockBuilder | None = None
        self.unawaited_count = 0
        self.is_awaited = False
        self.log_ms = options.log_ms
        self._clock = clock
        self._journal_id = journal_id
        # Needs of the recovered objects, also those that an older program did not record.
        needs = frozenset({DUPLICATE_IDS} if recovered.ids else ())
        self._needs = needs.union(*map(needs_of, recovered.objects.values()))
        self._segment_began_ms = 0
        self._size_at_turn = self._count_at_turn = 0  # of the block when the turn began

    def begin(self) -> BlockBuilder:
        """Begin a turn. Returns its block, which is in a new segment if the last one is full or old, or the
        clock was set back.

        Raises: JournalFailed, JournalClosed.
        """
        now_ms = self._clock.wall_ms()
        options = self.options
        age_ms = now_ms - self._segment_began_ms  # below 0: the clock was set back
        if self.segment_bytes >= options.segment_size or not 0 <= age_ms < options.segment_age_ms:
            self.roll()
        block = self.block = self.writer.begin_turn(now_ms * 1000)
        self._size_at_turn, self._count_at_turn = block.size, block.count
        return block

    def commit(self) -> int:
        """End the turn: its records are written as soon as the commit under way has ended.

        If no answer waits for them, a later commit may write them. Returns the LSN after them: they are safe when
        `committed_lsn`, or the argument of `on_durable`, has reached it.
        """
        block = self.block
        if block is None:
            if self.is_awaited:
                self.is_awaited = False
                self.writer.commit_now()
            return self.writer.next_lsn
        grown = block.size - self._size_at_turn
        self.segment_bytes += grown
        self.uncovered_bytes += grown
        self.block = None
        is_awaited = self.is_awaited or block.count - self._count_at_turn > self.unawaited_count
        self.is_awaited, self.unawaited_count = False, 0
        return self.writer.end_turn(is_awaited=is_awaited)

    def roll(self) -> None:
        """Between turns: begin a new segment. Its head makes it self-contained: names, ids, the last checkpoint."""
        assert self.block is None
        now_ms = self._clock.wall_ms()
        self.names.drop_retired(self._oldest_needed())

        def fill(head: BlockBuilder) -> None:
            head.needs = self._needs
            begin, end = self.checkpoint
            heap = encode_head(Head(self._journal_id, begin, end, PROGRAM))
            head.add(Record(HEAD, arg=self.names.next_id, msg_id=self.next_message_id, heap=heap))
            head.defined(*self.names.columns())

        base_lsn = self.writer.roll(now_ms * 1000, self.checkpoint, fill)
        self.usage.begin_segment(base_lsn, now_ms * 1000, self.segment_bytes, self.next_message_id)
        self.segment_bytes = 0
        self._segment_began_ms = now_ms

    def _oldest_needed(self) -> int:
        """The LSN from which records need names of deleted exchanges: of live messages, and of all that are logged."""
        if self.log_ms and self.usage.segments:
            return self.usage.segments[0].base_lsn
        return self.usage.first_live_lsn(self.writer.next_lsn)

    def append(self, record: Record) -> int:
        """Append a record that is not counted in `usage`. Returns its LSN."""
        return (self.block or self.begin()).add(record)

    def may_write(self, needs: frozenset[str]) -> bool:
        """Whether records of these features may be written.

        In a cluster, its level must have them, unless the journal has such records already.
        """
        cluster = self.writer.file.cluster
        return needs <= self._needs or cluster is None or level_of(needs) <= cluster.level

    def add_needs(self, needs: frozenset[str]) -> None:
        """Add features that a program must know to read the following records.

        Raises: ValueError, unless `may_write`.
        """
        if not needs <= self._needs:
            if not self.may_write(needs):
                raise ValueError(f"a record needs {sorted(needs)}, which the cluster's level lacks")
            block = self.block or self.begin()
            block.needs |= needs
            self._needs |= needs

    @property
    def next_lsn(self) -> int:
        return self.block.next_lsn if self.block is not None else self.writer.next_lsn


def _usage_of(recovered: Recovered) -> SegmentUsage:
    """The usage of the recovered messages, by segment."""
    usage = SegmentUsage()
    next_id = next((one.first_id for one in recovered.segments if one.first_id), recovered.next_message_id)
    for segment in recovered.segments:
        usage.begin_segment(segment.base_lsn, segment.ts_max, 0, next_id)
        next_id = max(next_id, segment.last_id + 1)
    for row, segment in zip(usage.segments, recovered.segments):
        row.size, row.ended_us = segment.size, segment.ts_max or 1
    if usage.segments:
        for queue in recovered.queues.values():
            usage.add_recovered(queue)
    return usage


#: Octets that must be appended for each live message before the next checkpoint is due.
STATED_OCTETS = 256


class Checkpoints:
    """Decides when a checkpoint is due, and appends it."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._began = 0  # LSN; 0: none is under way
        self._compute_at = turns.options.segment_size  # appended octets at which `is_due` computes the limit again

    @property
    def is_due(self) -> bool:
        """Whether enough was appended since the last checkpoint to make another worthwhile.

        The limit grows with the live messages and duplicate ids to state, so that filling a deep queue stays linear.
        """
        turns = self._turns
        appended = turns.uncovered_bytes
        if appended < self._compute_at:
            return False
        live = sum(row.live for row in turns.usage.segments)
        if appended >= max(turns.options.segment_size, live * STATED_OCTETS, turns.ids_bytes):
            return True
        self._compute_at = appended + turns.options.segment_size // 4
        return False

    def begin(self) -> None:
        """Begin a checkpoint, between turns.

        Then state all durable objects and messages, in as many turns as it takes: `declared` and `bound` with
        `restated=True`, `ids_seen`, `snapshot`. Other records may come between. Then call `end`.
        """
        turns = self._turns
        assert turns.block is None
        self._began = turns.writer.next_lsn

    def snapshot(self, queue_id: int, messages: Iterator[RecoveredMessage]) -> Iterator[int]:
        """Append the durable messages of a queue, ids rising. Each `next` appends one part and yields its LSN.

        The queue may change between parts if `messages` follows it.
        """
        turns = self._turns
        for record in snapshot_parts(queue_id, messages):
            yield turns.append(record)

    def end(self) -> int:
        """End the checkpoint. Recovery starts at its begin once this record is durable. Returns the LSN."""
        assert self._began
        turns = self._turns
        lsn = turns.append(Record(CHECKPOINT, arg=self._began, msg_id=turns.next_message_id, flags=RESTATED))
        turns.checkpoint = (self._began, lsn + 1)
        self._began = 0
        turns.uncovered_bytes = 0
        self._compute_at = turns.options.segment_size
        return lsn
