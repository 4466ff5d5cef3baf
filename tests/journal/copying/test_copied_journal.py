"""A follower's journal: octet for octet its leader's, whatever comes, and whenever the power goes."""

import contextlib
import errno
from dataclasses import replace
from random import Random

import pytest
from copying_nodes import NODE, boundaries, follow, new_copy, octets_in, octets_of, pieces, state_of, written
from journal_workload import ID, PATH, Driver, opened, run_workload
from simulated_files import SimulatedFiles

from leveret.journal import (
    BadOctets,
    ClusterDirectory,
    Damaged,
    DirectoryLocked,
    ForeignDirectory,
    JournalClosed,
    JournalError,
    JournalFailed,
    JournalFull,
    JournalOptions,
    NotInJournal,
    TermTable,
    register_reader,
)
from leveret.journal.copying.copied_journal import PREALLOCATED, CopiedJournal, has_disk_failed
from leveret.journal.copying.octet_reader import OctetReader, position_of
from leveret.journal.disk.directory import Directory, is_of_cluster, read_format
from leveret.journal.disk.files import SyncError
from leveret.journal.disk.segment import path_of, segments_in
from leveret.journal.disk.segment_file import probe
from leveret.journal.format.errors import NewerJournal

TINY = JournalOptions(segment_size=1500, preallocate_size=4096)


def leader(rounds: int = 3, options: JournalOptions = TINY) -> tuple[SimulatedFiles, Driver]:
    """A journal with all kinds of blocks: heads, footers, ticks, some larger than others."""
    files = SimulatedFiles()
    driver = Driver(opened(files, options))
    run_workload(driver)
    for number in range(rounds):
        driver.publish([b"x" * 40 * number, b"y"], "a")
        driver.journal.wait(driver.journal.commit())
        driver.journal.tick()
        driver.publish([b"z" * 3000], "b")
        driver.journal.wait(driver.journal.commit())
    return files, driver


@pytest.mark.parametrize("seed", range(8))
def test_a_copy_is_the_same_octet_for_octet(seed: int) -> None:
    """Cut at random, taken while the leader writes, with followers that are killed and start again."""
    chance = Random(seed)
    files, copy = SimulatedFiles(), SimulatedFiles()
    driver = Driver(opened(files, TINY))
    copied = new_copy(copy, ID)
    driver.declare("a", "b")
    for _ in range(25):
        driver.publish([b"x" * chance.randrange(2000)] * chance.randint(1, 3), "a", "b")
        driver.journal.wait(driver.journal.commit())
        if chance.random() < 0.3:
            driver.journal.tick()
            driver.journal.writer.run_once()
        if chance.random() < 0.5:
            follow(copied, files, written(driver.journal), chance)
            assert copied.end == driver.journal.next_lsn
            assert octets_in(copied, copy) == octets_of(files, written(driver.journal))
        if chance.random() < 0.3:
            for piece in list(pieces(files, copied.position, written(driver.journal), chance))[: chance.randrange(9)]:
                copied.append(*piece)
            copy = copy.crash() if chance.random() < 0.5 else copy.power_cut(chance)
            before, copied = copied.end, CopiedJournal.open(PATH, files=copy)
            assert copied.end >= before
    follow(copied, files, written(driver.journal), chance)
    assert octets_in(copied, copy) == octets_of(files, written(driver.journal))
    copied.close()
    assert state_of(copy) == state_of(files)


def test_octet_by_octet() -> None:
    files, driver = leader(1)
    copy = SimulatedFiles()
    copied = new_copy(copy, ID)
    ends = set(boundaries(files))
    for base, offset, octets in pieces(files, (1, 0), written(driver.journal), Random(1), 1):
        copied.append(base, offset, octets)
        assert copied._blocks.lsn in ends | {1} | set(segments_in(files, PATH))
    assert copied.sync() == driver.journal.next_lsn
    assert octets_in(copied, copy) == octets_of(files, written(driver.journal))


def test_what_is_not_whole_does_not_count() -> None:
    files, driver = leader()
    copy = SimulatedFiles()
    copied = new_copy(copy, ID)
    first = octets_of(files, written(driver.journal))[1]
    copied.append(1, 0, first[:-1])
    assert copied.sync() == copied.end < segments_in(files, PATH)[1]
    copied.append(1, len(first) - 1, first[-1:])
    assert copied.position == (segments_in(files, PATH)[1], 0) and copied.end < copied.position[0]
    assert copied.sync() == copied.end == segments_in(files, PATH)[1]


