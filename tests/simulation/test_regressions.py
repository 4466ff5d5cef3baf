"""What the simulation has found: for each fault the plan of a world in which it showed before it was fixed."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulator.plan import Plan
from simulator.world import World

#: They take half of the time of all. A shorter world has a disk that is full once; tests/journal/test_temp_store.py and
#: tests/server/test_held_and_killed.py have publishes that wait for room.
LONG = ("full_twice", "waiting_for_itself")
REGRESSIONS = sorted(Path(__file__).with_name("regressions").glob("*.json"))


@pytest.mark.parametrize(
    "file",
    [pytest.param(file, id=file.stem, marks=[pytest.mark.long] * (file.stem in LONG)) for file in REGRESSIONS],
)
def test_what_was_found_stays_fixed(file: Path) -> None:
    plan = Plan.from_json(file.read_text())
    report = World(plan).run()
    assert report.fault is None, plan.found
    assert [kind for kind in plan.meets if not report.happened[kind]] == [], "it does not show any more what it was for"
