"""What a node does between its agreement, its journal and etcd, each part by itself."""

import errno
from collections import deque
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from written_journal import JOURNAL_ID, WrittenJournal

from leveret.cluster import reachability as reachability_module
from leveret.cluster.agreement import decisions as do
from leveret.cluster.agreement.context import NodeContext
from leveret.cluster.agreement.events import (
    Answered,
    DiskFull,
    DiskRecovered,
    DiskStalled,
    Drain,
    Durable,
    Event,
    FollowerRefused,
    HandOver,
    InDoubt,
    Joined,
    JournalDamaged,
    LinkOpened,
    Read,
    TakeoverFailed,
    Tick,
)
from leveret.cluster.agreement.states import State
from leveret.cluster.agreement.timers import Timers
from leveret.cluster.agreement.transactions import progress
from leveret.cluster.agreement.view import InSync, Leader, NodeKey, View
from leveret.cluster.coordinator import errors
from leveret.cluster.coordinator.coordinator import Lease
from leveret.cluster.copying import full_copy
from leveret.cluster.copying.joining import JournalSummary
from leveret.cluster.following import Following
from leveret.cluster.leading import CHECK_S, RETRY_CHECKS, ROOM_OCTETS, Leading
from leveret.cluster.link.challenge import Credentials
from leveret.cluster.link.introduction import Reach
from leveret.cluster.link.options import Address
from leveret.cluster.node import Node
from leveret.cluster.node_directory import NodeDirectory
from leveret.cluster.options import NodeOptions
from leveret.cluster.reachability import Reachability
from leveret.cluster.registration import Registration
from leveret.cluster.requests import Requests
from leveret.journal import ClusterJournal, Damaged, DirectoryLocked, TermTable, reader_offsets, register_reader
from leveret.journal.copying.copied_journal import CopiedJournal
from leveret.journal.disk.directory import Format, read_terms
from leveret.journal.disk.files import REAL, SyncError
from leveret.journal.disk.writer import WriterState

SECOND = 1_000_000_000
PROGRESS = progress(Leader(1, b"a" * 16, "a", "a:1", 3), None, 10)


async def later(seconds: float) -> None:
    """Virtual time goes by."""
    with trio.move_on_after(seconds):
        await trio.sleep_forever()


class Journal:
    """A journal whose disk hangs for as long as a test says."""

    state = WriterState.RUNNING
    hangs_s = 0.0
    probes = 0
    agreed: list[int]

    def stalled_s(self) -> float:
        return self.hangs_s

    def probe(self) -> None:
        self.probes += 1


class Broker:
    """A `LeadingBroker`: it serves until it resigns, and takes a while to close."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.resigned = trio.Event()
        self.is_closed = False
        self.close_directory: Any = lambda: None

    async def serve(self) -> None:
        await self.resigned.wait()
        await later(5)
        self.is_closed = True

    def resign(self) -> None:
        self.resigned.set()

    def set_sites(self, sites: object) -> None:
        pass

    async def close_unserved(self) -> None:
        self.close_directory()
        self.is_closed = True


class Links:
    """Of the followers."""

    def __init__(self) -> None:
        self.closed = ""

    def close_all(self, why: str) -> None:
        self.closed = self.closed or why


def leading(told: list[Event], path: str = "", build: Any = None) -> Leading:
    """In term 2, of a node `a`."""
    options = NodeOptions("a", path, Credentials("orders"), {"a": Address("127.0.0.1", 1)})
    process = SimpleNamespace(build=build)
    made = Leading(options, 2, 1, process, SimpleNamespace(links=None), told.append, dict, lambda: 0)  # type: ignore[arg-type]
    made.broker = Broker()  # type: ignore[assignment]
    made._opened.set()
    return made


def taking_over(path: str, build: Any) -> Leading:
    """As `leading`, before its broker is built."""
    made = leading([], path, build)
    made.broker, made._opened = None, trio.Event()
    return made


def in_virtual_time(test: Any) -> None:
    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))


# -- a leadership ------------------------------------------------------------------------------------------------------


def test_a_disk_that_hangs_is_found_under_an_idle_leader_and_reported_both_ways() -> None:
    """An idle journal is probed; while it hangs, the leader's lease is not renewed."""
    told: list[Event] = []

    async def look() -> None:
        led = leading(told)
        journal = led.broker.journal  # type: ignore[union-attr]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(led.watch_disk)
            await later(2)
            assert journal.probes > 1 and told == [] and not led.is_stalled  # type: ignore[attr-defined]
            journal.hangs_s = 5.1  # type: ignore[attr-defined]
            await later(1)
            assert told == [DiskStalled()] and led.is_stalled
            journal.hangs_s = 0  # type: ignore[attr-defined]
            await later(1)
            assert told == [DiskStalled(), DiskRecovered()]
            nursery.cancel_scope.cancel()

    in_virtual_time(look)


def test_a_full_disk_is_reported_with_the_nodes_that_have_room_until_the_leader_has_room_itself() -> None:
    """It then tries to write again, and is full all the same where a quota refuses it."""
    told: list[Event] = []
    free = {"disk-free": 0}

    async def look() -> None:
        led = leading(told)
        led._status = lambda: free
        follower = SimpleNamespace(node_id=b"b" * 16, is_full_copy=False, status={"disk-free": ROOM_OCTETS})
        other = SimpleNamespace(node_id=b"c" * 16, is_full_copy=False, status={"disk-free": ROOM_OCTETS - 1})
        led.links = SimpleNamespace(statistics=lambda: [follower, other])  # type: ignore[assignment]
        led.broker.journal.state = WriterState.FULL  # type: ignore[union-attr,misc]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(led.watch_disk)
            await later(3.2 * CHECK_S)
            assert told == [DiskFull(frozenset({follower.node_id}))] * 2
            free["disk-free"] = ROOM_OCTETS
            await later((RETRY_CHECKS - 1) * CHECK_S)
            assert len(told) == 2
            await later(CHECK_S)
            assert len(told) == 3
            nursery.cancel_scope.cancel()

    in_virtual_time(look)


