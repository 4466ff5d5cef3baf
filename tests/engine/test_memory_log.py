"""The log of topics that a broker without a journal keeps: what a replay reads from any position on."""

from __future__ import annotations

import pytest

from leveret.engine.messages.message import Envelope
from leveret.engine.stores.topic_log import MemoryLog


def logged(*runs: tuple[str, int]) -> MemoryLog:
    """Runs of a virtual host and a number of messages, with ids from 1 on."""
    log, first = MemoryLog(), 1
    for vhost, count in runs:
        log.note(vhost, "q", first, Envelope("e", "k"), [b"x"] * count, wall_ms=first)
        first += count
    return log


def ids_from(log: MemoryLog, position: int, octets: int = 10_000) -> tuple[list[int], int]:
    """The ids of one page, and where the next one begins."""
    page = log.read("v", position, lambda *_: True, octets)
    return [one.message.id for one in page.found], page.next_position


@pytest.mark.parametrize("position", range(1, 8))
def test_a_read_begins_anywhere_in_a_run(position: int) -> None:
    assert ids_from(logged(("v", 3), ("v", 3)), position) == (list(range(position, 7)), 7)


def test_runs_of_other_virtual_hosts_are_passed_over() -> None:
    assert ids_from(logged(("v", 2), ("other", 2), ("v", 1)), 1) == ([1, 2, 5], 6)


def test_a_page_ends_behind_the_run_that_fills_it() -> None:
    log = logged(("v", 2), ("v", 2))
    assert ids_from(log, 1, octets=1) == ([1, 2], 3)
    assert ids_from(log, 3, octets=1) == ([3, 4], 5)
