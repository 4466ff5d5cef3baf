"""A broker with one client whose journal, on real files, records everything; commits happen when told."""

from pathlib import Path
from typing import Any

from leveret.engine import User
from leveret.engine.messages.field_table import FieldTable
from leveret.journal import JournalOptions
from leveret.journal.recording.full_recorder import FullRecorder
from leveret.journal.recording.recorder import Recorder
from leveret.testing.harness import Harness

USER = User("u")
#: Of a `recorded` broker.
QUEUES = ("q", "r")


class RecordedBroker(Harness):
    """`path`: the journal's directory. `scope`: as in [journal]."""

    ends_turns = False

    def __init__(
        self,
        path: Path,
        *,
        scope: str = "all",
        fsync: str = "commit",
        segment_size: int = 1 << 26,
        reader_size: int = 0,
        **broker: Any,
    ) -> None:
        options = JournalOptions(
            preallocate_size=0, scope=scope, fsync=fsync, segment_size=segment_size, reader_size=reader_size
        )
        super().__init__(
            journal=path,
            journal_options=options,
            recorder=FullRecorder if scope == "all" else Recorder,
            user=USER,
            **broker,
        )

    def declare(self, name: str, *, durable: bool = True, arguments: FieldTable | None = None) -> None:
        self.queue(name, client=self.client, durable=durable, **(arguments or {}))
        self.settle()

    def publish(self, key: str, count: int = 1, body: bytes = b"x", *, persistent: bool = True, **more: Any) -> None:
        super().publish(*[body] * count, key=key, delivery_mode=2 if persistent else 1, **more)
        self.settle()

    def get(self, name: str, count: int = 1) -> None:
        """Deliver and acknowledge."""
        self.take(count, name)
        self.settle()

    def tick(self) -> None:
        """Say that everything so far is durable."""
        self.settle()
        self.journal.tick()
        while self.journal.writer.run_once():
            pass

    def close(self) -> None:
        """As a clean shutdown does."""
        self.checkpoint()
        super().close()

    def kill(self) -> None:
        """As SIGKILL does: nothing is written any more, and the directory is free."""
        self.crash()


def recorded(path: Path, rounds: int = 12) -> RecordedBroker:
    """Messages of two queues, most of them taken, over several segments, with checkpoints."""
    one = RecordedBroker(path, segment_size=6000)
    for name in QUEUES:
        one.declare(name)
    for at in range(rounds):
        for name in QUEUES:
            one.publish(name, 3)
            one.get(name, 2)
        one.clock.advance_ns(1_000_000_000)
        if at % 4 == 3:
            one.checkpoint()
    one.tick()
    return one
