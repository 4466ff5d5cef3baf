"""Promises of the journal that are kept in more than one place: turns, segments that somebody needs, counts."""

import threading
from array import array
from functools import partial
from pathlib import Path

import pytest
from journal_workload import PATH, SMALL, Driver, opened
from simulated_files import SimulatedFiles

from leveret.engine import ManualClock
from leveret.engine.events import EventKind
from leveret.journal import Journal, JournalOptions, MessageState, RecoveredQueue, recover
from leveret.journal.appending.segment_usage import SegmentUsage
from leveret.journal.disk import writer as writing
from leveret.journal.disk.readers import register_reader
from leveret.journal.disk.segment import segments_in
from leveret.journal.recording.recorder import Recorder
from leveret.journal.recovery.reader import JournalReader
from leveret.testing.harness import Harness


def driver_on(files: SimulatedFiles, options: JournalOptions = SMALL, clock: ManualClock | None = None) -> Driver:
    clock = clock or ManualClock()
    return Driver(opened(files, options, clock), clock)


def turn(driver: Driver) -> None:
    assert driver.journal.wait(driver.journal.commit())


# -- turns and commits ------------------------------------------------------------------------------------------------


def test_nothing_of_a_turn_is_written_before_it_ends() -> None:
    """A commit between two records of one turn leaves it in memory: on the disk it is whole or not there."""
    files = SimulatedFiles()
    driver = driver_on(files)
    driver.declare("a")
    turn(driver)
    driver.publish([b"half"], "a")
    driver.journal.writer.run_once()
    assert not any(map(len, recover(files.crash(), PATH).queues.values()))
    driver.publish([b"the other half"], "a")
    turn(driver)
    assert [len(queue) for queue in recover(files.crash(), PATH).queues.values()] == [2]


def test_what_is_being_written_counts_as_backlog() -> None:
    """Until it is written: publishers wait for a slow disk, too."""
    driver = driver_on(SimulatedFiles())
    driver.declare("a")
    turn(driver)
    driver.publish([b"x" * 1000], "a")
    driver.journal.commit()
    assert driver.journal.backlog_bytes > 1000
    assert driver.journal.writer.take_now()
    assert driver.journal.backlog_bytes > 1000
    assert driver.journal.writer.commit_taken()
    assert driver.journal.backlog_bytes == 0


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> "tuple[Driver, threading.Event]":
    """A journal with its thread, which has all the patience in the world; set when something is durable."""
    monkeypatch.setattr(writing, "SYNC_DELAY_SECONDS", 3600.0)
    journal = Journal.open(str(tmp_path), ManualClock(), JournalOptions(preallocate_size=0))
    event = threading.Event()
    driver = Driver(journal)
    driver.declare("a")
    driver.publish([b"x"] * 3, "a")
    assert journal.wait(journal.commit(), 20)
    journal.set_callbacks(lambda lsn: event.set(), lambda error: None)
    return driver, event


def test_a_publish_is_committed_at_once(told: "tuple[Driver, threading.Event]") -> None:
    """Without a timer, and without somebody who asks."""
    driver, durable = told
    for _ in range(3):
        driver.publish([b"x"], "a")
        driver.journal.commit()
        assert durable.wait(10)
        durable.clear()
    driver.journal.close()


def test_acknowledgements_go_with_what_somebody_waits_for(told: "tuple[Driver, threading.Event]") -> None:
    """They have no commit of their own; who begins to wait for them later starts it."""
    driver, durable = told
    commits = driver.journal.writer.commit_count
    for id_ in sorted(driver.model["a"])[:2]:
        driver.settle("a", [id_])
        driver.journal.commit()
    assert driver.journal.writer.commit_count == commits
    driver.journal.turns.is_awaited = True  # as a barrier that is taken in a later turn does
    driver.journal.commit()
    assert durable.wait(10)
    assert driver.journal.writer.commit_count == commits + 1
    durable.clear()
    driver.settle("a", sorted(driver.model["a"]))
    driver.publish([b"y"], "a")
    driver.journal.commit()
    assert durable.wait(10), "a publish among acknowledgements is waited for"
    durable.clear()
    driver.publish([b"y"], "a")
    driver.journal.commit()
    assert durable.wait(10), "their count is of one turn"
    driver.journal.close()


