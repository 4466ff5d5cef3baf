"""What a leader keeps for one follower, and what it believes of it; without a connection."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from written_journal import JOURNAL_ID, WrittenJournal, node_id

from leveret.cluster.agreement.events import Acknowledged, Event, LinkClosed
from leveret.cluster.link import follower_links
from leveret.cluster.link.feed import Feed, Position
from leveret.cluster.link.feed_sender import Pending
from leveret.cluster.link.follower_links import FollowerLinks, _FollowerLink
from leveret.cluster.link.follower_segments import Read
from leveret.cluster.link.frames import VERSION, Ack, Copy, FrameFault, Hello, Needs, No, Order, Status, Welcome, encode
from leveret.cluster.link.options import LinkOptions
from leveret.cluster.link.stream import Declined, LinkFault
from leveret.journal import TermTable, reader_offsets

RATE = 1024 * 1024
OPTIONS = LinkOptions(beacon_s=0.5, silence_s=3.0, copy_rate=RATE)


class Bench:
    """A leader in term 2 with two segments, and a follower that says what it has."""

    def __init__(self, path: Path, **said: Any) -> None:
        self.journal = WrittenJournal(str(path / "leader"))
        self.journal.block()
        self.journal.block()
        self.middle = self.journal.end
        self.journal.term(2)
        self.journal.block()
        self.told: list[Event] = []
        self.links = FollowerLinks(
            self.journal.led, self.told.append, position=self.journal.position, end=self.journal.end, options=OPTIONS
        )
        has = {"term": 2, "journal_id": JOURNAL_ID, "terms": TermTable(node_id(7), ((1, 1),)), "end": self.middle}
        hello = Hello(version=VERSION, cluster="orders", group=0, name="n2", level=0, **{**has, **said})
        self.follower = _FollowerLink(self.links, None, hello, 1)  # type: ignore[arg-type]
        self.answer = self.follower.answer_hello(self.links.position, self.links.end)
        self.follower.sender = None  # type: ignore[assignment]
        self.follower._is_open = True

    @property
    def kept_from(self) -> list[int]:
        """From which records on segments are kept for followers."""
        return list(reader_offsets(self.journal.path).values())


def test_segments_are_kept_from_the_moment_in_which_its_place_is_found(tmp_path: Path) -> None:
    """A checkpoint of the next moment deletes none that it needs; when it has all of them, none is kept."""
    bench = Bench(tmp_path)
    assert bench.kept_from == [bench.middle]
    assert isinstance(bench.follower.feed, Feed)
    bench.follower.segments.release()
    assert bench.kept_from == []


@pytest.mark.parametrize("said", [{"journal_id": None, "end": 1}, {"wants_copy": True}], ids=["empty", "damaged"])
def test_a_full_copy_keeps_all_segments_until_its_link_ends(tmp_path: Path, said: dict[str, Any]) -> None:
    """Else the leader's disk would fill up."""
    bench = Bench(tmp_path, **said)
    assert bench.kept_from == [1] and any(isinstance(one, Copy) for one in bench.answer)
    bench.follower.segments.release()
    assert bench.kept_from == []


@pytest.mark.parametrize("ack", [Ack(1, 3), Ack(3, 3), Ack(2, 100)], ids=str)
def test_what_it_was_not_sent_it_cannot_acknowledge(tmp_path: Path, ack: Ack) -> None:
    """Of another term, or behind the end of the leader's journal."""
    bench = Bench(tmp_path)
    with pytest.raises(FrameFault, match="it was not sent"):
        bench.follower._handle(ack)
    assert bench.told == []
    bench.follower._handle(Ack(2, bench.journal.end))
    assert bench.told == [Acknowledged(node_id(7), 2, bench.journal.end)]


def test_what_comes_with_the_end_of_its_link_is_not_heard(tmp_path: Path) -> None:
    """The leader resigns for a message: those behind it are of a link that has ended."""
    bench, told = Bench(tmp_path), list[Event]()

    def report(event: Event) -> None:
        told.append(event)
        bench.follower.close("this node no longer leads")

    bench.links.report = report
    bench.follower._decoder.receive(encode(Ack(2, bench.middle)) + encode(Ack(2, bench.journal.end)))
    bench.follower._handle_all()
    assert told == [Acknowledged(node_id(7), 2, bench.middle), LinkClosed(node_id(7))]


def test_a_copy_beside_is_no_journal_yet(tmp_path: Path) -> None:
    """Nothing of it counts as on the follower's disk, and its end is not that of a member's link."""
    bench = Bench(tmp_path, wants_copy=True)
    with pytest.raises(FrameFault):
        bench.follower._handle(Ack(2, 3))
    bench.follower.close("its link ended")
    assert bench.told == []


@pytest.mark.parametrize("term", [1, 3])
def test_a_follower_of_another_term_is_sent_away(tmp_path: Path, term: int) -> None:
    """Also of a later one: this leader is lost, and does not know it yet."""
    bench = Bench(tmp_path, term=term)
    assert isinstance(bench.answer, No) and not bench.answer.is_final and bench.kept_from == []


