"""What happens between two parts of the journal: a segment that goes while something still points at it, a disk that
fills up while a segment begins, a reader of contents beside the deletion of what it has read."""

from __future__ import annotations

import errno

import pytest
from journal_workload import PATH, SMALL, Driver, model_of, opened
from simulated_files import SimulatedFiles

from leveret.journal import Damaged, JournalOptions, WriterState
from leveret.journal.disk.segment import path_of, segments_in
from leveret.journal.format.record import QUEUE
from leveret.journal.recording.checkpoint import checkpoint, empty_segment
from leveret.journal.recovery.recovered import FRESH
from leveret.testing.harness import Harness


def turn(driver: Driver) -> None:
    assert driver.journal.wait(driver.journal.commit())


def test_a_segment_that_was_needed_again_waits_for_its_new_end() -> None:
    """A replay brings a message of it back, which is acknowledged: that has to be on the disk before the segment goes.
    Otherwise a power cut leaves the message without its content, and the broker does not start."""
    files = SimulatedFiles()
    options = JournalOptions(preallocate_size=0, fsync="interval", fsync_interval_ms=1_000_000)
    driver = Driver(opened(files, options))
    journal = driver.journal
    driver.declare("a")
    (id_,) = driver.publish([b"x"], "a")
    driver.settle("a", [id_])
    journal.commit()
    journal.begin_segment()
    driver.checkpoint()
    journal.commit()
    journal.begin_segment()  # which syncs what is before
    assert journal.writer.run_once()
    driver.publish([b"y"], "a")
    journal.commit()
    assert journal.old_segments.reclaim() == [], "the acknowledgement may not be on the disk, for all that is known"

    journal.messages.enqueued(driver.queue_ids["a"], [id_], driver.lsns[id_], [1])
    journal.commit()
    journal.begin_segment()
    assert journal.writer.run_once()
    assert journal.old_segments.reclaim() == []
    driver.model["a"][id_] = (b"x", FRESH)
    safe = {name: dict(messages) for name, messages in driver.model.items()}
    driver.settle("a", [id_])
    journal.commit()
    journal.old_segments.reclaim()
    while journal.writer.run_once():
        pass
    again = opened(files.power_cut(), options)
    assert model_of(again.recovered, again) == safe


def test_a_disk_that_stays_full_takes_no_descriptors() -> None:
    """Each try to begin a segment closes the file that it could not write."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    driver.declare("a")
    turn(driver)
    before, known = len(files.handles), set(files.names_now)

    def fail(operation: str, path: str) -> None:
        if operation == "write" and path not in known:
            raise OSError(errno.ENOSPC, "no room")

    files.fault = fail
    driver.journal.begin_segment()
    for _ in range(5):
        driver.journal.writer.run_once()
        assert driver.journal.state is WriterState.FULL
        driver.journal.retry()
    assert len(files.handles) == before


def test_a_segment_that_is_left_is_closed() -> None:
    """However many there are: the journal writes to one."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    driver.declare("a")
    turn(driver)
    before = len(files.handles)
    for _ in range(5):
        driver.journal.begin_segment()
        driver.publish([b"x"], "a")
        turn(driver)
    assert len(files.handles) == before


def reclaimed(driver: Driver, *, fails: bool = False) -> list[int]:
    """The segments on the disk after a checkpoint in a new one. `fails`: the directory of a deleted one is fsynced
    when there are descriptors again."""
    driver.publish([b"x"], "a")
    driver.purge("a")
    driver.journal.commit()
    driver.journal.begin_segment()
    driver.checkpoint()
    turn(driver)
    left = [fails]

    def fail(operation: str, path: str) -> None:
        if operation == "sync_directory" and left[0]:
            left[0] = False
            raise OSError(errno.EMFILE, "too many open files")

    driver.journal.old_segments.reclaim()
    files = driver.journal.writer.file._files
    assert isinstance(files, SimulatedFiles)
    files.fault = fail
    for _ in range(4):
        driver.journal.writer.run_once()
    return segments_in(files, PATH)


def test_old_segments_go_on_to_be_deleted_after_a_shortage_of_descriptors() -> None:
    """One was deleted, and the fsync after it could not begin. It is done later, and that one is not missed."""
    driver = Driver(opened(SimulatedFiles()))
    driver.declare("a")
    turn(driver)
    for fails in (False, True, False, False):
        (left,) = reclaimed(driver, fails=fails)
        assert left == driver.journal.usage.segments[-1].base_lsn


