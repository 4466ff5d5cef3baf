"""The log of a topic as the journal has it: all that was published, from any position on, until its segment goes."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from effort import examples
from recorded_broker import RecordedBroker

from leveret.engine.state import LoggedMessage
from leveret.journal.disk.files import REAL
from leveret.journal.disk.segment import segment_name, segments_in
from leveret.journal.recording import topic_log
from leveret.journal.recording.checkpoint import empty_segment
from leveret.journal.recording.topic_log import JournalLog
from leveret.journal.recovery.repair import repair
from leveret.settings import SettingsRepository, entry


class Published(NamedTuple):
    """A message as its publisher knows it."""

    id: int
    key: str
    body: bytes
    at_ms: int


class Life:
    """A broker with two queues and small segments. `published`: in order."""

    def __init__(self, path: Path, seed: int) -> None:
        self.chance = Random(seed)
        self.world = RecordedBroker(path, scope="durable", segment_size=1200)
        for name in ("a", "b"):
            self.world.declare(name)
        self.log = JournalLog(self.world.broker, self.world.journal, self.world.recorder)
        self.published: list[Published] = []

    def publish(self) -> None:
        self.world.clock.advance_ns(self.chance.choice((0, 1_000_000, 90_000_000)))
        key, count = self.chance.choice("ab"), self.chance.randrange(1, 4)
        body = bytes([self.chance.randrange(256)]) * self.chance.choice((0, 5, 200))
        first = self.world.broker.context.next_id
        self.world.publish(key, count, body)
        at_ms = self.world.clock.wall_ms()
        self.published += [Published(first + at, key, body, at_ms) for at in range(count)]

    def take(self) -> None:
        """The oldest of a queue."""
        name = self.chance.choice("ab")
        ready = self.world.vhost.queues.named(name).ready_count
        self.world.get(name, min(ready, self.chance.randrange(1, 9)))

    def reclaim(self) -> None:
        self.world.checkpoint()
        self.world.journal.old_segments.reclaim()
        while self.world.journal.writer.run_once():
            pass

    def read(self, position: int, keys: str = "ab") -> list[LoggedMessage]:
        """In pages of any size."""
        found: list[LoggedMessage] = []
        while position < self.log.end():
            octets = self.chance.choice((1, 300, 100_000))
            page = self.log.read("/", position, lambda exchange, key, queues, id_: key in keys, octets)
            assert page.next_position > position, "it gets on"
            found += page.found
            position = page.next_position
        return found

    def check(self) -> None:
        """All of what is left, in order, once; and the same from any message, id or time on."""
        log = self.log
        found = self.read(log.start())
        there = self.published[len(self.published) - len(found) :]
        told = [
            Published(one.message.id, one.message.envelope.routing_key, bytes(one.message.body), one.wall_ms)
            for one in found
        ]
        assert told == there
        held = [one.id for name in "ab" for one in self.world.vhost.queues.named(name).messages()]
        assert set(held) <= {one.id for one in there}, "what waits in a queue is in the log"
        assert [one.message.id for one in self.read(0, "b")] == [one.id for one in there if one.key == "b"]
        positions = [one.location for one in found]
        assert positions == sorted(set(positions)) and all(log.start() <= one < log.end() for one in positions)
        assert log.next_id() > max((one.id for one in self.published), default=0)
        assert all(log.first_id() <= one.id for one in there)
        for at in self.chance.sample(range(len(found)), min(4, len(found))):
            assert [one.message.id for one in self.read(positions[at])] == [one.id for one in there[at:]]
            begin = log.position_of_id(there[at].id)
            assert log.start() <= begin <= positions[at]
            begin = log.position_of_time(there[at].at_ms)
            later = [one.id for one in there if one.at_ms >= there[at].at_ms]
            assert set(later) <= {one.message.id for one in self.read(begin)}
        for name in "ab":
            entered, position = [], log.start()
            while position < log.end():
                seen = log.entered("/", name, position, 0)
                entered += seen.ids
                assert seen.next_position > position
                position = seen.next_position
            assert entered == [one.id for one in there if one.key == name]


@pytest.mark.parametrize("look_octets", [1, 2000, 10**6])
def test_it_is_what_was_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look_octets: int) -> None:
    """Whatever was taken since, while segments begin and go."""
    monkeypatch.setattr(topic_log, "EXAMINED_OCTETS", look_octets)
    starts = set()
    for seed in range(examples(2)):
        life = Life(tmp_path / str(seed), seed)
        verbs = [life.publish, life.publish, life.publish, life.take, life.take, life.take, life.reclaim]
        for _ in range(40):
            life.chance.choice(verbs)()
            life.check()
            starts.add(life.log.start())
        life.world.kill()
    assert len(starts) > 2


def read_all(world: RecordedBroker, position: int = 0) -> list[LoggedMessage]:
    """All in the log from a position on."""
    log, found = JournalLog(world.broker, world.journal, world.recorder), []
    while position < log.end():
        page = log.read("/", position, lambda *_: True, 10_000)
        found += page.found
        position = page.next_position
    return found


def test_a_message_whose_content_was_moved_is_where_it_was_published(tmp_path: Path) -> None:
    """Who goes on from it reads what came between it and its copy, while its segment is there."""
    world = RecordedBroker(tmp_path, scope="durable", segment_size=1200)
    world.declare("a")
    for _ in range(12):
        world.publish("a", body=bytes(200))
    ids = [one.message.id for one in read_all(world)]
    assert len(ids) == 12
    world.session.get(world.named("a"), no_ack=False)
    world.get("a", 11)
    log, base_lsn = JournalLog(world.broker, world.journal, world.recorder), log_start(world)
    for _ in empty_segment(world.broker, world.journal, world.recorder, base_lsn):
        world.settle()
    moved_lsn = world.recorder.messages.contents.lsn_of(ids[0])
    assert moved_lsn is not None and moved_lsn > read_all(world)[-1].location and log_start(world) == base_lsn
    assert [one.message.id for one in read_all(world, log.position_of_id(ids[0]))] == ids
    world.kill()


def log_start(world: RecordedBroker) -> int:
    """Base LSN of the oldest segment."""
    found: int = world.journal.usage.segments[0].base_lsn
    return found


def test_a_dead_letter_in_the_log_is_known_as_the_brokers_own(tmp_path: Path) -> None:
    """Else its deaths would count as made up by a client when it comes back from there."""
    world = RecordedBroker(
        tmp_path, scope="durable", settings=SettingsRepository([entry("a", dead_letter_address="b")])
    )
    for name in ("a", "b"):
        world.declare(name)
    world.publish("a")
    (dead,) = read_all(world)
    got = world.session.get(world.named("a"), no_ack=False)
    assert got is not None
    world.session.reject(got[0], requeue=False)
    world.settle()
    assert [one.message.envelope.cause_id for one in read_all(world)] == [0, dead.message.id]
    world.kill()


def test_the_log_goes_on_behind_what_a_repair_could_not_save(tmp_path: Path) -> None:
    """It lacks the messages of the damaged part, and no others."""
    world = RecordedBroker(tmp_path / "old", scope="durable", segment_size=1200)
    world.declare("a")
    for _ in range(12):
        world.publish("a", body=bytes(200))
    ids = [one.message.id for one in read_all(world)]
    world.kill()
    path = tmp_path / "old" / segment_name(segments_in(REAL, str(tmp_path / "old"))[1])
    octets = bytearray(path.read_bytes())
    octets[len(octets) // 2] ^= 1
    path.write_bytes(octets)
    repair(str(tmp_path / "old"), str(tmp_path / "new"))
    again = RecordedBroker(tmp_path / "new", scope="durable")
    found = [one.message.id for one in read_all(again)]
    assert found[0] == ids[0] and found[-1] == ids[-1] and 6 < len(found) < 12
    assert found == sorted(set(found) & set(ids))
    again.kill()
