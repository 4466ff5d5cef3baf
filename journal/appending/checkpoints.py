"""Checkpoints: all that is there is stated again, so that recovery need not read further back."""

from collections.abc import Iterator

from ..format.record import CHECKPOINT, RESTATED, Record
from ..recovery.recovered import RecoveredMessage
from ..recovery.snapshot import snapshot_parts
from .turns import Turns

#: A message that a checkpoint states pays for itself when so many octets were appended.
STATED_OCTETS = 256


class Checkpoints:
    """When one is due, and how one is made."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._began = 0  # LSN; 0: none is under way
        self._look_at = turns.options.segment_size  # octets appended after which it is asked whether one is due

    @property
    def is_due(self) -> bool:
        """Whether so much was appended since the last checkpoint that another pays.

        With many messages or duplicate ids to state it waits longer, so that filling a deep queue stays linear.
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
        """Between turns. From here on state all that is there, in as many turns as it takes: `declared`, `bound` with
        `restated=True`, `settings_changed`, `snapshot`; other records may come between. Then `end`."""
        turns = self._turns
        assert turns.block is None
        self._began = turns.writer.next_lsn

    def snapshot(self, queue_id: int, messages: Iterator[RecoveredMessage]) -> Iterator[int]:
        """The durable messages that are in a queue, ids rising. A part is appended for each `next`; gives its LSN.

        The queue may change between parts if `messages` follows it.
        """
        turns = self._turns
        for record in snapshot_parts(queue_id, messages):
            yield (turns.block or turns.begin()).add(record)

    def end(self) -> int:
        """The snapshot is whole. Recovery starts at its begin once this is durable. Returns the LSN."""
        assert self._began
        turns = self._turns
        block = turns.block or turns.begin()
        lsn = block.add(Record(CHECKPOINT, arg=self._began, msg_id=turns.next_message_id, flags=RESTATED))
        turns.checkpoint = (self._began, lsn + 1)
        self._began = 0
        turns.uncovered_bytes = 0
        self._look_at = turns.options.segment_size
        return lsn
