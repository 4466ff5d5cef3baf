"""A segment is emptied in slices between turns: what leaves its queue meanwhile is not moved, nor comes back."""

from __future__ import annotations

import pytest
from simulated_files import SimulatedFiles

from leveret.journal import JournalOptions, register_reader
from leveret.journal.appending import old_segments
from leveret.journal.recording import checkpoint as checkpoints
from leveret.journal.recording.checkpoint import empty_segment
from leveret.testing.harness import Harness

SMALL = JournalOptions(segment_size=4_000, preallocate_size=0)


def harness_with_old_segment() -> tuple[Harness, int]:
    """Ready messages in the oldest segment, and much behind it that is dead."""
    harness = Harness(journal=SimulatedFiles(), journal_options=SMALL)
    for name in ("q", "r", "busy"):
        harness.queue(name)
    harness.publish(*"ABCDEFGH", key="q", delivery_mode=2)
    harness.publish(*"stuv", key="r", delivery_mode=2)
    for _ in range(60):
        harness.publish("x" * 200, key="busy", delivery_mode=2)
        harness.take(queue="busy")
    harness.checkpoint()
    base_lsn = harness.journal.old_segments.worth_emptying()
    assert base_lsn is not None
    return harness, base_lsn


@pytest.mark.parametrize("is_behind", [False, True])
def test_what_leaves_between_slices_is_not_moved(monkeypatch: pytest.MonkeyPatch, is_behind: bool) -> None:
    """Acknowledged, purged, deleted with its queue. `is_behind`: then nothing is noted, and the index is made anew."""
    monkeypatch.setattr(old_segments, "MOVED_SLICE", 2)
    made = []
    real = checkpoints.message_index
    monkeypatch.setattr(checkpoints, "message_index", lambda *more: made.append(more) or real(*more))
    harness, base_lsn = harness_with_old_segment()
    moving = empty_segment(harness.broker, harness.journal, harness.recorder, base_lsn)
    harness.recorder.takes_nothing = harness.recorder.messages.is_behind = is_behind
    next(moving)
    harness.journal.commit()
    assert harness.take(4) == [b"A", b"B", b"C", b"D"]
    harness.vhost.queues.delete("r", None)
    for _ in moving:
        harness.journal.commit()
    harness.recorder.takes_nothing = harness.recorder.messages.is_behind = False
    assert len(made) == 1 or is_behind
    rows = harness.journal.usage.segments
    assert sum(row.live for row in rows) == 4 and not rows[0].live
    harness.checkpoint(reclaims=True)
    harness.restart()
    assert harness.all("q") == "EFGH"
    assert "r" not in harness.vhost.queues


def test_a_segment_that_a_reader_needs_is_not_emptied() -> None:
    """It could not be deleted: its contents would be on the disk twice, and be sent to a follower that is behind."""
    harness, _ = harness_with_old_segment()
    register_reader(harness.path, "node-b-1", 1, harness.files)
    assert harness.journal.old_segments.worth_emptying() is None


def test_what_is_moved_keeps_the_name_of_its_exchange() -> None:
    """Which was deleted long ago: later segments name it as long as the message is there."""
    harness = Harness(journal=SimulatedFiles(), journal_options=SMALL)
    for name in ("q", "busy"):
        harness.queue(name)
    harness.vhost.exchanges.declare("x", "fanout", durable=True)
    harness.bind("q", "x")
    harness.publish("A", key="", exchange="x", delivery_mode=2)
    harness.vhost.exchanges.delete("x")
    harness.end_turn()
    for has_to_move in (True, False):
        for _ in range(60):
            harness.publish("x" * 200, key="busy", delivery_mode=2)
            harness.take(queue="busy")
        harness.checkpoint(reclaims=not has_to_move)
        if has_to_move:
            base_lsn = harness.journal.old_segments.worth_emptying()
            assert base_lsn is not None
            for _ in empty_segment(harness.broker, harness.journal, harness.recorder, base_lsn):
                harness.journal.commit()
    harness.restart()
    (message,) = harness.named("q").messages()
    assert message.envelope.exchange == "x"
