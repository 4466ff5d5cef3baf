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
from crash.broker import Setup
from crash.content import FANOUT, body_of, header_payload, number_of, what_differs
from crash.lane import Lane
from crash.look import check_offset, check_order
from crash.truth import Broken
from crash.world import SLACK_MS, World, message
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
