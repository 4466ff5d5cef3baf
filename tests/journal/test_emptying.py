"""A segment is emptied in slices between turns: what leaves its queue meanwhile is not moved, nor comes back."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from simulated_files import SimulatedFiles

from leveret.journal import JournalOptions, JournalReader, register_reader
from leveret.journal.appending import old_segments
from leveret.journal.disk.segment import segment_name, segments_in
from leveret.journal.format.record import MOVED
from leveret.journal.recording import checkpoint as checkpoints
from leveret.journal.recording.checkpoint import empty_segment
from leveret.testing.harness import Harness

SMALL = JournalOptions(segment_size=4_000, preallocate_size=0)


def harness_with_old_segment(*, memory: int | None = None) -> tuple[Harness, int]:
    """Ready messages in the oldest segment, and much behind it that is dead."""
    harness = Harness(journal=SimulatedFiles(), journal_options=SMALL, memory=memory)
    for name in ("q", "r", "busy"):
        harness.queue(name)
    harness.publish(*"ABCDEFGH", key="q", delivery_mode=2)
    harness.publish(*"stuv", key="r", delivery_mode=2)
    return harness, old_segment(harness)


def old_segment(harness: Harness) -> int:
    """The first LSN of the oldest segment, once much behind it is dead."""
    for _ in range(60):
        harness.publish("x" * 200, key="busy", delivery_mode=2)
        harness.take(queue="busy")
    harness.checkpoint()
    base_lsn = harness.journal.old_segments.worth_emptying()
    assert base_lsn is not None
    return base_lsn


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


def test_the_last_message_of_a_segment_may_leave_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not moved either: no copy of it is counted, and none comes back."""
    monkeypatch.setattr(old_segments, "MOVED_SLICE", 2)
    harness = Harness(journal=SimulatedFiles(), journal_options=SMALL)
    for name in ("q", "busy"):
        harness.queue(name)
    while len(harness.journal.usage.segments) == 1:
        harness.publish("x" * 200, delivery_mode=2)
    moving = empty_segment(harness.broker, harness.journal, harness.recorder, old_segment(harness))
    next(moving)
    harness.journal.commit()
    harness.take(harness.named("q").ready_count)
    for _ in moving:
        harness.journal.commit()
    assert [row.live for row in harness.journal.usage.segments] == [0] * len(harness.journal.usage.segments)
    harness.checkpoint(reclaims=True)
    harness.restart()
    assert harness.all("q") == ""


def test_a_copy_in_a_queue_that_is_not_durable_holds_no_segment() -> None:
    """A message is moved for the durable queues that have it, and its segment can go with the last of them."""
    harness = Harness(journal=SimulatedFiles(), journal_options=SMALL)
    for name in ("q", "r", "transient", "busy"):
        harness.queue(name, durable=name != "transient")
    for name in ("q", "r", "transient"):
        harness.bind(name, "amq.fanout")
    harness.publish(*"ABCDEFGH", exchange="amq.fanout", key="", delivery_mode=2)
    for _ in empty_segment(harness.broker, harness.journal, harness.recorder, old_segment(harness)):
        harness.journal.commit()
    usage = harness.journal.usage
    assert usage.segments[0].live == 0 and sum(row.live for row in usage.segments) == 16
    for name in ("q", "r"):
        harness.take(8, queue=name)
    assert not any(row.live for row in usage.segments)


def test_what_another_consumer_has_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two consumers come meanwhile and share what is read back: the messages of one leave, the other's stay."""
    monkeypatch.setattr(old_segments, "MOVED_SLICE", 1)
    harness, base_lsn = harness_with_old_segment(memory=0)
    pageable = harness.named("q").pageable
    assert pageable is not None
    pageable.page_out(1 << 20)
    moving = empty_segment(harness.broker, harness.journal, harness.recorder, base_lsn)
    next(moving)
    harness.ends_turns = False
    harness.consume("q", "free", no_ack=True)
    harness.consume("q", "acks")
    harness.finish_turns()
    assert (harness.taken("free"), harness.taken("acks")) == ("ACEG", "BDFH")
    for _ in moving:
        harness.journal.commit()
    assert not harness.journal.usage.segments[0].live


