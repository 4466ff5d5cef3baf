"""Streams on virtual time: retention, times, and what survives a purge (behaviour page 3.7)."""

from __future__ import annotations

import pytest

from leveret.engine import Broker, Client, Delivered, ManualClock, Message, Session, User
from leveret.engine.events import EventKind
from leveret.engine.messages.content import PLAIN, encode_header, headers_of
from leveret.engine.messages.event import Event
from leveret.engine.messages.field_table import Field
from leveret.engine.messages.message import Envelope
from leveret.engine.rules.stream_offset import age_ms
from leveret.engine.stores.stream_store import StreamStore

SECOND_NS = 1_000_000_000


def make_content(text: str) -> bytes:
    """A content of that body."""
    return PLAIN.join(encode_header(len(text)), text.encode())


class Bench:
    """A broker, a client, and the stream s."""

    def __init__(self, **arguments: Field) -> None:
        self.clock = ManualClock()
        self.broker = Broker(self.clock)
        self.events: list[Event] = []
        self.broker.context.listeners.append(self.events.append)
        self.client: Client = self.broker.connections.open("/", User("guest"), name="c", flush=lambda: None)
        self.session: Session = self.client.open_session()
        named = {"x-queue-type": Field("S", b"stream"), **{k.replace("_", "-"): f for k, f in arguments.items()}}
        queue = self.client.vhost.queues.declare("s", client=self.client, durable=True, arguments=named)
        assert isinstance(queue.store, StreamStore)
        self.queue = queue

    def publish(self, *bodies: str) -> None:
        """One run: what RabbitMQ calls a chunk."""
        route = self.client.vhost.router.route("", "s", self.client.user)
        self.session.publish(route, Envelope("", "s"), [make_content(body) for body in bodies], mandatory=False)
        self.broker.end_turn()

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.clock.advance_ns(int(seconds * SECOND_NS))
        self.broker.advance()
        self.broker.end_turn()

    def read(self, offset: Field) -> list[tuple[int, str]]:
        """What a consumer that begins there gets now, as (x-stream-offset, body)."""
        self.session.limit(1000, total=False)
        self.session.consume(self.queue, "t", no_ack=False, exclusive=False, arguments={"x-stream-offset": offset})
        self.broker.end_turn()
        self.session.cancel("t")
        got = []
        for effect in self.client.take_outbox():
            assert isinstance(effect, Delivered)
            for each in effect.contents:
                header, body = PLAIN.split(each)
                value = headers_of(header)["x-stream-offset"].value
                assert isinstance(value, int)
                got.append((value, body.decode()))
        return got


FIRST, LAST = Field("S", b"first"), Field("S", b"last")


def test_old_segments_go_by_age() -> None:
    """x-max-age, when a segment is full; the one that is written to stays however old it is."""
    bench = Bench(x_max_age=Field("S", b"10s"), x_stream_max_segment_size_bytes=Field("I", 1))
    bench.publish("0", "1")
    bench.wait(60)
    assert bench.read(FIRST) == [(0, "0"), (1, "1")]
    bench.publish("2")
    assert bench.read(FIRST) == [(2, "2")]
    assert bench.queue.counters.expired == 2
    gone = [event.messages for event in bench.events if event.kind is EventKind.EXPIRED]
    assert [*map(list, gone)] == [[1], [2]]


def test_a_bounded_stream_is_bounded_without_a_segment_size() -> None:
    """The bound, and at most an eighth of it more."""
    bench = Bench(x_max_length_bytes=Field("I", 10_000))
    for number in range(1000):
        bench.publish(str(number) * 10)
    assert isinstance(bench.queue.store, StreamStore)
    assert 8_000 < bench.queue.store.octets <= 10_000 + 1_300
    assert bench.queue.counters.dropped + bench.queue.ready_count == 1000
    offset, body = bench.read(FIRST)[0]
    assert body == str(offset) * 10


def test_times() -> None:
    """A time stamp or an interval finds what came then or later; last is the last run."""
    bench = Bench()
    start_ms = bench.clock.wall_ms()
    bench.publish("0")
    bench.wait(10)
    bench.publish("1", "2")
    bench.wait(10)
    bench.publish("3", "4")
    assert bench.read(Field("T", start_ms // 1000 + 10)) == [(1, "1"), (2, "2"), (3, "3"), (4, "4")]
    assert bench.read(Field("S", b"10s"))[0] == (1, "1")
    assert bench.read(Field("S", b"9s"))[0] == (3, "3")
    assert bench.read(LAST) == [(3, "3"), (4, "4")]


def test_offsets_go_on_after_an_operators_purge() -> None:
    """Clients can't purge a stream; where an operator does, no offset comes twice."""
    bench = Bench()
    bench.publish("0", "1")
    bench.queue.purge()
    bench.publish("2")
    assert bench.read(FIRST) == [(2, "2")]


def test_a_restored_log() -> None:
    """Messages that come back after a restart are numbered from 0; they came long ago."""
    log = Bench().queue.store
    assert isinstance(log, StreamStore)
    for id_ in (5, 9):
        log.append(Message(id_, make_content(str(id_)), Envelope("", "s")))
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
