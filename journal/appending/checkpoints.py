"""When a checkpoint is due, and its first and last record. What it states: recording/checkpoint.py."""

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
