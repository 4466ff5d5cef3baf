"""The crash model: a journal cut at every byte, with every byte flipped, after kills and power cuts at any point."""

import contextlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journal_workload import PATH, Driver, Model, make_content, model_of, opened, run_workload
from simulated_files import SimulatedFiles

from leveret.engine.events import EventKind
from leveret.journal import Damaged, Journal, JournalError, JournalOptions, NotInJournal, recover
from leveret.journal.disk.segment import segments_in

ONE_SEGMENT = JournalOptions(preallocate_size=0)


def copy_of(driver: Driver) -> Model:
    return {name: dict(messages) for name, messages in driver.model.items()}


class Recording(Driver):
    """Keeps the model as it was at every commit, by the size that the segment had then."""

    def __init__(self, journal: Journal, files: SimulatedFiles) -> None:
        super().__init__(journal)
        self.states: list[tuple[int, Model]] = [(0, {})]
        wait = journal.wait

        def waiting(lsn: int, timeout_s: float | None = None) -> bool:
            done = wait(lsn, timeout_s)
            segment = journal.writer.file.segment
            assert segment is not None
            self.states.append((segment.size, copy_of(self)))
            return done

        journal.wait = waiting  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def recorded() -> tuple[SimulatedFiles, Recording]:
    """A workload in one segment."""
    files = SimulatedFiles()
    driver = Recording(opened(files, ONE_SEGMENT), files)
    run_workload(driver)
    return files, driver


def test_cut_at_every_byte(recorded: tuple[SimulatedFiles, Recording]) -> None:
    """What was committed before the cut is there, nothing else is, and the tail is gone for good."""
    files, driver = recorded
    path = f"{PATH}/{1:020d}.log"
    data = files.content(path)
    assert driver.states[-1][0] == len(data)
    for cut in range(len(data) + 1):
        crashed = files.crash()
        crashed.put(path, data[:cut])
        journal = opened(crashed)
        expected = [model for size, model in driver.states if size <= cut][-1]
        assert model_of(journal.recovered, journal) == expected, cut
        whole = max(size for size, _ in [(0, {}), *driver.states] if size <= cut)
        if cut == whole:
            assert not journal.recovered.torn_bytes
        journal.close()
        if not cut % 50:
            again = opened(crashed)
            assert model_of(again.recovered, again) == expected and not again.recovered.torn_bytes


def test_zeros_behind_the_end_are_no_damage(recorded: tuple[SimulatedFiles, Recording]) -> None:
    """Room reserved in advance."""
    files, driver = recorded
    crashed = files.crash()
    path = f"{PATH}/{1:020d}.log"
    crashed.put(path, files.content(path) + bytes(5000))
    journal = opened(crashed)
    assert model_of(journal.recovered, journal) == driver.model
    assert not journal.recovered.torn_bytes


