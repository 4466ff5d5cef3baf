"""Streams on virtual time: retention, times, and what survives a purge (behaviour page 3.7)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from simulated_files import SimulatedFiles

from leveret.engine import Message
from leveret.engine.events import EventKind
from leveret.engine.messages.content import headers_of
from leveret.engine.messages.event import Event
from leveret.engine.messages.field_table import Field
from leveret.engine.messages.message import Envelope
from leveret.engine.queues.stream import LogEnd
from leveret.engine.rules.arguments import age_ms
from leveret.engine.stores.stream_store import StreamStore
from leveret.settings import Policies, make_policy
from leveret.testing.harness import Harness, messages


class Bench(Harness):
    """A broker, a client, and the stream s."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(kind="stream")
        self.events: list[Event] = []
        self.broker.context.listeners.append(self.events.append)
        self.stream = self.queue("s", **arguments)
        assert isinstance(self.stream.store, StreamStore)

    def write(self, *bodies: str) -> None:
        """One run: what RabbitMQ calls a chunk."""
        self.publish(*bodies, key="s")

    def seen(self, offset: Any) -> list[tuple[int, str]]:
        """What a consumer that begins there gets now, as (x-stream-offset, body)."""
        self.deliveries.clear()
        self.consume("s", "t", prefetch=1000, x_stream_offset=offset)
        self.session.cancel("t")
        return [(number_of(one.headers["x-stream-offset"]), one.body.decode()) for one in self.deliveries]


def number_of(field: Field) -> int:
    assert isinstance(field.value, int)
    return field.value


FIRST, LAST = "first", "last"


def test_old_segments_go_by_age() -> None:
    """x-max-age, when a segment is full; the one that is written to stays however old it is."""
    bench = Bench(x_max_age="10s", x_stream_max_segment_size_bytes=1)
    bench.write("0", "1")
    bench.advance(60_000)
    assert bench.seen(FIRST) == [(0, "0"), (1, "1")]
    bench.write("2")
    assert bench.seen(FIRST) == [(2, "2")]
    assert bench.stream.counters.expired == 2
    gone = [event.messages for event in bench.events if event.kind is EventKind.EXPIRED]
    assert [*map(list, gone)] == [[1], [2]]


def test_a_bounded_stream_is_bounded_without_a_segment_size() -> None:
    """The bound, and at most an eighth of it more."""
    bench = Bench(x_max_length_bytes=10_000)
    for number in range(1000):
        bench.write(str(number) * 10)
    assert isinstance(bench.stream.store, StreamStore)
    assert 8_000 < bench.stream.store.octets <= 10_000 + 1_300
    assert bench.stream.counters.dropped + bench.stream.ready_count == 1000
    offset, body = bench.seen(FIRST)[0]
    assert body == str(offset) * 10


