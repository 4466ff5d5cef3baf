"""What crash rounds look at beside facts can be wrong: octets, order, offsets, times; a broker may end by itself."""

import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parent))
from crash.autopsy import Autopsy, check_times
from crash.borrower import check_once, received_once
from crash.broker import Setup
from crash.content import FANOUT, body_of, header_payload, number_of, what_differs
from crash.lane import Lane
from crash.look import COUNT_HEADER, check_lease, check_offset, check_order
from crash.truth import Broken
from crash.wire import Delivery
from crash.world import ONCE, ONCE_BACKLOG, SLACK_MS, World, message
from pamqp import commands, header
from raw_client import Unexpected

from leveret.cli.control_client import ControlFailed
from leveret.journal import Journal

NUMBERS = [1, 2, 7, 9, 16, 17, 33, 1001]


@pytest.mark.parametrize("target", [FANOUT, "first", "timed", "work", "newest", "later"])
@pytest.mark.parametrize("number", NUMBERS)
def test_every_octet_counts(number: int, target: str) -> None:
    """A body with another octet, one too few, or that of another message; properties of another message."""
    head, body = header_payload(number, target), body_of(number)
    assert number_of(body) == number
    assert what_differs(number, target, head, body, died=False) == ""
    for other in (body[:-1], body[:-1] + bytes([body[-1] ^ 1]), body_of(number + 1)):
        assert what_differs(number, target, head, other, died=False)
    if (number, target) != (33, "timed"):
        assert what_differs(number, target, header_payload(33, "timed"), body, died=False)


def in_order(world: World, *operations: tuple[int, int]) -> World:
    for line, number in operations:
        world.did(line, "publish", adds=[message("a", number)])
    return world


@pytest.mark.parametrize(
    "found, is_in_order", [([1, 2, 3], True), ([3, 1, 2], True), ([1, 3, 2], True), ([2, 1, 3], False)]
)
def test_order_counts(found: list[int], is_in_order: bool) -> None:
    """Line 0 published 1 and 2, line 1 meanwhile 3."""
    world = in_order(World(random.Random(1)), (0, 1), (1, 3), (0, 2))
    if is_in_order:
        check_order(world, "a", found)
    else:
        with pytest.raises(Broken, match="too late"):
            check_order(world, "a", found)


def test_offsets_count() -> None:
    """No gaps, and each message keeps its own."""
    world = World(random.Random(1))
    world.offsets = {7: 3}
    check_offset(world, 7, 3, 3)
    for number, offset, at in ((8, 3, 2), (7, 4, 4)):
        with pytest.raises(Broken, match="offset"):
            check_offset(world, number, offset, at)


def leased(count: int, **more: object) -> Delivery:
    """A message of a leased queue as a restarted broker hands it out."""
    headers = {COUNT_HEADER: count, "x-bookmark": "1|7|", **more}
    properties = commands.Basic.Properties(headers=headers)
    return Delivery(1, "lent", 1, False, header.ContentHeader(properties=properties).marshal(), b"5 ")


def test_leases_and_counts_end_with_the_broker() -> None:
    """After a restart each delivery is the first one; a message keeps its bookmark."""
    world = World(random.Random(1))
    check_lease(world, "lent", 5, leased(1))
    for wrong in (leased(2), leased(1, **{"x-bookmark": "1|8|"})):
        with pytest.raises(Broken):
            check_lease(world, "lent", 5, wrong)


@pytest.mark.parametrize(
    "lost, is_borrowed, is_right",
    [(0, False, True), (1, False, False), (ONCE_BACKLOG, True, True), (ONCE_BACKLOG + 1, True, False)],
)
def test_at_most_once_loses_what_was_on_its_way(lost: int, is_borrowed: bool, is_right: bool) -> None:
    """One backlog at most, and only where somebody consumed. What was not confirmed may be missing for that alone."""
    world = World(random.Random(1))
    world.is_borrowed = is_borrowed
    for number in range(lost + 1):
        world.truth.answered(world.did(0, "publish", adds=[message(ONCE, number)]))
    world.did(0, "publish", adds=[message(ONCE, 10_000)])
    if is_right:
        assert check_once(world, {lost}) == lost
        world.truth.look([message(ONCE, lost)])
    else:
        with pytest.raises(Broken, match="are lost"):
            check_once(world, {lost})


def test_at_most_once_comes_once() -> None:
    """Not again to the same client, and not after a restart."""
    world = World(random.Random(1))
    world.truth.answered(world.did(0, "publish", adds=[message(ONCE, 1)]))
    received_once(world, 1)
    with pytest.raises(Broken, match="second time"):
        received_once(world, 1)
    with pytest.raises(Broken):
        world.truth.look([message(ONCE, 1)])


@pytest.mark.parametrize("late_ms, is_right", [(0, True), (SLACK_MS, True), (2000, False), (-2000, False)])
def test_times_count(late_ms: int, is_right: bool) -> None:
    """When a message expires is told by when it was published."""
    world = World(random.Random(1))
    world.times[message("timed", 5)] = (1000, 1010)
    found = Autopsy(timed={5: 1005 + late_ms})
    if is_right:
        check_times(world, found)
        assert world.times[message("timed", 5)][0] >= 1000  # and that holds from now on
    else:
        with pytest.raises(Broken, match="has its time"):
            check_times(world, found)


def test_a_broker_that_ends_by_itself_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it was killed, that is."""
    commit, count = Journal.commit, 0

    def commit_or_end(journal: Journal) -> Any:
        nonlocal count
        count += 1
        if count > 60:
            os._exit(3)
        return commit(journal)

    monkeypatch.setattr(Journal, "commit", commit_or_end)
    lane = Lane(Setup(str(tmp_path)), random.Random(3))
    with pytest.raises((Broken, OSError, ControlFailed, Unexpected)):
        for _ in range(30):
            lane.round()