def test_flip_any_byte_of_the_open_segment(recorded: tuple[SimulatedFiles, Recording]) -> None:
    """What a later block proves to have been durable is damage; only the newest block can pass for torn."""
    files, driver = recorded
    path = f"{PATH}/{1:020d}.log"
    data = files.content(path)
    newest = driver.states[-2][0]
    for at in range(0, len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        crashed = files.crash()
        crashed.put(path, bytes(flipped))
        if at < newest:
            with pytest.raises(Damaged) as error:
                recover(crashed, PATH)
            assert error.value.segment == f"{1:020d}.log"
            assert error.value.offset <= at
            assert crashed.content(path) == flipped
        else:
            journal = opened(crashed)
            assert journal.recovered.torn_bytes == len(data) - newest
            assert model_of(journal.recovered, journal) == driver.states[-2][1]


def test_flip_any_byte_of_a_sealed_segment() -> None:
    """An error that names the place; or nothing is lost (the newest footer only repeats what is before it)."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    run_workload(driver)
    driver.journal.close()
    path = f"{PATH}/{1:020d}.log"
    data = files.content(path)
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 0x10
        crashed = files.crash()
        crashed.put(path, bytes(flipped))
        try:
            journal = opened(crashed)
        except Damaged as error:
            assert error.segment == f"{1:020d}.log" and error.offset <= at
        else:
            assert model_of(journal.recovered, journal) == driver.model


def test_a_missing_or_cut_segment_is_damage() -> None:
    """A hole in the middle, a sealed segment cut at a block's end: named."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    driver.declare("a")
    for _ in range(40):
        driver.publish([b"z" * 300] * 2, "a")
        driver.journal.wait(driver.journal.commit())
    bases = segments_in(files, PATH)
    crashed = files.crash()
    crashed.unlink(f"{PATH}/{bases[1]:020d}.log")
    with pytest.raises(Damaged, match=f"records {bases[1]} to {bases[2] - 1}"):
        recover(crashed, PATH)
    crashed = files.crash()
    path = f"{PATH}/{bases[1]:020d}.log"
    footer_size = int.from_bytes(files.content(path)[-8:-4], "little")
    crashed.put(path, files.content(path)[:-footer_size])
    with pytest.raises(Damaged, match="footer"):
        recover(crashed, PATH)


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"LVJ1" * 50, bytes(range(256)) * 20])
def test_hostile_files(content: bytes) -> None:
    """A file that only looks like a segment: nothing recovered, or an error of ours; never another exception."""
    files = SimulatedFiles()
    opened(files).close()
    newest = segments_in(files, PATH)[-1]
    files.put(f"{PATH}/{newest + 500:020d}.log", content)
    try:
        journal = opened(files)
    except JournalError:
        return
    assert not journal.recovered.queues


def test_a_body_that_holds_journal_blocks_is_a_body() -> None:
    """Octets of a block within a message are neither read nor taken for proof."""
    files = SimulatedFiles()
    driver = Driver(opened(files, ONE_SEGMENT))
    driver.declare("a")
    driver.journal.wait(driver.journal.commit())
    inner = files.content(f"{PATH}/{1:020d}.log")
    driver.publish([inner, b"LVJ1" * 9], "a")
    before = copy_of(driver)
    driver.journal.wait(driver.journal.commit())
    journal = opened(files.crash(), ONE_SEGMENT)
    assert model_of(journal.recovered, journal) == before
    cut = files.crash()
    cut.put(f"{PATH}/{1:020d}.log", files.content(f"{PATH}/{1:020d}.log")[:-3])
    journal = opened(cut, ONE_SEGMENT)
    assert model_of(journal.recovered, journal) == {"a": {}} and journal.recovered.torn_bytes


steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 3), st.sampled_from(["a", "b", "ab"])),
        st.tuples(st.just("ack"), st.integers(0, 5), st.sampled_from("ab")),
        st.tuples(st.just("requeue"), st.integers(0, 5), st.sampled_from("ab")),
        st.tuples(st.just("purge"), st.just(0), st.sampled_from("ab")),
        st.tuples(st.just("commit"), st.just(0), st.just("")),
        st.tuples(st.just("append"), st.just(0), st.just("")),
        st.tuples(st.just("checkpoint"), st.just(0), st.just("")),
        st.tuples(st.just("reclaim"), st.just(0), st.just("")),
        st.tuples(st.just("restart"), st.just(0), st.just("")),
    ),
    max_size=40,
)


def play(driver: Driver, step: tuple[str, int, str]) -> None:
    """One step of a drawn history."""
    what, number, name = step
    if what == "publish":
        driver.publish([b"%d" % number * 300] * number, *name)
    elif what == "purge":
        driver.purge(name)
    elif what == "checkpoint":
        driver.journal.wait(driver.journal.commit())
        driver.checkpoint()
    elif what == "append":
        driver.journal.commit()
    elif what == "commit":
        driver.journal.wait(driver.journal.commit())
    elif what == "reclaim":
        driver.journal.wait(driver.journal.commit())
        driver.reclaim()
        driver.journal.wait(driver.journal.commit())
    elif driver.model[name]:
        id_ = sorted(driver.model[name])[number % len(driver.model[name])]
        if what == "ack":
            driver.settle(name, [id_], EventKind.DEAD_LETTERED)
        else:
            driver.requeue(name, id_, number + 1, number * 1000)


