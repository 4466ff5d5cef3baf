"""A large commit, which takes several turns, is in the journal as one: after a kill all of it is there, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_broker import USER, RecordedBroker

from leveret.engine import Envelope
from leveret.engine.clients.transaction import Commit
from leveret.engine.messages.content import NATIVE, encode_header, scan_properties
from leveret.serving.supervisor import Supervisor

COUNT = 2_000


class World(RecordedBroker):
    """As a running broker: the keeper says when a turn is over for the journal."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, scope="durable")
        assert self.broker.context.storage.pager is None
        self.supervisor = Supervisor(self.broker, self.journal, self.recorder)

    def turn(self) -> bool:
        """One, and all that the journal has of it is on the disk. Returns whether there is more to do."""
        is_more = self.broker.end_turn()
        self.supervisor.commit()
        self.journal.wait(self.journal.next_lsn)
        return is_more

    def commit_much(self) -> Commit:
        """A message is acknowledged, another given back for good, and many are published."""
        self.session.select_transactions()
        for settle in (self.session.ack, lambda tag: self.session.reject(tag, requeue=False)):
            found = self.session.get(self.vhost.queues.named("old"), no_ack=False)
            assert found is not None
            settle(found[0])
        header = encode_header(1, {"delivery_mode": 2})
        route = self.vhost.router.route("", "new", USER)
        for _ in range(COUNT):
            envelope = Envelope("", "new", scan_properties(header[12:]))
            self.session.publish(route, envelope, [NATIVE.join(header, b"x")], mandatory=False)
        return self.session.commit()

    def counts(self) -> tuple[int, int]:
        return self.vhost.queues.named("old").ready_count, self.vhost.queues.named("new").ready_count


def _started(path: Path) -> World:
    world = World(path)
    world.declare("old")
    world.declare("new")
    world.publish("old", 2)
    return world


@pytest.mark.parametrize("turns", [1, 2, 5, 8])
def test_a_kill_in_the_middle(tmp_path: Path, turns: int) -> None:
    """Nothing of it is there, although others' confirmed messages are asked for in between."""
    world = _started(tmp_path)
    commit = world.commit_much()
    for _ in range(turns):
        assert world.turn()
    assert commit.has_begun and not commit.is_done and world.broker.is_unfinished
    assert 0 < world.counts()[1] < COUNT
    world.kill()
    again = World(tmp_path)
    assert again.counts() == (2, 0)
    again.journal.close()


def test_a_kill_behind_it(tmp_path: Path) -> None:
    """All of it is there as soon as its barrier is safe, also what others published meanwhile."""
    world = _started(tmp_path)
    commit = world.commit_much()
    assert world.turn()
    other = world.session.client.open_session()
    header = encode_header(1, {"delivery_mode": 2})
    other.select_confirms()
    route = world.vhost.router.route("", "old", USER)
    other.publish(
        route, Envelope("", "old", scan_properties(header[12:])), [NATIVE.join(header, b"o")], mandatory=False
    )
    assert other.confirms is not None
    while world.turn():
        assert not other.confirms.take(world.recorder.safe_lsn) or commit.is_done
    assert commit.is_done and commit.outcome() == [] and 0 < commit.sync_lsn <= world.recorder.safe_lsn
    world.kill()
    again = World(tmp_path)
    assert again.counts() == (1, COUNT)
    again.journal.close()


def test_a_full_disk_is_noticed_behind_it(tmp_path: Path) -> None:
    """Also when the journal says so in the middle, so that nothing of it is left out; none begins after that."""
    from leveret.journal import JournalFull

    world = _started(tmp_path)
    commit = world.commit_much()
    assert world.turn()
    world.supervisor._failed(JournalFull("no room"))
    assert not world.recorder.has_failed
    while world.broker.is_unfinished:
        world.turn()
    assert commit.is_done and world.recorder.has_failed
    later = world.session.client.open_session()
    world.publish("new", 0)
    later.select_transactions()
    header = encode_header(1, {"delivery_mode": 2})
    for _ in range(COUNT):
        envelope = Envelope("", "new", scan_properties(header[12:]))
        later.publish(world.vhost.router.route("", "new", USER), envelope, [NATIVE.join(header, b"x")], mandatory=False)
    waiting = later.commit()
    assert not world.broker.end_turn() and not waiting.has_begun
    world.recorder.recover()
    while world.broker.end_turn():
        pass
    assert waiting.is_done
    world.kill()