@pytest.mark.parametrize("fsync", ["commit", "interval", "never"])
def test_a_clean_end_is_on_the_disk(fsync: str) -> None:
    """Whatever the mode: sealed, and safe from a power cut."""
    files = SimulatedFiles()
    driver = driver_on(files, JournalOptions(preallocate_size=0, fsync=fsync))
    driver.declare("a")
    driver.publish([b"x"], "a")
    driver.journal.close()
    found = recover(files.power_cut(), PATH)
    assert [len(queue) for queue in found.queues.values()] == [1]
    assert found.segments[-1].sealed


# -- segments ---------------------------------------------------------------------------------------------------------


def emptied(files: SimulatedFiles, options: JournalOptions, clock: ManualClock) -> Driver:
    """Several segments of which nothing lives, behind a checkpoint; a minute passes with each."""
    driver = driver_on(files, options, clock)
    driver.declare("a")
    for _ in range(24):
        driver.settle("a", driver.publish([b"z" * 700], "a"))
        turn(driver)
        clock.advance_ns(20 * 10**9)
    driver.checkpoint()
    turn(driver)
    assert len(segments_in(files, PATH)) > 5
    return driver


TINY = JournalOptions(segment_size=3000, preallocate_size=0)


@pytest.mark.parametrize("needed, is_kept", [(-1, True), (0, False), (1, False)])
def test_a_reader_keeps_the_segment_with_its_last_record(needed: int, is_kept: bool) -> None:
    """`needed`: from the begin of the second segment; the record before it is the first one's last."""
    files = SimulatedFiles()
    driver = emptied(files, TINY, ManualClock())
    second = segments_in(files, PATH)[1]
    register_reader(PATH, "spark", second + needed, files)
    gone = driver.journal.old_segments.reclaim()
    assert (1 not in gone) is is_kept
    turn(driver)
    if is_kept:
        driver.journal.writer.run_once()
        assert next(iter(JournalReader(PATH, files).records(second + needed)))[0] == second + needed


def test_the_slowest_reader_decides() -> None:
    """Of several."""
    files = SimulatedFiles()
    driver = emptied(files, TINY, ManualClock())
    bases = segments_in(files, PATH)
    register_reader(PATH, "fast", bases[4], files)
    register_reader(PATH, "slow", bases[2], files)
    assert driver.journal.old_segments.reclaim() == bases[:2]


@pytest.mark.parametrize("retain_ms, log_ms", [(150_000, 0), (0, 150_000), (150_000, 10_000), (10_000, 150_000)])
def test_the_longer_retention_counts(retain_ms: int, log_ms: int) -> None:
    """Of `retain-ms` and the time of a topic's log; a segment's age is that of its end."""
    files, clock = SimulatedFiles(), ManualClock()
    options = JournalOptions(segment_size=3000, preallocate_size=0, retain_ms=retain_ms or None)
    driver = emptied(files, options, clock)
    driver.journal.turns.log_ms = log_ms
    rows = list(driver.journal.usage.segments)
    young_us = (clock.wall_ms() - 150_000) * 1000
    old = [row.base_lsn for row in rows[:-1] if row.ended_us <= young_us]
    gone = driver.journal.old_segments.reclaim()
    assert gone == old and len(rows) - len(old) == 3


def test_nothing_goes_before_its_checkpoint_is_on_the_disk() -> None:
    """Written is not enough."""
    files = SimulatedFiles()
    driver = emptied(files, TINY, ManualClock())
    driver.journal.old_segments.reclaim()
    turn(driver)
    for _ in range(12):
        driver.settle("a", driver.publish([b"z" * 700], "a"))
        turn(driver)
    driver.checkpoint()
    end = driver.journal.commit()
    assert driver.journal.old_segments.reclaim() == []
    assert driver.journal.wait(end)
    assert driver.journal.old_segments.reclaim()


def test_what_was_moved_is_counted_where_it_is() -> None:
    """Not where it was, nor twice: when it is acknowledged, its segment has nothing, and others have what they had."""
    usage = SegmentUsage()
    usage.begin_segment(1, 0, 0, 1)
    usage.enqueued(range(1, 11), 1)
    usage.enqueued(range(1, 6), 1)  # in a second queue
    usage.begin_segment(100, 1, 50, 11)
    usage.enqueued(range(11, 21), 101)
    usage.begin_segment(200, 2, 50, 21)
    assert usage.holds(3, 1) and not usage.holds(3, 200)
    usage.moved(3, 2)
    usage.moved(8, 1)
    assert [row.live for row in usage.segments] == [12, 10, 3]
    assert usage.holds(3, 200) and not usage.holds(3, 1)
    usage.settled([3])
    assert [row.live for row in usage.segments] == [12, 10, 2]
    usage.settled(range(3, 9))
    assert [row.live for row in usage.segments] == [8, 10, 0]


