"""What a follower does with what its leader sends, and when it acknowledges it; step by step, without a leader."""

import select
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from in_trio import in_trio
from written_journal import JOURNAL_ID, WrittenJournal, segments

from leveret.cluster.agreement.events import Durable, Event, LeaderHeard
from leveret.cluster.copying.full_copy import NoRoom
from leveret.cluster.link import leader_link
from leveret.cluster.link.challenge import Credentials
from leveret.cluster.link.frames import VERSION, Ack, Beacon, Copy, Decoder, Octets, Unlink, Welcome, encode
from leveret.cluster.link.leader_link import Ending, LeaderLink
from leveret.cluster.link.open_link import FollowingNode, OpenLink
from leveret.cluster.link.options import Address, LinkOptions
from leveret.cluster.link.stream import LinkFault, LinkStream
from leveret.journal import NotInJournal, register_reader
from leveret.journal.copying.copied_journal import CopiedJournal


class Bench:
    """A leader's journal of two segments, and a follower with an empty directory, or one of another leader's."""

    def __init__(
        self,
        path: Path,
        *,
        has: bytes | None = None,
        copy: Copy | None = None,
        report: Callable[[Event], object] = lambda event: None,
    ) -> None:
        self.journal = WrittenJournal(str(path / "leader"))
        self.journal.block()
        self.journal.roll()
        self.journal.block()
        self.path = str(path / "n2")
        self.copied = CopiedJournal.open(self.path)
        if has is not None:
            self.copied.begin(has)
        ours, self.leader = socket.socketpair()
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        follower = FollowingNode(self.path, self.copied, report, LinkOptions())
        self.following = OpenLink(follower, LinkStream(stream), 1, copy)

    def join(self) -> None:
        """The leader's Welcome."""
        terms = self.journal.terms
        self.following.join(Welcome(VERSION, 0, JOURNAL_ID, terms, 1, 0, 1, 1, frozenset()), None)

    def octets(self) -> list[Octets]:
        """All that the leader has, a frame for each segment."""
        return [Octets(base_lsn, 0, octets) for base_lsn, octets in self.journal.segments().items()]

    def take(self, messages: Sequence[Any]) -> None:
        """They come together."""
        self.following._handle_data(b"".join(map(encode, messages)))

    @property
    def heard(self) -> list[Any]:
        """What the leader has heard."""
        decoder = Decoder(Ack)
        while select.select([self.leader], [], [], 0)[0]:
            decoder.receive(self.leader.recv(10_000))
        return list(decoder.messages())


@in_trio
async def test_nothing_is_acknowledged_that_is_not_fsynced(tmp_path: Path) -> None:
    """Nor more than is whole."""
    bench = Bench(tmp_path)
    bench.join()
    bench.following.acknowledge(True)
    assert bench.heard == [Ack(1, 1)]
    *some, last = bench.octets()
    bench.take([*some, Octets(last.base_lsn, 0, last.octets[:-1])])
    assert bench.heard == []
    bench.following._fsync()
    assert bench.heard == [Ack(1, bench.copied.end)] and bench.copied.end < bench.journal.end
    bench.take([Octets(last.base_lsn, len(last.octets) - 1, last.octets[-1:])])
    bench.following._fsync()
    assert bench.heard == [Ack(1, bench.journal.end)] and bench.copied.end == bench.journal.end


@in_trio
async def test_what_was_fsynced_while_nothing_was_acknowledged_is_when_that_is_allowed(tmp_path: Path) -> None:
    """Rule R6: a candidate acknowledges nothing; one that lost goes on."""
    bench = Bench(tmp_path)
    bench.join()
    bench.take(bench.octets())
    bench.following._fsync()
    assert bench.heard == []
    bench.following.acknowledge(True)
    assert bench.heard == [Ack(1, bench.journal.end)]


@in_trio
async def test_what_is_fsynced_is_told_before_what_the_leader_says_is_agreed(tmp_path: Path) -> None:
    """Else a node that has all of it would look like one whose disk was rolled back."""
    told: list[Event] = []
    bench = Bench(tmp_path, report=told.append)
    bench.join()
    bench.take(bench.octets())
    bench.following._fsync()
    end = bench.journal.end
    bench.following._handle(Beacon(1, end, 0, {}))
    assert told == [Durable(end), LeaderHeard(1, end, 0)]


@in_trio
async def test_whole_blocks_that_came_before_a_link_broke_are_fsynced(tmp_path: Path) -> None:
    """The leader may be lost with them: this node is the only one that has what it took, and may lead."""
    bench = Bench(tmp_path)
    bench.join()
    *_, last = bench.octets()
    octets = b"".join(map(encode, bench.octets())) + encode(Octets(last.base_lsn, len(last.octets), b"half a block"))
    bench.leader.sendall(octets)
    bench.leader.close()
    with pytest.raises(LinkFault):
        bench.following._copy_on()
    assert bench.copied.end == bench.journal.end


@in_trio
async def test_segments_go_when_the_checkpoint_that_frees_them_is_on_the_disk(tmp_path: Path) -> None:
    """A power cut would leave neither."""
    bench = Bench(tmp_path)
    bench.join()
    unlink, ends = bench.copied.unlink, []

    def look(base_lsns: Sequence[int]) -> list[int]:
        ends.append(bench.copied.end)
        return unlink(base_lsns)

    bench.copied.unlink = look  # type: ignore[method-assign]
    bench.take([*bench.octets(), Unlink((1,))])
    assert ends == [bench.journal.end] and min(segments(bench.path)) > 1


