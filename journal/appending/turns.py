"""Turns: groups of records that become durable together. Blocks and segments hold them."""

from ...engine import Clock
from ..disk.options import JournalOptions
from ..disk.writer import Writer
from ..format.block import BlockBuilder
from ..format.heap import Head, encode_head
from ..format.names import Names
from ..format.needs import DUPLICATE_IDS, level_of, needs_of
from ..format.record import HEAD, Record
from ..recovery.replay import Recovered
from .segment_usage import SegmentUsage

PROGRAM = "leveret"


class Turns:
    """Fills the writer's blocks. `block`: that of the turn under way; None between turns.

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
        self._clock = clock
        self._journal_id = journal_id
        # Needs of the recovered objects, also those that an older program did not record.
        needs = frozenset({DUPLICATE_IDS} if recovered.ids else ())
        self._needs = needs.union(*map(needs_of, recovered.objects.values()))
        self._segment_began_ms = 0
        self._size_at_turn = self._count_at_turn = 0  # of the block when the turn began

    def begin(self) -> BlockBuilder:
        """Begin a turn. Returns its block, which is in a new segment if the last one is full or old.

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

        If no answer waits for them, a later commit may write them. Returns the LSN behind them: they are
        safe when `committed_lsn`, or the argument of `on_durable`, has reached it.
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
        self.names.drop_retired(self.usage.first_live_lsn(self.writer.next_lsn))

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

    def append(self, record: Record) -> int:
        """Append a record that is not counted in `usage`. Returns its LSN."""
        return (self.block or self.begin()).add(record)

    def may_write(self, needs: frozenset[str]) -> bool:
        """Whether records of these features may be written: in a cluster, whether its level has them."""
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