@pytest.mark.parametrize("at", range(0, 400, 7))
def test_octets_that_are_damaged(at: int) -> None:
    """Nothing of them is kept; the leader begins again behind the last record. A size is seen by what follows."""
    files, driver = leader()
    copy = SimulatedFiles()
    copied = new_copy(copy, ID)
    first = octets_of(files, written(driver.journal))[1]
    bad = bytearray(first)
    bad[at] ^= 4
    with pytest.raises(BadOctets):
        for start in range(0, len(bad), 60):
            copied.append(1, start, bad[start : start + 60])
        copied.append(segments_in(files, PATH)[1], 0, b"")
    end = copied.sync()
    follow(copied, files, written(driver.journal), Random(at))
    assert copied.end > end
    assert octets_in(copied, copy) == octets_of(files, written(driver.journal))


def test_octets_that_do_not_follow() -> None:
    files, driver = leader()
    copied = new_copy(SimulatedFiles(), ID)
    octets = octets_of(files, written(driver.journal))
    (first, second), last = segments_in(files, PATH)[:2], segments_in(files, PATH)[-1]
    follow(copied, files, (first, len(octets[first])), Random(1))
    for base, offset, what in (
        (first, 0, octets[first]),  # it is there
        (first, len(octets[first]), octets[second]),  # behind a footer
        (last, 0, octets[last]),  # not the next segment
        (second, 32, octets[second][32:]),  # not its begin
        (second, 0, octets[last]),  # another segment's octets
        (second, 0, octets[second] + octets[second]),  # a second head
        (second, 0, octets[first]),
        (second, 0, bytes(64)),
        (0, 0, octets[first]),
    ):
        with pytest.raises(BadOctets):
            copied.append(base, offset, what)
        assert copied.position == (second, 0)
    follow(copied, files, written(driver.journal), Random(2))
    assert copied.sync() == driver.journal.next_lsn


def test_a_leader_begins_again_without_the_ticks() -> None:
    """They are no records, so a new leader need not have them; it has others in the same place."""
    files, copy = SimulatedFiles(), SimulatedFiles()
    driver = Driver(opened(files))
    driver.declare("a")
    driver.journal.wait(driver.journal.commit())
    before = written(driver.journal)
    for _ in range(3):
        driver.journal.tick()
        driver.journal.writer.run_once()
    copied = new_copy(copy, ID)
    follow(copied, files, written(driver.journal), Random(1))
    assert copied.position == before == position_of(PATH, driver.journal.next_lsn, files)
    assert octets_in(copied, copy) == octets_of(files, written(driver.journal))
    copied.append(*before, b"")
    assert octets_in(copied, copy) == octets_of(files, before)


def test_a_segment_that_was_preallocated_is_cut_to_its_octets() -> None:
    """That of an old leader, which now follows: zeros stand behind its last block."""
    files, driver = leader()
    old = files.crash()
    put_terms(old, (1, 1))
    assert len(old.content(path_of(PATH, segments_in(old, PATH)[-1]))) > written(driver.journal)[1]
    copied = CopiedJournal.open(PATH, files=old)
    copied.upgrade()
    driver.publish([b"more"], "a")
    driver.journal.wait(driver.journal.commit())
    follow(copied, files, written(driver.journal), Random(1))
    assert octets_in(copied, old) == octets_of(files, written(driver.journal))


def test_zeros_behind_a_footer() -> None:
    """A leader that was killed between its footer and cutting the file to it; now it follows."""
    files, driver = leader()
    before = written(driver.journal)[0]
    driver.journal.begin_segment()
    driver.journal.writer.run_once()
    old = files.crash()
    old.lose(path_of(PATH, written(driver.journal)[0]))
    old.put(path_of(PATH, before), old.content(path_of(PATH, before)) + bytes(5000))
    put_terms(old)
    copied = CopiedJournal.open(PATH, files=old)
    copied.upgrade()
    assert copied.position == (written(driver.journal)[0], 0)
    follow(copied, files, written(driver.journal), Random(1))
    assert octets_in(copied, old) == octets_of(files, written(driver.journal))
    copied.close()
    CopiedJournal.open(PATH, files=old).close()
    state_of(old)


