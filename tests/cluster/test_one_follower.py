"""What a leader keeps for one follower, and what it believes of it; without a connection."""

from pathlib import Path
from typing import Any

import pytest
from written_journal import JOURNAL_ID, WrittenJournal, node_id

from leveret.cluster.agreement.events import Acknowledged, Event
from leveret.cluster.link.feed import Feed
from leveret.cluster.link.follower_links import FollowerLinks, _Follower
from leveret.cluster.link.frames import VERSION, Ack, Copy, FrameFault, Hello, No, Welcome
from leveret.journal import TermTable, reader_offsets


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
            self.journal.led, self.told.append, position=self.journal.position, end=self.journal.end
        )
        has = {"term": 2, "journal_id": JOURNAL_ID, "terms": TermTable(node_id(7), ((1, 1),)), "end": self.middle}
        hello = Hello(version=VERSION, cluster="orders", group=0, name="n2", level=0, **{**has, **said})
        self.follower = _Follower(self.links, None, hello, 1)  # type: ignore[arg-type]
        self.answer = self.follower.answer(self.links.position, self.links.end)
        self.follower.outlet = None  # type: ignore[assignment]
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
    bench.follower.clean_up()
    assert bench.kept_from == []


@pytest.mark.parametrize("said", [{"journal_id": None, "end": 1}, {"wants_copy": True}], ids=["empty", "damaged"])
def test_a_full_copy_keeps_all_segments_until_its_link_ends(tmp_path: Path, said: dict[str, Any]) -> None:
    """Else the leader's disk would fill up."""
    bench = Bench(tmp_path, **said)
    assert bench.kept_from == [1] and any(isinstance(one, Copy) for one in bench.answer)
    bench.follower.clean_up()
    assert bench.kept_from == []


@pytest.mark.parametrize("ack", [Ack(1, 3), Ack(3, 3), Ack(2, 100)], ids=str)
def test_what_it_was_not_sent_it_cannot_acknowledge(tmp_path: Path, ack: Ack) -> None:
    """Of another term, or behind the end of the leader's journal."""
    bench = Bench(tmp_path)
    with pytest.raises(FrameFault, match="it was not sent"):
        bench.follower._heard(ack)
    assert bench.told == []
    bench.follower._heard(Ack(2, bench.journal.end))
    assert bench.told == [Acknowledged(node_id(7), 2, bench.journal.end)]


def test_a_copy_beside_is_no_journal_yet(tmp_path: Path) -> None:
    """Nothing of it counts as on the follower's disk, and its end is not that of a member's link."""
    bench = Bench(tmp_path, wants_copy=True)
    with pytest.raises(FrameFault):
        bench.follower._heard(Ack(2, 3))
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
    bench.follower._heard(Ack(2, end))
    assert bench.told == [Acknowledged(node_id(7), 2, end)]


def test_a_follower_is_told_what_the_journal_began_to_need_before_it_came(tmp_path: Path) -> None:
    """A program that knows less must not copy octets that need more."""
    bench = Bench(tmp_path)
    bench.links.needed(frozenset({"leases"}))
    welcome = bench.follower.answer(bench.links.position, bench.links.end)[-1]  # type: ignore[index]
    assert isinstance(welcome, Welcome) and welcome.needs == {"leases"}
