"""A pair with a journal that is written at once, and that other nodes of a cluster agree to when a test says so."""

from __future__ import annotations

from typing import Any

from pair import Pair
from simulated_files import SimulatedFiles

from leveret.engine import Broker
from leveret.journal import Journal, JournalOptions
from leveret.journal.recording.recorder import Recorder


class AgreedRecorder(Recorder):
    """`agreed_lsn`: what is below it is safe on the other nodes, too."""

    agreed_lsn = 0

    def __init__(self, broker: Broker, journal: Journal, **options: Any) -> None:
        super().__init__(broker, journal, **options)
        self.hold_deliveries()

    @property
    def safe_lsn(self) -> int:
        return self.agreed_lsn

    def sync_lsn_of_all(self) -> int:
        journal = self._journal
        if self.agreed_lsn >= journal.next_lsn:
            return 0
        journal.turns.is_awaited = True
        return journal.next_lsn


class AgreedPair(Pair):
    """The node leads; its connections are `peers`, whose classic queues are transient unless they say otherwise."""

    recorder: AgreedRecorder

    def __init__(self, files: SimulatedFiles | None = None, **options: Any) -> None:
        more = options.pop("broker", {})
        journal = {"journal": files or SimulatedFiles(), "journal_options": JournalOptions(preallocate_size=0)}
        super().__init__(**options, broker={**journal, "recorder": AgreedRecorder, **more})

    def agree(self, lsn: int | None = None) -> None:
        """The other nodes have all, or what is below this LSN."""
        self.recorder.agreed_lsn = self.journal.next_lsn if lsn is None else lsn
        self.broker.release_awaiting()
        self.advance(0)
        self.settle()