def test_a_segment_without_a_footer_is_not_left() -> None:
    """A leader that begins the next one forgot something; it may not be begun."""
    files, driver = leader()
    copied = new_copy(SimulatedFiles(), ID)
    first, second = segments_in(files, PATH)[:2]
    octets = octets_of(files, written(driver.journal))
    end = boundaries(files)[3]
    copied.append(first, 0, octets[first][: position_of(PATH, end, files)[1]])
    assert copied.sync() == end < second
    with pytest.raises(BadOctets):
        copied.append(end, 0, octets[second])


def test_an_open_segment_is_reserved_ahead() -> None:
    """As on the leader: an fsync has no size to write. A sealed one has its octets and no more."""
    files, driver = leader()
    copy = SimulatedFiles()
    copied = new_copy(copy, ID)
    follow(copied, files, written(driver.journal), Random(1))
    *sealed, newest = segments_in(files, PATH)
    assert [len(copy.content(path_of(PATH, base))) for base in sealed] == [
        len(files.content(path_of(PATH, base))) for base in sealed
    ]
    assert len(copy.content(path_of(PATH, newest))) == PREALLOCATED


def put_terms(files: SimulatedFiles, *starts: tuple[int, int]) -> None:
    files.put(f"{PATH}/terms", TermTable(NODE, starts).octets)


# -- cutting ----------------------------------------------------------------------------------------------------------


def copy_of(files: SimulatedFiles, driver: Driver) -> tuple[SimulatedFiles, CopiedJournal]:
    copy = SimulatedFiles()
    copied = new_copy(copy, ID)
    copied.set_terms(copied.terms.with_term(1, 1))
    follow(copied, files, written(driver.journal), Random(5))
    return copy, copied


def test_a_cut_anywhere_and_the_same_again() -> None:
    """Within the open segment, within a sealed one, between two: what is cut is kept, and can be copied anew."""
    files, driver = leader()
    whole = octets_of(files, written(driver.journal))
    everything = b"".join(whole[base] for base in sorted(whole))
    for lsn in [1, *boundaries(files)]:
        copy, copied = copy_of(files, driver)
        base, offset = position_of(PATH, lsn, files)
        copied.cut(lsn)
        assert (copied.end, copied.position) == (lsn, (base, offset))
        left = {one: octets for one, octets in whole.items() if one < base}
        if offset:
            left[base] = whole[base][:offset]
        assert octets_in(copied, copy) == left
        assert copied.terms.starts == (((1, 1),) if lsn > 1 else ())
        if lsn < driver.journal.next_lsn:
            kept = copy.content(f"{PATH}/cut/1-{lsn}.log")
            assert kept == everything[sum(map(len, left.values())) :]
        copied.close()
        again = CopiedJournal.open(PATH, files=copy)
        assert again.end == lsn
        follow(again, files, written(driver.journal), Random(lsn))
        assert octets_in(again, copy) == whole


def test_a_second_cut_at_the_same_place_keeps_all_that_was_there() -> None:
    """A node may get what was cut again, and more behind it, and lose both to the next leader: people find it all."""
    files, driver = leader()
    whole = octets_of(files, written(driver.journal))
    everything = b"".join(whole[base] for base in sorted(whole))
    copy, copied = copy_of(files, driver)
    lsn, *_, later = boundaries(files)[2:-1]
    for one in (later, lsn):
        copied.cut(one)
    left = sum(map(len, octets_in(copied, copy).values()))
    assert copy.content(f"{PATH}/cut/1-{lsn}.log") < everything[left:]
    follow(copied, files, written(driver.journal), Random(2))
    copied.cut(lsn)
    assert copy.content(f"{PATH}/cut/1-{lsn}.log") == everything[left:]


def test_a_cut_that_cannot_be() -> None:
    files, driver = leader()
    _, copied = copy_of(files, driver)
    before = copied.end
    ends = boundaries(files)
    with pytest.raises(NotInJournal, match="within the block"):
        copied.cut(next(lsn for lsn in range(2, 100) if lsn not in ends))
    copied.unlink(segments_in(files, PATH)[:1])
    with pytest.raises(NotInJournal, match="no longer"):
        copied.cut(ends[0])
    copied.cut(before)
    copied.cut(before + 5)
    assert copied.end == before


class Struck(BaseException):
    """The process is gone."""


