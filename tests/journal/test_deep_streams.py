"""Streams whose older part only the journal has: consumers read what a list of all messages says, from anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_files import SimulatedFiles

from leveret.engine import Broker, Delivered, Envelope, ManualClock, Session, User
from leveret.engine.messages.content import PLAIN, encode_header, headers_of
from leveret.engine.messages.field_table import Field
from leveret.engine.stores import stream_store
from leveret.journal import Journal, JournalOptions
from leveret.journal.recording.checkpoint import checkpoint
from leveret.journal.recording.full_recorder import FullRecorder
from leveret.journal.recording.pager import JournalPager
from leveret.journal.recording.recorder import Recorder
from leveret.journal.recording.restore import restore

USER = User("guest")
SECOND = 1_000_000_000


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    """Nearly nothing stays in memory, and comes back in threes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_store, "LOOK_OCTETS", 100)
        patch.setattr(stream_store, "WINDOW_MESSAGES", 3)
        yield


class World:
    """A broker with a journal and the stream s. `all`: (offset, came at ms, body) of all that was published."""

    def __init__(self, *, is_deep: bool = True, recorder: type[Recorder] = Recorder, **arguments: Field) -> None:
        self.files = SimulatedFiles()
        self.make_recorder = recorder
        self.clock = ManualClock()
        self.is_deep = is_deep
        self.arguments = {"x-queue-type": Field("S", b"stream")} | {
            name.replace("_", "-"): field for name, field in arguments.items()
        }
        self.all: list[tuple[int, int, bytes]] = []
        self.start()

    def start(self) -> None:
        """On what the files have."""
        self.broker = Broker(self.clock)
        options = JournalOptions(segment_size=3000)
        self.journal = Journal.open("j", self.clock, options, files=self.files, threaded=False, new_id=bytes(16))
        self.recorder = self.make_recorder(self.broker, self.journal)
        if self.is_deep:
            self.broker.context.storage.pager = JournalPager(self.broker, self.journal, self.recorder, 0)
        restore(self.broker, self.journal, self.recorder)
        self.got: list[tuple[int, bytes]] = []
        self.client = self.broker.connections.open("/", USER, name="c", flush=self.flush)
        self.session: Session = self.client.open_session()
        self.session.limit(1000, total=False)
        vhost = self.client.vhost
        queue = vhost.queues.declare("s", client=self.client, durable=True, arguments=self.arguments)
        assert isinstance(queue.store, stream_store.StreamStore)
        self.queue = queue
        vhost.queues.declare("other", client=self.client, durable=True)
        self.end_turn()

    def restart(self) -> None:
        """The power goes; all was safe."""
        self.files = self.files.power_cut()
        self.start()

    def flush(self) -> None:
        for effect in self.client.take_outbox():
            assert isinstance(effect, Delivered)
            for envelope, content in (
                (envelope, content) for _, envelope, contents in effect.runs() for content in contents
            ):
                header, body = envelope.framing.split(content)
                offset: Any = headers_of(header)["x-stream-offset"].value
                self.got.append((offset, body))
        self.client.drained()

    def end_turn(self) -> None:
        self._work()
        assert self.journal.wait(self.journal.next_lsn)
        self.broker.more_is_safe()
        self._work()

    def _work(self) -> None:
        while self.broker.end_turn() or self.broker.scheduler.load() or self.broker.scheduler.hungry:
            self.journal.commit()
        self.journal.commit()

    def publish(self, count: int, key: str = "s") -> None:
        bodies = [b"%d" % (len(self.all) + at) for at in range(count)]
        if key == "s":
            self.all += [(len(self.all) + at, self.clock.wall_ms(), body) for at, body in enumerate(bodies)]
        contents = [PLAIN.join(encode_header(len(body)), body) for body in bodies]
        route = self.client.vhost.router.route("", key, USER)
        self.session.publish(route, Envelope("", key), contents, mandatory=False)
        self.end_turn()

    def state(self) -> None:
        """A checkpoint."""
        for _ in checkpoint(self.broker, self.journal, self.recorder):
            self.journal.commit()
        self.end_turn()
        self.journal.old_segments.reclaim()

    def read(self, start: Field) -> list[tuple[int, bytes]]:
        """All that a consumer gets which begins there."""
        self.got.clear()
        self.session.consume(self.queue, "t", no_ack=False, exclusive=False, arguments={"x-stream-offset": start})
        self.end_turn()
        self.session.cancel("t")
        self.end_turn()
        return list(self.got)


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 9)),
        st.tuples(st.just("other"), st.integers(1, 2)),
        st.tuples(st.just("wait"), st.integers(1, 5)),
        st.tuples(st.sampled_from(["restart", "state"]), st.just(0)),
        st.tuples(st.just("read"), st.integers(0, 40)),
        st.tuples(st.just("since"), st.integers(0, 20)),
    ),
    max_size=20,
)


