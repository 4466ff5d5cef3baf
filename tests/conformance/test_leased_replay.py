"""Rows of queues page G.A about replay: bookmark subscriptions read the log of a leased queue and take nothing (A.8).

Each runs twice: with the log in memory, and with a journal, which is the log.
"""

from __future__ import annotations

from typing import Any

import pytest
from desk import Refused
from pamqp.common import FieldTable
from replay_desk import JournalReplays, MemoryReplays, Replays

from leveret.engine.stores import topic_log

ORDERS = '[[logged-topic]]\nname = "orders"\n[[logged-topic]]\nname = "q"\n'
KINDS: dict[str, type[Replays]] = {"memory": MemoryReplays, "journal": JournalReplays}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> type[Replays]:
    return KINDS[request.param]


@pytest.fixture
def desk(kind: type[Replays]) -> Replays:
    desk = kind()
    desk.queue()
    return desk


def publish(desk: Replays, *bodies: str, **options: Any) -> None:
    """Publishes that are confirmed."""
    desk.publish(*bodies, **options)
    desk.confirmed()


def stamp(desk: Replays, ms: int = 0) -> str:
    """The time now, or so much later, as AMPS writes it."""
    from datetime import UTC, datetime

    at = datetime.fromtimestamp((desk.wall_ms + ms) / 1000, UTC)
    return at.strftime("%Y%m%dT%H%M%S") + f".{(desk.wall_ms + ms) % 1000:03d}Z"


def test_all_again_from_the_beginning(desk: Replays) -> None:
    """Queues page, row A69: everything that was acknowledged, to any number of readers; the queue stays as it is."""
    publish(desk, *"abc")
    desk.clear()
    publish(desk, "d", delivery_mode=2)
    assert desk.replay(bookmark="0") == "abcd"
    assert desk.replay(bookmark="0", tag="s") == "abcd"
    assert desk.replay(stream_offset="first", tag="t") == "abcd"
    assert desk.counts() == (1, 0, 0)
    for got in desk.got:
        desk.ack(got)
    assert desk.counts() == (1, 0, 0)
    publish(desk, "e")
    assert desk.counts()[0] == 2


def test_from_a_bookmark_or_an_offset(desk: Replays) -> None:
    """Queues page, row A70: behind the bookmark, which is that of its delivery; at the offset, which is included.

    Of several bookmarks the oldest that is known counts; if none is, it starts now (A.8).
    """
    publish(desk, *"abcde")
    third = [desk.must_get() for _ in range(5)][2].headers["x-bookmark"]
    assert desk.replay(bookmark=third) == "de"
    assert desk.replay(bookmark="0", tag="s") == "abcde"
    offset = desk.got[2].headers["x-stream-offset"]
    assert desk.got[2].headers["x-bookmark"] == third
    assert desk.replay(stream_offset=offset, tag="t") == "cde"
    assert desk.replay(bookmark=f"7|7|, {desk.got[1].headers['x-bookmark']}, {third}", tag="u") == "de"
    assert desk.replay(bookmark="7|7|", tag="v") == ""
    assert desk.replay(bookmark="0|1|", tag="w") == ""
    assert desk.replay(stream_offset="next", tag="x") == ""
    assert desk.replay(stream_offset="last", tag="y") == "e"


def test_a_range(desk: Replays) -> None:
    """Queues page, row A71: only what came in that time; then the broker cancels. Also between bookmarks."""
    publish(desk, "a")
    desk.advance_ms(1000)
    begin = stamp(desk)
    publish(desk, "b")
    desk.advance_ms(1000)
    publish(desk, "c")
    desk.advance_ms(1000)
    end = stamp(desk)
    publish(desk, "d")
    assert desk.replay(bookmark=f"[{begin}:{end})") == "bc" and desk.is_ended
    assert desk.replay(bookmark=f"[{begin}:{end}]", tag="s") == "bcd"
    desk.advance_ms(1)
    assert desk.more() == "" and desk.is_ended
    assert desk.replay(bookmark=f"[0:{end})", tag="t") == "abc" and desk.is_ended
    assert desk.replay(bookmark="0", tag="u") == "abcd"
    a, _, c, d = (got.headers["x-bookmark"] for got in desk.got)
    assert desk.replay(bookmark=f"({a}:{c}]", tag="v") == "bc" and desk.is_ended
    assert desk.replay(bookmark=f"[{a}:{d})", tag="w") == "abc" and desk.is_ended
    assert desk.replay(bookmark=f"({begin}:{end})", tag="x") == "c" and desk.is_ended