@given(steps, st.integers(0, 2**32), st.booleans())
def test_any_history_survives_restarts_and_power_cuts(
    history: list[tuple[str, int, str]], seed: int, some_sectors: bool
) -> None:
    """After a power cut the journal holds some state between the last commit and now, never anything else."""
    random = Random(seed)
    files = SimulatedFiles()
    options = JournalOptions(segment_size=1500, preallocate_size=700)
    driver = Driver(opened(files, options))
    driver.declare("a", "b")
    driver.journal.wait(driver.journal.commit())
    possible = [copy_of(driver)]
    for step in history:
        if step[0] == "restart":
            driver.journal.wait(driver.journal.commit())
            driver.journal.close()
            driver.journal = opened(files, options)
            assert model_of(driver.journal.recovered, driver.journal) == driver.model
            for queue in driver.journal.recovered.queues.values():
                driver.lsns.update({message.id: message.content_lsn for message in queue.messages()})
        else:
            play(driver, step)
        if step[0] == "append":
            possible.append(copy_of(driver))
        if step[0] in ("checkpoint", "reclaim", "commit", "restart"):  # they commit what came before them
            possible = [copy_of(driver)]
        alive = sum(len(messages) for messages in driver.model.values())
        assert sum(row.live for row in driver.journal.usage.segments) == alive
    after = files.power_cut(random if some_sectors else None)
    journal = opened(after, options)
    found = model_of(journal.recovered, journal)
    assert found in possible
    journal.close()
    again = opened(after, options)
    assert model_of(again.recovered, again) == found


def test_a_turn_is_there_whole_or_not_at_all() -> None:
    """It is one block, however large; so is a transaction, which is one turn."""
    files = SimulatedFiles()
    driver = Driver(opened(files, ONE_SEGMENT))
    driver.declare("a")
    driver.journal.wait(driver.journal.commit())
    before = len(files.content(f"{PATH}/{1:020d}.log"))
    for _ in range(300):
        driver.publish([b"x" * 5000], "a")
    driver.journal.wait(driver.journal.commit())
    data = files.content(f"{PATH}/{1:020d}.log")
    for cut in (before + 1, (before + len(data)) // 2, len(data) - 1):
        crashed = files.crash()
        crashed.put(f"{PATH}/{1:020d}.log", data[:cut])
        assert not any(len(queue) for queue in recover(crashed, PATH).queues.values())


class Struck(BaseException):
    """The process is gone, in the middle of something."""


def strike(files: SimulatedFiles, operations: int) -> None:
    """After so many."""
    left = [operations]

    def fault(operation: str, path: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Struck

    files.fault = fault


@pytest.mark.parametrize("at", range(20))
def test_a_kill_and_then_a_power_cut(at: int) -> None:
    """What the killed broker wrote and did not sync is safe once the next one has started, footers too."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    driver.declare("a")
    driver.publish([b"z" * 300], "a")
    driver.journal.wait(driver.journal.commit())
    strike(files, at)
    with contextlib.suppress(Struck):
        driver.journal.close()
    after = files.crash()
    journal = opened(after)
    assert journal.wait(journal.next_lsn)
    found = model_of(journal.recovered, journal)
    assert found == driver.model
    journal = opened(after.power_cut())
    assert model_of(journal.recovered, journal) == found


def test_content_that_is_not_there_is_said_so() -> None:
    """An LSN before the journal, behind it, or of a record without content."""
    journal = opened(SimulatedFiles())
    journal.wait(1)
    for lsn in (0, 1, 10**9):
        with pytest.raises(NotInJournal):
            journal.contents.read(lsn)
    assert make_content(b"x").endswith(b"x")