def test_what_was_written_just_now_may_be_acknowledged(tmp_path: Path) -> None:
    """Else the link would end with the first publish."""
    bench = Bench(tmp_path)
    end = bench.journal.end + 1
    bench.links.written(bench.journal.position[0], bench.journal.position[1], b"octets", end)
    bench.follower._handle(Ack(2, end))
    assert bench.told == [Acknowledged(node_id(7), 2, end)]


def test_a_follower_is_told_what_the_journal_began_to_need_before_it_came(tmp_path: Path) -> None:
    """A program that knows less must not copy octets that need more."""
    bench = Bench(tmp_path)
    bench.links.needed(frozenset({"leases"}))
    welcome = bench.follower.answer_hello(bench.links.position, bench.links.end)[-1]  # type: ignore[index]
    assert isinstance(welcome, Welcome) and welcome.needs == {"leases"}


# -- while its link is open --------------------------------------------------------------------------------------------


class FeedSender:
    """Says what is left to the task of the link, and keeps what was said."""

    def __init__(self, *rests: Any) -> None:
        self.rests = list(rests)
        self.said: list[Any] = []
        self.read: list[tuple[Any, int, float]] = []

    def send_pending(self) -> Any:
        return self.rests.pop(0) if self.rests else (Pending.LOST, None)

    def skip_to(self, tail: Any) -> None:
        self.said.append(tail)

    def was_read(self, end: Any, frames: bytes) -> None:
        self.read.append((end, len(frames), trio.current_time()))

    def beacon(self, beacon: bytes, orders: bytes) -> None:
        self.said.append(beacon)

    put = written = lambda self, *said: self.said.append(said)


def run(bench: Bench, sender: FeedSender, script: Callable[[], Awaitable[None]]) -> None:
    """Run a script in virtual time."""
    bench.follower.sender = sender  # type: ignore[assignment]
    trio.run(script, clock=trio.testing.MockClock(autojump_threshold=0))


def test_what_was_written_while_its_place_was_found_is_read_from_the_files(tmp_path: Path) -> None:
    """The leader publishes on meanwhile. Needs that came in that time are said before it."""
    bench, sender = Bench(tmp_path), FeedSender()
    bench.journal.on_written = bench.links.written
    bench.journal.block()
    bench.links.needed(frozenset({"leases"}))
    bench.follower.sender = sender  # type: ignore[assignment]
    bench.links.add(bench.follower)
    assert sender.said == [bench.links.position, (Needs(frozenset({"leases"})),)]


def test_nothing_is_kept_for_a_follower_whose_link_has_ended(tmp_path: Path) -> None:
    """No acknowledgement is waited for, which would come too late or never, and nothing is queued in memory."""
    bench, sender = Bench(tmp_path), FeedSender()
    bench.follower.sender = sender  # type: ignore[assignment]
    bench.links.add(bench.follower)
    assert bench.links.is_owed(bench.journal.end)
    assert not bench.links.is_owed(bench.journal.end, {bench.follower.node_id}), "it catches up: nobody waits for it"
    bench.follower.close("its link ended")
    assert not bench.links.is_owed(bench.journal.end)
    bench.links.written(1, 0, b"octets", bench.journal.end + 1)
    assert sender.said == []


def test_a_full_copy_keeps_its_segments_while_it_waits_for_more(tmp_path: Path) -> None:
    """A follower that has read all files is kept none, but for a copy that is not whole yet."""
    for wants_copy, kept in ((True, [1]), (False, [])):
        (place := tmp_path / str(wants_copy)).mkdir()
        bench = Bench(place, wants_copy=wants_copy)

        async def script(bench: Bench = bench) -> None:
            with trio.move_on_after(1):
                await bench.follower._send()

        nothing = (Pending.NOTHING, None)
        run(bench, FeedSender(nothing, nothing, nothing), script)
        assert bench.kept_from == kept


class Files:
    """Stands for the leader's files."""

    are_kept = True

    def __init__(self, read: Callable[[Any, Any], Read]) -> None:
        self.read = read


def test_files_are_read_at_the_rate_for_copies(tmp_path: Path) -> None:
    """Else a node that joins takes the leader's disk and network for itself."""
    bench = Bench(tmp_path)
    bench.follower.segments = Files(lambda start, end: Read(end, bytes(2 * RATE), None))  # type: ignore[assignment]
    sender = FeedSender(*[(Pending.FILES, (None, number)) for number in range(3)])

    async def script() -> None:
        began_s = trio.current_time()
        with pytest.raises(LinkFault):
            await bench.follower._send()
        times = [round(at_s - began_s) for _, _, at_s in sender.read]
        assert times == [0, 2, 4]

    run(bench, sender, script)