@settings(max_examples=examples(80))
@given(acts=ACTS, is_deep=st.booleans(), is_bounded=st.booleans())
def test_a_consumer_reads_what_was_published(acts: list[tuple[str, int]], is_deep: bool, is_bounded: bool) -> None:
    """From any offset, any time, before and after restarts; a bounded stream has lost whole segments at its head."""
    bounds = {"x_max_length_bytes": Field("I", 900), "x_stream_max_segment_size_bytes": Field("I", 300)}
    world = World(is_deep=is_deep, **(bounds if is_bounded else {}))
    began_ms = world.clock.wall_ms()
    for act, number in [*acts, ("restart", 0), ("read", 0)]:
        if act in ("publish", "other"):
            world.publish(number, "s" if act == "publish" else "other")
        elif act == "wait":
            world.clock.advance_ns(number * SECOND)
        elif act == "restart":
            world.restart()
        elif act == "state":
            world.state()
        else:
            first = world.queue.first_offset
            assert first == 0 if not is_bounded else first <= len(world.all)
            if act == "read":
                expected = [(offset, body) for offset, _, body in world.all if offset >= max(number, first)]
                assert world.read(Field("l", number)) == expected
            else:
                since_ms = (began_ms // 1000 + number) * 1000
                expected = [(offset, body) for offset, ms, body in world.all if ms >= since_ms and offset >= first]
                assert world.read(Field("T", since_ms // 1000)) == expected
        assert world.queue.ready_count == len(world.all) - world.queue.first_offset


def test_little_stays_in_memory() -> None:
    """Whatever the depth; two consumers at different places get everything, in turn."""
    world = World()
    for _ in range(50):
        world.publish(20)
    log: Any = world.queue.store
    assert log.memory_octets < 500 and world.queue.ready_count == 1000
    for tag, offset in (("a", 0), ("b", 500)):
        arguments = {"x-stream-offset": Field("l", offset)}
        world.session.consume(world.queue, tag, no_ack=False, exclusive=False, arguments=arguments)
    world.end_turn()
    assert sorted(world.got) == sorted([(at, b"%d" % at) for start in (0, 500) for at in range(start, 1000)])


@pytest.mark.parametrize("recorder", [Recorder, FullRecorder])
def test_an_operators_purge_is_kept_over_a_restart(recorder: type[Recorder]) -> None:
    """No offset comes twice."""
    world = World(recorder=recorder)
    world.publish(50)
    assert world.queue.purge() == 50
    world.end_turn()
    world.restart()
    assert world.queue.ready_count == 0
    world.publish(1)
    assert world.read(Field("S", b"first")) == [(50, b"50")]
    world.restart()
    assert world.read(Field("S", b"first")) == [(50, b"50")]


def test_age_after_a_restart() -> None:
    """x-max-age counts from when a message came, not from the restart."""
    world = World(x_max_age=Field("S", b"10s"), x_stream_max_segment_size_bytes=Field("I", 300))
    world.publish(9)
    world.clock.advance_ns(6 * SECOND)
    world.restart()
    assert world.queue.ready_count == 9
    world.clock.advance_ns(6 * SECOND)
    world.publish(9)
    first = world.queue.first_offset
    assert 0 < first <= 9
    assert world.read(Field("S", b"first"))[0] == (first, b"%d" % first)


def test_a_stream_deleted_with_what_only_the_journal_has() -> None:
    """Nothing of it holds segments."""
    world = World()
    world.publish(50)
    world.client.vhost.queues.delete("s", client=world.client)
    world.end_turn()
    world.state()
    world.restart()
    assert world.queue.ready_count == 0
