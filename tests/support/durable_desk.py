"""A desk whose broker has a journal on simulated files; see `desk.py`."""

from typing import Any

from desk import GETS, PUBLISHES, VirtualDesk
from simulated_files import SimulatedFiles

from leveret.journal import Journal, JournalFull
from leveret.journal.recording.recorder import Recorder
from leveret.journal.recording.restore import restore

PATH = "data"


class DurableDesk(VirtualDesk):
    """Commits happen in `settle`. `persists`: persist-delivery-count-before-delivery; `keeps_ids`: persist-id-cache.

    `wall_ms`: when it starts.
    """

    def __init__(
        self,
        files: SimulatedFiles,
        settings: str = "",
        *,
        persists: bool = False,
        keeps_ids: bool = True,
        wall_ms: int | None = None,
    ) -> None:
        super().__init__(settings)
        if wall_ms is not None:
            self.pair.clock.jump_wall_ms(wall_ms - self.wall_ms)
        self.files = files
        broker = self.pair.broker
        self.journal = Journal.open(PATH, self.pair.clock, files=files, threaded=False, new_id=b"0123456789abcdef")
        self.recorder = Recorder(broker, self.journal, persists_deliveries=persists, keeps_ids=keeps_ids)
        restore(broker, self.journal, self.recorder)
        self.failures: list[Exception] = []
        self.journal.set_callbacks(lambda lsn: None, self._failed)

    def _failed(self, error: Exception) -> None:
        self.failures.append(error)
        self.recorder.fail(for_good=not isinstance(error, JournalFull))

    def _call(self, channel: int, kind: Any, **fields: Any) -> Any:
        answer = super()._call(channel, kind, **fields)
        if answer is None and channel == GETS and kind.name.endswith(("Declare", "Bind", "Get")):
            self.settle()
            (answer,) = (one for one in self.peer.take() if one.channel == channel)
        return answer

    def settle(self) -> None:
        """The journal's thread does its work, the broker hears of it."""
        self.journal.commit()
        self.journal.wait(self.journal.next_lsn)
        self.pair.broker.more_is_safe()
        self.pair.end_turn()

    def confirms(self) -> list[str]:
        """Ack or Nack of confirms that have come."""
        return [type(one.frame).__name__ for one in self.peer.take() if one.channel == PUBLISHES]