def test_a_disk_that_hangs_while_the_journal_is_opened_gives_up_the_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody leads for as long as it hangs: the lease was renewed while there was no broker."""
    told: list[Event] = []
    hangs = False

    async def run_sync(work: Any, *arguments: object, **how: object) -> Any:
        if hangs:
            await trio.sleep_forever()
        return work(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)

    async def look() -> None:
        nonlocal hangs
        led = taking_over(str(tmp_path), None)
        led._report, led._now_ns = told.append, lambda: int(trio.current_time() * SECOND)
        node: Any = SimpleNamespace(_now_ns=lambda: 0, _beat_ns=0, leading=led)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(led.probe_disk)
            nursery.start_soon(led.watch_disk)
            await later(60)
            assert told == [] and Node._may_renew(node, Lease.LEADER) and (tmp_path / "probe").exists()
            hangs = True
            await later(6.1)
            assert told == [DiskStalled()] and not Node._may_renew(node, Lease.LEADER)
            nursery.cancel_scope.cancel()

    in_virtual_time(look)


@pytest.mark.parametrize("is_served", [True, False])
def test_a_leadership_is_over_when_its_broker_is_closed_and_reports_nothing_any_more(is_served: bool) -> None:
    """Only then may the directory be opened again. Followers are told at once, to be there for the next leader."""
    told: list[Event] = []

    async def resign() -> None:
        led = leading(told)
        broker, links = led.broker, Links()
        led.links = led._listener.links = links  # type: ignore[assignment]
        async with trio.open_nursery() as nursery:
            if is_served:
                nursery.start_soon(led.serve)
                await later(1)
            await led.resign("b leads term 3")
            assert broker.is_closed  # type: ignore[union-attr]
        assert links.closed == "b leads term 3" and led._listener.links is None
        led._tell(Durable(7))
        assert told == []

    in_virtual_time(resign)


def test_the_term_is_on_the_disk_before_the_journal_is_opened_to_lead(tmp_path: Path) -> None:
    """Rule R7: the footer that seals the open segment is the first record of it."""
    path = str(tmp_path / "data")
    seen: list[Any] = []

    def build(cluster: ClusterJournal) -> Broker:
        seen.append(read_terms(path, REAL))
        cluster.directory.close()
        return Broker()

    async def open_() -> None:
        led = leading([], path, build)
        await led.open(CopiedJournal.open(path), b"J" * 16, 1)
        assert led.terms == seen[0] and seen[0].starts == ((2, 1),)

    in_virtual_time(open_)


def test_a_takeover_that_fails_unlocks_the_directory(tmp_path: Path) -> None:
    """The node follows again."""
    path = str(tmp_path / "data")

    async def fail() -> None:
        copied = CopiedJournal.open(path)
        copied.begin(b"J" * 16)
        copied.set_terms(copied.terms.with_term(2, 1))
        with pytest.raises(ValueError, match="term 2 cannot follow"):
            await leading([], path).open(copied, b"J" * 16, 1)

    in_virtual_time(fail)
    CopiedJournal.open(path).close()


def test_a_leader_that_resigns_while_it_takes_over_waits_for_its_broker_and_closes_it(tmp_path: Path) -> None:
    """Else the broker's journal would keep the directory locked for as long as the process lives."""
    path = str(tmp_path / "data")
    begun, goes_on = trio.Event(), trio.Event()
    broker = Broker()

    def build(cluster: ClusterJournal) -> Broker:
        trio.from_thread.run_sync(begun.set)
        trio.from_thread.run(goes_on.wait)
        broker.close_directory = cluster.directory.close
        return broker

    async def resign() -> None:
        led = taking_over(path, build)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(led.open, CopiedJournal.open(path), b"J" * 16, 1)
            await begun.wait()
            nursery.start_soon(led.resign, "b leads term 3")
            await trio.testing.wait_all_tasks_blocked()
            assert led.has_closed and not broker.is_closed
            goes_on.set()

    in_virtual_time(resign)
    assert broker.is_closed
    CopiedJournal.open(path).close()