class StrikeAt:
    """It goes before this step that changes the disk."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.steps = 0

    def __call__(self, operation: str, path: str) -> None:
        if operation in ("write", "truncate", "sync", "sync_directory", "rename", "unlink"):
            if self.steps == self.step:
                raise Struck
            self.steps += 1


def test_the_power_goes_while_it_is_cut() -> None:
    """The journal is whole, shorter or not; the cut is repeated, and all that was cut is kept."""
    files, driver = leader()
    bases = segments_in(files, PATH)
    ends = boundaries(files)
    for lsn in (bases[2], ends[ends.index(bases[2]) + 1], bases[-1], ends[-2]):
        counted = 0
        for strike_at in range(60):
            copy, copied = copy_of(files, driver)
            copy.fault = strike = StrikeAt(strike_at)
            try:
                copied.cut(lsn)
            except Struck:
                counted += 1
            for seed in (None, 1, 2, 3):
                left = copy.power_cut(Random(seed) if seed else None) if seed != 3 else copy.crash()
                again = CopiedJournal.open(PATH, files=left)
                assert lsn <= again.end <= driver.journal.next_lsn
                assert again.end in {lsn, *ends}
                state_of(left)
                again.cut(lsn)
                assert again.end == lsn and again.terms.starts == ((1, 1),)
                kept = left.content(f"{PATH}/cut/1-{lsn}.log")
                base, offset = position_of(PATH, lsn, files)
                whole = octets_of(files, written(driver.journal))
                assert kept == whole.get(base, b"")[offset:] + b"".join(whole[one] for one in bases if one > base)
                follow(again, files, written(driver.journal), Random(4))
                assert octets_in(again, left) == whole
            if strike.steps < strike_at:
                break
        assert counted > 5


# -- the directory ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_the_power_goes_while_a_node_joins(seed: int) -> None:
    """Its directory is empty or a node's; its id is the same, once there is one; its terms are the old or the new."""
    chance = Random(seed)
    files = SimulatedFiles()
    ids: set[bytes] = set()
    tables: list[tuple[tuple[int, int], ...]] = [()]

    def look(operation: str, path: str) -> None:
        for luck in (None, chance):
            found = CopiedJournal.open(PATH, files=files.power_cut(luck))
            assert not ids or found.terms.node_id in ids
            assert found.journal_id in (None, ID)
            assert found.terms.starts in tables[-2:]
            assert found.end == 1

    files.fault = look
    copied = CopiedJournal.open(PATH, files=files)
    ids.add(copied.terms.node_id)
    copied.begin(ID)
    assert read_format(PATH, files.power_cut()).is_cluster
    for term in (1, 2):
        tables.append(((1, 1), (2, 1))[:term])
        copied.set_terms(copied.terms.with_term(term, 1))
        assert CopiedJournal.open(PATH, files=files.power_cut()).terms.starts == tables[-1]


def test_the_power_goes_while_a_plain_journal_becomes_a_nodes() -> None:
    files, driver = leader()
    driver.journal.close()
    before = state_of(files)
    seen: set[bool] = set()

    def look(operation: str, path: str) -> None:
        for seed in range(4):
            left = files.power_cut(Random(seed))
            copied = CopiedJournal.open(PATH, files=left)
            seen.add(copied.is_plain)
            assert state_of(left) == before
            copied.upgrade()
            copied.close()

    copied = CopiedJournal.open(PATH, files=files)
    assert (copied.journal_id, copied.is_plain, copied.terms.starts) == (ID, True, ())
    files.fault = look
    copied.upgrade()
    files.fault = lambda operation, path: None
    assert seen == {True, False}
    assert read_format(PATH, files.power_cut()).is_cluster
    copied.upgrade()
    again = CopiedJournal.open(PATH, files=files.power_cut())
    assert again.terms.node_id == copied.terms.node_id


def test_a_directory_that_was_put_back_becomes_another_nodes() -> None:
    """For good, and with all that it has."""
    files, driver = leader()
    copy = SimulatedFiles()
    copied = new_copy(copy, ID)
    follow(copied, files, written(driver.journal), Random(1))
    copied.close()
    other = CopiedJournal.open(PATH, files=copy, is_rolled_back=True)
    assert other.terms == replace(copied.terms, node_id=other.terms.node_id) != copied.terms
    assert (other.journal_id, other.end) == (copied.journal_id, driver.journal.next_lsn)
    assert CopiedJournal.open(PATH, files=copy.power_cut()).terms == other.terms


