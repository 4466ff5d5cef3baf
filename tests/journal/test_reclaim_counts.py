"""How many messages of each segment are alive: many that go at once are counted as one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from leveret.journal.appending.segment_usage import BULK_MIN, SegmentUsage


def ledger_of(published: Sequence[int], astray: Sequence[int]) -> SegmentUsage:
    """Segments with so many messages each, in two queues; some contents were moved to the last segment."""
    usage = SegmentUsage()
    lsn, next_id = 1, 1
    for count in published:
        usage.begin_segment(lsn, 0, 0, next_id)
        if count:
            ids = range(next_id, next_id + count)
            for _ in range(2):
                usage.enqueued(ids, lsn)
        next_id += count
        lsn += count + 1
    for id_ in astray:
        if id_ < next_id:
            usage.moved(id_, 2)
    return usage


def live(usage: SegmentUsage) -> list[int]:
    """What is alive in each segment."""
    return [row.live for row in usage.segments]


@given(
    published=st.lists(st.integers(0, 2 * BULK_MIN), min_size=1, max_size=5),
    astray=st.lists(st.integers(1, 2 * BULK_MIN), max_size=2, unique=True),
    gaps=st.sets(st.integers(1, 10 * BULK_MIN), max_size=3),
    how=st.sampled_from(["range", "list", "falling"]),
    start=st.integers(1, 3 * BULK_MIN),
)
def test_many_are_counted_as_one_after_the_other(
    published: list[int], astray: list[int], gaps: set[int], how: str, start: int
) -> None:
    """Over several segments, empty ones among them; with gaps, astray, in any order."""
    total = sum(published)
    ids: Sequence[int] = range(min(start, total), total + 1) if total else ()
    if how != "range":
        ids = [id_ for id_ in ids if id_ not in gaps]
        if how == "falling":
            ids = ids[::-1]
    at_once, one_by_one = ledger_of(published, astray), ledger_of(published, astray)
    at_once.settled(ids)
    for id_ in ids:
        one_by_one.settled((id_,))
    assert live(at_once) == live(one_by_one)
