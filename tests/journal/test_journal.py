"""The journal as a whole: what goes in comes out after a restart; segments roll, are reclaimed, are emptied."""

import threading

import pytest
from journal_workload import PATH, SMALL, Driver, make_content, model_of, opened, run_workload
from simulated_files import SimulatedFiles

from leveret.engine import ManualClock
from leveret.engine.events import EventKind
from leveret.engine.messages.content import NATIVE
from leveret.journal import (
    DirectoryLocked,
    ForeignDirectory,
    Journal,
    JournalError,
    JournalOptions,
    JournalReader,
    MessageState,
    ended_us,
    forget_journal,
    forget_reader,
    reader_offsets,
    register_reader,
)
from leveret.journal.disk.segment import segments_in
from leveret.journal.format.record import COUNTED, ENQUEUED, PUBLISHED
from leveret.journal.recovery.recovery import IDS_SKIPPED


def test_a_restart_changes_nothing() -> None:
    """What the workload left is there after a clean close, after a kill, and after closing again."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    run_workload(driver)
    killed = opened(files.crash())
    assert model_of(killed.recovered, killed) == driver.model
    driver.journal.close()
    for count in range(1, 4):
        again = opened(files)
        assert model_of(again.recovered, again) == driver.model
        assert again.next_message_id == driver.journal.next_message_id + count * IDS_SKIPPED
        assert not again.recovered.torn_bytes
        again.close()
    assert [binding.routing_key for _, binding in again.recovered.bindings] == [b"a", b"b"]


def test_segments_weigh_as_much_after_a_start() -> None:
    """And end when they ended: what is worth moving, and where to look for a time, is the same as before."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    run_workload(driver)
    driver.journal.close()
    for _ in range(2):
        again = opened(files)
        assert len(again.usage.segments) > 1
        for row, segment in zip(again.usage.segments, again.recovered.segments):
            assert (row.size, row.ended_us) == (segment.size, segment.ts_max or 1)
        again.close()


def test_segments_roll_by_size_and_are_whole_alone() -> None:
    """Each segment defines the names that it uses; LSNs go on without a gap."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    driver.declare("a")
    for _ in range(40):
        driver.publish([b"z" * 300] * 2, "a")
        driver.journal.wait(driver.journal.commit())
    driver.journal.close()
    bases = segments_in(files, PATH)
    assert len(bases) > 4
    for base in bases:
        alone = SimulatedFiles()
        alone.put(f"{PATH}/{base:020d}.log", files.content(f"{PATH}/{base:020d}.log"))
        reader = JournalReader(PATH, alone)
        lsns = [lsn for lsn, record in reader.records() if not record.queue_id or record.queue_id in reader.names]
        assert lsns == list(range(base, base + len(lsns)))
        assert reader.names.text(driver.queue_ids["a"]) == "a"


def test_segments_roll_by_age() -> None:
    """An hour, or what the options say."""
    files, clock = SimulatedFiles(), ManualClock()
    journal = Journal.open(PATH, clock, JournalOptions(segment_age_ms=1000), files=files, threaded=False)
    driver = Driver(journal)
    driver.declare("a")
    journal.wait(journal.commit())
    clock.advance_ns(999 * 10**6)
    driver.publish([b"1"], "a")
    journal.wait(journal.commit())
    assert len(segments_in(files, PATH)) == 1
    clock.advance_ns(10**6)
    driver.publish([b"2"], "a")
    journal.wait(journal.commit())
    assert len(segments_in(files, PATH)) == 2


def test_settled_segments_go_and_few_old_messages_do_not_hold_the_rest() -> None:
    """The oldest message stays alive while thousands pass: it is moved forward, with its original LSN, and survives."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    driver.declare("a", "b")
    driver.publish([b"old"], "a", "b")
    driver.requeue("a", 1, 3)
    for _ in range(60):
        driver.settle("a", driver.publish([b"z" * 300] * 2, "a"))
        driver.journal.wait(driver.journal.commit())
    assert len(segments_in(files, PATH)) > 5
    driver.checkpoint()
    driver.journal.wait(driver.journal.commit())
    assert driver.journal.old_segments.reclaim() == []
    gone = driver.reclaim()
    assert len(gone) > 5
    driver.journal.wait(driver.journal.commit())
    driver.journal.close()
    assert len(segments_in(files, PATH)) <= 2
    moved = [(lsn, record) for lsn, record in JournalReader(PATH, files).records() if record.name == "moved"]
    assert [(record.msg_id, record.arg < lsn) for lsn, record in moved] == [(1, True)]
    again = opened(files)
    assert model_of(again.recovered, again) == driver.model
    assert sum(row.live for row in again.usage.segments) == 2
    again.messages.happened(EventKind.ACKED, driver.queue_ids["a"], [1])
    again.messages.happened(EventKind.ACKED, driver.queue_ids["b"], [1])
    assert sum(row.live for row in again.usage.segments) == 0