def test_a_range_that_is_not_over(desk: Replays) -> None:
    """It waits for what comes until its end, and is cancelled then."""
    publish(desk, "a")
    assert desk.replay(bookmark=f"[0:{stamp(desk, 2000)})") == "a" and not desk.is_ended
    desk.advance_ms(1000)
    publish(desk, "b")
    assert desk.more() == "b" or desk.got == []
    assert not desk.is_ended
    desk.advance_ms(1500)
    desk.more()
    assert desk.is_ended
    assert desk.replay(stream_offset="1h", tag="s") == "ab" and not desk.is_ended


@pytest.mark.parametrize("ms", [-5000, 0])
def test_from_a_time(desk: Replays, ms: int) -> None:
    """What came at that time or later; a time before the log is its first message (A.8)."""
    desk.advance_ms(10_000)
    publish(desk, *"ab")
    assert desk.replay(bookmark=stamp(desk, ms)) == "ab"
    desk.advance_ms(2000)
    publish(desk, "c")
    desk.more()
    assert desk.replay(bookmark=stamp(desk, -1000), tag="s") == "c"
    assert desk.replay(bookmark="20200101T000000Z", tag="t") == "abc"
    assert desk.replay(bookmark=stamp(desk, 1), tag="u") == ""


def test_what_is_told_of_each(desk: Replays) -> None:
    """Each delivery has its bookmark, its place and its time (A.8), and nothing of a lease."""
    desk.exchange("orders", "topic")
    desk.queue("orders-queue", x_underlying_topic="orders")
    publish(desk, "a", exchange="orders", key="new", headers={"own": 1}, content_type="text/plain")
    assert desk.replay(queue="orders-queue", bookmark="0") == "a"
    (got,) = desk.got
    assert got.headers == {
        "own": 1, "x-topic": "orders", "x-bookmark": f"1|{got.headers['x-stream-offset']}|",
        "x-stream-offset": got.headers["x-stream-offset"], "x-ts": desk.wall_ms,
    }  # fmt: skip
    assert (got.exchange, got.routing_key, got.redelivered) == ("orders", "new", False)
    assert got.properties.content_type == "text/plain"


def test_prefetch_is_room_and_nothing_else(desk: Replays) -> None:
    """Acknowledgements, and rejects of all kinds, give it room for more (A.8)."""
    publish(desk, *"abcdefgh")
    assert desk.replay(bookmark="0", qos=2) == "ab"
    desk.ack(desk.got[0])
    assert desk.more() == "c"
    desk.nack(desk.got[0], requeue=True)
    assert desk.more() == "d"
    desk.reject(desk.got[0], requeue=False)
    assert desk.more() == "e"
    assert desk.counts()[:2] == (8, 0)
    desk.reopen_channel()
    assert desk.replay(bookmark="0", qos=3) == "abc"
    assert desk.counts()[:2] == (8, 0)


def test_it_goes_on_with_what_comes(desk: Replays) -> None:
    """At the end of the log it waits; the queue's own consumers get the same messages, as leases."""
    publish(desk, "a")
    assert desk.replay(bookmark="0") == "a"
    desk.publish("b")
    assert desk.more() == "b"
    desk.confirmed()
    desk.cancel("r")
    publish(desk, "c")
    assert desk.more() == ""
    assert desk.all() == "abc"