@in_trio
async def test_a_damaged_file_of_a_reader_keeps_segments_and_the_link(tmp_path: Path) -> None:
    """Else the link would end with each order to delete segments, and with each attempt to join again."""
    bench = Bench(tmp_path)
    bench.join()
    register_reader(bench.path, "spark", 2)
    (Path(bench.path) / "readers" / "spark.json").write_text("{")
    bench.take([*bench.octets(), Unlink((1,))])
    assert segments(bench.path) == bench.journal.segments() and not bench.copied.has_failed


@in_trio
async def test_a_leader_of_another_journal_is_not_copied(tmp_path: Path) -> None:
    """Nothing of this one changes."""
    bench = Bench(tmp_path, has=b"K" * 16)
    with pytest.raises(LinkFault, match="another journal"):
        bench.join()
    assert bench.copied.journal_id == b"K" * 16 and bench.copied.terms.starts == ()


@in_trio
async def test_a_copy_beside_takes_the_journals_place_when_it_is_whole(tmp_path: Path) -> None:
    """Not with its first octets: the node would have less than it acknowledged before."""
    bench = Bench(tmp_path, has=b"K" * 16, copy=Copy(8, 1000, True))
    assert bench.journal.end == 8
    bench.join()
    bench.following.acknowledge(True)
    first, second = bench.octets()
    bench.take([first])
    bench.following._fsync()
    assert not bench.following.is_whole and segments(bench.path) == {}
    bench.take([second])
    bench.following._fsync()
    assert bench.following.is_whole and segments(bench.path) == bench.journal.segments()
    assert bench.heard == []


def test_a_node_that_cannot_go_on_where_the_leader_does_asks_for_a_full_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its next link: the one that failed would fail again."""
    wanted: list[bool] = []

    async def connected(*_: object) -> Any:
        return SimpleNamespace(close=trio.lowlevel.checkpoint)

    async def follow(link: LeaderLink, *_: object) -> None:
        wanted.append(link._wants_copy)
        if len(wanted) == 1:
            raise NotInJournal("there is no record 7")
        link._is_copied = True

    monkeypatch.setattr(leader_link, "connect", connected)
    monkeypatch.setattr(LeaderLink, "_follow", follow)
    copied = CopiedJournal.open(str(tmp_path / "n2"))
    link = LeaderLink(Credentials("orders"), "n2", str(tmp_path / "n2"), copied, lambda event: None)
    ending = trio.run(link.run, Address("127.0.0.1", 1), 1, clock=trio.testing.MockClock(autojump_threshold=0))
    copied.close()
    assert ending is Ending.COPIED and wanted == [False, True]


@in_trio
async def test_a_copy_that_is_whole_when_its_link_breaks_is_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader dies behind the last octet. Another link would copy for a directory that is not there any more."""
    bench = Bench(tmp_path, has=b"K" * 16)
    ours, leader = socket.socketpair()
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))

    async def connected(*_: object) -> LinkStream:
        return LinkStream(stream)

    monkeypatch.setattr(leader_link, "connect", connected)
    welcome = Welcome(VERSION, 0, JOURNAL_ID, bench.journal.terms, 1, 0, 1, 1, frozenset())
    leader.sendall(b"".join(map(encode, [Copy(8, 1000, True), welcome, *bench.octets()])))
    leader.shutdown(socket.SHUT_WR)
    link = LeaderLink(Credentials("orders"), "n2", bench.path, bench.copied, lambda event: None)
    with trio.fail_after(10):
        assert await link.run(Address("127.0.0.1", 1), bench.journal.terms.last_term) is Ending.COPIED
    assert segments(bench.path) == bench.journal.segments()
    leader.close()


@in_trio
async def test_a_copy_whose_link_breaks_leaves_nothing_on_the_disk(tmp_path: Path) -> None:
    """The next leader may have what this node lacks: then no other copy begins, which would take its place."""
    bench = Bench(tmp_path, has=b"K" * 16, copy=Copy(8, 1000, True))
    bench.join()
    bench.take(bench.octets()[:1])
    assert (tmp_path / "n2.copy").exists()
    bench.following.close()
    assert not (tmp_path / "n2.copy").exists() and (tmp_path / "n2" / "format").exists()


@in_trio
async def test_a_copy_for_which_the_disk_has_no_room_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader would read its whole journal for it again and again."""
    bench = Bench(tmp_path, has=b"K" * 16, copy=Copy(8, 1 << 60, True))
    with pytest.raises(NoRoom, match="a full copy takes 1099511627776 MiB, and the disk has"):
        bench.join()
    bench.following.close()
    assert not (tmp_path / "n2.copy").exists()
    pauses: list[float] = []

    async def connected(*_: object) -> Any:
        return SimpleNamespace(close=trio.lowlevel.checkpoint)

    async def follow(link: LeaderLink, *_: object) -> None:
        link._is_copied = bool(pauses)
        if not pauses:
            raise NoRoom("a full copy takes 2 MiB, and the disk has 1 MiB free")

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(leader_link, "connect", connected)
    monkeypatch.setattr(LeaderLink, "_follow", follow)
    monkeypatch.setattr(leader_link.trio, "sleep", sleep)
    link = LeaderLink(Credentials("orders"), "n2", bench.path, bench.copied, lambda event: None)
    assert await link.run(Address("127.0.0.1", 1), 1) is Ending.COPIED
    assert pauses[0] == leader_link.ROOM_PAUSE_S and "has 1 MiB free" in link.why
