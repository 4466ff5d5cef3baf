"""A broker with one client whose journal, on real files, records everything; commits happen when told."""

import os
from pathlib import Path
from typing import Any

from leveret.engine import Broker, Envelope, ManualClock, Session, User
from leveret.engine.messages.content import PLAIN, encode_header, scan_properties
from leveret.engine.messages.field_table import FieldTable
from leveret.journal import Journal, JournalOptions
from leveret.journal.recording.checkpoint import checkpoint
from leveret.journal.recording.full_recorder import FullRecorder
from leveret.journal.recording.recorder import Recorder
from leveret.journal.recording.restore import restore

USER = User("u")


class RecordedBroker:
    """`path`: the journal's directory. `scope`: as in [journal]."""

    def __init__(self, path: Path, *, scope: str = "all", fsync: str = "commit", segment_size: int = 1 << 26) -> None:
        self.clock = ManualClock()
        self.broker = Broker(self.clock)
        options = JournalOptions(preallocate_size=0, scope=scope, fsync=fsync, segment_size=segment_size)
        self.journal = Journal.open(str(path), self.clock, options, threaded=False)
        self.recorder = (FullRecorder if scope == "all" else Recorder)(self.broker, self.journal)
        restore(self.broker, self.journal, self.recorder)
        client = self.broker.connections.open("/", USER, name="client", flush=lambda: None)
        client.flush = lambda: (client.take_outbox(), client.drained())  # type: ignore[func-returns-value]
        self.session: Session = client.open_session()

    def declare(self, name: str, *, durable: bool = True, arguments: FieldTable | None = None) -> None:
        self.vhost.queues.declare(name, client=self.session.client, durable=durable, arguments=arguments or {})
        self.settle()

    @property
    def vhost(self) -> Any:
        return self.broker.virtual_hosts["/"]

    def publish(self, key: str, count: int = 1, body: bytes = b"x", *, persistent: bool = True, **more: Any) -> None:
        header = encode_header(len(body), {"delivery_mode": 2 if persistent else 1, **more})
        envelope = Envelope("", key, scan_properties(header[12:]))
        route = self.vhost.router.route("", key, USER)
        self.session.publish(route, envelope, [PLAIN.join(header, body)] * count, mandatory=False)
        self.settle()

    def get(self, name: str, count: int = 1) -> None:
        """Deliver and acknowledge."""
        for _ in range(count):
            found = self.session.get(self.vhost.queues.named(name), no_ack=False)
            assert found is not None
            self.session.ack(found[0])
        self.settle()

    def settle(self) -> None:
        """End the turn and write."""
        while self.broker.end_turn():
            self.journal.commit()
        self.journal.commit()
        self.journal.wait(self.journal.next_lsn)

    def tick(self) -> None:
        """Say that everything so far is durable."""
        self.settle()
        self.journal.tick()
        while self.journal.writer.run_once():
            pass

    def checkpoint(self) -> None:
        self.settle()
        for _ in checkpoint(self.broker, self.journal, self.recorder):
            self.journal.commit()
        self.settle()

    def close(self) -> None:
        """As a clean shutdown does."""
        self.checkpoint()
        self.journal.close()

    def kill(self) -> None:
        """As SIGKILL does: nothing is written any more, and the directory is free."""
        os.close(self.journal.writer.file._handle)
        self.journal.contents.close()
        self.journal._directory.close()
