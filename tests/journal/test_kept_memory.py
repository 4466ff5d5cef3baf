"""How much of non-destructive queues is in memory: sizes of what is there, no clock."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from leveret.engine import Broker, Client, Delivered, Envelope, ManualClock, Message, User
from leveret.engine.content import PLAIN, encode_header, scan_properties
from leveret.engine.field_table import Field
from leveret.engine.non_destructive import NonDestructiveQueue
from leveret.journal import Journal, JournalOptions
from leveret.journal.pager import JournalPager
from leveret.journal.recorder import Recorder
from leveret.journal.restore import restore

USER = User("guest")
COUNT, SIZE, RUN = 20_000, 1024, 50
BUDGET = 1024 * 1024
ARGUMENTS = {"x-non-destructive": Field("t", True)}


class Desk:
    """A broker on real files, with one client that reads nothing back until it is asked to."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.broker = Broker(self.clock)
        self.journal = Journal.open(str(directory), self.clock, JournalOptions(fsync="never"), threaded=False)
        recorder = Recorder(self.broker, self.journal)
        self.broker.pager = JournalPager(self.broker, self.journal, recorder, BUDGET)
        restore(self.broker, self.journal, recorder)
        self.got: dict[str, list[int]] = {}
        self.client: Client = self.broker.connect("/", USER, name="c", flush=self.flush)
        self.session = self.client.open_session()
        queue = self.client.vhost.declare_queue("q", client=self.client, durable=True, arguments=ARGUMENTS)
        assert isinstance(queue, NonDestructiveQueue)
        self.queue = queue

    def flush(self) -> None:
        for effect in self.client.take_outbox():
            if isinstance(effect, Delivered):
                numbers = [int(PLAIN.split(blob)[1][:8]) for blob in effect.blobs]
                self.got.setdefault(getattr(effect.consumer, "tag", ""), []).extend(numbers)
        self.client.drained()

    def end_turn(self) -> None:
        while self.broker.end_turn() or self.broker.feed() or self.broker.hungry:
            pass
        self.journal.commit()
        assert self.journal.wait(self.journal.next_lsn)

    def publish(self, numbers: range) -> None:
        properties = {"delivery_mode": 2}
        header = encode_header(SIZE, properties)
        envelope = Envelope("", "q", scan_properties(header[12:]))
        blobs = [PLAIN.join(header, b"%08d" % number + bytes(SIZE - 8)) for number in numbers]
        self.session.publish(self.client.vhost.route("", "q", USER), envelope, blobs, mandatory=False)
        self.end_turn()

    @property
    def content_octets(self) -> int:
        """Of all contents of messages that the queue holds in memory, each counted once."""
        log = self.queue.kept
        windows = [message for reader in (None, *self.queue.consumers) for message in log.windows.all(reader)]
        return sum({id(message.blob): len(message.blob) for message in (*log, *windows)}.values())

    @property
    def columns_octets(self) -> int:
        """Of what says where the others are."""
        places = self.queue.kept.places
        return sum(sys.getsizeof(getattr(places, name)) for name in ("_ids", "_sizes", "_blobs", "_gone"))


def _messages_in_process() -> int:
    """Octets of the contents of all messages that there are, each content once."""
    gc.collect()
    messages = [one for one in gc.get_objects() if isinstance(one, Message)]
    return sum({id(message.blob): len(message.blob) for message in messages}.values())


@pytest.mark.timeout(120)
def test_contents_stay_within_the_budget(tmp_path: Path) -> None:
    """20,000 messages of 1 KiB, a budget of 1 MiB: while they come, while two consumers read, and after a restart."""
    others = _messages_in_process()  # of other tests
    desk = Desk(tmp_path / "j")
    most = 0
    for start in range(0, COUNT, RUN):
        desk.publish(range(start, start + RUN))
        most = max(most, desk.content_octets)
    assert len(desk.queue.kept) == COUNT and desk.queue.kept.memory_count < COUNT // 20
    assert most <= BUDGET
    assert _messages_in_process() - others <= BUDGET
    assert desk.columns_octets <= 40 * COUNT

    fast, slow = desk.client.open_session(), desk.client.open_session()
    slow.limit(3, total=False)
    slow.consume(desk.queue, "slow", no_ack=False, exclusive=False, arguments={})
    fast.limit(700, total=False)
    fast.consume(desk.queue, "fast", no_ack=False, exclusive=False, arguments={})
    desk.end_turn()
    while fast.unacked:
        fast.ack_each(list(fast.unacked))
        slow.ack_each(list(slow.unacked)[:1])
        desk.end_turn()
        most = max(most, desk.content_octets)
    assert desk.got["fast"] == list(range(COUNT))
    assert desk.got["slow"] == list(range(len(desk.got["slow"]))) and len(desk.got["slow"]) > 20
    assert most <= BUDGET + 2 * (SIZE + 100)  # each window has room for one message at least

    got = desk.session.get(desk.queue, no_ack=True)
    assert got is not None and got[1].body[:8] == b"00000000" and got[3] == COUNT
    desk.client.close()
    desk.journal.close()
    del desk, got, fast, slow

    again = Desk(tmp_path / "j")
    assert len(again.queue.kept) == COUNT and again.content_octets == 0
    assert _messages_in_process() - others <= BUDGET
    assert again.columns_octets <= 40 * COUNT
    again.session.consume(again.queue, "again", no_ack=True, exclusive=False, arguments={})
    again.end_turn()
    assert again.got["again"] == list(range(COUNT))
    again.journal.close()