def test_opening_changes_nothing() -> None:
    """Not the torn tail of the directory of another broker, which is refused."""
    files, driver = leader()
    left = files.crash()
    base, size = written(driver.journal)
    handle = left.open(path_of(PATH, base), writable=True)
    left.truncate(handle, size - 5)
    left.sync(handle)
    left.close(handle)
    before = {path: left.content(path) for path in left.names_now}
    copied = CopiedJournal.open(PATH, files=left)
    assert copied.end < driver.journal.next_lsn
    with pytest.raises(ValueError, match="not the directory of a node"):
        copied.append(*copied.position, b"")
    with pytest.raises(DirectoryLocked):
        CopiedJournal.open(PATH, files=left)
    copied.close()
    copied.close()
    assert {path: left.content(path) for path in left.names_now} == before


def test_a_node_is_no_plain_broker() -> None:
    """It is told what to do; nothing is changed. Neither is an empty directory of a node, which has an id."""
    files = SimulatedFiles()
    copied = CopiedJournal.open(PATH, files=files)
    copied.close()
    with pytest.raises(ForeignDirectory, match="'terms'"):
        opened(files)
    copied = CopiedJournal.open(PATH, files=files)
    copied.begin(ID)
    copied.close()
    before = {path: files.content(path) for path in files.names_now}
    with pytest.raises(ClusterDirectory, match=r"\[cluster\].*leveret journal repair journal --out"):
        opened(files)
    assert {path: files.content(path) for path in files.names_now} == before


def test_a_leader_that_probed_its_disk_and_began_no_journal_opens_its_directory_again() -> None:
    """It was killed, or had no room: the disk is probed while the journal is begun."""
    files = SimulatedFiles()
    CopiedJournal.open(PATH, files=files, node_id=NODE).close()
    probe(PATH, files)
    copied = CopiedJournal.open(PATH, files=files)
    assert copied.terms.node_id == NODE and copied.journal_id is None
    copied.begin(ID)
    copied.close()
    assert CopiedJournal.open(PATH, files=files).journal_id == ID


def test_directories_that_no_node_opens() -> None:
    files = SimulatedFiles()
    files.put(f"{PATH}/letter.txt", b"")
    with pytest.raises(ForeignDirectory, match="'letter.txt'"):
        CopiedJournal.open(PATH, files=files)
    files = SimulatedFiles()
    new_copy(files, ID).close()
    files.put(f"{PATH}/terms", b"{}")
    with pytest.raises(JournalError, match="journal/terms"):
        CopiedJournal.open(PATH, files=files)
    files.lose(f"{PATH}/terms")
    with pytest.raises(JournalError, match="without its term table"):
        CopiedJournal.open(PATH, files=files)
    assert not files.locked


def test_a_segment_that_is_missing_or_damaged() -> None:
    """It needs a full copy."""
    for damage in range(2):
        files, driver = leader()
        copy, copied = copy_of(files, driver)
        copied.close()
        second = path_of(PATH, segments_in(copy, PATH)[1])
        if damage:
            copy.put(second, copy.content(second)[:-20])
        else:
            copy.lose(second)
        with pytest.raises(Damaged):
            CopiedJournal.open(PATH, files=copy)


@pytest.mark.parametrize("left", [0, 1, -1])
def test_an_empty_segment_behind_one_that_lost_its_end(left: int) -> None:
    """That was fsynced, and perhaps acknowledged, before the next one was begun: with less, this node must not lead."""
    files, driver = leader()
    copy, copied = copy_of(files, driver)
    copied.close()
    *_, before, newest = segments_in(copy, PATH)
    copy.put(path_of(PATH, newest), b"")
    assert CopiedJournal.open(PATH, files=copy.crash()).end == newest
    ends = boundaries(files)
    whole = copy.content(path_of(PATH, before))
    copy.put(path_of(PATH, before), whole[: -20 if left < 0 else len(whole) - 1 - left])
    assert newest in ends
    with pytest.raises(Damaged, match="no footer before record"):
        CopiedJournal.open(PATH, files=copy)