def test_readers_and_retention_hold_segments() -> None:
    """Nothing that a registered reader needs, and nothing younger than `retain`, is deleted."""
    files, clock = SimulatedFiles(), ManualClock()
    options = JournalOptions(segment_size=3000, preallocate_size=0, retain_ms=60_000)
    driver = Driver(Journal.open(PATH, clock, options, files=files, threaded=False))
    driver.declare("a")
    for _ in range(30):
        driver.settle("a", driver.publish([b"z" * 300], "a"))
        driver.journal.wait(driver.journal.commit())
    driver.checkpoint()
    driver.journal.wait(driver.journal.commit())
    assert driver.journal.old_segments.reclaim() == []
    clock.advance_ns(61 * 10**9)
    register_reader(PATH, "spark", 1, files)
    assert driver.journal.old_segments.reclaim() == []
    second = segments_in(files, PATH)[1]
    register_reader(PATH, "spark", second, files)
    assert driver.journal.old_segments.reclaim() == [1]
    files.put(f"{PATH}/readers/odd.json", b"[]")
    with pytest.raises(JournalError, match="odd"):
        driver.journal.old_segments.reclaim()
    files.unlink(f"{PATH}/readers/odd.json")
    forget_reader(PATH, "spark", files)
    assert driver.journal.old_segments.reclaim()


def test_a_reader_that_is_done_as_segments_are_deleted_keeps_none() -> None:
    """Its file was listed and is gone when it is read, or removed: that is no file that cannot be understood."""
    files = SimulatedFiles()
    driver = Driver(opened(files, JournalOptions(segment_size=3000, preallocate_size=0)))
    driver.declare("a")
    for _ in range(30):
        driver.settle("a", driver.publish([b"z" * 300], "a"))
        driver.journal.wait(driver.journal.commit())
    driver.checkpoint()
    driver.journal.wait(driver.journal.commit())
    register_reader(PATH, "spark", 1, files)

    def gone(operation: str, path: str) -> None:
        if operation in ("open", "unlink") and path.endswith("spark.json") and path in files.names_now:
            files.lose(path)

    files.fault = gone
    assert driver.journal.old_segments.reclaim()
    files.fault = lambda operation, path: None
    register_reader(PATH, "spark", 1, files)
    files.fault = gone
    forget_reader(PATH, "spark", files)
    assert reader_offsets(PATH, files) == {}


def test_only_one_process_may_write() -> None:
    """A second opening is refused, by a class of its own; after close it is not."""
    files = SimulatedFiles()
    journal = opened(files)
    with pytest.raises(DirectoryLocked):
        opened(files)
    journal.close()
    opened(files).close()


def test_the_real_lock(tmp_path: object) -> None:
    """The operating system's lock does the same."""
    journal = Journal.open(str(tmp_path), ManualClock())
    with pytest.raises(DirectoryLocked):
        Journal.open(str(tmp_path), ManualClock())
    journal.close()