def test_filters_of_the_queue_and_of_the_reader(desk: Replays) -> None:
    """A replay shows what the queue captures: its filter holds. That of the reader, too, in both dialects."""
    desk.exchange("orders", "topic")
    desk.queue("large", x_underlying_topic="orders", x_queue_filter="/n > 1")
    desk.queue("all", x_underlying_topic="orders")
    publish(desk, '{"n": 1}', '{"n": 2}', '{"n": 3}', exchange="orders", headers={"shade": "red"})
    assert desk.replay(queue="all", bookmark="0") == '{"n": 1}{"n": 2}{"n": 3}'
    assert desk.replay(queue="large", bookmark="0", tag="s") == '{"n": 2}{"n": 3}'
    assert desk.replay(queue="large", bookmark="0", filter="/n < 3", tag="t") == '{"n": 2}'
    assert desk.replay(queue="large", bookmark="0", selector="shade = 'blue'", tag="u") == ""


def test_messages_of_before_the_queue(desk: Replays) -> None:
    """Of a topic that another queue selects, or that is listed as logged; of no other, and of no queue that is gone."""
    desk.exchange("orders", "topic")
    publish(desk, "a", exchange="orders")
    desk.queue("one", x_underlying_topic="orders")
    publish(desk, "b", exchange="orders")
    desk.queue("two", x_underlying_topic="orders", x_recovery_point="now")
    publish(desk, "c", exchange="orders")
    assert desk.replay(queue="two", bookmark="0") == "bc"
    desk.reopen_channel()
    desk.delete("one")
    desk.delete("two")
    desk.queue("one", x_underlying_topic="orders")
    assert desk.replay(queue="one", bookmark="0") == ""
    publish(desk, "d", exchange="orders")
    assert desk.more() == "d"


def test_a_listed_topic_is_replayed_whatever_captured_it(kind: type[Replays]) -> None:
    """Transient messages that no queue had, from before the queue was there (C.1)."""
    desk = kind(ORDERS)
    desk.exchange("orders", "topic")
    publish(desk, *"ab", exchange="orders", key="x")
    desk.queue("q", x_underlying_topic="orders", x_recovery_point="now")
    publish(desk, "c", exchange="orders", key="y")
    assert desk.replay(bookmark="0") == "abc"
    assert desk.counts()[0] == 1


REFUSED: list[tuple[FieldTable, dict[str, Any], str]] = [
    ({"bookmark": "0", "stream_offset": "first"}, {}, "only one of x-stream-offset and x-bookmark"),
    ({"bookmark": "yesterday"}, {}, "'yesterday', expected 0, bookmarks"),
    ({"bookmark": 3}, {}, "expected text"),
    ({"bookmark": "[1|2|:never]"}, {}, "a range is of bookmarks and times"),
    ({"stream_offset": "soon"}, {}, "expected first, last, next"),
    ({"rate": "1000"}, {}, "expected x-stream-offset or x-bookmark beside it"),
    ({"rate_max_gap": "1s"}, {}, "expected x-stream-offset or x-bookmark beside it"),
    ({"bookmark": "0", "rate": "fast"}, {}, "expected messages a second"),
    ({"bookmark": "0", "rate": 0}, {}, "above 0"),
    ({"bookmark": "0", "rate": "10", "rate_max_gap": "1s"}, {}, "multiple of the original speed"),
    ({"bookmark": "0", "rate": "2X", "rate_max_gap": "1h30m"}, {}, "expected a duration"),
    ({"bookmark": "0"}, {"qos": 0}, "prefetch"),
    ({"bookmark": "0"}, {"qos": None}, "prefetch"),
]


@pytest.mark.parametrize(("arguments", "options", "problem"), REFUSED)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any], options: dict[str, Any], problem: str) -> None:
    """406 with what was expected; as with streams a prefetch is needed (A.8)."""
    desk = MemoryReplays()
    desk.queue()
    with pytest.raises(Refused, match=problem) as refused:
        desk.replay(**options, **arguments)
    assert refused.value.code == 406


def test_acknowledgements_are_needed(desk: Replays) -> None:
    """As with streams."""
    with pytest.raises(Refused) as refused:
        desk.replay(bookmark="0", no_ack=True)
    assert refused.value.code == 540


