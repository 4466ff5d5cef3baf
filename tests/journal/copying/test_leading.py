"""The journal of a node that leads a cluster: it goes by what is agreed where a plain one goes by its own disk."""

import errno
import threading
from random import Random

import pytest
from copying_nodes import NODE, Leader, boundaries, follow, led, octets_in, octets_of, state_of
from journal_workload import ID, PATH, Driver, opened, run_workload
from simulated_files import SimulatedFiles

from leveret.journal import DirectoryLocked, JournalClosed, JournalReader, WriterState
from leveret.journal.copying.copied_journal import CopiedJournal
from leveret.journal.disk.directory import read_format
from leveret.journal.disk.segment import path_of, segments_in
from leveret.journal.disk.segment_scan import agreed_lsn
from leveret.journal.format import needs
from leveret.journal.recording.recorder import Recorder
from leveret.journal.recovery.recovery import IDS_SKIPPED, prepare
from leveret.testing.harness import Harness


def test_nothing_is_safe_before_it_is_agreed() -> None:
    """Not what is on the own disk; and then it is said at once."""
    leader = led()
    safe_lsn = leader.journal.committed_lsn
    leader.safe.clear()
    lsn = leader.publish()
    assert leader.journal.durable_lsn == leader.synced_lsn == lsn > leader.journal.committed_lsn == safe_lsn
    assert leader.journal.trusted_lsn == safe_lsn
    assert not leader.journal.wait(lsn)
    assert leader.safe == []
    leader.journal.agree(lsn - 1)
    leader.journal.agree(safe_lsn)
    assert leader.journal.committed_lsn == lsn - 1
    leader.journal.agree(lsn)
    assert leader.safe == [lsn - 1, lsn]
    assert leader.journal.wait(lsn)


def test_an_answer_about_all_that_was_done_waits_until_that_is_agreed() -> None:
    """So do readers of streams: what is on the own disk alone may be cut."""
    leader = led()
    leader.journal.agree(leader.journal.next_lsn)
    recorder = Recorder(Harness().broker, leader.journal)
    assert recorder.sync_lsn_of_all() == 0
    lsn = leader.publish()
    assert leader.journal.durable_lsn == lsn and recorder.sync_lsn_of_all() == lsn
    leader.journal.agree(lsn)
    assert recorder.sync_lsn_of_all() == 0