def test_a_copy_is_spread_by_what_the_follower_lacks(tmp_path: Path) -> None:
    """Found when it falls behind, over all segments; a read that goes on where the last one ended finds nothing new."""
    bench, begun = Bench(tmp_path, wants_copy=True), []

    class Paced:
        def begin(self, behind: int, written: int, now_s: float) -> None:
            begun.append(behind)

        def next_read_s(self, octets: int, written: int, now_s: float) -> float:
            return now_s

    bench.follower._pace = Paced()  # type: ignore[assignment]
    start, end = bench.follower.feed.position, bench.links.position
    all_octets = sum(one.stat().st_size for one in Path(bench.journal.path).glob("*.log"))
    assert start.base_lsn < end.base_lsn
    middle = Position(start.base_lsn, 10)
    spans = ((start, middle), (middle, end), (start, end), (Position(start.base_lsn, 7), end))
    sender = FeedSender(*[(Pending.FILES, span) for span in spans])

    async def script() -> None:
        with pytest.raises(LinkFault):
            await bench.follower._send()
        assert begun == [10, all_octets, all_octets - 7]

    run(bench, sender, script)


def test_what_is_written_meanwhile_is_copied_beside_that_rate(tmp_path: Path) -> None:
    """Else a follower never catches up with publishers that write as much as it may read."""
    bench = Bench(tmp_path)

    def read(start: Any, end: Any) -> Read:
        bench.links.written(*bench.links.position, bytes(3 * RATE // 2), bench.links.end + 1)
        return Read(end, bytes(2 * RATE), None)

    bench.follower.segments = Files(read)  # type: ignore[assignment]
    sender = FeedSender(*[(Pending.FILES, (None, number)) for number in range(3)])

    async def script() -> None:
        began_s = trio.current_time()
        with pytest.raises(LinkFault):
            await bench.follower._send()
        assert [at_s - began_s for _, _, at_s in sender.read] == [0, 0.5, 1]

    run(bench, sender, script)


def test_a_follower_that_is_heard_keeps_its_link(tmp_path: Path) -> None:
    """However long it has been open; silence counts from what came last."""
    bench, sender = Bench(tmp_path), FeedSender()
    ours, theirs = trio.socket.socketpair()
    bench.follower._socket = ours._sock  # type: ignore[attr-defined]
    closed_s: list[float] = []

    async def beacon() -> None:
        with pytest.raises(LinkFault, match="nothing was heard for 3 s"):
            await bench.follower._beacon()
        closed_s.append(trio.current_time())

    async def script() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.follower._receive)
            nursery.start_soon(beacon)
            for _ in range(5):
                await later(2)
                await theirs.send(encode(Status(0, {})))
                await trio.testing.wait_all_tasks_blocked()
            heard_s = trio.current_time()
            while not closed_s:
                await later(0.5)
            assert OPTIONS.silence_s <= closed_s[0] - heard_s <= OPTIONS.silence_s + 2 * OPTIONS.beacon_s
            nursery.cancel_scope.cancel()

    with ours, theirs:
        run(bench, sender, script)


def test_how_far_a_follower_is_behind_is_not_told_over_segments(tmp_path: Path) -> None:
    """Offsets of two files say nothing together; they would say that it is ahead."""
    bench = Bench(tmp_path, wants_copy=True)
    bench.follower.sender = SimpleNamespace(sent=0)  # type: ignore[assignment]
    assert bench.follower.feed.position.base_lsn < bench.follower.feed.tail.base_lsn
    assert bench.follower.statistics().behind_octets is None
    bench.follower.feed.position = bench.follower.feed.tail
    assert bench.follower.statistics().behind_octets == 0


def test_an_order_is_sent_once_and_at_once(tmp_path: Path) -> None:
    """Else a node that was drained and revived would be drained again and again, and reload its files each beacon."""
    bench = Bench(tmp_path)
    sent: list[bytes] = []

    async def script() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.follower._beacon)
            await later(1.2)
            bench.follower.order("drain")
            await trio.testing.wait_all_tasks_blocked()
            assert sent == [encode(Order("drain"))]
            bench.follower.order("revive")
            await later(1.2)
            nursery.cancel_scope.cancel()

    sender = FeedSender()
    sender.beacon = lambda beacon, orders: sent.extend([orders] if orders else [])  # type: ignore[method-assign]
    run(bench, sender, script)
    assert sent == [encode(Order("drain")), encode(Order("revive"))]


def test_a_leader_has_room_for_so_many_followers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is started again and again, each time with another directory, takes no more memory."""
    monkeypatch.setattr(follower_links, "FOLLOWERS_MAX", 1)
    bench = Bench(tmp_path)
    bench.follower.sender = FeedSender()  # type: ignore[assignment]
    bench.links.add(bench.follower)
    said: list[Any] = []

    async def nothing() -> None:
        pass

    async def send(message: Any) -> None:
        said.append(message)

    link: Any = SimpleNamespace(send=send, close=nothing)
    hello = Hello(VERSION, "orders", 0, "n3", 0, 2, JOURNAL_ID, TermTable(node_id(8), ((1, 1),)), bench.middle)
    with pytest.raises(Declined, match="1 followers are connected"):
        trio.run(bench.links.serve, link, hello)
    assert said == [No("1 followers are connected")] and bench.kept_from == [bench.middle]


async def later(seconds: float) -> None:
    """Virtual time goes by."""
    with trio.move_on_after(seconds):
        await trio.sleep_forever()
