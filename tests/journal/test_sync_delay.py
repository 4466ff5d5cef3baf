"""What nobody waits for goes with the next commit, or has one of its own after a while. All else is written at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from journal_workload import ID, PATH, Driver
from recorded_broker import RecordedBroker
from simulated_files import SimulatedFiles

from leveret.engine import ManualClock
from leveret.journal import Journal, JournalOptions
from leveret.journal.disk import writer as writing

SECONDS_MAX = 60


class Durable:
    """What a journal's thread says of how far it is."""

    def __init__(self, journal: Journal) -> None:
        self._lsn = 0
        self._more = threading.Condition()
        journal.set_callbacks(self._got_on, lambda error: None)

    def _got_on(self, lsn: int) -> None:
        with self._more:
            self._lsn = lsn
            self._more.notify_all()

    def reaches(self, lsn: int) -> bool:
        """Whether it gets there, without having been asked to."""
        with self._more:
            return self._more.wait_for(lambda: self._lsn >= lsn, SECONDS_MAX)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience has no end."""
    monkeypatch.setattr(writing, "SYNC_DELAY_SECONDS", 3600.0)


def _started(files: SimulatedFiles) -> tuple[Driver, Durable]:
    journal = Journal.open(PATH, ManualClock(), JournalOptions(preallocate_size=0), files=files, new_id=ID)
    driver = Driver(journal)
    driver.declare("a")
    assert journal.wait(journal.commit(), SECONDS_MAX)
    return driver, Durable(journal)


@pytest.mark.usefixtures("endless")
def test_acknowledgements_go_with_the_next_commit() -> None:
    """Theirs, and that of messages published later, is one."""
    driver, durable = _started(SimulatedFiles())
    journal = driver.journal
    ids = driver.publish([b"1", b"2", b"3"], "a")
    assert durable.reaches(journal.commit())
    syncs = journal.statistics().syncs
    for id_ in ids:
        driver.settle("a", [id_])
        end = journal.commit()
    assert journal.committed_lsn < end
    driver.publish([b"4"], "a")
    assert durable.reaches(journal.commit())
    assert journal.statistics().syncs == syncs + 1
    journal.close()


def test_patience_has_an_end() -> None:
    """Acknowledgements alone are written, too."""
    driver, durable = _started(SimulatedFiles())
    ids = driver.publish([b"1", b"2"], "a")
    assert durable.reaches(driver.journal.commit())
    for id_ in ids:
        driver.settle("a", [id_])
        assert durable.reaches(driver.journal.commit())
    driver.journal.close()


def test_acknowledgements_are_expected_after_answers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a commit that was awaited the thread waits for its acknowledgements, then without a time; after a commit of
    acknowledgements without a time at once.
    """
    driver, durable = _started(SimulatedFiles())
    work, timeouts, sleeps = driver.journal.writer._work, list[float | None](), threading.Semaphore(0)
    wait, once = work.wait, [writing.SYNC_DELAY_SECONDS, None]

    def waited(timeout: float | None = None) -> bool:
        timeouts.append(timeout)
        if timeout is None:
            sleeps.release()
        return wait(timeout)

    monkeypatch.setattr(work, "wait", waited)
    ids = driver.publish([b"1"], "a")
    assert durable.reaches(driver.journal.commit())
    while timeouts[-2:] != once:
        assert sleeps.acquire(timeout=SECONDS_MAX)
    before = len(timeouts)
    driver.settle("a", ids)  # wakes the thread, which gives other records time to come
    assert durable.reaches(driver.journal.commit())
    while timeouts[before:] != once:
        assert sleeps.acquire(timeout=SECONDS_MAX)
    driver.journal.close()


@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("last", ["published", "acknowledged"])
def test_the_thread_is_busy_while_turns_end(last: str) -> None:
    """What is waited for is not forgotten when a turn of acknowledgements is under way as the thread looks for work."""
    files = SimulatedFiles()
    driver, durable = _started(files)
    journal = driver.journal
    in_sync, go_on = threading.Event(), threading.Event()

    def slow(operation: str, path: str) -> None:
        if operation == "sync":
            in_sync.set()
            assert go_on.wait(SECONDS_MAX)

    files.fault = slow
    ids = driver.publish([b"1", b"2"], "a")
    first = journal.commit()
    assert in_sync.wait(SECONDS_MAX)
    driver.publish([b"3"], "a")
    end = journal.commit()
    driver.settle("a", ids[:1])
    if last == "published":
        end = journal.commit()
    go_on.set()
    assert durable.reaches(first)
    if last == "acknowledged":
        end = journal.commit()
    assert durable.reaches(end)
    journal.close()


@pytest.mark.usefixtures("endless")
def test_closing_writes_them() -> None:
    """Whether patience is at an end or not."""
    files = SimulatedFiles()
    driver, durable = _started(files)
    ids = driver.publish([b"1", b"2"], "a")
    assert durable.reaches(driver.journal.commit())
    driver.settle("a", ids[:1])
    driver.journal.close()
    again = Journal.open(PATH, ManualClock(), files=files, threaded=False)
    assert [len(queue) for queue in again.recovered.queues.values()] == [1]
    again.close()


def _answer(world: RecordedBroker) -> int:
    """The answer to a request that changes nothing says all the same that what came before it is safe."""
    _ack(world)
    world.journal.commit()
    return world.recorder.sync_lsn_of_all()


def _transaction(world: RecordedBroker) -> int:
    """A commit of acknowledgements is answered."""
    world.session.select_transactions()
    _ack(world)
    return world.session.commit().sync_lsn


def _ack(world: RecordedBroker) -> None:
    found = world.session.get(world.vhost.queues.named("a"), no_ack=False)
    assert found is not None
    world.session.ack(found[0])


@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("ask", [_answer, _transaction])
def test_who_waits_does_not_need_patience(tmp_path: Path, ask: Callable[[RecordedBroker], int]) -> None:
    """A barrier is reached without anybody else's records."""
    world = RecordedBroker(tmp_path, scope="durable")
    world.declare("a")
    world.publish("a", 2)
    world.journal.writer.start()
    durable = Durable(world.journal)
    sync_lsn = ask(world)
    assert sync_lsn > world.journal.committed_lsn
    world.broker.end_turn()
    world.journal.commit()
    assert durable.reaches(sync_lsn)
    world.journal.close()