def test_a_segment_that_a_reader_needs_is_not_emptied() -> None:
    """It could not be deleted: its contents would be on the disk twice, and be sent to a follower that is behind."""
    harness, _ = harness_with_old_segment()
    register_reader(harness.path, "node-b-1", 1, harness.files)
    assert harness.journal.old_segments.worth_emptying() is None


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_is_moved_keeps_the_name_of_its_exchange(is_killed: bool) -> None:
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
            if is_killed:
                harness.settle()
                harness.kill()
    harness.restart()
    (message,) = harness.named("q").messages()
    assert message.envelope.exchange == "x"


def test_a_content_that_is_moved_again_tells_its_first_place() -> None:
    """By which readers know that it is no new message (docs/journal-format.md, record kind 20)."""
    harness = Harness(journal=SimulatedFiles(), journal_options=SMALL)
    for name in ("q", "busy"):
        harness.queue(name)
    harness.publish("A", key="q", delivery_mode=2)
    moved: dict[int, int] = {}  # LSN -> that of the original
    for _ in range(2):
        for _ in range(60):
            harness.publish("x" * 200, key="busy", delivery_mode=2)
            harness.take(queue="busy")
        harness.checkpoint(reclaims=True)
        reader = JournalReader(harness.path, harness.files)
        moved |= {lsn: one.arg for lsn, one in reader.records(trust_open=True) if one.kind == MOVED}
    assert len(moved) == 2 and len(set(moved.values())) == 1
    harness.kill()
    assert harness.all("q") == "A"


def test_a_deleted_segment_gives_its_room_back(tmp_path: Path) -> None:
    """Also if messages were read from it: a file that is open keeps its room on the disk."""
    harness = Harness(journal=tmp_path, journal_options=SMALL, memory=0)
    queue = harness.queue()
    for number in range(60):
        harness.publish(f"{number},".ljust(200), delivery_mode=2)
    assert queue.pageable is not None
    queue.pageable.page_out(1 << 20)
    harness.take(60)
    harness.checkpoint(reclaims=True)
    harness.publish("more", delivery_mode=2)
    harness.settle()
    assert not (tmp_path / segment_name(1)).exists()
    links = [os.path.realpath(one) for one in Path("/proc/self/fd").iterdir()]
    gone = [link for link in links if str(tmp_path) in link and link.endswith("(deleted)")]
    harness.close()
    assert gone == []


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_segment_that_cannot_be_deleted_is_deleted_at_a_later_checkpoint(is_cut: bool) -> None:
    """Those behind it wait for it, so that there is no gap; a reader of the disk sees none either."""
    harness = Harness(journal=SimulatedFiles(), journal_options=SMALL)
    files = harness.files
    harness.queue()
    for _ in range(60):
        harness.publish("x" * 200, delivery_mode=2)
        harness.take()
    first, second, *_ = before = segments_in(files, harness.journal.path)

    def fault(operation: str, path: str) -> None:
        if operation == "unlink" and path.endswith(segment_name(second)):
            raise OSError(errno.EBUSY, "busy")

    files.fault = fault
    reclaim(harness)
    assert segments_in(files, harness.journal.path)[: len(before) - 1] == before[1:], "the oldest alone is gone"
    files.fault = lambda operation, path: None
    if is_cut:
        harness.kill()
    reclaim(harness)
    assert segments_in(harness.files, harness.journal.path)[0] > before[-2]
    harness.publish("A", delivery_mode=2)
    harness.settle()
    harness.kill()
    assert harness.journal.usage.segments[0].base_lsn == segments_in(harness.files, harness.journal.path)[0]
    assert [one[1].body for one in iter(harness.get, None)] == [b"A"]


def reclaim(harness: Harness) -> None:
    """A checkpoint, and what follows from it, also on the disk."""
    harness.checkpoint(reclaims=True)
    harness.journal.commit()
    while harness.journal.writer.run_once():
        pass
