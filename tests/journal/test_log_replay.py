"""Replay from the journal: over segments and restarts, and what is not there any more. Queues page A.8, C.3."""

from __future__ import annotations

import pytest
from durable_desk import PATH
from replay_desk import JournalReplays

from leveret.engine import NATIVE, Envelope, encode_header, publish_by_name
from leveret.engine.leases import replaying
from leveret.journal.recording import topic_log
from leveret.journal.recording.checkpoint import checkpoint

ORDERS = '[[logged-topic]]\nname = "q"\n'


def written(desk: JournalReplays, *bodies: str) -> None:
    """Published and safe, in a segment of their own."""
    desk.publish(*bodies)
    desk.confirmed()
    desk.journal.begin_segment()
    desk.settle()


def test_bookmarks_outlive_a_restart() -> None:
    """And so do offsets; what was acknowledged before is replayed, as long as its topic keeps it."""
    desk = JournalReplays(ORDERS)
    desk.queue()
    desk.publish(*"abcd")
    desk.confirmed()
    desk.clear()
    assert desk.replay(bookmark="0") == "abcd"
    second = desk.got[1].headers
    desk.settle()
    again = JournalReplays(ORDERS, desk.files.power_cut())
    assert again.counts() == (0, 0, 0)
    again.publish("e")
    again.confirmed()
    assert again.replay(bookmark=second["x-bookmark"]) == "cde"
    assert again.replay(stream_offset=second["x-stream-offset"], tag="s") == "bcde"
    assert again.got[0].headers == second
    assert again.replay(stream_offset="next", tag="t") == ""
    assert again.replay(bookmark="0|1|", tag="u") == ""
    again.publish("f")
    again.confirmed()
    assert again.more() == "ffff"


@pytest.mark.parametrize(("octets", "read"), [(1, 1024), (1, 1), (1024 * 1024, 1), (1024 * 1024, 1024)])
def test_over_segments(monkeypatch: pytest.MonkeyPatch, octets: int, read: int) -> None:
    """A part of the log at a time, from the segment on that an id or a time is in."""
    monkeypatch.setattr(topic_log, "EXAMINED_OCTETS", octets)
    monkeypatch.setattr(replaying, "READ_OCTETS", read)
    desk = JournalReplays(ORDERS)
    desk.queue()
    stamps = []
    for bodies in ("ab", "cd", "ef", "gh"):
        desk.advance_ms(10_000)
        stamps.append(desk.wall_ms)
        written(desk, *bodies)
    assert desk.replay(bookmark="0") == "abcdefgh"
    offsets = [got.headers["x-stream-offset"] for got in desk.got]
    assert [got.headers["x-ts"] for got in desk.got] == [stamp for stamp in stamps for _ in range(2)]
    for at, offset in enumerate(offsets):
        assert desk.replay(stream_offset=offset, tag=f"o{at}") == "abcdefgh"[at:]
    assert desk.pair.broker.context.storage.log.position_of_time(stamps[2]) > desk.journal.usage.segments[1].base_lsn
    assert desk.replay(stream_offset="15s", tag="t") == "efgh"
    assert desk.replay(stream_offset="5s", tag="u") == "gh"


def test_a_turn_that_is_not_written_yet() -> None:
    """What was published in this turn is in the log, as it is in its queues."""
    desk = JournalReplays()
    desk.queue()
    desk.publish("a")
    assert desk.replay(bookmark="0") == "a"
    desk.publish("b")
    assert desk.more() == "b"
    desk.settle()
    desk.publish("c")
    assert desk.more() == "c"


def test_other_virtual_hosts_have_their_own() -> None:
    """A queue of the same name and topic elsewhere captures nothing here."""
    desk = JournalReplays(ORDERS + '[[logged-topic]]\nname = "q"\nvhost = "v"\n')
    desk.queue()
    there = desk.pair.broker.virtual_hosts["v"]
    publish_by_name(there.context, Envelope("", "q"), [NATIVE.join(encode_header(1), b"x")])
    desk.publish("a")
    desk.confirmed()
    assert desk.replay(bookmark="0") == "a"


def test_what_no_queue_needs_goes_with_its_segment() -> None:
    """Where nothing is listed: a replay begins with what is there then."""
    desk = JournalReplays()
    desk.queue()
    written(desk, *"ab")
    desk.clear()
    written(desk, *"cd")
    for _ in checkpoint(desk.pair.broker, desk.journal, desk.recorder):
        desk.settle()
    desk.settle()
    desk.journal.begin_segment()
    desk.settle()
    assert desk.replay(bookmark="0", qos=1) == "a"
    desk.journal.old_segments.reclaim()
    desk.settle()
    assert desk.journal.usage.segments[0].base_lsn > 1
    desk.ack(desk.got[0])
    assert desk.more() in ("b", "c")  # it was read before, or is gone
    assert desk.replay(bookmark="0", tag="s") == "cd"
    assert desk.replay(bookmark="1|1|", tag="t") == "cd"
    assert [name for name in desk.files.names(PATH) if name.endswith(".log")]
