"""A run of paged-out messages: which messages go on it."""

import pytest

from leveret.engine.stores.paged_run import APART_MIN, IN_JOURNAL, RUN_MAX, PagedRun


@pytest.mark.parametrize(
    ("here", "next_id", "count", "goes_on"),
    [
        (APART_MIN, APART_MIN + 1, 1, True),  # consecutive
        (APART_MIN, APART_MIN + 1, APART_MIN, True),
        (APART_MIN, APART_MIN + 2, 1, False),  # a gap behind many would cost 8 octets for each of them
        (APART_MIN - 1, APART_MIN + 1, 1, True),
        (APART_MIN - 1, APART_MIN + 1, APART_MIN, False),  # and before many, too
        (APART_MIN - 1, APART_MIN - 2, 1, False),  # not rising
        (RUN_MAX - 1, RUN_MAX, 1, True),
        (RUN_MAX, RUN_MAX + 1, 1, False),
    ],
)
def test_which_messages_go_on_a_run(here: int, next_id: int, count: int, goes_on: bool) -> None:
    """Ids from 1 on: gaps are for short runs, so that long ones need no list of ids."""
    run = PagedRun(1, None, IN_JOURNAL)
    run.extend(1, [5] * here, None)
    assert run.can_extend(next_id, count, False, None, IN_JOURNAL) is goes_on
    for other in ({"deliveries": 1}, {"uncounted": 1}):
        assert not run.can_extend(next_id, count, False, None, IN_JOURNAL, **other)