@pytest.mark.parametrize(
    ("rate", "more", "times_ms"),
    [
        (2, {}, [0, 500, 1000, 1500]),
        ("4", {}, [0, 250, 500, 750]),
        ("1KB", {}, [0, 1000, 2000, 3000]),
        ("2X", {}, [0, 1500, 2000, 4500]),
        ("1X", {"rate_max_gap": "2s"}, [0, 2000, 3000, 5000]),
    ],
)
def test_rates(desk: Replays, rate: int | str, more: dict[str, str], times_ms: list[int]) -> None:
    """Messages or octets a second, or a multiple of the speed at which they were published (A.8)."""
    for body, pause_ms in zip("abcd", (3000, 1000, 5000, 0)):
        publish(desk, body + " " * 1024)
        desk.advance_ms(pause_ms)
    found = []
    begin = desk.wall_ms
    desk.replay(bookmark="0", rate=rate, **more)
    for _ in range(120):
        found += [(got.body[0], desk.wall_ms - begin) for got in desk.got]
        desk.advance_ms(50)
        desk.more()
    assert [body for body, _ in found] == list("abcd")
    assert [at // 100 for _, at in found] == [at // 100 for at in times_ms]


def test_a_rate_holds_although_timers_are_late() -> None:
    """Fifty a second, looked at every 35 ms: what came late does not put off the next ones (A.8)."""
    desk = MemoryReplays()
    desk.queue()
    desk.publish(*(str(number % 10) for number in range(60)))
    desk.replay(bookmark="0", rate=50)
    came = len(desk.got)
    for _ in range(20):
        desk.pair.clock.advance_ns(35_000_000)
        desk.advance_ms(0)
        came += len(desk.more())
    assert came == 1 + 20 * 35 * 50 // 1000


def test_no_more_is_sent_than_a_client_has_room_for() -> None:
    """A replay of 20 KB to a client whose output has room for 3: a message beyond that at most, each time."""
    desk = MemoryReplays()
    desk.queue()
    desk.publish(*("-" * 1000 for _ in range(20)))
    (client,) = desk.pair.broker.connections
    unsent, flush = [], client.flush
    client.unsent_max = 3000
    client.flush = lambda: (unsent.append(client.unsent), flush())
    desk.replay(bookmark="0")
    assert len(desk.got) == 20
    assert max(unsent) < 3000 + 1200


def test_memory_holds_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a journal the log is bounded; what is asked for and gone is the oldest that is there."""
    monkeypatch.setattr(topic_log, "MEMORY_OCTETS", 20_000)
    desk = MemoryReplays()
    desk.queue()
    bodies = [f"{number:04d}" + "-" * 996 for number in range(60)]
    desk.publish(*bodies)
    desk.replay(bookmark="0", qos=1000)
    numbers = [int(got.body[:4]) for got in desk.got]
    assert numbers == list(range(60 - len(numbers), 60)) and 10 < len(numbers) < 20
    assert desk.counts()[0] == 60


def test_a_replay_that_ends_leaves_no_deadline() -> None:
    """A rate sets one for the next message."""
    desk = MemoryReplays()
    desk.queue()
    desk.publish(*"abc")
    desk.clear()
    before = desk.pair.broker.next_deadline_ns()
    assert desk.replay(bookmark="0", rate=1) == "a"
    assert desk.pair.broker.next_deadline_ns() != before
    for session in (one for client in desk.pair.broker.connections for one in client.sessions):
        for tag in list(session.consumers):
            session.cancel(tag)
    assert desk.pair.broker.next_deadline_ns() == before


def test_a_channel_that_stops_the_flow_gets_no_replay() -> None:
    """And the rest when it lets it go on (channel.flow)."""
    desk = MemoryReplays()
    desk.queue()
    desk.publish("a")
    assert desk.replay(bookmark="0") == "a"
    (session,) = (one for client in desk.pair.broker.connections for one in client.sessions if one.consumers)
    session.set_flowing(False)
    desk.publish("b")
    assert desk.more() == ""
    session.set_flowing(True)
    assert desk.more() == "b"