def test_times() -> None:
    """A time stamp or an interval finds what came then or later; last is the last run."""
    bench = Bench()
    start_ms = bench.clock.wall_ms()
    bench.write("0")
    bench.advance(10_000)
    bench.write("1", "2")
    bench.advance(10_000)
    bench.write("3", "4")
    assert bench.seen(Field("T", start_ms // 1000 + 10)) == [(1, "1"), (2, "2"), (3, "3"), (4, "4")]
    assert bench.seen("10s")[0] == (1, "1")
    assert bench.seen("9s")[0] == (3, "3")
    assert bench.seen(LAST) == [(3, "3"), (4, "4")]


def test_offsets_go_on_after_an_operators_purge() -> None:
    """Clients can't purge a stream; where an operator does, no offset comes twice."""
    bench = Bench()
    bench.write("0", "1")
    bench.stream.purge()
    bench.write("2")
    assert bench.seen(FIRST) == [(2, "2")]


def test_a_restored_log() -> None:
    """Messages that come back after a restart are numbered from 0; they came long ago."""
    log = Bench().stream.store
    assert isinstance(log, StreamStore)
    for id_ in (5, 9):
        log.add(Message(id_, messages([str(id_)], {})[1][0], Envelope("", "s")), 0)
    assert (len(log), log.next_offset, log.offset_at(1)) == (2, 2, 2)
    assert headers_of(log.read(1, 5)[0].header)["x-stream-offset"] == Field("l", 1)


@pytest.mark.parametrize(
    "text, ms",
    [(b"5s", 5000), (b"2m", 120_000), (b"1h", 3_600_000), (b"1D", 86_400_000), (b"1M", 30 * 86_400_000)]
    + [(b"1Y", 365 * 86_400_000), (b"", None), (b"5", None), (b"m", None), (b"5d", None), (b"-5m", None)],
)
def test_ages(text: bytes, ms: int | None) -> None:
    """Units Y, M (month), D, h, m (minute), s."""
    assert age_ms(text) == ms


def test_each_message_of_a_stream_waits_for_its_own_record() -> None:
    """Some are safe while later ones are not: readers get those, and no more."""
    log: Any = SimpleNamespace(next_offset=0)
    durability: Any = SimpleNamespace(safe_lsn=0, sync_lsn_of_all=lambda: 10 * log.next_offset)
    broker = SimpleNamespace(
        storage=SimpleNamespace(durability=durability), scheduler=SimpleNamespace(await_journal=lambda queue: None)
    )
    queue: Any = SimpleNamespace(context=SimpleNamespace(broker=broker))
    end, found = LogEnd(log), []
    for log.next_offset in (1, 2, 3):
        assert end.advance_safe_offset(queue) == 0
    for durability.safe_lsn in (9, 10, 25, 30):
        found.append(end.advance_safe_offset(queue))
    assert found == [0, 1, 2, 3]


@pytest.mark.parametrize("definition", [{"max-age": "5s"}, {"max-length-bytes": 1}])
def test_a_new_policy_drops_old_segments_at_once(definition: dict[str, Any]) -> None:
    """Without waiting for the next segment to be full."""
    bench = Bench(x_stream_max_segment_size_bytes=1)
    bench.write("0", "1")
    bench.advance(10_000)
    bench.write("2")
    bench.broker.reloading.replace_policies(Policies([make_policy("p", "/", "^s$", definition)]))
    assert 0 not in dict(bench.seen(FIRST))
    assert bench.stream.ready_count < 3


def test_a_consumer_with_a_filter_gets_no_more_than_its_prefetch() -> None:
    """However many messages it takes are read together."""
    bench = Bench()
    bench.write(*"01234567")
    bench.consume("s", "t", prefetch=2, x_stream_offset=FIRST, x_filter="1 = 1")
    assert bench.taken() == "01"
    bench.session.ack(1)
    bench.end_turn()
    assert bench.taken() == "2"


def test_the_last_message_is_the_last_run_after_a_restart() -> None:
    """Runs are not recorded; a consumer that asks for the last one gets a message."""
    world = Harness(journal=SimulatedFiles(), kind="stream")
    world.queue()
    world.publish("a", "b", delivery_mode=2)
    world.restart()
    world.consume(prefetch=10, x_stream_offset=LAST)
    assert world.taken() == "b"


def test_a_reader_whose_place_is_dropped_goes_on_with_what_is_left() -> None:
    """It gets each of the messages once."""
    bench = Bench(x_max_age="10s", x_stream_max_segment_size_bytes=1)
    bench.write("0", "1", "2")
    bench.consume("s", "t", prefetch=1, x_stream_offset=FIRST)
    bench.advance(60_000)
    bench.write("3", "4")
    found = bench.taken()
    for tag in range(1, 5):
        if tag == len(found):
            bench.session.ack(tag)
            bench.end_turn()
            found += bench.taken()
    assert found == "034"


def test_a_preview_of_a_limit_says_how_many_messages_go() -> None:
    """As many segments as are too many, and no more."""
    bench = Bench(x_stream_max_segment_size_bytes=1)
    bench.write("0", "1", "2", "3")
    log: Any = bench.stream.store
    intake: Any = bench.stream.intake
    assert intake.forecast(bench.stream, {"x-max-length-bytes": Field("l", log.octets - 1)}) == 1