def test_no_name_gets_the_id_of_one_that_is_gone() -> None:
    """Also when the segments that had it are gone: programs that follow the journal know it as another queue's."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    driver.declare("a", "b")
    turn(driver)
    last = driver.queue_ids["b"]
    driver.delete("b")
    reclaimed(driver)
    driver.journal.close()
    again = opened(files)
    vhost_id = again.names[driver.queue_ids["a"]].vhost_id
    assert again.objects.define(QUEUE, vhost_id, "c") > last


def test_a_segment_with_a_damaged_end_is_not_emptied_in_silence() -> None:
    """What is behind the damage cannot be moved: the operator hears of it before the next start refuses it."""
    harness = Harness(journal=SimulatedFiles(), journal_options=SMALL)
    for name in ("q", "busy"):
        harness.queue(name)
    while len(harness.journal.usage.segments) == 1:
        harness.publish("x" * 200, delivery_mode=2)
    for _ in range(200):
        harness.publish("x" * 200, key="busy", delivery_mode=2)
        harness.take(queue="busy")
    harness.checkpoint()
    base_lsn = harness.journal.old_segments.worth_emptying()
    assert base_lsn is not None
    path = path_of(harness.path, base_lsn)
    harness.files.rot(path, len(harness.files.content(path)) // 2)
    with pytest.raises(Damaged):
        for _ in empty_segment(harness.broker, harness.journal, harness.recorder, base_lsn):
            harness.journal.commit()


def test_reading_goes_on_behind_a_segment_that_was_deleted() -> None:
    """Its beginning was read, the rest was purged. What is read next is near, in the segment after it."""
    options = JournalOptions(segment_size=600_000, preallocate_size=0)
    harness = Harness(journal=SimulatedFiles(), journal_options=options, memory=0)
    queue = harness.queue()

    def publish(number: int) -> None:
        harness.publish(f"{number},".ljust(10_000), delivery_mode=2)
        assert queue.pageable is not None
        queue.pageable.page_out(1 << 20)

    for number in range(50):
        publish(number)
    assert len(harness.journal.usage.segments) == 1
    assert harness.take()[0].startswith(b"0,")
    queue.purge()
    harness.settle()
    harness.journal.begin_segment()
    for number in range(50, 60):
        publish(number)
    harness.checkpoint(reclaims=True)
    while harness.journal.writer.run_once():
        pass
    assert segments_in(harness.files, harness.path)[0] > 1
    assert [int(body.split(b",")[0]) for body in harness.take(10)] == [*range(50, 60)]


@pytest.mark.parametrize("at", range(6))
def test_what_came_back_and_left_during_a_checkpoint_stays_gone(at: int) -> None:
    """Of a queue that is paged out: its count changed, and then it was acknowledged, between any two slices."""
    harness = Harness(journal=SimulatedFiles(), memory=0)
    queue = harness.queue()
    harness.publish(*"ABCDEFGH", delivery_mode=2)
    harness.settle()
    first = harness.session.get(queue, no_ack=False)
    assert first is not None and queue.pageable is not None
    queue.pageable.page_out(1 << 20)
    slices = checkpoint(harness.broker, harness.journal, harness.recorder)
    for number, _ in enumerate(slices):
        harness.journal.commit()
        if number == at:
            harness.session.reject(first[0], requeue=True)
            again = harness.session.get(queue, no_ack=False)
            assert again is not None and again[1].id == first[1].id
            harness.session.ack(again[0])
            harness.end_turn()
    harness.settle()
    harness.kill()
    assert b"".join(harness.take(7)) == b"BCDEFGH" and harness.get() is None


def test_messages_that_are_read_back_keep_their_exchange_and_key() -> None:
    """Also if all else is alike, and they were published one after the other."""
    harness = Harness(journal=SimulatedFiles(), memory=0)
    queue = harness.queue()
    ways = [("amq.fanout", "k"), ("amq.topic", "k"), ("amq.topic", "l"), ("amq.fanout", "l")]
    for exchange in ("amq.fanout", "amq.topic"):
        harness.bind("q", exchange, "#")
    for exchange, key in ways:
        harness.publish("x", exchange=exchange, key=key, delivery_mode=2)
    assert queue.pageable is not None
    queue.pageable.page_out(1 << 20)
    assert queue.paged_count == len(ways)
    found = [harness.session.get(queue, no_ack=True) for _ in ways]
    assert [(one[1].envelope.exchange, one[1].envelope.routing_key) for one in found if one is not None] == ways