def test_a_run_that_is_settled_as_one_frees_its_segments() -> None:
    """Purges, and runs of acknowledgements, are one record each."""
    files = SimulatedFiles()
    driver = driver_on(files, TINY)
    driver.declare("a", "b")
    for _ in range(12):
        driver.publish([b"z" * 700], "a", "b")
        turn(driver)
    driver.purge("a")
    driver.journal.messages.settled_range(EventKind.ACKED, driver.queue_ids["b"], sorted(driver.model["b"]))
    driver.model["b"] = {}
    turn(driver)
    assert sum(row.live for row in driver.journal.usage.segments) == 0
    driver.checkpoint()
    turn(driver)
    assert len(driver.journal.old_segments.reclaim()) == 3


def test_an_emptied_segment_is_emptied_once() -> None:
    """What was moved already is not moved again."""
    files = SimulatedFiles()
    driver = driver_on(files, TINY)
    driver.declare("a")
    kept = driver.publish([b"k" * 10], "a")
    for _ in range(16):
        driver.settle("a", driver.publish([b"z" * 700], "a"))
        turn(driver)
    journal, base = driver.journal, driver.journal.usage.segments[0].base_lsn
    holders = lambda id_: [driver.queue_ids["a"]] if id_ in driver.model["a"] else []  # noqa: E731
    moved = [sum(journal.old_segments.move_forward(base, holders, driver.lsns.__setitem__)) for _ in range(2)]
    assert moved == [1, 0]
    driver.settle("a", kept)
    turn(driver)
    assert [row.live for row in journal.usage.segments] == [0] * len(journal.usage.segments)


# -- what recovery makes of many messages -----------------------------------------------------------------------------


def test_columns_are_compacted_without_loss() -> None:
    """Priorities, expiries, places and states stay with their messages; late ones find their places."""
    queue = RecoveredQueue()
    model: dict[int, tuple[int, int, int, MessageState]] = {}
    ids = range(10, 9010)
    queue.extend(ids, 100, array("I", (id_ % 7 for id_ in ids)), None, bytes(id_ % 3 for id_ in ids))
    model |= {id_: (90 + id_, id_ % 7, 0, MessageState(priority=id_ % 3)) for id_ in ids}
    for id_ in (3, 5, 9, 9500):  # of transactions
        queue.add(id_, 50_000 + id_, 8, 77, 1)
        model[id_] = (50_000 + id_, 8, 77, MessageState(priority=1))
    for id_ in (20, 8000, 8500):
        queue.move(id_, 60_000 + id_)
        model[id_] = (60_000 + id_, *model[id_][1:])
    queue.set_state(8001, MessageState(2, 1, 5, 0))
    model[8001] = (*model[8001][:3], MessageState(2, 1, 5, 8001 % 3))
    queue.set_state(30, MessageState(1))
    queue.remove_range(4, 6000)
    assert set(queue.states) == {8001}, "states of what is gone are gone"
    for id_ in list(model):
        if 4 <= id_ <= 6000:
            del model[id_]
    assert queue.remove(3) and not queue.remove(3)
    del model[3]
    queue.add(7, 70_000, 1, 0)
    model[7] = (70_000, 1, 0, MessageState())
    found = {one.id: (one.content_lsn, one.size, one.expires_ms, one.state) for one in queue.messages()}
    assert found == model
    runs = {first + at: lsn + at for _, first, lsn, count in queue.runs() for at in range(count)}
    assert runs == {id_: row[0] for id_, row in model.items()}


def test_a_restart_gives_no_id_again() -> None:
    """Nor after a torn tail, nor when only a checkpoint or a published record tells of the last one."""
    files = SimulatedFiles()
    driver = driver_on(files, TINY)
    driver.declare("a")
    used = driver.publish([b"x"] * 5, "a")[-1]
    driver.settle("a", sorted(driver.model["a"]))
    turn(driver)
    for _ in range(2):
        data = files.content(f"{PATH}/{segments_in(files, PATH)[-1]:020d}.log")
        torn = files.crash()
        torn.put(f"{PATH}/{segments_in(files, PATH)[-1]:020d}.log", data[:-3])
        for disk in (files.crash(), torn):
            again = driver_on(disk)
            assert again.journal.next_message_id > used + 1000
        driver.journal.begin_segment()
        driver.checkpoint()
        turn(driver)


