"""Checkpoints: records that state the broker's whole durable state, so that recovery need not read older ones."""

from collections.abc import Iterator

from ..format.record import CHECKPOINT, RESTATED, Record
from ..recovery.recovered import RecoveredMessage
from ..recovery.snapshot import snapshot_parts
from .turns import Turns

#: Octets that must be appended for each live message before the next checkpoint is due.
STATED_OCTETS = 256


class Checkpoints:
    """Decides when a checkpoint is due, and appends it."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._began = 0  # LSN; 0: none is under way
        self._look_at = turns.options.segment_size  # appended octets at which `is_due` computes again

    @property
    def is_due(self) -> bool:
        """Whether enough was appended since the last checkpoint for another to pay.

        The limit grows with the live messages and duplicate ids to state, so that filling a deep queue stays linear.
        """
        turns = self._turns
        appended = turns.uncovered_bytes
        if appended < self._look_at:
            return False
        live = sum(row.live for row in turns.ledger.rows)
        if appended >= max(turns.options.segment_size, live * STATED_OCTETS, turns.ids_bytes):
            return True
        self._look_at = appended + turns.options.segment_size // 4
        return False

    def begin(self) -> None:
        """Begin a checkpoint, between turns.

        Then state all durable objects and messages, in as many turns as it takes: `declared` and `bound` with
        `restated=True`, `settings_changed`, `snapshot`. Other records may come between. Then call `end`.
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
            yield (turns.block or turns.begin()).add(record)

    def end(self) -> int:
        """End the checkpoint. Recovery starts at its begin once this record is durable. Returns the LSN."""
        assert self._began
        turns = self._turns
        block = turns.block or turns.begin()
        lsn = block.add(Record(CHECKPOINT, arg=self._began, msg_id=turns.next_message_id, flags=RESTATED))
        turns.checkpoint = (self._began, lsn + 1)
        self._began = 0
        turns.uncovered_bytes = 0
        self._look_at = turns.options.segment_size
        return lsn
