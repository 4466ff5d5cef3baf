"""Where contents are, against a dictionary: added, moved, forgotten, thinned out while more comes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from effort import examples

from leveret.journal.recording import message_index as indexes
from leveret.journal.recording.message_index import ContentIndex


class Pair:
    """The index, and message id -> LSN. `forgotten`: it may know of them still, or not."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.index = ContentIndex()
        self.lsns: dict[int, int] = {}
        self.forgotten: dict[int, int] = {}
        self.next_id, self.next_lsn = 1, 100

    def add(self) -> None:
        """A run, which may go on where the last one ended: in ids, LSNs, both or neither."""
        chance, count = self.chance, self.chance.randrange(1, 8)
        self.next_id += chance.choice((0, 0, 1, 5))
        self.next_lsn += chance.choice((0, 0, 1, 9))
        self.index.add(self.next_id, count, self.next_lsn)
        self.lsns |= {self.next_id + at: self.next_lsn + at for at in range(count)}
        self.next_id += count
        self.next_lsn += count
        assert self.index.last_id == self.next_id - 1

    def move(self) -> None:
        if self.lsns:
            id_ = self.chance.choice(list(self.lsns))
            self.lsns[id_] = self.next_lsn
            self.index.move(id_, self.next_lsn)
            self.next_lsn += 1

    def forget(self, ids: list[int]) -> None:
        for id_ in ids:
            self.forgotten[id_] = self.lsns.pop(id_)

    def forget_before(self) -> None:
        id_ = self.chance.choice([*self.lsns, self.next_id])
        self.index.forget_before(id_)
        self.forget([one for one in self.lsns if one < id_])

    def keep_only(self) -> None:
        """Of what is there; meanwhile more comes, and is moved."""
        if self.index.last_id == 0:
            return
        next_id = self.next_id
        kept = [id_ for id_ in sorted(self.lsns) if self.chance.random() < 0.6]
        steps = self.index.keep_only(kept, next_id)
        dropped = [id_ for id_ in self.lsns if id_ not in kept]
        for _ in steps:
            self.add()
            self.move()
        self.forget([id_ for id_ in dropped if id_ in self.lsns])
        for id_ in dropped:
            assert self.index.lsn_of(id_) in (None, self.forgotten[id_])

    def check(self) -> None:
        """Each one, and in runs."""
        index, lsns = self.index, self.lsns
        for id_ in range(self.next_id + 3):
            if id_ not in self.forgotten:
                assert index.lsn_of(id_) == lsns.get(id_)
        ids = [id_ for id_ in sorted(lsns) if self.chance.random() < 0.9]
        found = list(index.runs(ids))
        assert [(first + at, lsn + at) for first, lsn, count in found for at in range(count)] == [
            (id_, lsns[id_]) for id_ in ids
        ]
        first = self.chance.choice([*lsns, 1])
        stop = first
        while stop in lsns:
            stop += 1
        runs = list(index.runs(range(first, stop)))
        assert sum(count for *_, count in runs) == stop - first
        assert all(lsns[one + at] == lsn + at for one, lsn, count in runs for at in range(count))


@pytest.mark.parametrize("seed", range(examples(20)))
def test_it_is_a_dictionary(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """What was told last counts; what is not forgotten stays, and comes in as few runs as there are."""
    monkeypatch.setattr(indexes, "KEEP_SLICE", 3)
    pair = Pair(seed)
    verbs = [pair.add, pair.add, pair.add, pair.move, pair.forget_before, pair.keep_only]
    for _ in range(40):
        pair.chance.choice(verbs)()
        pair.check()


def test_what_goes_on_takes_no_room() -> None:
    """A run costs the same however long it is; what is forgotten costs nothing."""
    index = ContentIndex()
    for id_ in range(1, 1000):
        index.add(id_, 1, 7 + id_)
    assert len(index) == 1
    for id_ in range(1000, 4000, 2):
        index.add(id_, 1, 10_000 + id_)
    assert len(index) == 1501
    index.forget_before(3900)
    assert len(index) == 50
    assert list(index.runs(range(3900, 3901))) == [(3900, 13_900, 1)]
    for _ in index.keep_only([3902], 4000):
        pass
    assert (len(index), index.last_id) == (1, 3902)
    for _ in index.keep_only([], 4000):
        pass
    assert (len(index), index.last_id) == (0, 0)
    index.add(4000, 2, 20_000)
    index.move(4000, 30_000)
    for _ in index.keep_only([4001], 4002):
        pass
    assert index.lsn_of(4000) is None


@pytest.mark.parametrize("ids", [[3], [4], [7], [30], [5, 6, 7], [1, 4], range(5, 8), range(3, 6)])
def test_runs_of_ids_that_are_not_there(ids: Sequence[int]) -> None:
    """Below the first run, in a gap, behind a run and behind the last: they are refused, not made up."""
    index = ContentIndex()
    index.add(1, 2, 100)
    index.add(5, 2, 200)
    index.add(10, 3, 300)
    with pytest.raises(KeyError):
        list(index.runs(ids))
    assert list(index.runs([1, 2, 5, 6, 11])) == [(1, 100, 2), (5, 200, 2), (11, 301, 1)]
