"""Days that are too old are dropped from a lake: all of them and nothing else, and whoever asks is told. No Java."""

import io
import json
import shutil
import signal
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from lakes import counted, fill, fill_as_before, in_journal, in_lake
from pyarrow import parquet
from recorded_broker import RecordedBroker

from leveret.pipeline.__main__ import main
from leveret.pipeline.lake import lake as the_lake
from leveret.pipeline.lake.compact import compact
from leveret.pipeline.lake.lake import LakeBusy, committed_files, lake_lock, retained_in
from leveret.pipeline.lake.retention import days_ago, retain
from leveret.pipeline.progress import Progress
from leveret.pipeline.schemas import TABLES

DAY_NS = 86_400 * 10**9
FIRST = date(2023, 11, 14)  # of the clock of a recorded broker


def day(number: int) -> date:
    return FIRST + timedelta(days=number)


def told(journal: Path, days: int = 3) -> RecordedBroker:
    """Each day ten messages come and seven are acknowledged, the oldest of those that are there."""
    one = RecordedBroker(journal, segment_size=3000)
    one.declare("q")
    for _ in range(days):
        one.publish("q", 10)
        one.get("q", 7)
        one.checkpoint()
        one.clock.advance_ns(DAY_NS)
    one.tick()
    return one


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `journal` and `lake`, of three days; tests take copies of the lake."""
    path = tmp_path_factory.mktemp("retention")
    told(path / "journal")
    fill(path / "journal", path / "lake", payloads=True)
    return path


@pytest.fixture
def lake(story: Path, tmp_path: Path) -> Path:
    """A copy of the lake: it has been moved."""
    return Path(shutil.copytree(story / "lake", tmp_path / "lake"))


def dropped(lake: Path, before: date, **more: Any) -> dict[str, Any]:
    return retain(str(lake), before, Progress("retain", io.StringIO()), **more)


def test_whole_days_go(story: Path, lake: Path) -> None:
    """From all tables, in one step or not at all; a dry run says it before; files stay a day for who reads them."""
    before = {table: in_lake(lake, table) for table in TABLES}
    said = dropped(lake, day(1), is_dry=True)
    assert {table: in_lake(lake, table) for table in TABLES} == before and retained_in(str(lake)) is None
    files = committed_files(str(lake), "events")
    done = dropped(lake, day(1))
    assert {**done, "dry": True, "seconds": 0, "deleted": 0} == {**said, "seconds": 0, "deleted": 0}
    assert (done["first_day"], done["last_day"], done["deleted"]) == (str(FIRST), str(FIRST), 0)
    assert all(done["rows"][table] for table in ("events", "payloads"))
    kept = retained_in(str(lake))
    assert kept is not None and kept.day == day(1) and done["kept_from_lsn"] == kept.lsn > 1
    for table in ("events", "payloads", "snapshots"):
        rows = in_lake(lake, table)
        every = list(map(json.loads, before[table].elements()))
        assert rows == counted([row for row in every if int(row["lsn"]) >= kept.lsn]), table
        if table != "snapshots":  # one behind the last event of a day tells what was left then
            assert rows == counted([row for row in every if row["ts"] >= str(day(1))]), table
        assert sum(before[table].values()) - sum(rows.values()) == done["rows"][table]
    assert all(map(Path.exists, map(Path, files))), "a job may still read them"
    assert dropped(lake, day(1), keep_hours=0)["deleted"] and not all(map(Path.exists, map(Path, files)))
    assert in_lake(story / "lake") == before["events"] == in_journal(story / "journal"), "another copy is another lake"
    assert set(dropped(lake, day(0))["files"].values()) == {0} and retained_in(str(lake)) == kept, "it only grows"


def test_an_ingest_goes_on(tmp_path: Path) -> None:
    """Where it was, and nothing comes back; compaction changes nothing, nor does a summed up log."""
    one = told(tmp_path / "journal")
    lake = tmp_path / "lake"
    fill(tmp_path / "journal", lake)
    dropped(lake, day(2), keep_hours=0)
    kept = retained_in(str(lake))
    left = in_lake(lake)
    one.publish("q", 4)
    one.tick()
    assert fill(tmp_path / "journal", lake)["rows"]["events"] == 8
    assert len(in_lake(lake) - left) == 8 and left - in_lake(lake) == type(left)()
    compact(str(lake), Progress("compact", io.StringIO()), 0)
    assert retained_in(str(lake)) == kept and len(in_lake(lake) - left) == 8
    dropped(lake, day(3), keep_hours=0)
    assert sum(in_lake(lake).values()) == 8


@pytest.mark.parametrize("jump", [-400, 4000])
def test_a_clock_that_jumps(jump: int, tmp_path: Path) -> None:
    """For an hour it was a year ago, or is a day to come: neither drops what is younger, nor keeps what is older."""
    one = RecordedBroker(tmp_path / "journal")
    one.declare("q")
    one.publish("q", 3)
    one.clock.advance_ns(DAY_NS)
    one.publish("q", 3)
    one.settle()
    one.clock.jump_wall_ms(jump * DAY_NS // 10**6)
    one.publish("q", 3)
    one.settle()
    one.clock.jump_wall_ms((1 - jump) * DAY_NS // 10**6)
    one.publish("q", 3)
    one.tick()
    lake = tmp_path / "lake"
    fill(tmp_path / "journal", lake)

    def ids() -> set[int]:
        return {int(row["msg_id"]) for row in map(json.loads, in_lake(lake))} - {0}

    dropped(lake, day(1))
    assert ids() == set(range(4, 13))
    dropped(lake, day(2))
    assert ids() == set(range(10, 13)), "what the clock said of others between does not matter"


def test_nothing_is_left(lake: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has been down for long: the lake is empty, and says why."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    dropped(lake, day(30))
    assert sum(in_lake(lake).values()) == 0
    assert main(["depth,loss,audit", "--lake", str(lake), "--format", "json"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["rows"] for answer in answers][1:] == [0, 0]
    assert all(f"all before {day(30)}, were dropped" in answer["missing"] for answer in answers)


def test_one_at_a_time(lake: Path, story: Path) -> None:
    """Not during an ingest, nor is there an ingest during it; to look is allowed."""
    with lake_lock(str(lake)):
        with pytest.raises(LakeBusy):
            dropped(lake, day(1))
        assert dropped(lake, day(1), is_dry=True)["rows"]["events"]
    assert in_lake(lake) == in_lake(story / "lake")


def test_a_lake_that_cannot_be_changed(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence, and nothing is gone."""

    def refused(path: Any, mode: str = "r", *more: Any, **others: Any) -> Any:
        if "a" in mode:
            raise OSError(30, "Read-only file system", path)
        return open(path, mode, *more, **others)

    before = in_lake(lake)
    with monkeypatch.context() as readonly:
        readonly.setattr(the_lake, "open", refused, raising=False)
        with pytest.raises(ValueError, match="can be read, but not changed: Read-only file system"):
            dropped(lake, day(1))
        assert dropped(lake, day(1), is_dry=True)["rows"]["events"]
    assert in_lake(lake) == before


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--days", "0"], "--days: must be 1 or more"),
        (["--days", "-3"], "--days: must be 1 or more"),
        (["--days", "soon"], "'soon' is not a number"),
        (["--before", "soon"], "'soon' is not a day; such as 2026-11-21"),
        (["--before", "2023-02-30"], "is not a day"),
        (["--before", "9999-01-01"], "9999-01-01 is in the future"),
        (["--days", "1", "--before", "2023-11-15"], "not allowed with"),
        ([], "one of the arguments --days --before is required"),
        (["--days", "1", "--keep-hours", "-1"], "--keep-hours: must be 0 or more"),
    ],
)
def test_what_is_wrong_is_said(
    arguments: list[str], words: str, lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """And nothing is dropped."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["retain", "--lake", str(lake), *arguments]) == 1
    assert words in capsys.readouterr().err
    assert retained_in(str(lake)) is None


def test_lakes_that_are_none(story: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Where there is none; one of an older release; and spans of time for an ingest that are no days."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    fill_as_before(story / "journal", tmp_path / "old", ("events",))
    for arguments, words in (
        (["retain", "--lake", str(tmp_path / "none"), "--days", "1"], "no lake here"),
        (["retain", "--lake", str(tmp_path / "old"), "--days", "1"], "first `leveret pipeline migrate"),
        (["ingest", "--journal", "x", "--lake", "y", "--retain", "36h"], "'36h' is not a number of whole days"),
        (["ingest", "--journal", "x", "--lake", "y", "--retain", "0d"], "'0d' is not a number of whole days"),
        (["ingest", "--journal", "x", "--lake", "y", "--retain", "many"], "'many' is not a number of whole days"),
    ):
        assert main(arguments) == 1
        assert words in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_days_ago() -> None:
    """Nothing that is younger than so many days goes, however many they are."""
    assert days_ago(90, date(2026, 11, 24)) == date(2026, 8, 26)
    assert days_ago(10**12, date(2026, 11, 24)) == date.min


def test_an_ingest_retains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """So that a timer does both; the second time there is nothing to drop."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    one = told(tmp_path / "journal", 2)
    one.clock.advance_ns(int((datetime.now(UTC) - datetime(2023, 11, 16, tzinfo=UTC)).total_seconds()) * 10**9 - DAY_NS)
    one.publish("q", 4)
    one.tick()
    arguments = ["ingest", "--journal", str(tmp_path / "journal"), "--lake", str(tmp_path / "lake"), "--retain", "5d"]
    assert main(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["dropped"]["events"] > 40 and sum(in_lake(tmp_path / "lake").values()) == 8
    assert main(arguments) == 0
    assert set(json.loads(capsys.readouterr().out)["dropped"].values()) == {0}


def test_a_killed_one_is_followed(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed behind the first commit: jobs leave out what other tables still have of before; the next drops it."""
    from leveret.pipeline.lake import retention

    def first_only(delta: Any, where: str, table: str, *more: Any) -> Any:
        if table != "events":
            raise KeyboardInterrupt
        return the_drop(delta, where, table, *more)

    the_drop = retention.drop
    with monkeypatch.context() as killed:
        killed.setattr(retention, "drop", first_only)
        with pytest.raises(KeyboardInterrupt):
            dropped(lake, day(2))
    half = answers(lake)
    assert dropped(lake, day(2))["files"]["payloads"] == 2
    assert answers(lake) == half
    rows = parquet.read_table(committed_files(str(lake), "payloads")[0]).num_rows
    assert rows == 10


def answers(lake: Path) -> list[Any]:
    """What views of the lake's tables have."""
    from leveret.pipeline.engines.local import LocalEngine
    from leveret.pipeline.engines.protocol import rows
    from leveret.pipeline.jobs.opening import open_tables

    engine = LocalEngine(threads=1, memory_mb=256)
    try:
        open_tables(str(lake), engine)
        return [rows(engine, f"SELECT * FROM {table} ORDER BY ALL") for table in TABLES]
    finally:
        engine.close()
