"""A lake that is moved, copied, or lacks a part: every row stays, each is read from where the lake is now."""

import io
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")

import pyarrow.parquet
from recorded_broker import RecordedBroker

from leveret.pipeline.lake import ingest as filling
from leveret.pipeline.lake.ingest import IngestOptions, ingest
from leveret.pipeline.lake.lake import committed_files, read_table, sweep
from leveret.pipeline.progress import Progress
from leveret.pipeline.reading.tables import TableReader

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each table of a lake is a query of its own, and the same: one is enough here."""
    monkeypatch.setattr(filling, "ALWAYS", ("events",))


def filled(path: Path) -> RecordedBroker:
    """A journal with some messages."""
    one = RecordedBroker(path)
    one.declare("q")
    one.publish("q", 20)
    one.tick()
    return one


def fill(spark: Any, journal: Path, lake: Path) -> dict[str, Any]:
    """An ingest; its result."""
    return ingest(spark, IngestOptions(str(journal), str(lake)), Progress("ingest", io.StringIO()))


def in_journal(journal: Path) -> "Counter[tuple[int, int]]":
    """(LSN, message) of the events, without Spark."""
    batches = TableReader(str(journal)).all_batches()
    return Counter((row["lsn"], row["msg_id"]) for batch in batches for row in batch.to_pylist())


def in_lake(spark: Any, lake: Path) -> "Counter[tuple[int, int]]":
    """The same of the lake."""
    return Counter((row.lsn, row.msg_id) for row in read_table(spark, str(lake), "events").collect())


def test_a_moved_lake_keeps_its_rows(spark: Any, tmp_path: Path) -> None:
    """It is read at once, and the next ingest adds what is new and deletes nothing."""
    one = filled(tmp_path / "journal")
    old, new = tmp_path / "old", tmp_path / "with a space"
    fill(spark, tmp_path / "journal", old)
    old.rename(new)
    assert in_lake(spark, new) == in_journal(tmp_path / "journal")
    files = set(new.rglob("part-*.parquet"))
    one.publish("q", 5)
    one.tick()
    assert fill(spark, tmp_path / "journal", new)["rows"]["events"] == 10
    assert files < set(new.rglob("part-*.parquet"))
    assert in_lake(spark, new) == in_journal(tmp_path / "journal")
    assert set(fill(spark, tmp_path / "journal", new)["rows"].values()) == {0}
    assert not old.exists()


def test_a_copy_is_read_for_itself(spark: Any, tmp_path: Path) -> None:
    """Not the original's files: they may be gone, or go on differently."""
    one = filled(tmp_path / "journal")
    fill(spark, tmp_path / "journal", tmp_path / "lake")
    before = in_journal(tmp_path / "journal")
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    one.publish("q", 5)
    one.tick()
    fill(spark, tmp_path / "journal", tmp_path / "lake")
    frame = read_table(spark, str(tmp_path / "copy"), "events")
    assert all(f"{tmp_path}/copy/" in row[0] for row in frame.selectExpr("input_file_name()").collect())
    files = committed_files(str(tmp_path / "copy"), "events")
    assert files and all(one.startswith(f"{tmp_path}/copy/events/date=2023-11-14/part-") for one in files)
    assert sum(pyarrow.parquet.ParquetFile(one).metadata.num_rows for one in files) == sum(before.values())
    shutil.rmtree(tmp_path / "lake")
    assert in_lake(spark, tmp_path / "copy") == before


def test_without_its_log_nothing_is_deleted(spark: Any, tmp_path: Path) -> None:
    """A copy without the files whose names begin with "_", or with some of them: said, and left as it is."""
    filled(tmp_path / "journal")
    lake = tmp_path / "lake"
    fill(spark, tmp_path / "journal", lake)
    files = set(lake.rglob("part-*.parquet"))
    shutil.rmtree(lake / "events" / "_spark_metadata")
    with pytest.raises(ValueError, match=r"_spark_metadata: .* lacks batch 0"):
        sweep(str(lake), "events")
    with pytest.raises(ValueError, match="lacks batch 0"):
        committed_files(str(lake), "events")
    with pytest.raises(ValueError, match="lacks batch 0"):
        read_table(spark, str(lake), "events")
    shutil.rmtree(lake / "_checkpoints")
    with pytest.raises(ValueError, match="no ingest of this lake wrote"):
        sweep(str(lake), "events")
    assert set(lake.rglob("part-*.parquet")) == files and files


def test_files_without_spark(tmp_path: Path) -> None:
    """A lake that was never filled has none; a table that is not there, or a lake elsewhere, is said."""
    assert committed_files(str(tmp_path / "none"), "events") == []
    with pytest.raises(ValueError, match="there is no table 'event'; there are events"):
        committed_files(str(tmp_path), "event")
    with pytest.raises(ValueError, match="s3://lakes/one: only the lakes of this machine"):
        committed_files("s3://lakes/one", "events")