def test_what_the_format_says_of_rare_records() -> None:
    """A message that is due waits no more; duplicates and ids outlive all messages."""
    files = SimulatedFiles()
    driver = driver_on(files)
    driver.declare("a")
    id_ = driver.publish([b"x"], "a")[0]
    journal = driver.journal
    journal.messages.happened(EventKind.SCHEDULED, driver.queue_ids["a"], [id_], deliveries=2, due_ms=99)
    turn(driver)
    (queue,) = recover(files.crash(), PATH).queues.values()
    assert queue.states == {id_: MessageState(2, 0, 99, 0)}
    journal.messages.happened(EventKind.DUE, driver.queue_ids["a"], [id_])
    turn(driver)
    found = recover(files.crash(), PATH)
    (queue,) = found.queues.values()
    assert queue.states == {id_: MessageState(2, 0, 0, 0)}
    driver.settle("a", [id_])
    turn(driver)
    driver.journal.begin_segment()
    driver.checkpoint()
    turn(driver)
    assert recover(files.crash(), PATH).next_message_id == id_ + 1


def test_old_segments_go_while_others_are_written() -> None:
    """What emptied them is safe; that later records are not yet, as under steady traffic, does not matter."""
    options = JournalOptions(segment_size=3000, preallocate_size=0)
    world = Harness(journal=SimulatedFiles(), journal_options=options)
    world.queue()
    for _ in range(40):
        world.publish("x" * 200, delivery_mode=2)
    world.take(35)
    world.checkpoint()
    world.writes = False
    found = []
    for _ in range(3):
        world.publish("y", delivery_mode=2)
        world.journal.commit()
        found.append(bool(world.journal.old_segments.reclaim()))
        world.write_journal()
    assert found == [False, True, False]


@pytest.mark.parametrize("keeps_ids", [True, False])
def test_a_running_broker_holds_nothing_that_only_its_start_needed(keeps_ids: bool) -> None:
    """Summaries of old segments, bindings and duplicate ids would take memory until it ends, however many they were."""
    world = Harness(journal=SimulatedFiles(), journal_options=SMALL)
    world.queue()
    world.bind("q", "amq.direct", "key")
    for number in range(40):
        world.publish("x" * 200, headers={"_AMQ_DUPL_ID": str(number)}, delivery_mode=2)
    world.crash()
    found = recover(world.files, world.path)
    assert found.objects and found.bindings and found.queues and found.ids and len(found.segments) > 2
    world._make_recorder = partial(Recorder, keeps_ids=keeps_ids)
    world.begin()
    found = world.journal.recovered
    assert not (found.objects or found.bindings or found.queues or found.ids or found.segments)


@pytest.mark.parametrize("reason", ["nacked", "some words"])
def test_counts_end_at_the_largest_that_a_record_holds(reason: str) -> None:
    """A message that is returned without end goes on: its count stays at the largest one."""
    files = SimulatedFiles()
    driver = driver_on(files)
    driver.declare("a")
    (id_,) = driver.publish([b"x"], "a")
    for deliveries in (65_535, 65_536, 1_000_000):
        driver.journal.messages.happened(
            EventKind.REQUEUED, driver.queue_ids["a"], [id_], reason=reason, deliveries=deliveries
        )
        turn(driver)
        (queue,) = recover(files.crash(), PATH).queues.values()
        assert queue.states[id_].deliveries == 65_535


def test_a_deep_queue_of_before_delays_no_checkpoint() -> None:
    """Much has to be written between two while millions wait; once they are gone a segment's worth is enough again."""
    driver = driver_on(SimulatedFiles())
    driver.declare("a")
    checkpoints = driver.journal.checkpoints
    for _ in range(15):
        driver.publish([b"x"] * 20, "a")
        turn(driver)
        assert not checkpoints.is_due
    assert driver.journal.turns.uncovered_bytes > 3 * SMALL.segment_size
    driver.purge("a")
    turn(driver)
    driver.checkpoint()
    turn(driver)
    assert not checkpoints.is_due
    driver.settle("a", driver.publish([bytes(SMALL.segment_size)], "a"))
    turn(driver)
    assert checkpoints.is_due
