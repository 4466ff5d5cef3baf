"""Faults that are planted in the broker are found (`make simulate-planted`: all of them, and how fast)."""

from __future__ import annotations

import pytest
from find_planted import find

#: Those that a few short worlds show within some seconds; the others took ten.
QUICK = (
    "forgotten fsync",
    "early confirm",
    "lost confirm",
    "deleted user is back",
    "forgotten wake-up of a client",
    "forgotten wake-up of a queue",
    "forgotten redelivered flag",
    "lease granted twice",
    "tombstone refused",
    "dropped held publish",
    "nobody woken when there is room",
)


@pytest.mark.contradicts
@pytest.mark.parametrize("name", QUICK)
def test_a_planted_fault_is_found(name: str) -> None:
    assert find(name, seed=1, seconds=60).fault is not None