def test_terms_that_contradict_the_records() -> None:
    files, driver = leader()
    _, copied = copy_of(files, driver)
    end = copied.end
    one = copied.terms
    for starts in ((), ((1, 5),), ((1, 1), (2, end - 1)), ((2, 1),)):
        with pytest.raises(ValueError, match="contradict"):
            copied.set_terms(TermTable(NODE, starts))
    with pytest.raises(ValueError, match="another node"):
        copied.set_terms(TermTable(b"o" * 16, one.starts))
    for starts in (((1, 1),), ((1, 1), (2, end)), ((1, 1), (3, end + 70))):
        copied.set_terms(TermTable(NODE, starts))
    copied.set_terms(copied.terms.with_term(4, end))
    assert copied.terms.starts == ((1, 1), (4, end))


def test_needs_are_there_before_their_records() -> None:
    files = SimulatedFiles()
    copied = new_copy(files, ID)
    copied.add_needs({"leased queues"})
    copied.add_needs(frozenset())
    assert copied.needs == {"leased queues"} == read_format(PATH, files.power_cut()).needs
    copied.close()
    assert CopiedJournal.open(PATH, files=files).needs == {"leased queues"}


def test_a_journal_with_what_this_program_does_not_know_is_copied_and_not_led() -> None:
    """Also when the node is restarted. A plain one is refused: nobody else has it."""
    files = SimulatedFiles()
    copied = new_copy(files, ID)
    copied.add_needs({"leased queues", "owners", "time travel"})
    copied.close()
    again = CopiedJournal.open(PATH, files=files)
    assert again.unknown == "owners and time travel" and again.journal_id == ID
    with pytest.raises(NewerJournal, match="holds owners and time travel, which this program does not know"):
        again.hand_over()
    again.close()
    assert read_format(PATH, files, allows_unknown=True).journal_id == ID
    assert is_of_cluster(PATH, files)
    plain = files.content(f"{PATH}/format").replace(b'"version": 2', b'"version": 3')
    files.put(f"{PATH}/format", plain)
    with pytest.raises(NewerJournal, match="start a newer one"):
        CopiedJournal.open(PATH, files=files)


# -- what others need, and faults -------------------------------------------------------------------------------------


def test_own_readers_keep_segments() -> None:
    """What the leader deleted goes when the reader has it, with the next call."""
    files, driver = leader(9)
    copy, copied = copy_of(files, driver)
    bases = segments_in(copy, PATH)
    assert len(bases) > 6
    register_reader(PATH, "spark", bases[2] + 1, copy)
    assert copied.unlink(bases[:4]) == bases[:2]
    register_reader(PATH, "spark", bases[5], copy)
    register_reader(PATH, "node-b-1", 1, copy)  # of a follower that this node had when it was killed
    assert copied.unlink([bases[3]]) == bases[2:4]
    assert copied.unlink([bases[-1]]) == [bases[4]]
    copy.put(f"{PATH}/readers/other.json", b"what")
    with pytest.raises(JournalError, match="nothing is deleted"):
        copied.unlink(bases)
    copy.lose(f"{PATH}/readers/other.json")
    copy.lose(f"{PATH}/readers/spark.json")
    assert copied.unlink(bases) == bases[5:-1], "the newest stays"
    again = CopiedJournal.open(PATH, files=copy.power_cut())
    assert again.end == copied.end


def test_a_segment_that_cannot_be_deleted_ends_no_copy() -> None:
    """A node that could no longer copy for it would be missing in the set; a later call deletes it."""
    files, driver = leader(9)
    copy, copied = copy_of(files, driver)
    bases = segments_in(copy, PATH)

    def fault(operation: str, path: str) -> None:
        if operation == "unlink" and path == path_of(PATH, bases[1]):
            raise OSError(errno.EBUSY, "busy")

    copy.fault = fault
    assert copied.unlink(bases[:4]) == bases[:1]
    driver.publish([b"more"], "a")
    driver.journal.wait(driver.journal.commit())
    follow(copied, files, written(driver.journal), Random(1))
    assert copied.end == driver.journal.next_lsn
    copy.fault = lambda operation, path: None
    assert copied.unlink(bases[:4]) == bases[1:4]


@pytest.mark.parametrize("step", range(11))
def test_the_power_goes_while_segments_are_deleted(step: int) -> None:
    """Before each step, and afterwards: whichever come back, none between them is missing."""
    files, driver = leader(9)
    copy, copied = copy_of(files, driver)
    copy.fault = StrikeAt(step)
    with contextlib.suppress(Struck):
        copied.unlink(segments_in(copy, PATH)[:5])
    for seed in range(5):
        assert CopiedJournal.open(PATH, files=copy.power_cut(Random(seed))).end == copied.end


