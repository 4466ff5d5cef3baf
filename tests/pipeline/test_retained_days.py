"""What retention must not drop: records of an old day that come later in the journal."""

from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from lakes import fill, in_journal, in_lake
from recorded_broker import RecordedBroker

from leveret.pipeline.__main__ import main

DAY_MS = 86_400_000


def test_a_day_of_which_a_compaction_made_one_file(tmp_path: Path) -> None:
    """The clock jumped back: the file has records from before and behind those of a later day, so it stays whole."""
    one = RecordedBroker(tmp_path / "journal")
    one.declare("q")
    for jump_ms in (2 * DAY_MS, -2 * DAY_MS, 2 * DAY_MS):
        one.publish("q", 3)
        one.tick()
        one.clock.jump_wall_ms(jump_ms)
    one.publish("q")
    one.close()
    fill(tmp_path / "journal", tmp_path / "lake")
    assert main(["compact", "--lake", str(tmp_path / "lake")]) == 0
    assert main(["retain", "--lake", str(tmp_path / "lake"), "--before", "2023-11-16"]) == 0
    assert in_lake(tmp_path / "lake") == in_journal(tmp_path / "journal")