def test_a_block_is_reported_before_its_fsync() -> None:
    """The followers write it meanwhile."""
    leader = led()
    leader.reports.clear()
    seen: list[list[str]] = []

    def look(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            seen.append(list(leader.reports))

    leader.files.fault = look
    lsn = leader.publish()
    assert seen == [[f"written {lsn}"]]
    assert leader.reports == [f"written {lsn}", f"synced {lsn}"]


def test_what_is_reported_is_what_is_in_the_files() -> None:
    """All kinds of blocks: heads, footers, ticks."""
    leader = led()
    for number in range(20):
        leader.publish(2, number * 50)
        leader.journal.agree(leader.synced_lsn)
        leader.journal.tick()
        leader.journal.writer.run_once()
    assert len(leader.octets) > 3
    assert leader.octets == octets_of(leader.files, leader.end)


def test_readers_see_what_is_agreed() -> None:
    """A sealed segment alone is no proof: another leader may cut it."""
    leader = led()
    agreed = leader.journal.next_lsn
    for _ in range(8):
        leader.publish(2, 600)
    assert len(segments_in(leader.files, PATH)) > 3
    assert agreed_lsn(leader.files, PATH) <= agreed
    assert [lsn for lsn, _ in JournalReader(PATH, leader.files).records()][-1] < agreed
    everything = [lsn for lsn, _ in JournalReader(PATH, leader.files).records(trust_open=True)]
    assert everything[-1] == leader.journal.next_lsn - 1
    ends = [lsn for lsn in boundaries(leader.files) if lsn > agreed]
    for lsn in ends:
        leader.journal.agree(min(lsn, leader.journal.durable_lsn))
        leader.journal.tick()
        leader.journal.writer.run_once()
        assert agreed_lsn(leader.files, PATH) == lsn
        assert [one for one, _ in JournalReader(PATH, leader.files).records()] == list(range(1, lsn))
        assert [one for one, _ in JournalReader(PATH, leader.files).records(lsn - 1)] == [lsn - 1]


def test_no_segment_goes_before_its_checkpoint_is_agreed() -> None:
    leader = led()
    for _ in range(4):
        leader.driver.settle("a", leader.driver.publish([b"x" * 1600], "a"))
        leader.turn()
    leader.driver.checkpoint()
    lsn = leader.commit()
    assert leader.journal.old_segments.reclaim() == []
    leader.journal.agree(lsn - 1)
    assert leader.journal.old_segments.reclaim() == []
    leader.journal.agree(lsn)
    gone = leader.journal.old_segments.reclaim()
    assert gone
    leader.reports.clear()
    leader.journal.writer.run_once()
    assert leader.reports == [f"unlinked {gone}"]
    assert set(gone).isdisjoint(segments_in(leader.files, PATH))


def test_no_segment_goes_before_what_emptied_it_is_agreed() -> None:
    """Else another leader cuts the acknowledgements, and has messages without contents."""
    leader = led()
    messages = []
    for _ in range(4):
        messages.append(leader.driver.publish([b"x" * 1600], "a"))
        leader.turn()
    leader.driver.checkpoint()
    leader.journal.agree(leader.commit())
    assert leader.journal.old_segments.reclaim() == []
    for ids in messages:
        leader.driver.settle("a", ids)
    lsn = leader.commit()
    assert leader.journal.old_segments.reclaim() == []
    leader.journal.agree(lsn - 1)
    assert leader.journal.old_segments.reclaim() == []
    leader.journal.agree(lsn)
    assert leader.journal.old_segments.reclaim()


def test_needs_are_reported_before_their_records() -> None:
    leader = led()
    leader.reports.clear()
    leader.journal.turns.add_needs(frozenset({"leased queues"}))
    lsn = leader.publish()
    assert leader.reports == ["needs ['leased queues']", f"written {lsn}", f"synced {lsn}"]
    assert leader.journal.needs == {"leased queues"} == read_format(PATH, leader.files.power_cut()).needs


def test_a_leader_writes_nothing_that_nodes_of_the_clusters_level_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever adds a feature asks before, until the level is raised; what is in the journal already may be written."""
    monkeypatch.setitem(needs.LEVELS, 2, frozenset({"owners"}))
    leader = led()
    assert leader.journal.may_write("leased queues") and not leader.journal.may_write("leased queues", "owners")
    with pytest.raises(ValueError, match="a record needs \\['owners'\\], which the cluster's level lacks"):
        leader.journal.turns.add_needs(frozenset({"owners"}))
    leader.commit()
    leader.journal.raise_level(2)
    assert leader.journal.may_write("owners")
    leader.journal.turns.add_needs(frozenset({"owners"}))
    leader.publish()
    assert leader.journal.needs == {"owners"} and needs.level_of(leader.journal.needs) == 2
    leader.journal.raise_level(1)  # of a cluster that was made of a journal with such records
    assert leader.journal.may_write("owners")
    monkeypatch.setattr(needs, "LEVELS", {1: needs.LEVELS[1]})
    assert needs.level_of(frozenset()) == needs.level_of(frozenset({"leased queues"})) == 1


def test_it_waits_for_nobody_when_it_opens() -> None:
    """Its footer and its new segment are on its own disk; no other node has to be there."""
    leader = led()
    leader.publish()
    again = Leader(leader.files.crash(), 2)
    assert again.journal.durable_lsn == again.journal.next_lsn > again.journal.committed_lsn
    assert again.first_lsn < again.journal.next_lsn


def test_what_was_agreed_once_stays_so() -> None:
    """The next leader finds it in the blocks, whatever it was told; more is agreed only by nodes."""
    leader = led()
    agreed = leader.journal.committed_lsn
    leader.publish(2, 700)
    leader.publish(2, 700)
    lsn = leader.publish()
    again = Leader(leader.files.crash(), 2, agreed=3)
    assert again.journal.committed_lsn == agreed == agreed_lsn(again.files, PATH)
    assert Leader(leader.files.crash(), 2, agreed=lsn).journal.committed_lsn == lsn


def test_no_id_is_used_by_two_leaders() -> None:
    """Nor when nobody has the first one's records: its clients may have seen them."""
    leader = led()
    lost, next_ = Leader(leader.files.crash(), 2), Leader(leader.files.crash(), 3)
    (one,), (other,) = (node.driver.publish([b"x"], "c") for node in map(_declared, (lost, next_)))
    assert one < lost.journal.next_message_id < other
    after = Leader(lost.files.crash(), 4)
    assert after.journal.next_message_id > next_.journal.next_message_id


def _declared(leader: Leader) -> Leader:
    leader.driver.declare("c")
    return leader


def test_a_leader_whose_disk_had_no_room_for_a_head_used_ids_too() -> None:
    """It sealed the segment of the leader before it, and wrote nothing else: its ids are not those of the next."""
    leader = led()
    leader.publish()
    disk = leader.files.crash()
    copied = CopiedJournal.open(PATH, files=disk, node_id=NODE)
    copied.set_terms(copied.terms.with_term(2, copied.end))
    copied.close()
    lost = prepare(disk, PATH, ID, 0, agreed_lsn=1).next_message_id
    assert Leader(disk.crash(), 3).journal.next_message_id >= lost + IDS_SKIPPED


def test_a_journal_that_is_given_up() -> None:
    """Nothing is sealed, no octet is written more, the directory is unlocked; then it is a follower's."""
    leader = led()
    lsn = leader.publish()
    leader.driver.publish([b"never written"], "a")
    before = {path: leader.files.content(path) for path in leader.files.names_now}
    assert leader.journal.abandon()
    assert {path: leader.files.content(path) for path in leader.files.names_now} == before
    leader.safe.clear()
    with pytest.raises(JournalClosed):
        leader.journal.turns.begin()
    assert not leader.files.locked and not leader.safe
    copied = CopiedJournal.open(PATH, files=leader.files)
    assert copied.end == lsn


def test_a_disk_that_hangs() -> None:
    """It is seen from another thread; the journal is not given up before the disk comes back."""
    leader = Leader(SimulatedFiles(), threaded=True)
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(operation: str, path: str) -> None:
        if operation == "sync":
            hangs.set()
            goes_on.wait(30)

    assert leader.journal.stalled_s() == 0
    leader.files.fault = hang
    leader.journal.probe()
    assert hangs.wait(30)
    first = leader.journal.stalled_s()
    assert 0 < first < leader.journal.stalled_s()
    assert not leader.journal.abandon(0.01)
    with pytest.raises(DirectoryLocked):
        CopiedJournal.open(PATH, files=leader.files)
    goes_on.set()
    assert leader.journal.abandon()
    assert leader.journal.stalled_s() == 0
    CopiedJournal.open(PATH, files=leader.files).close()


def test_a_disk_that_fails_after_the_journal_was_given_up() -> None:
    """Nobody hears of it: the broker of that journal has ended, and the next one of this node opens it anew."""
    leader = Leader(SimulatedFiles(), threaded=True)
    leader.driver.declare("a")
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(operation: str, path: str) -> None:
        if operation == "sync":
            hangs.set()
            goes_on.wait(30)
            raise OSError(errno.EIO, "ordered")

    leader.files.fault = hang
    leader.driver.publish([b"x"], "a")
    leader.journal.commit()
    assert hangs.wait(30) and not leader.journal.abandon(0.01)
    leader.reports.clear()
    goes_on.set()
    assert leader.journal.abandon()
    assert not leader.safe and not leader.reports


def test_a_probe_reaches_the_disk() -> None:
    leader = led()
    seen: list[tuple[str, str]] = []
    leader.files.fault = lambda operation, path: seen.append((operation, path))
    leader.journal.probe()
    leader.journal.writer.run_once()
    assert ("write", f"{PATH}/probe") in seen and ("sync", f"{PATH}/probe") in seen
    leader.files.fault = lambda operation, path: None
    leader.files.capacity = leader.files.used - 1
    leader.files.lose(f"{PATH}/probe")
    leader.journal.probe()
    leader.journal.writer.run_once()
    assert leader.journal.failure is None, "a full disk is noticed by records"


@pytest.mark.parametrize("seed", range(25))
def test_leaders_come_and_go(seed: int) -> None:
    """Of two nodes now one leads, now the other; what was not agreed is cut; up to agreed all have the same octets."""
    chance = Random(seed)
    disks = [SimulatedFiles(), SimulatedFiles()]
    agreed = 1
    kept: dict[int, bytes] = {}
    for term in range(1, 9):
        one = chance.randrange(2) if term > 1 else 0
        leader = Leader(disks[one], term, agreed=agreed)
        assert leader.journal.committed_lsn == max(agreed, 1)
        follower = CopiedJournal.open(PATH, files=disks[1 - one])
        terms = CopiedJournal.open(PATH, files=disks[one].crash()).terms
        if follower.journal_id is None:
            follower.begin(ID)
        common = follower.terms.common_end(terms, follower.end, leader.journal.durable_lsn)
        assert common >= agreed, "what is agreed is cut"
        follower.cut(common)
        follower.set_terms(follower.terms.with_starts_of(terms))
        if not leader.journal.recovered.objects:
            leader.driver.declare("a", "b")
        else:
            names = leader.journal.recovered.names
            leader.driver.queue_ids = {names.text(id_): id_ for id_ in leader.journal.recovered.objects}
            leader.driver.exchange = next(id_ for id_ in names.ids_of() if names.text(id_) == "amq.direct")
            leader.driver.model = {name: {} for name in leader.driver.queue_ids}
        for _ in range(chance.randint(1, 6)):
            leader.publish(chance.randint(1, 3), chance.randrange(900))
            if chance.random() < 0.6:
                follow(follower, disks[one], leader.end, chance)
                agreed = min(follower.end, leader.journal.durable_lsn)
                leader.journal.agree(agreed)
                kept = octets_of(disks[one], leader.end)
            if chance.random() < 0.5:
                leader.journal.tick()
                leader.journal.writer.run_once()
        follower.close()
        assert leader.journal.abandon()
        disks = [disk.crash() if chance.random() < 0.5 else disk.power_cut(chance) for disk in disks]
        for disk in disks:
            for base, octets in kept.items():
                found = disk.content(path_of(PATH, base))[: len(octets)]
                assert found == octets or base == max(kept), "agreed octets differ"
            state_of(disk)
    leader = Leader(disks[0], 20, agreed=agreed)
    other = CopiedJournal.open(PATH, files=disks[1])
    terms = CopiedJournal.open(PATH, files=disks[0].crash()).terms
    other.cut(other.terms.common_end(terms, other.end, leader.journal.durable_lsn))
    other.set_terms(other.terms.with_starts_of(terms))
    follow(other, disks[0], leader.end, chance)
    assert octets_in(other, disks[1]) == octets_of(disks[0], leader.end)
    assert state_of(disks[1]) == state_of(disks[0])


def test_a_plain_journal_costs_nothing() -> None:
    """It has no part of a cluster; its format is the old one; its blocks are the same octets."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    run_workload(driver)
    assert not driver.journal.leads_cluster and driver.journal.stalled_s() == 0
    assert driver.journal.committed_lsn == driver.journal.trusted_lsn == driver.journal.durable_lsn
    assert not read_format(PATH, files).is_cluster
    assert files.names(PATH).count("terms") == 0


@pytest.mark.parametrize("number", range(6))
def test_a_leader_whose_fsync_failed_vouches_for_what_is_on_the_disk(number: int) -> None:
    """Its broker is closed, and its directory opened again: the octets that may be on no disk are written again."""
    leader = led()
    syncs = 0

    def forget(operation: str, path: str) -> None:
        nonlocal syncs
        if operation == "sync" and path.endswith(".log"):
            syncs += 1
            if syncs == number + 1:
                leader.files.names_now[path].unsynced.clear()
                raise OSError(errno.EIO, "broken")

    leader.files.fault = forget
    while leader.journal.state is not WriterState.FAILED:
        leader.driver.publish([b"x" * 400] * 2, "a")
        leader.commit()
    leader.journal.abandon()
    lsn = leader.journal.durable_lsn
    assert CopiedJournal.open(PATH, files=leader.files.power_cut()).end == lsn
    leader.files.fault = lambda operation, path: None
    end = CopiedJournal.open(PATH, files=leader.files, is_suspect=True).end
    assert end >= lsn and CopiedJournal.open(PATH, files=leader.files.power_cut()).end == end