def test_a_full_disk() -> None:
    """Nothing of those octets is kept; when there is room, the leader begins again."""
    files, driver = leader()
    copy = SimulatedFiles()
    copied = new_copy(copy, ID)
    chance = Random(3)
    failed = 0
    for capacity in range(500, 40_000, 700):
        copy.capacity = copy.used + capacity % 1900
        try:
            follow(copied, files, written(driver.journal), chance)
        except JournalFull:
            failed += 1
    assert failed > 3
    copy.capacity = None
    follow(copied, files, written(driver.journal), chance)
    assert octets_in(copied, copy) == octets_of(files, written(driver.journal))


def test_what_a_full_disk_took_of_a_write_does_not_come_back() -> None:
    """The next leader may have other records there: after a power cut a whole block of the last one would count."""
    files, driver = leader(0, JournalOptions())
    ends = []
    for _ in range(4):
        driver.publish([b"x" * 100], "a")
        driver.journal.wait(driver.journal.commit())
        ends.append(written(driver.journal)[1])
    octets = octets_of(files, written(driver.journal))[1]
    copy = SimulatedFiles()
    copied = new_copy(copy, ID)
    copied.append(1, 0, octets[: ends[0]])
    copied.sync()

    def full(operation: str, path: str) -> None:
        if operation == "write":
            if copy.write_max is not None:
                raise OSError(errno.ENOSPC, "no room")
            copy.write_max = ends[2] - ends[0] + 1

    copy.fault = full
    with pytest.raises(JournalFull):
        copied.append(1, ends[0], octets[ends[0] :])
    copy.fault, copy.write_max = lambda operation, path: None, None
    copied.append(1, ends[0], octets[ends[0] : ends[1]])
    end = copied.sync()
    assert CopiedJournal.open(PATH, files=copy.power_cut()).end == end


@pytest.mark.parametrize("error", [JournalFull, BadOctets])
def test_whole_blocks_before_octets_that_are_not_taken_are_fsynced(error: type[Exception]) -> None:
    """The next link tells the leader that they are. An append that fails closes the segment's file."""
    files, driver = leader(0, JournalOptions())
    ends = []
    for _ in range(2):
        driver.publish([b"x" * 100], "a")
        driver.journal.wait(driver.journal.commit())
        ends.append(written(driver.journal)[1])
    octets = octets_of(files, written(driver.journal))[1]
    copy = SimulatedFiles()
    copied = new_copy(copy, ID)
    copied.append(1, 0, octets[: ends[0]])

    def full(operation: str, path: str) -> None:
        if operation == "write" and error is JournalFull:
            raise OSError(errno.ENOSPC, "no room")

    copy.fault = full
    with pytest.raises(error):
        copied.append(1, ends[0], octets[ends[0] :] if error is JournalFull else b"x" * 100)
    end = copied.sync()
    assert end > 1
    assert CopiedJournal.open(PATH, files=copy.power_cut()).end == end


@pytest.mark.parametrize("operation", ["sync", "sync_directory", "write"])
def test_a_disk_that_fails(operation: str) -> None:
    """Nothing is taken until the directory is opened again: after a failed fsync nobody knows what is on the disk."""
    files, driver = leader()
    copy = SimulatedFiles()
    copied = new_copy(copy, ID)

    def fail(asked: str, path: str) -> None:
        if asked == operation:
            raise OSError(errno.EIO, "broken")

    copy.fault = fail
    with pytest.raises(JournalFailed):
        follow(copied, files, written(driver.journal), Random(1))
    copy.fault = lambda operation, path: None
    with pytest.raises(JournalClosed):
        copied.sync()
    copied.close()
    again = CopiedJournal.open(PATH, files=copy)
    follow(again, files, written(driver.journal), Random(1))
    assert octets_in(again, copy) == octets_of(files, written(driver.journal))


def test_a_failed_fsync_leaves_the_end_where_it_was() -> None:
    """Nothing of it may be acknowledged."""
    files, driver = leader()
    copy = SimulatedFiles()
    copied = new_copy(copy, ID)
    copied.append(1, 0, octets_of(files, written(driver.journal))[1])
    before = copied.end

    def fail(asked: str, path: str) -> None:
        if asked == "sync":
            raise OSError(errno.EIO, "broken")

    copy.fault = fail
    with pytest.raises(JournalFailed):
        copied.sync()
    assert copied.end == before


