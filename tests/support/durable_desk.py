"""A desk whose broker has a journal on simulated files; see `desk.py`."""

from functools import partial
from typing import Any

from desk import GETS, PUBLISHES, VirtualDesk
from pair import Pair
from simulated_files import SimulatedFiles

from leveret.engine import ManualClock
from leveret.journal import JournalOptions
from leveret.journal.recording.recorder import Recorder
from leveret.testing.harness import DATA

PATH = DATA


class _DurablePair(Pair):
    writes = False
    may_fail = True


class DurableDesk(VirtualDesk):
    """Commits happen in `settle`. `persists`: persist-delivery-count-before-delivery; `keeps_ids`: persist-id-cache.

    `wall_ms`: when it starts. `broker`: see `Harness`.
    """

    def __init__(
        self,
        files: SimulatedFiles,
        settings: str = "",
        *,
        persists: bool = False,
        keeps_ids: bool = True,
        wall_ms: int | None = None,
        **broker: Any,
    ) -> None:
        self.files = files
        recorder = partial(Recorder, persists_deliveries=persists, keeps_ids=keeps_ids)
        clock = None if wall_ms is None else ManualClock(wall_ms)
        made = {"journal": files, "journal_options": JournalOptions(), "recorder": recorder, "clock": clock}
        super().__init__(settings, **{**made, **broker})
        self.journal, self.recorder, self.failures = self.pair.journal, self.pair.recorder, self.pair.failures

    def _make_pair(self, broker: dict[str, Any]) -> Pair:
        return _DurablePair(broker=broker)

    def _call(self, channel: int, kind: Any, **fields: Any) -> Any:
        answer = super()._call(channel, kind, **fields)
        if answer is None and channel == GETS and kind.name.endswith(("Declare", "Bind", "Get")):
            self.settle()
            (answer,) = (one for one in self.peer.take() if one.channel == channel)
        return answer

    def settle(self) -> None:
        """The journal's thread does its work, the broker hears of it."""
        self.pair.write_journal()
        self.pair.end_turn()

    def confirms(self) -> list[str]:
        """Ack or Nack of confirms that have come."""
        return [type(one.frame).__name__ for one in self.peer.take() if one.channel == PUBLISHES]