def test_a_journal_can_be_forgotten() -> None:
    """Not while it is open; afterwards a new one begins there, whatever was left of the old one."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    run_workload(driver)
    register_reader(PATH, "spark", 1, files)
    with pytest.raises(DirectoryLocked):
        forget_journal(PATH, files)
    driver.journal.close()
    assert segments_in(files, PATH)
    forget_journal(PATH, files)
    forget_journal(PATH, files)  # there is nothing to forget any more
    assert segments_in(files, PATH) == []
    assert reader_offsets(PATH, files) == {}
    again = opened(files)
    assert not again.recovered.objects and again.recovered.next_lsn == 1
    again.close()


def test_when_a_journal_ended() -> None:
    """The latest wall time in it, also of a turn without messages; nothing is opened or locked."""
    files, clock = SimulatedFiles(), ManualClock()
    assert ended_us(PATH, files) == 0
    driver = Driver(Journal.open(PATH, clock, SMALL, files=files, threaded=False))
    driver.declare("a")
    driver.journal.wait(driver.journal.commit())
    assert ended_us(PATH, files) == clock.wall_ms() * 1000
    clock.advance_ns(3600 * 10**9)
    driver.checkpoint()
    driver.journal.close()
    assert ended_us(PATH, files) == clock.wall_ms() * 1000


def test_foreign_directories_are_refused() -> None:
    """Another format, another version, segments without a format file, segments of another journal."""
    for content in (b"{}", b"what", b'{"format": "other", "version": 1, "id": "00"}'):
        files = SimulatedFiles()
        files.put(f"{PATH}/format", content)
        with pytest.raises(ForeignDirectory):
            opened(files)
    files = SimulatedFiles()
    files.put(f"{PATH}/format", b'{"format": "leveret-journal", "version": 9, "id": "%s"}' % (b"00" * 16))
    with pytest.raises(ForeignDirectory, match="9"):
        opened(files)
    files = SimulatedFiles()
    opened(files).close()
    files.unlink(f"{PATH}/format")
    with pytest.raises(ForeignDirectory):
        opened(files)
    files.put(f"{PATH}/format", b'{"format": "leveret-journal", "version": 1, "id": "%s"}' % (b"00" * 16))
    with pytest.raises(ForeignDirectory, match="another journal"):
        opened(files)


@pytest.mark.parametrize("mode", ["commit", "interval", "never"])
def test_the_thread(tmp_path: object, mode: str) -> None:
    """With the thread and real files: everything appended is confirmed in order, and read back by LSN."""
    journal = Journal.open(str(tmp_path), ManualClock(), JournalOptions(fsync=mode, segment_size=200_000))
    told: list[int] = []
    done = threading.Event()
    journal.set_callbacks(lambda lsn: (told.append(lsn), done.set()), lambda error: None)
    driver = Driver(journal)
    driver.declare("a")
    for turn in range(500):
        driver.publish([b"%d-%d" % (turn, index) * 20 for index in range(10)], "a")
        end = journal.commit()
    assert journal.wait(end, 60)
    assert done.wait(60)
    assert told == sorted(told) and told[-1] <= end
    for id_ in range(1, 5001, 97):
        assert NATIVE.split(journal.contents.read(driver.lsns[id_]))[1] == driver.model["a"][id_][0]
    journal.close()
    again = Journal.open(str(tmp_path), ManualClock())
    assert model_of(again.recovered, again) == driver.model
    again.close()


def test_states_and_contents_come_back() -> None:
    """Priority, expiry, delivery counts, due times; the exchange and routing key beside the content."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    driver.declare("a")
    journal, queue = driver.journal, driver.queue_ids["a"]
    lsn = journal.messages.published(
        [1, 2],
        driver.exchange,
        b"some.key",
        NATIVE.columns([make_content(b"x"), make_content(b"yy")]),
        queue_ids=[queue],
        priority=5,
    )
    journal.messages.enqueued(queue, [1, 2], lsn, [1, 2], expires_ms=77, priorities=5)
    journal.messages.happened(EventKind.SCHEDULED, queue, [1], due_ms=1234, deliveries=2, uncounted=1)
    journal.messages.happened(EventKind.DELIVERED, queue, [2], deliveries=1, flags=COUNTED)
    lsn = journal.messages.published([3], driver.exchange, b"k", NATIVE.columns([make_content(b"t")]), durable=False)
    journal.messages.enqueued(queue, [3], lsn, [1], durable=False)
    journal.messages.happened(EventKind.REQUEUED, queue, [1], reason="a word of somebody's", deliveries=3, uncounted=1)
    journal.messages.happened(EventKind.ACKED, queue, [2], kept=True)
    journal.close()
    again = opened(files)
    found = list(again.contents.messages(again.recovered.queues[queue]))
    assert [message.state for message, _, _ in found] == [MessageState(3, 1, 0, 5), MessageState(1, 0, 0, 5)]
    assert [(message.id, message.size, message.expires_ms) for message, _, _ in found] == [(1, 1, 77), (2, 2, 77)]
    assert [(record.address_id, content.routing_key, content.content) for _, record, content in found] == [
        (driver.exchange, b"some.key", make_content(b"x")),
        (driver.exchange, b"some.key", make_content(b"yy")),
    ]


def test_a_queue_that_is_deleted_is_gone_with_its_bindings() -> None:
    """And its name can be used again, with another id."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    driver.declare("a", "b")
    driver.publish([b"1"], "a", "b")
    old = driver.queue_ids["a"]
    driver.delete("a")
    driver.declare("a")
    assert driver.queue_ids["a"] != old
    driver.journal.close()
    again = opened(files)
    assert model_of(again.recovered, again) == driver.model
    assert [binding.target_id for _, binding in again.recovered.bindings] == [driver.queue_ids[name] for name in "ba"]


def test_a_reader_trusts_what_is_proved_durable() -> None:
    """In the open segment: what a later block calls durable. A tick shows the rest."""
    files = SimulatedFiles()
    driver = Driver(opened(files, JournalOptions(preallocate_size=4096)))
    driver.declare("a")
    driver.journal.wait(driver.journal.commit())
    driver.publish([b"1"], "a")
    end = driver.journal.commit()
    driver.journal.wait(end)
    seen = [lsn for lsn, _ in JournalReader(PATH, files).records()]
    assert seen and seen[-1] < end - 2
    driver.journal.tick()
    driver.journal.writer.run_once()
    assert [lsn for lsn, _ in JournalReader(PATH, files).records()] == list(range(1, end))
    assert [lsn for lsn, _ in JournalReader(PATH, files).records(3)] == list(range(3, end))


def test_a_block_that_is_written_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal's thread writes a block, and makes it durable, after a reader found it in memory."""
    driver = Driver(opened(SimulatedFiles()))
    driver.declare("a")
    writer = driver.journal.writer
    driver.journal.wait(driver.journal.commit())
    lsn = writer.next_lsn
    driver.publish([b"content"], "a")
    end = driver.journal.commit()

    class Lock:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            writer.run_once()

    monkeypatch.setattr(writer, "_lock", Lock())
    block = writer.unwritten(lsn)
    assert writer.file.durable_lsn == end and block is not None and block.end_lsn == end
    assert [record.kind for _, record in block.records()] == [PUBLISHED, ENQUEUED]