@pytest.mark.parametrize("number", range(9))
@pytest.mark.parametrize("is_restarted", [True, False])
def test_what_an_fsync_failed_to_write_is_written_again(number: int, is_restarted: bool) -> None:
    """Systems take pages for written after an fsync that failed: the next one succeeds, and proves nothing.

    Nor does one of the next process, which cannot know of it.
    """
    files, driver = leader()
    copy = SimulatedFiles()
    copied = new_copy(copy, ID)
    syncs = 0

    def forget(asked: str, path: str) -> None:
        nonlocal syncs
        if asked == "sync" and path.endswith(".log"):
            syncs += 1
            if syncs == number + 1:
                copy.names_now[path].unsynced.clear()
                raise OSError(errno.EIO, "broken")

    copy.fault = forget
    with pytest.raises(JournalFailed):
        follow(copied, files, written(driver.journal), Random(1))
    copied.close()
    assert copied.has_failed
    copy = copy.crash() if is_restarted else copy
    again = CopiedJournal.open(PATH, files=copy, is_suspect=True)
    assert again.end == again.written_lsn >= copied.end
    assert CopiedJournal.open(PATH, files=copy.power_cut()).end == again.end
    follow(again, files, written(driver.journal), Random(2))
    again.close()
    copy = copy.power_cut()
    assert CopiedJournal.open(PATH, files=copy).end == driver.journal.next_lsn
    assert octets_of(copy, written(driver.journal)) == octets_of(files, written(driver.journal))


def test_without_a_fault_nothing_is_suspect() -> None:
    """A full disk forgets nothing, nor does a lack of descriptors."""
    files, driver = leader()
    copy = SimulatedFiles()
    copied = new_copy(copy, ID)
    copy.capacity = copy.used + 700
    with pytest.raises(JournalFull):
        follow(copied, files, written(driver.journal), Random(1))
    assert not copied.has_failed
    errors = [OSError(errno.ENOSPC, "no room"), OSError(errno.EMFILE, "no descriptors"), ValueError(), None]
    assert not any(map(has_disk_failed, errors))
    assert all(map(has_disk_failed, [SyncError(errno.ENOSPC, "fsync"), OSError(errno.EIO, ""), JournalFailed("")]))


def test_it_hands_its_directory_over() -> None:
    files, driver = leader()
    copy, copied = copy_of(files, driver)
    directory = copied.hand_over()
    assert isinstance(directory, Directory) and directory.journal_id == ID
    with pytest.raises(DirectoryLocked):
        CopiedJournal.open(PATH, files=copy)
    with pytest.raises(JournalClosed):
        copied.sync()
    copied.close()
    directory.close()
    CopiedJournal.open(PATH, files=copy).close()


# -- reading for others ------------------------------------------------------------------------------------------------


def test_every_position() -> None:
    files, driver = leader()
    end = written(driver.journal)
    whole = octets_of(files, end)
    for lsn in boundaries(files):
        base, offset = position_of(PATH, lsn, files)
        assert base <= lsn and (offset == 0) == (base == lsn)
        reader = OctetReader(PATH, base, offset, files)
        read: dict[int, bytes] = {}
        while (piece := reader.read(end)) is not None:
            read[piece[0]] = read.get(piece[0], b"") + piece[2]
        rest = {one: octets[offset if one == base else 0 :] for one, octets in whole.items() if one >= base}
        assert read == {one: octets for one, octets in rest.items() if octets}
        assert reader.position == end or (base, offset) == end
        reader.close()
    with pytest.raises(NotInJournal, match="behind the last"):
        position_of(PATH, driver.journal.next_lsn + 1, files)


def test_a_reader_is_left_behind() -> None:
    """Segments were deleted while it read: it needs a full copy, and never leaves one out."""
    files, driver = leader()
    end, bases = written(driver.journal), segments_in(files, PATH)
    reader = OctetReader(PATH, bases[0], 0, files)
    assert reader.read(end, 10) is not None
    for base in bases[:2]:
        files.lose(path_of(PATH, base))
    with pytest.raises(NotInJournal):
        while reader.read(end) is not None:
            pass
    assert reader.position == (bases[1], 0)
    with pytest.raises(NotInJournal):
        position_of(PATH, bases[1], files)
