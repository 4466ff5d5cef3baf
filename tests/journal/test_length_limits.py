"""Messages that a length limit drops, or never lets in, count for no segment's life; a restart changes nothing."""

from functools import partial
from typing import Any

import pytest
from simulated_files import SimulatedFiles

from leveret.journal.recording.recorder import Recorder
from leveret.testing.harness import Harness


class Kept(Harness):
    """A broker on simulated files."""

    def __init__(self) -> None:
        super().__init__(journal=SimulatedFiles(), recorder=partial(Recorder, counts_max=-1))

    def ids(self, name: str) -> list[int]:
        return [message.id for message in self.named(name).messages()]

    def live(self) -> int:
        return sum(row.live for row in self.journal.usage.segments)


@pytest.mark.parametrize(
    "overflow, there, dead",
    [("drop-head", [4, 5], 0), ("reject-publish", [1, 2], 0), ("reject-publish-dlx", [1, 2], 3)],
)
def test_the_ledger_counts_what_is_there(overflow: str, there: list[int], dead: int) -> None:
    """Five messages into a queue of two, whatever happens to the others."""
    kept = Kept()
    arguments: dict[str, Any] = {"x_max_length": 2, "x_overflow": overflow}
    if dead:
        arguments |= {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}
    kept.queue(**arguments)
    kept.queue("dead")
    for _ in range(5):
        kept.publish("x", delivery_mode=2)
    for _ in range(2):
        assert kept.ids("q") == there and len(kept.ids("dead")) == dead
        assert kept.live() == len(there) + dead
        kept.kill(power_cut=True)
