"""Streams whose older part only the journal has: consumers read what a list of all messages says, from anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_files import SimulatedFiles

from leveret.engine.messages.field_table import Field
from leveret.engine.stores import read_windows, stream_store
from leveret.journal import JournalOptions, JournalReader
from leveret.journal.format.record import DECLARED, RESTATED
from leveret.journal.recording.full_recorder import FullRecorder
from leveret.journal.recording.recorder import Recorder
from leveret.testing.harness import Harness

SECOND = 1_000_000_000


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    """Nearly nothing stays in memory, and comes back in threes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_store, "MEASURE_OCTETS", 100)
        patch.setattr(read_windows, "WINDOW_MESSAGES", 3)
        yield


class World(Harness):
    """A broker with a journal and the stream s. `all`: (offset, came at ms, body) of all that was published."""

    has_temp_store = False

    def __init__(self, *, is_deep: bool = True, recorder: type[Recorder] = Recorder, **arguments: Any) -> None:
        self.arguments = {"x_queue_type": "stream", **arguments}
        self.all: list[tuple[int, int, bytes]] = []
        super().__init__(
            journal=SimulatedFiles(),
            journal_options=JournalOptions(segment_size=3000),
            recorder=recorder,
            memory=0 if is_deep else None,
        )

    def begin(self) -> None:
        super().begin()
        self.session.set_prefetch(1000, total=False)
        self.stream = self.queue("s", client=self.client, **self.arguments)
        assert isinstance(self.stream.store, stream_store.StreamStore)
        self.queue("other", client=self.client)
        self.end_turn()

    @property
    def got(self) -> list[tuple[Any, bytes]]:
        return [(one.headers["x-stream-offset"].value, one.body) for one in self.deliveries]

    def write(self, count: int, key: str = "s") -> None:
        bodies = [b"%d" % (len(self.all) + at) for at in range(count)]
        if key == "s":
            self.all += [(len(self.all) + at, self.clock.wall_ms(), body) for at, body in enumerate(bodies)]
        self.publish(*bodies, key=key)

    def seen(self, start: Any) -> list[tuple[int, bytes]]:
        """All that a consumer gets which begins there."""
        self.deliveries.clear()
        self.consume("s", "t", x_stream_offset=start)
        self.session.cancel("t")
        self.end_turn()
        return self.got


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
    bounds = {"x_max_length_bytes": 900, "x_stream_max_segment_size_bytes": 300}
    world = World(is_deep=is_deep, **(bounds if is_bounded else {}))
    began_ms = world.clock.wall_ms()
    for act, number in [*acts, ("restart", 0), ("read", 0)]:
        if act in ("publish", "other"):
            world.write(number, "s" if act == "publish" else "other")
        elif act == "wait":
            world.clock.advance_ns(number * SECOND)
        elif act == "restart":
            world.kill(power_cut=True)
        elif act == "state":
            world.checkpoint(reclaims=True)
        else:
            first = world.stream.first_offset
            assert first == 0 if not is_bounded else first <= len(world.all)
            if act == "read":
                expected = [(offset, body) for offset, _, body in world.all if offset >= max(number, first)]
                assert world.seen(Field("l", number)) == expected
            else:
                since_ms = (began_ms // 1000 + number) * 1000
                expected = [(offset, body) for offset, ms, body in world.all if ms >= since_ms and offset >= first]
                assert world.seen(Field("T", since_ms // 1000)) == expected
        assert world.stream.ready_count == len(world.all) - world.stream.first_offset


def test_little_stays_in_memory() -> None:
    """Whatever the depth; two consumers at different places get everything, in turn."""
    world = World()
    for _ in range(50):
        world.write(20)
    log: Any = world.stream.store
    assert log.memory_octets < 500 and world.stream.ready_count == 1000
    for tag, offset in (("a", 0), ("b", 500)):
        world.consume("s", tag, x_stream_offset=offset)
    assert sorted(world.got) == sorted([(at, b"%d" % at) for start in (0, 500) for at in range(start, 1000)])


@pytest.mark.parametrize("recorder", [Recorder, FullRecorder])
def test_an_operators_purge_is_kept_over_a_restart(recorder: type[Recorder]) -> None:
    """No offset comes twice."""
    world = World(recorder=recorder)
    world.write(50)
    assert world.stream.purge() == 50
    world.end_turn()
    world.kill(power_cut=True)
    assert world.stream.ready_count == 0
    world.write(1)
    assert world.seen("first") == [(50, b"50")]
    world.kill(power_cut=True)
    assert world.seen("first") == [(50, b"50")]


@pytest.mark.parametrize("ahead_ms, seconds, dropped_max", [(0, 6, 9), (3_600_000, 11, 18)])
def test_age_after_a_restart(ahead_ms: int, seconds: int, dropped_max: int) -> None:
    """x-max-age counts from when a message came, not from the restart; from there if the clock was ahead before."""
    world = World(x_max_age="10s", x_stream_max_segment_size_bytes=300)
    world.clock.jump_wall_ms(ahead_ms)
    world.write(9)
    world.clock.advance_ns(6 * SECOND)
    world.clock.jump_wall_ms(-ahead_ms)
    world.kill(power_cut=True)
    world.write(9)
    assert (world.stream.first_offset, world.stream.ready_count) == (0, 18)
    world.clock.advance_ns(seconds * SECOND)
    world.write(9)
    first = world.stream.first_offset
    assert 0 < first <= dropped_max
    assert world.seen("first")[0] == (first, b"%d" % first)


def test_a_stream_deleted_with_what_only_the_journal_has() -> None:
    """Nothing of it holds segments."""
    world = World()
    world.write(50)
    world.client.vhost.queues.delete("s", client=world.client)
    world.end_turn()
    world.checkpoint(reclaims=True)
    world.kill(power_cut=True)
    assert world.stream.ready_count == 0


def test_a_window_is_as_large_as_its_octets_allow() -> None:
    """At least one message, and none that is in memory: one at a time would be a read of the disk for each."""
    world = World()
    for _ in range(10):
        world.write(10)
    log: Any = world.stream.store
    end = log.memory_offset
    assert 50 < end <= 100

    def window(offset: int, count: int, octets: int) -> int:
        return sum(map(len, log.paged(offset, count, octets)))

    assert [window(20, 50, octets) for octets in (1, 2, 3, 4, 21)] == [1, 1, 2, 2, 11]
    assert (window(20, 7, 1 << 20), window(end - 3, 50, 1 << 20)) == (7, 3)


def test_a_stream_that_loses_its_start_is_not_declared_again() -> None:
    """Readers of the journal see one declaration: what is written when its start goes is said to be a repetition."""
    world = World(x_max_length_bytes=900, x_stream_max_segment_size_bytes=300)
    for _ in range(10):
        world.write(20)
    assert world.stream.first_offset > 0
    id_ = world.recorder.objects.queue_id(world.stream)
    records = [record for _, record in JournalReader(world.path, world.files).records(trust_open=True)]
    declared = [record for record in records if record.kind == DECLARED and record.queue_id == id_]
    assert len(declared) > 1
    assert sum(not record.flags & RESTATED for record in declared) == 1
    world.close()


@pytest.mark.parametrize("is_deep", [False, True])
def test_offsets_stay_when_a_delayed_message_comes_due_while_the_broker_is_down(is_deep: bool) -> None:
    """It is published after the restart, with the next offset; its id is older than those of the other messages."""
    world = World(is_deep=is_deep)
    world.publish(b"late", key="s", headers={"x-delay": 1000})
    world.write(2)
    world.end_turn()
    world.clock.advance_ns(2 * SECOND)
    world.kill()
    world.advance(0)
    assert world.seen("first") == [(0, b"0"), (1, b"1"), (2, b"late")]
    world.kill()
    assert world.seen("first") == [(0, b"0"), (1, b"1"), (2, b"late")]
