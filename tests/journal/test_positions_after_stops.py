"""Where replays, streams and recovery points begin after a stop of any kind. Queues page A.8, C.5; docs/leases.md."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest
from desk import GETS, C
from peer import method
from replay_desk import JournalReplays

from leveret.journal.recording.checkpoint import checkpoint

ORDERS = '[[logged-topic]]\nname = "q"\n'


def clean(desk: JournalReplays) -> None:
    """As `leveret serve` ends with SIGTERM: a checkpoint, and the segment is sealed."""
    desk.settle()
    state(desk)
    desk.journal.close()


def killed(desk: JournalReplays) -> None:
    """What was confirmed is on the disk, and nothing else is done."""
    desk.settle()


def state(desk: JournalReplays, slices: int | None = None) -> None:
    """A checkpoint, or the beginning of one."""
    for _ in islice(checkpoint(desk.pair.broker, desk.journal, desk.recorder), slices):
        desk.settle()
    desk.settle()


def killed_in_a_checkpoint(desk: JournalReplays) -> None:
    """Of which the first slices are on the disk."""
    state(desk, 3)


def killed_after_a_checkpoint(desk: JournalReplays) -> None:
    """Recovery begins with it."""
    state(desk)


def rolled(desk: JournalReplays) -> None:
    """The open segment has nothing but its head."""
    desk.settle()
    desk.journal.begin_segment()
    desk.settle()


def rolled_twice(desk: JournalReplays) -> None:
    """A segment without messages is sealed, with a checkpoint."""
    rolled(desk)
    state(desk)
    rolled(desk)


How = tuple[Callable[[JournalReplays], None], ...]
STOPS = (clean, killed, killed_in_a_checkpoint, killed_after_a_checkpoint, rolled, rolled_twice)
HOWS: list[How] = [(one,) for one in STOPS] + [
    (one, other) for one in (clean, killed, rolled) for other in (clean, killed)
]


@pytest.fixture(params=HOWS, ids=lambda how: "-".join(one.__name__ for one in how))
def how(request: pytest.FixtureRequest) -> How:
    found: How = request.param
    return found


def stopped(desk: JournalReplays, how: How) -> JournalReplays:
    """Stopped and started so often; later each time, so that times differ."""
    for stop in how:
        stop(desk)
        desk = JournalReplays(ORDERS, desk.files.power_cut(), wall_ms=desk.wall_ms + 60_000)
    return desk


def test_replays_go_on_where_they_say(how: How) -> None:
    """Of a queue that is empty: whatever the position, exactly what stands behind it, and then what comes."""
    desk = JournalReplays(ORDERS)
    desk.queue()
    desk.declare("other")
    desk.publish(*"ab")
    desk.publish("x", key="other")
    desk.confirmed()
    desk.advance_ms(10_000)
    at_ms = desk.wall_ms
    desk.publish(*"cde")
    desk.confirmed()
    desk.clear()
    assert desk.replay(bookmark="0") == "abcde"
    headers = [one.headers for one in desk.got]
    desk.settle()
    desk = stopped(desk, how)
    assert desk.counts() == (0, 0, 0)
    asked = {"first": "abcde", "last": "e", "next": "", f"{(desk.wall_ms - at_ms) // 1000}s": "cde"}
    for at, one in enumerate(headers):
        assert desk.replay(bookmark=one["x-bookmark"], tag=f"b{at}") == "abcde"[at + 1 :]
        assert desk.replay(stream_offset=one["x-stream-offset"], tag=f"o{at}") == "abcde"[at:]
    for start, expected in asked.items():
        assert desk.replay(stream_offset=start, tag=f"s{start}") == expected, start
    assert desk.replay(bookmark="0", tag="z") == "abcde"
    assert [one.headers for one in desk.got] == headers
    desk.publish("f")
    desk.confirmed()
    assert desk.more() == "f" * (2 * len(headers) + len(asked) + 1)


def test_streams_go_on_where_they_say(how: How) -> None:
    """Offsets and times mean the same messages after a stop; the next offset follows."""
    desk = JournalReplays(ORDERS)
    desk.queue()
    desk.declare("s", x_queue_type="stream")
    desk.publish(*"ab", key="s")
    desk.confirmed()
    desk.advance_ms(10_000)
    at_ms = desk.wall_ms
    desk.publish(*"cde", key="s")
    desk.confirmed()
    desk = stopped(desk, how)
    asked = {"first": "abcde", "last": "e", "next": "", f"{(desk.wall_ms - at_ms) // 1000}s": "cde"}
    for offset in range(5):
        assert read(desk, offset) == "abcde"[offset:]
        assert [one.headers["x-stream-offset"] for one in desk.got] == list(range(offset, 5))
    for start, expected in asked.items():
        assert read(desk, start) == expected, start
    desk.publish("f", key="s")
    desk.confirmed()
    assert read(desk, 5) == "f"


def read(desk: JournalReplays, start: int | str) -> str:
    """All of a stream from there on."""
    found = desk.replay(queue="s", stream_offset=start)
    got = desk.got
    desk.peer.send(method(GETS, C.Basic.Cancel, consumer_tag="r"))
    desk.more()
    desk.got = got
    return found


def test_browsing_shows_what_is_there(how: How) -> None:
    """What was acknowledged does not come again, what was not is there in its order."""
    desk = JournalReplays(ORDERS)
    desk.queue()
    desk.publish(*"abcde")
    desk.confirmed()
    for _ in "ab":
        got = desk.get()
        assert got is not None
        desk.ack(got)
    desk.settle()
    desk = stopped(desk, how)
    assert desk.replay(browse=True) == "cde"
    desk.publish("f")
    desk.confirmed()
    assert desk.replay(browse=True, tag="again") == "cdef"


def test_ids_that_were_cut_are_not_used_again() -> None:
    """Of a leased queue, which delivers at once: a bookmark that was seen means no other message later."""
    desk = JournalReplays(ORDERS)
    desk.queue()
    desk.publish("a", key="q")
    desk.confirmed()
    files = desk.files.power_cut()
    desk.publish("b", key="q")
    assert desk.replay(stream_offset="last") == "b"
    seen = desk.got[0].headers["x-stream-offset"]
    for _ in range(2):
        desk = JournalReplays(ORDERS, files, wall_ms=desk.wall_ms)
        desk.publish("c", key="q")
        desk.confirmed()
        assert desk.replay(stream_offset="last") == "c"
        assert desk.got[0].headers["x-stream-offset"] > seen
        seen, files = desk.got[0].headers["x-stream-offset"], desk.files.power_cut()


def test_a_stream_hands_out_what_is_safe() -> None:
    """A kill at any time: no offset that a consumer saw belongs to another message afterwards."""
    desk = JournalReplays(ORDERS)
    desk.declare("s", x_queue_type="stream")
    desk.publish("a", key="s")
    desk.confirmed()
    assert desk.replay(queue="s", stream_offset="first") == "a"
    for body in "bc":
        desk.publish(body, key="s")
        desk.pair.end_turn()
    assert desk.more() == ""
    files = desk.files.power_cut()
    desk.settle()
    assert desk.more() == "bc"
    again = JournalReplays(ORDERS, files, wall_ms=desk.wall_ms)
    again.publish("x", key="s")
    again.confirmed()
    assert read(again, "first") == "ax"


def test_each_turn_of_a_stream_waits_for_itself_alone() -> None:
    """What was published later does not hold up what is safe already."""
    desk = JournalReplays(ORDERS)
    desk.declare("s", x_queue_type="stream")
    assert desk.replay(queue="s", stream_offset="first") == ""
    desk.publish("a", key="s")
    desk.pair.end_turn()
    desk.journal.commit()
    lsn = desk.journal.next_lsn
    assert desk.journal.wait(lsn)
    desk.publish("b", key="s")
    desk.pair.end_turn()
    desk.pair.broker.release_awaiting()
    assert desk.more() == "a"
    desk.settle()
    assert desk.more() == "b"