def test_a_leader_that_resigned_before_its_broker_was_built_builds_none(tmp_path: Path) -> None:
    """It waited for the thread of the link. The directory can be opened again."""
    path = str(tmp_path / "data")

    async def resign() -> None:
        led = taking_over(path, None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(led.resign, "b leads term 3")
            await trio.testing.wait_all_tasks_blocked()
            await led.open(CopiedJournal.open(path), b"J" * 16, 1)

    in_virtual_time(resign)
    CopiedJournal.open(path).close()


def test_a_broker_that_cannot_be_made_leaves_the_directory_to_the_node(tmp_path: Path) -> None:
    """Else this node could never follow again: its own process has the directory open."""
    path = str(tmp_path / "data")

    def build(cluster: ClusterJournal) -> Any:
        raise MemoryError("before there is a journal")

    async def lead() -> None:
        with pytest.raises(MemoryError):
            await taking_over(path, build).open(CopiedJournal.open(path), b"J" * 16, 1)

    in_virtual_time(lead)
    CopiedJournal.open(path).close()


# -- a disk that fails -----------------------------------------------------------------------------------------------


HELD = JournalSummary(b"J" * 16, TermTable(b"a" * 16), 9)


def following_of(directory: NodeDirectory | None) -> Following:
    """How node a follows; None: with an open copy in its directory."""
    options = NodeOptions("a", "data", Credentials("orders"), {"a": Address("127.0.0.1", 1)})
    if directory is None:
        copied: Any = SimpleNamespace(end=9, unknown="")
        directory = NodeDirectory("data", REAL)
        directory.copied, directory.summary = copied, HELD
    said: Any = dict

    async def begin_anew(held: JournalSummary) -> None:
        raise AssertionError("its node id is the one before")

    return Following(
        options, directory, lambda event: None, begin_anew, status=said, reload=said, site=said, wall_ms=said
    )


class Opened:
    """Directories of which `faults` come one after the other when they are opened; whether each was to be trusted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *faults: Exception) -> None:
        self.suspected: list[bool] = []
        self.faults = list(faults)
        monkeypatch.setattr("leveret.cluster.node_directory.CopiedJournal", SimpleNamespace(open=self._open))
        monkeypatch.setattr("leveret.cluster.node_directory.full_copy.finish", lambda path, files: None)
        found = Format(b"J" * 16, frozenset(), True)
        monkeypatch.setattr("leveret.cluster.node_directory.read_format", lambda *_, **__: found)
        self.directory = NodeDirectory("data", REAL)
        self.directory.is_suspect = False

    def copies(self, *, has_failed: bool) -> None:
        """The directory is open."""
        copied: Any = SimpleNamespace(end=7, has_failed=has_failed, close=lambda: None)
        self.directory.copied = copied

    def _open(self, path: str, *, files: object, is_suspect: bool, is_rolled_back: bool) -> Any:
        self.suspected.append(is_suspect)
        if self.faults:
            raise self.faults.pop(0)
        terms, held = SimpleNamespace(node_id=b"a" * 16), {"journal_id": b"J" * 16, "unknown": ""}
        return SimpleNamespace(**held, terms=terms, end=9, has_failed=False)


def test_a_process_that_begins_trusts_no_fsync_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the process before may have failed. When the directory is opened again, that is known."""
    opened = Opened(monkeypatch)
    directory = NodeDirectory("data", REAL)
    directory.open()
    directory.open()
    assert opened.suspected == [True, False]


@pytest.mark.parametrize("has_failed", [True, False])
def test_a_follower_whose_fsync_failed_writes_again_what_may_be_lost(
    has_failed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second fsync of this process succeeds, and proves nothing: the system has dropped the octets."""
    opened = Opened(monkeypatch)
    opened.copies(has_failed=has_failed)
    in_virtual_time(partial(opened.directory.reopen, is_copy=False))
    assert opened.suspected == [has_failed] and not opened.directory.is_suspect


def test_a_full_copy_ends_the_damage_of_a_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the node would open it as a damaged one again, and get one full copy after the other."""
    opened = Opened(monkeypatch)
    opened.directory.damage = Damaged("1.log", 0, "it is rotten")
    in_virtual_time(partial(opened.directory.reopen, is_copy=True))
    assert opened.directory.damage is None and opened.directory.copied is not None
    assert opened.suspected == [False], "a copy is fsynced before it takes the journal's place"


def test_a_disk_that_dies_under_a_damaged_journal_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of another file of the directory does not end the process."""
    opened = Opened(monkeypatch)
    opened.directory.damage = Damaged("1.log", 0, "it cannot be read")
    reads = iter([OSError(errno.EIO, "Input/output error"), None])

    def read_format(path: str, files: object, *, allows_unknown: bool) -> Format:
        if (error := next(reads)) is not None:
            raise error
        return Format(b"J" * 16, frozenset(), True)

    monkeypatch.setattr("leveret.cluster.node_directory.read_format", read_format)
    told: list[str] = []
    in_virtual_time(partial(opened.directory.open_until_done, told.append))
    assert len(told) == 1 and "Input/output error" in told[0]


def test_a_disk_that_is_found_to_be_put_back_while_it_is_opened_is_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A link that failed opens it in a thread: that one knew nothing of it."""
    opened = Opened(monkeypatch)
    directory = opened.directory

    def found_meanwhile(*place: str, **options: Any) -> Any:
        directory.is_rolled_back = True
        return opened._open(*place, **options)

    monkeypatch.setattr("leveret.cluster.node_directory.CopiedJournal", SimpleNamespace(open=found_meanwhile))
    directory.open()
    assert directory.is_rolled_back


def becomes_another(*told: Event, leading: Any = None) -> tuple[Any, list[bytes]]:
    """A node whose directory has got another id, after some events; and the ids whose keys it gave back."""
    options = NodeOptions("a", "data", Credentials("orders"), {"a": Address("127.0.0.1", 1)})
    node: Any = Node(options, *[SimpleNamespace(site=None)] * 3)  # type: ignore[arg-type]
    given_back: list[bytes] = []

    async def give_back() -> None:
        given_back.append(node.node_id)

    node.directory.copied = SimpleNamespace(end=9, unknown="")
    node._agree_anew(JournalSummary(b"J" * 16, TermTable(b"a" * 16), 9))
    for event in told:
        node.agreement.handle(event, 0)
    node._registration = SimpleNamespace(end=give_back)
    node.handle = lambda what: None
    node._requests = SimpleNamespace(read_keys=lambda: None, end_lead=lambda: given_back.append(b"the lead"))
    node.leading, node._nursery = leading, SimpleNamespace(start_soon=lambda task, *arguments: task(*arguments))
    node.directory.is_rolled_back = True
    in_virtual_time(partial(node._begin_anew, JournalSummary(b"J" * 16, TermTable(b"b" * 16), 9)))
    return node, given_back


def test_the_journal_before_a_full_copy_goes_when_the_node_enters_the_set() -> None:
    """A copy has a new node id, so it is acknowledged first, and in sync later. Else the disk would have both."""
    options = NodeOptions("a", "data", Credentials("orders"), {"a": Address("127.0.0.1", 1)})
    process = SimpleNamespace(site=None, pass_clients_on=lambda leader: None)
    node: Any = Node(options, *[SimpleNamespace()] * 2, process)  # type: ignore[arg-type]
    a, b, terms = b"a" * 16, b"b" * 16, TermTable(b"a" * 16, ((1, 1),))
    node.directory.copied = SimpleNamespace(end=9, unknown="", journal_id=b"J" * 16, terms=terms)
    node._agree_anew(JournalSummary(b"J" * 16, terms, 9))
    started: list[object] = []
    node._nursery = SimpleNamespace(start_soon=lambda task, *arguments: started.append(arguments))
    leader = Leader(1, b, "b", "127.0.0.1:2", 5)
    for revision, members, state in ((6, {b}, State.FOLLOWING), (7, {a, b}, State.IN_SYNC)):
        insync = InSync(1, frozenset(members), 0, revision=revision)
        node.handle(Read(View(revision, b"J" * 16, insync, leader)))
        assert node.agreement.state is state
        assert ((full_copy.drop_old, "data") in started) is (state is State.IN_SYNC)


def test_a_drained_node_that_becomes_another_stays_drained() -> None:
    """An operator has drained the machine."""
    node, _ = becomes_another(Drain())
    assert node.agreement.context.is_drained and node.node_id == b"b" * 16
    assert not node.directory.is_rolled_back


def test_a_node_that_becomes_another_gives_its_key_back_first() -> None:
    """Else the key of the old id would stay until its lease is over, and its name count as taken."""
    assert becomes_another()[1] == [b"a" * 16]


def test_a_node_that_becomes_another_gives_up_what_the_one_before_has_won() -> None:
    """Else etcd would name a leader, by a lease that this process renews, and no node would lead."""
    ended: list[str] = []
    node, given_back = becomes_another(leading=SimpleNamespace(resign=ended.append))
    assert given_back == [b"a" * 16, b"the lead"] and node.leading is None and len(ended) == 1


def test_a_takeover_of_the_node_before_opens_nothing() -> None:
    """The copy is now that of another node, which follows with it."""

    async def take_over() -> None:
        led = leading([])
        led.broker, led._opened = None, trio.Event()
        node = taking_over_as(9, 1, lambda event: None)
        node.leading = None
        await Node._open_broker(node, led, do.TakeOver(2, b"J" * 16))
        assert led._opened.is_set() and led.broker is None and node.directory.copied is not None

    in_virtual_time(take_over)


def test_a_follower_whose_directory_cannot_be_opened_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would win, wait for its directory, and keep the lead."""
    opened = Opened(monkeypatch, DirectoryLocked("data"))
    opened.copies(has_failed=True)
    opened.directory.summary = HELD
    told: list[Event] = []
    following = following_of(opened.directory)
    following._report = told.append
    in_virtual_time(partial(following._reopen, is_copy=False))
    assert told == [DiskStalled("data directory data: data"), DiskRecovered()]


def test_blocks_that_a_broken_link_left_unsynced_are_of_the_term_before(tmp_path: Path) -> None:
    """Else the term table would contradict the journal, and the takeover fail."""
    journal = WrittenJournal(str(tmp_path / "leader"))
    journal.block()
    path = str(tmp_path / "data")
    copied = CopiedJournal.open(path)
    copied.begin(JOURNAL_ID)
    copied.set_terms(copied.terms.with_starts_of(journal.terms))
    copied.append(1, 0, journal.segments()[1])
    assert copied.end < copied.written_lsn == journal.end

    def build(cluster: ClusterJournal) -> Broker:
        cluster.directory.close()
        return Broker()

    async def open_() -> None:
        led = leading([], path, build)
        await led.open(copied, JOURNAL_ID, 1)
        assert led.terms is not None and led.terms.starts[-1] == (2, journal.end)

    in_virtual_time(open_)


@pytest.mark.parametrize("is_on", [True, False])
def test_a_follower_whose_disk_failed_acknowledges_by_its_next_link_as_before(is_on: bool) -> None:
    """The agreement knows nothing of that, and decides nothing anew; of a copy with another id it does."""
    following = following_of(None)
    following.begin(HELD)
    first = following.link
    assert first is not None and not first.acknowledges
    following.acknowledge(is_on)
    in_virtual_time(partial(following.follow_again, HELD))
    assert following.link is not first and following.link is not None and following.link.acknowledges is is_on
    following.begin(HELD)
    assert not following.link.acknowledges


@pytest.mark.parametrize("state", [WriterState.FAILED, WriterState.CLOSED])
def test_a_leader_whose_journal_failed_writes_again_what_may_be_lost(
    state: WriterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It follows, or leads again, with that."""
    opened = Opened(monkeypatch)
    opened.directory.summary = HELD

    async def close(why: str) -> None:
        pass

    led: Any = SimpleNamespace(resign=close, journal=SimpleNamespace(durable_lsn=7, state=state))
    following = following_of(opened.directory)
    node: Any = SimpleNamespace(
        directory=opened.directory, following=following, _reopened=None, handle=lambda event: None
    )
    in_virtual_time(partial(Node._close_broker, node, led, "its journal has failed"))
    assert opened.suspected == [state is WriterState.FAILED]


def test_an_fsync_that_fails_while_the_directory_is_opened_proves_nothing_the_second_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor does any later one, until what is suspect is written again; a lock is no such fault."""
    faults = (DirectoryLocked("another process"), SyncError(5, "fsync: broken"), DirectoryLocked("another process"))
    opened = Opened(monkeypatch, *faults)
    opened.copies(has_failed=False)
    in_virtual_time(partial(opened.directory.reopen, is_copy=False))
    assert opened.suspected == [False, False, True, True]


def test_a_full_copy_is_not_suspect(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was fsynced before it was whole."""
    opened = Opened(monkeypatch)
    opened.copies(has_failed=True)
    in_virtual_time(partial(opened.directory.reopen, is_copy=True))
    assert opened.suspected == [False]


@pytest.mark.parametrize("resigns", [True, False])
def test_a_damaged_journal_is_copied_anew_if_another_node_leads_instead(resigns: bool) -> None:
    """A leader that goes on with it opens the same directory later."""
    event = JournalDamaged(Damaged("00000000000000000001.log", 500, "a block with a wrong CRC"))
    directory = NodeDirectory("data", REAL)
    node: Any = SimpleNamespace(agreement=SimpleNamespace(state=State.LEADING), leading=None, directory=directory)

    def handle(event: Event) -> None:
        if resigns:
            node.agreement.state = State.RESIGNING

    node.handle = handle
    Node._link_reported(node, event)
    assert directory.damage is (event.damage if resigns else None)


# -- a node and etcd ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked_ns, revision, sees", [(None, 8, False), (5, 8, False), (20, 8, True), (5, 9, True)])
def test_a_node_takes_no_older_view_for_a_newer_one(asked_ns: int | None, revision: int, sees: bool) -> None:
    """A watch may report late, and answers overtake each other; only a later read proves that etcd was restored."""
    context = SimpleNamespace(view=View(9), view_ns=10)
    context.is_older = partial(NodeContext.is_older, context)  # type: ignore[arg-type]
    seen: list[View] = []
    node: Any = SimpleNamespace(agreement=SimpleNamespace(context=context), _see=seen.append)
    Node._see_newer(node, View(revision), asked_ns)
    assert bool(seen) is sees


def test_leases_are_renewed_by_a_node_that_lives_and_a_leader_whose_disk_works() -> None:
    """A leader whose disk hangs keeps its own name, and not the lead; one whose event loop hangs keeps neither."""
    node: Any = SimpleNamespace(_now_ns=lambda: 100 * SECOND, _beat_ns=95 * SECOND, leading=None)
    assert Node._may_renew(node, Lease.LEADER) and Node._may_renew(node, Lease.NODE)
    node.leading = SimpleNamespace(is_stalled=True)
    assert not Node._may_renew(node, Lease.LEADER) and Node._may_renew(node, Lease.NODE)
    node.leading = SimpleNamespace(is_stalled=False)
    assert Node._may_renew(node, Lease.LEADER)
    node._beat_ns = 80 * SECOND
    assert not Node._may_renew(node, Lease.LEADER) and not Node._may_renew(node, Lease.NODE)


@pytest.mark.parametrize(
    "answer, event",
    [
        (errors.InDoubt("no answer"), InDoubt(PROGRESS)),
        (errors.Unreachable("no member"), Answered(PROGRESS, False, why="no member")),
        ((True, View(7)), Answered(PROGRESS, True, View(7), 5)),
    ],
    ids=str,
)
def test_a_transaction_ends_in_one_of_three_ways(answer: Any, event: Event) -> None:
    """Without an answer it may be done: that is not the same as not done (rule R3)."""
    told: list[Event] = []

    async def transact(transaction: object) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    coordinator: Any = SimpleNamespace(transact=transact)
    trio.run(Requests(coordinator, told.append, bool, lambda: 5).send, PROGRESS)
    assert told == [event]


def test_an_answer_of_etcd_counts_from_when_it_was_asked_for() -> None:
    """Not from when it came: that proves nothing of the time between."""
    told: list[Event] = []
    now = [3]

    async def read() -> View:
        now[0] = 9
        return View(7)

    coordinator: Any = SimpleNamespace(read=read)
    trio.run(Requests(coordinator, told.append, bool, lambda: now[0])._read)
    assert told == [Read(View(7), 3)]


def test_the_keys_are_read_again_after_a_read_without_an_answer() -> None:
    """One at a time; an etcd that was away for a moment must not leave a node without the keys for ever."""
    told: list[Event] = []
    answers: list[Any] = [errors.Unreachable("no member"), View(7)]

    async def read() -> View:
        await trio.lowlevel.checkpoint()
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, View)
        return answer

    async def nothing(*_: object) -> None:
        """Of a watch and leases."""
        await trio.sleep_forever()

    async def look() -> None:
        coordinator: Any = SimpleNamespace(read=read, watch=nothing, keep_leases=nothing)
        requests = Requests(coordinator, told.append, bool, lambda: 3)
        async with trio.open_nursery() as nursery:
            await nursery.start(requests.run)
            for _ in range(2):
                requests.read_keys()
                requests.read_keys()  # one is under way
                await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    trio.run(look)
    assert told == [Read(View(7), 3)] and answers == []


def test_what_this_node_has_fsynced_is_known_before_the_keys_of_etcd() -> None:
    """Rule R10: the link tells it with its beacons only, and the keys may let this node campaign."""
    told: list[Event] = []
    directory = SimpleNamespace(copied=SimpleNamespace(end=7))
    node: Any = SimpleNamespace(directory=directory, _see_newer=lambda view, asked_ns: None, handle=told.append)
    node._tell_durable = lambda: Node._tell_durable(node)
    Node._coordinator_reported(node, Read(View(7), 5))
    assert told == [Durable(7), Read(View(7), 5)]


def test_a_process_that_stood_still_looks_whether_it_leads_before_it_serves() -> None:
    """What clients had sent before lies in its sockets, and its own tick may come after that. Else it costs nothing."""
    now, told = [100 * SECOND], []
    node: Any = SimpleNamespace(
        _now_ns=lambda: now[0], _beat_ns=now[0], _late_ns=Timers().suspend_after_ns // 2, handle=told.append
    )
    for pause_s, ticks in ((0.9, 0), (1.1, 1), (0, 1), (20, 2)):
        now[0] += round(pause_s * SECOND)
        Node.check_standstill(node)
        assert told == [Tick()] * ticks


def test_a_leader_is_told_at_once_that_a_followers_process_is_gone() -> None:
    """Confirms do not wait for `join-patience`."""
    told: list[Event] = []
    key = NodeKey("b", b"b" * 16, "b:1")
    node: Any = SimpleNamespace(view=View(7, nodes=(key,)), leading=object(), handle=told.append)
    Node._refused(node, "b")
    Node._refused(node, "c")
    assert told == [FollowerRefused(b"b" * 16)]


def test_a_leader_that_stops_hands_over_and_gives_its_leases_back() -> None:
    """Nobody waits for their end, nor for a node that stopped: it does not register again when its key vanishes."""
    told: list[Event] = []
    ended: list[Lease] = []
    written: list[NodeKey] = []
    key = NodeKey("a", b"a" * 16, "a:1")

    async def register(key: NodeKey) -> bool:
        written.append(key)
        return True

    async def end_lease(lease: Lease) -> None:
        ended.append(lease)
        if lease is Lease.NODE:
            registration.take_view(View(8))  # the watch is quicker than the end of this process
            await later(10)

    coordinator: Any = SimpleNamespace(register=register, end_lease=end_lease)
    registration = Registration(coordinator, lambda: key)

    async def leave() -> None:
        node: Any = SimpleNamespace(
            leading=object(),
            agreement=SimpleNamespace(state=State.LEADING),
            coordinator=coordinator,
            _registration=registration,
        )

        def handle(event: Event) -> None:
            told.append(event)
            node.leading = None  # its broker was closed
            node._reopened.set()

        node.handle = handle
        async with trio.open_nursery() as nursery:
            nursery.start_soon(registration.run)
            registration.begin()
            await later(1)
            await Node._leave(node)
            nursery.cancel_scope.cancel()

    in_virtual_time(leave)
    assert told == [HandOver(is_leaving=True)] and set(ended) == {Lease.LEADER, Lease.NODE}
    assert written == [key]


def test_a_node_that_comes_back_while_it_is_forgotten_keeps_its_segments(tmp_path: Path) -> None:
    """Its new link has another reader than those before, which go."""
    path = str(tmp_path)
    register_reader(path, "node-b-1", 5)
    register_reader(path, "node-c-2", 5)

    async def send(transaction: object) -> None:
        register_reader(path, "node-b-3", 5)

    leader, key = Leader(1, b"a" * 16, "a", "a:1", 3), NodeKey("b", b"b" * 16, "b:1")
    node: Any = SimpleNamespace(
        options=SimpleNamespace(path=path, files=REAL),
        view=View(7, leader=leader, nodes=(key,)),
        _requests=SimpleNamespace(send=send),
    )
    trio.run(Node._forget, node, "b")
    assert set(reader_offsets(path)) == {"node-b-3", "node-c-2"}


def test_clients_are_held_from_the_moment_in_which_a_leader_resigns() -> None:
    """None is handed to the broker that is closed."""
    done: list[str] = []
    node: Any = SimpleNamespace(
        options=SimpleNamespace(name="a"),
        leading=None,
        _process=SimpleNamespace(hold_clients=lambda: done.append("held")),
        _nursery=SimpleNamespace(start_soon=lambda *how: done.append("closing")),
        _close_broker=None,
    )
    Node._resign(node, do.Resign("b leads term 3"))
    assert done == ["held", "closing"]


@pytest.mark.parametrize("is_on", [True, False])
def test_the_link_acknowledges_while_the_agreement_says_so(is_on: bool) -> None:
    """Rule R6: a candidate does not; and of all that it has acknowledged its agreement knows."""
    done: list[object] = []
    copied = SimpleNamespace(end=7)

    def acknowledge(is_on: bool) -> None:
        done.append(is_on)
        copied.end = 8  # an fsync ended just before

    node: Any = SimpleNamespace(
        following=SimpleNamespace(acknowledge=acknowledge),
        agreement=SimpleNamespace(state=State.FOLLOWING),
        directory=SimpleNamespace(copied=copied),
        handle=done.append,
    )
    node._tell_durable = lambda: Node._tell_durable(node)
    Node._acknowledge(node, do.Acknowledge(is_on))
    assert done == ([True] if is_on else [False, Durable(8)])


def test_a_node_that_takes_over_looks_at_once_which_processes_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead member leaves the set as soon as the broker runs, not when `join-patience` is over.

    And it watches its disk: that may hang before there is a broker.
    """
    looked: list[str] = []

    async def look_at_disk() -> None:
        looked.append("disk")

    led = SimpleNamespace(watch_disk=look_at_disk, probe_disk=look_at_disk)
    monkeypatch.setattr("leveret.cluster.node.Leading", lambda *how: led)

    async def look(name: str) -> None:
        looked.append(name)

    async def take_over() -> None:
        async with trio.open_nursery() as nursery:
            node: Any = SimpleNamespace(
                options=SimpleNamespace(others={"b": None, "c": None}),
                _process=SimpleNamespace(hold_clients=lambda: None),
                _listener=None,
                _link_reported=None,
                _status=None,
                _wall_ms=None,
                _now_ns=None,
                _nursery=nursery,
                reachability=SimpleNamespace(probe_eagerly=look),
                _open_broker=lambda *how: later(1),
            )
            Node._take_over(node, do.TakeOver(2, b"J" * 16))

    in_virtual_time(take_over)
    assert sorted(looked) == ["b", "c", "disk", "disk"]


@pytest.mark.parametrize(("is_calm", "is_owed"), [(True, True), (True, False), (False, True)])
def test_an_acknowledgement_to_come_tells_what_the_leader_has_fsynced(*, is_calm: bool, is_owed: bool) -> None:
    """Else the event loop would be woken for it; but any event that comes first tells it, too."""
    told: list[Event] = []

    async def script() -> None:
        led = leading(told)
        led.is_calm = is_calm
        led.catching_up = frozenset({b"c"})

        def owed(lsn: int, catching_up: frozenset[bytes]) -> bool:
            return is_owed and lsn == 7 and catching_up == {b"c"}

        led.links = SimpleNamespace(is_owed=owed)  # type: ignore[assignment]
        led._note_synced(7)
        await later(1)
        if is_calm and is_owed:
            assert told == []
            assert led.take_synced() == Durable(7)
        else:
            assert told == [Durable(7)]
        assert led.take_synced() is None
        led._note_synced(9)
        led.has_closed = True
        assert led.take_synced() is None

    in_virtual_time(script)


def test_what_is_fsynced_is_told_before_any_other_event() -> None:
    """An agreement that decides by the event goes by what the leader has on its disk."""
    told: list[Event] = []
    agreement = SimpleNamespace(
        handle=lambda event, now_ns: told.append(event) or [],
        state=State.LEADING,
        next_ns=lambda: None,
        is_calm=True,
        catching_up=frozenset(),
    )
    synced = [Durable(7)]
    leading = SimpleNamespace(take_synced=lambda: synced.pop() if synced else None, is_calm=False)
    node: Any = SimpleNamespace(
        leading=leading,
        agreement=agreement,
        _events=deque(),
        _is_handling=False,
        _now_ns=lambda: 0,
        _state=State.LEADING,
    )
    Node.handle(node, FollowerRefused(b"b"))
    Node.handle(node, FollowerRefused(b"c"))
    assert told == [Durable(7), FollowerRefused(b"b"), FollowerRefused(b"c")]
    assert leading.is_calm


def test_a_node_with_an_open_link_is_reached_without_another_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """When its link has ended it is tried."""
    tried: list[str] = []
    changes: list[frozenset[str]] = []

    async def reach(address: Address, *more: object) -> Reach:
        tried.append(address.host)
        return Reach.UNREACHED

    async def look() -> None:
        linked = {"b"}
        options = NodeOptions("a", "", Credentials("orders"), {one: Address(one, 1) for one in "abc"})
        found = Reachability(options, lambda: changes.append(found.reached), lambda name: None, linked.__contains__)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(found.run)
            await later(3)
            assert set(tried) == {"c"} and found.reached == {"b"}
            linked.add("c")
            found.note_link()
            await trio.testing.wait_all_tasks_blocked()
            assert found.reached == {"b", "c"}, "it is reached as soon as its link opens"
            linked.clear()
            await later(2.5)
            assert "b" in tried and found.reached == set()
            nursery.cancel_scope.cancel()

    monkeypatch.setattr(reachability_module, "reach", reach)
    in_virtual_time(look)
    assert changes == [{"b"}, {"b", "c"}, *changes[2:]] and changes[-1] == set()


def test_a_node_whose_process_has_ended_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes that reach each other make a leader resign that reaches neither: a dead one does not count."""
    answers = iter((Reach.REACHED, Reach.REFUSED, Reach.REACHED, Reach.UNREACHED))
    seen: list[tuple[set[str], list[str]]] = []
    refused: list[str] = []

    async def reach(address: Address, *more: object) -> Reach:
        return next(answers)

    async def look() -> None:
        options = NodeOptions("a", "", Credentials("orders"), {one: Address(one, 1) for one in "ab"})
        found = Reachability(options, lambda: None, refused.append, lambda name: False)
        for _ in range(4):
            await found.probe("b")
            seen.append((set(found.reached), list(refused)))

    monkeypatch.setattr(reachability_module, "reach", reach)
    in_virtual_time(look)
    assert seen == [({"b"}, []), (set(), ["b"]), ({"b"}, ["b"]), (set(), ["b"])]


@pytest.mark.parametrize("opened", [Joined(TermTable(b"n" * 16), 1), LinkOpened(b"b" * 16, 1)])
def test_a_key_in_etcd_names_the_leader_when_the_link_to_it_opens(opened: Event) -> None:
    """A leader resigns for two nodes that reach each other and not it: a dead node's key must not look like that."""
    noted: list[str] = []
    reachability = SimpleNamespace(note_link=lambda: noted.append("link"))
    node: Any = SimpleNamespace(leading=None, reachability=reachability, handle=lambda event: noted.append("event"))
    Node._link_reported(node, opened)
    assert noted == ["link", "event"]


@pytest.mark.parametrize(("leads", "name"), [(True, "b"), (False, "c")])
def test_links_to_a_leader_and_from_followers_count(*, leads: bool, name: str) -> None:
    """Of three nodes the followers alone try each other."""
    keys = {one: SimpleNamespace(node_id=one.encode()) for one in "bc"}
    links = SimpleNamespace(is_linked=lambda node_id: node_id == b"b")
    node: Any = SimpleNamespace(
        view=SimpleNamespace(node_named=keys.get),
        leading=SimpleNamespace(links=links) if leads else None,
        following=SimpleNamespace(followed=None if leads else "c"),
    )
    assert [one for one in "abc" if Node._is_linked(node, one)] == [name]


def test_a_takeover_waits_until_no_thread_copies_any_more() -> None:
    """Else two would write the journal."""
    steps: list[str] = []

    async def take_over() -> None:
        following = following_of(None)
        following.begin(HELD)
        copying, begun, link = trio.Event(), trio.Event(), following.link
        assert link is not None

        async def copy(*leader: object) -> None:
            begun.set()
            with trio.CancelScope(shield=True):
                await copying.wait()

        link.run = copy  # type: ignore[assignment]
        following.follow(Leader(1, b"b" * 16, "b", "b:1", 1))

        class Led:
            async def open(self, *how: object) -> None:
                steps.append("opened")
                raise OSError("no further")

        node = taking_over_as(9, 1, lambda event: steps.append("failed"))
        node.following, node.leading = following, Led()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(following.run)
            await begun.wait()
            following.follow(None)
            nursery.start_soon(Node._open_broker, node, node.leading, do.TakeOver(2, b"J" * 16))
            await later(1)
            assert steps == []
            copying.set()
            await later(1)
            nursery.cancel_scope.cancel()
        assert steps == ["opened", "failed"]

    in_virtual_time(take_over)


def taking_over_as(end: int, agreed_lsn: int, handle: Any) -> Any:
    """A node that has won, without a link. `end`: of its copy; 0: that is damaged."""
    directory = NodeDirectory("data", REAL)
    copied: Any = SimpleNamespace(terms=None, end=end)
    directory.copied = copied if end else None
    return SimpleNamespace(
        directory=directory,
        following=SimpleNamespace(stop=partial(later, 0), link=None),
        agreed_lsn=agreed_lsn,
        handle=handle,
    )


@pytest.mark.parametrize("agreed_lsn, end, known", [(5, 9, 5), (9, 7, 7)])
def test_a_new_leader_trusts_what_was_agreed_when_it_followed(agreed_lsn: int, end: int, known: int) -> None:
    """Not all that it has: the other nodes may not have it (rule R9); nor more than it has."""
    opened: list[object] = []

    async def take_over() -> None:
        class Led:
            async def open(self, copied: object, journal_id: bytes, agreed_lsn: int) -> None:
                opened.append(agreed_lsn)
                raise OSError("no further")

        node = taking_over_as(end, agreed_lsn, lambda event: None)
        node.leading = Led()
        await Node._open_broker(node, node.leading, do.TakeOver(2, b"J" * 16, 1))  # type: ignore[arg-type]

    in_virtual_time(take_over)
    assert opened == [known]


def test_a_takeover_that_ended_behind_the_resignation_is_reported_to_nobody() -> None:
    """The node follows another leader by then."""
    told: list[Event] = []

    async def take_over() -> None:
        class Led:
            has_closed = True

            async def open(self, *how: object) -> None:
                pass

        node = taking_over_as(1, 1, told.append)
        node.leading = Led()
        await Node._open_broker(node, node.leading, do.TakeOver(2, b"J" * 16))  # type: ignore[arg-type]

    in_virtual_time(take_over)
    assert told == []


def test_a_directory_that_is_damaged_when_the_node_has_won_is_no_takeover() -> None:
    """It was opened again while the campaign was under way. The node resigns, and goes on."""
    told: list[Event] = []

    async def take_over() -> None:
        led = leading([])
        led.broker = None
        node = taking_over_as(0, 1, told.append)
        node.leading = led
        await Node._open_broker(node, led, do.TakeOver(2, b"J" * 16))
        with trio.fail_after(1):
            await led.resign("its journal is damaged")

    in_virtual_time(take_over)
    assert [type(event) for event in told] == [TakeoverFailed]


def test_a_level_that_is_raised_while_the_journal_is_opened(tmp_path: Path) -> None:
    """The journal may have been made with the one before."""
    levels: list[int] = []

    async def take_over() -> None:
        broker = Broker()
        broker.journal.raise_level = levels.append  # type: ignore[attr-defined]
        led = leading([])
        led.broker = None
        led._build = lambda *how: trio.from_thread.run_sync(led.raise_level, 7) or broker  # type: ignore
        await led.open(None, b"J" * 16, 1)  # type: ignore[arg-type]

    trio.run(take_over)
    assert levels == [7]
