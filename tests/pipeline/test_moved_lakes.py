"""A lake that is moved or copied is read from where it is now, by Spark, too; Spark's tasks fill it as this machine's
processes do. (Without Spark: test_lake.py.)"""

import io
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")

from lakes import fill, in_journal, in_lake
from recorded_broker import RecordedBroker

from leveret.pipeline.engines.protocol import rows
from leveret.pipeline.jobs.opening import open_tables
from leveret.pipeline.lake.ingest import IngestOptions, ingest
from leveret.pipeline.lake.lake import read_table
from leveret.pipeline.progress import Progress

pytestmark = pytest.mark.spark


def test_a_copy_is_read_for_itself(spark: Any, tmp_path: Path) -> None:
    """Not the original's files: they may be gone, or go on differently."""
    one = RecordedBroker(tmp_path / "journal")
    one.declare("q")
    one.publish("q", 20)
    one.tick()
    lake, copy = tmp_path / "lake", tmp_path / "with a space, é#"
    fill(tmp_path / "journal", lake)
    told = in_journal(tmp_path / "journal")
    shutil.copytree(lake, copy)
    one.publish("q", 5)
    one.tick()
    options = IngestOptions(str(tmp_path / "journal"), str(lake))
    assert ingest(spark, options, Progress("ingest", io.StringIO()))["rows"]["events"] == 10
    assert in_lake(lake) == in_journal(tmp_path / "journal")
    frame = read_table(spark, str(copy), "events")
    shutil.rmtree(lake)
    assert len(frame.selectExpr("input_file_name()").distinct().collect()) == 1
    assert Counter(row.lsn for row in frame.collect()) == Counter(int(_value(row, "lsn")) for row in told.elements())
    assert {str(row.date) for row in frame.select("date").distinct().collect()} == {"2023-11-14"}


#: The second is a copy that the name of the first would match if it were a pattern.
@pytest.mark.parametrize(
    "name, other", [("1*2", "1x2"), ("1?2", "1x2"), ("{1,2}", "1"), ("100%'\"#;:&=+$,@!()~`<>", "x")]
)
def test_names_that_are_patterns(engine: Any, name: str, other: str, tmp_path: Path) -> None:
    """For DuckDB or Spark: a lake is the one of that name, and a copy beside it is not read with it."""
    one = RecordedBroker(tmp_path / "journal")
    one.declare("q")
    one.publish("q", 3)
    one.tick()
    fill(tmp_path / "journal", tmp_path / name)
    shutil.copytree(tmp_path / name, tmp_path / other)
    tables = open_tables(str(tmp_path / name), engine)
    (row,) = rows(tables.engine, "SELECT count(*) AS n, max(CAST(date AS string)) AS day FROM events WHERE msg_id > 0")
    assert row == {"n": 6, "day": "2023-11-14"}


def _value(row: str, name: str) -> str:
    import json

    return str(json.loads(row)[name])
