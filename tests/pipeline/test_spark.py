"""The data source and ingest in a real Spark: what comes out is what the decoder says, each row exactly once."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")

import io
import json

from recorded_broker import RecordedBroker

from leveret.journal.disk.readers import reader_offsets
from leveret.pipeline.lake import ingest as filling
from leveret.pipeline.lake.ingest import IngestOptions, ingest
from leveret.pipeline.lake.lake import read_table, reader_name
from leveret.pipeline.progress import Progress
from leveret.pipeline.reading.positions import JournalPlan
from leveret.pipeline.reading.table_reader import TableReader
from leveret.pipeline.retries import retry_slow_workers
from leveret.pipeline.schemas import BY_DATE, TABLES, ddl, stored

pytestmark = pytest.mark.spark


def filled(path: Path, messages: int = 40) -> RecordedBroker:
    """Several small segments, an open one."""
    one = RecordedBroker(path, segment_size=3000)
    one.declare("q")
    one.declare("other")
    for number in range(messages):
        one.publish("q" if number % 3 else "other", persistent=number % 2 == 0)
    one.get("q", messages // 4)
    one.tick()
    return one


def expected(path: Path, table: str = "events") -> "Counter[str]":
    """The rows without Spark."""
    reader = TableReader(str(path), table, TABLES[table])
    return Counter(_text(row) for batch in reader.all_batches() for row in batch.to_pylist())


def of_node(rows: "Counter[str]", node: str | None, journal: str | None) -> "Counter[str]":
    """The rows with what a lake adds to those of the journal: which node's they are."""
    return Counter({_text({**json.loads(row), "node": node, "journal": journal}): count for row, count in rows.items()})


def collected(frame: Any) -> "Counter[str]":
    """The rows of a DataFrame."""
    table = frame.drop("date").toArrow() if "date" in frame.columns else frame.toArrow()
    return Counter(_text(row) for row in table.to_pylist())


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, default=lambda value: value.isoformat() if hasattr(value, "isoformat") else str(value))


@pytest.mark.sample
def test_batches(spark: Any, tmp_path: Path) -> None:
    """All rows; filters pushed down or not; chosen columns; an empty result. (The other tables: `test_ingest`.)"""
    one = filled(tmp_path)
    one.checkpoint()
    one.tick()
    events = spark.read.format("leveret_journal").load(str(tmp_path))
    pushing = spark.read.format("leveret_journal").option("pushdown", "true")
    lsn = one.journal.next_lsn // 2
    conditions = (
        f"kind = 'acked' AND lsn > {lsn}",
        f"ts >= timestamp'2023-11-14 22:13:20' AND msg_id BETWEEN 3 AND 9 AND lsn <= {lsn}",
        "NOT kind IN ('enqueued', 'published') AND consumer IS NULL AND queue <> 'q'",
    )
    whole = expected(tmp_path)
    every = sum(whole.values())
    for condition in conditions:
        pushed = pushing.load(str(tmp_path)).where(condition)
        assert collected(events.where(condition)) == collected(pushed), condition
        assert pushed.count() > 0
    assert collected(events) == whole, "queries of one DataFrame know nothing of each other"
    plan = pushing.load(str(tmp_path)).where("kind = 'acked'")._jdf.queryExecution().executedPlan().toString()
    assert "Filter" not in plan.replace("RuntimeFilters", ""), plan
    few = spark.read.format("leveret_journal").option("columns", "msg_id,kind").load(str(tmp_path))
    assert few.columns == ["kind", "msg_id"] and few.count() == every
    named = spark.read.format("leveret_journal").schema("msg_id bigint, kind string").load(str(tmp_path))
    assert named.columns == ["msg_id", "kind"] and named.where("kind IS NOT NULL").count() == every
    with pytest.raises(Exception, match="column 'kind' of table 'events' is kind string NOT NULL, not int"):
        spark.read.format("leveret_journal").schema("kind int").load(str(tmp_path)).collect()


@pytest.mark.sample
def test_without_push_down(spark: Any, tmp_path: Path) -> None:
    """A session that has not enabled it works with the plain reader, as with any other source."""
    filled(tmp_path, 6)
    with pytest.raises(Exception, match="filterPushdown"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
        spark.read.format("leveret_journal").option("pushdown", "true").load(str(tmp_path)).where("lsn = 1").count()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        frame = spark.read.format("leveret_journal").load(str(tmp_path))
        assert frame.where("kind = 'published'").count() == 6
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


@pytest.mark.sample
def test_damage_fails_the_query(spark: Any, tmp_path: Path) -> None:
    """With segment and offset."""
    filled(tmp_path)
    path = sorted(tmp_path.glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[900] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match=f"segment {path.name}, offset .*: a bad block"):
        spark.read.format("leveret_journal").load(str(tmp_path)).collect()
    passing = spark.read.format("leveret_journal").option("failOnDataLoss", "false")
    assert passing.load(str(tmp_path)).count() > 0
    (hole,) = passing.option("table", "holes").load(str(tmp_path)).collect()
    assert (hole.why, hole.segment) == ("a bad block", path.name)


def test_a_stream_comes_to_the_same(spark: Any, tmp_path: Path) -> None:
    """Batch by batch while the broker writes, stopped and begun again, a little at a time: each row once."""
    journal, sink = tmp_path / "journal", tmp_path / "sink"
    one = filled(journal, 10)

    def run(octets: int) -> int:
        return retry_slow_workers(lambda: run_once(octets), Progress("test"))

    def run_once(octets: int) -> int:
        stream = spark.readStream.format("leveret_journal").option("reader", "test")
        stream = stream.option("maxBytesPerTrigger", str(octets)).load(str(journal))
        query = stream.writeStream.format("parquet").option("path", str(sink))
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        return len([batch for batch in query.recentProgress if batch["numInputRows"]])

    assert run(1 << 30) == 1
    first = reader_offsets(str(journal))["test"]
    for _ in range(30):
        one.publish("q")
    one.tick()
    assert run(4000) > 1
    assert reader_offsets(str(journal))["test"] > first
    assert run(4000) == 0
    one.close()
    run(1 << 30)
    assert collected(spark.read.parquet(str(sink))) == expected(journal)


def test_options_of_the_kafka_source(spark: Any, tmp_path: Path) -> None:
    """The parts of a batch; records of a micro-batch, and how many it is behind; a stream that begins where another
    one was, or at a time."""
    journal = tmp_path / "journal"
    filled(journal).close()

    def batch(**options: str) -> Any:
        return spark.read.format("leveret_journal").options(**options).load(str(journal))

    def stream(name: str, **options: str) -> "tuple[Counter[str], list[dict[str, Any]]]":
        query = spark.readStream.format("leveret_journal").options(**options).load(str(journal))
        writer = query.writeStream.format("parquet").option("path", str(tmp_path / name)).trigger(availableNow=True)
        running = writer.option("checkpointLocation", str(tmp_path / f"{name}-checkpoint")).start()
        running.awaitTermination()
        progress = [one["sources"][0] for one in running.recentProgress]
        return collected(spark.read.parquet(str(tmp_path / name))), progress

    whole = expected(journal)
    assert batch().rdd.getNumPartitions() < 12 <= batch(minPartitions="12").rdd.getNumPartitions()
    assert collected(batch(minPartitions="12")) == whole
    rows, first = stream("first", maxOffsetsPerTrigger="20")
    assert rows == whole
    behind = [json.loads(one["latestOffset"])["offsetsBehindLatest"] for one in first]
    assert len(set(behind)) > 3 and behind == sorted(behind, reverse=True) and behind[-1] == 0
    middle = first[1]["endOffset"]
    rows, _ = stream("rest", startingOffsets=middle)
    assert rows == collected(batch(startingOffsets=middle)) == whole - collected(batch(endingOffsets=middle)) != whole
    assert collected(batch(startingTimestamp="4102444800000")) == Counter()
    with pytest.raises(Exception, match="a batch that begins with latest has no rows"):
        collected(batch(startingOffsets="latest"))
    assert stream("timed", startingTimestamp="1000")[0] == whole


def test_ingest(spark: Any, tmp_path: Path) -> None:
    """The lake has what the journal has, each row with its node; again: nothing; more: what is new; schemas are those
    of the contract."""
    journal, lake = tmp_path / "journal", str(tmp_path / "lake")
    one = filled(journal)
    one.checkpoint()
    one.tick()
    said = io.StringIO()

    def run() -> dict[str, Any]:
        options = IngestOptions(str(journal), lake, payloads=True, node="east")
        return ingest(spark, options, Progress("ingest", said))

    def wanted_rows(table: str) -> "Counter[str]":
        return of_node(expected(journal, table), "east", JournalPlan(str(journal)).journal_id)

    for table in TABLES:
        assert read_table(spark, lake, table).count() == 0, "before there is a lake"
    first = run()
    for table in TABLES:
        frame = read_table(spark, lake, table)
        assert collected(frame) == wanted_rows(table), table
        assert first["rows"][table] == frame.count()
        wanted = ddl(stored(table)).replace(" NOT NULL", "").split(", ")
        assert [f"{field.name} {field.dataType.simpleString()}" for field in frame.schema] == wanted + (
            ["date date"] if table in BY_DATE else []
        )
    assert set(run()["rows"].values()) == {0}
    one.publish("q", 5)
    one.close()
    assert run()["rows"]["events"] == 10
    for table in TABLES:
        assert collected(read_table(spark, lake, table)) == wanted_rows(table), table
    assert {row.date.isoformat() for row in read_table(spark, lake, "events").select("date").collect()} == {
        "2023-11-14"
    }
    kept = reader_offsets(str(journal))
    assert {kept[reader_name(lake, table)] for table in TABLES} == {JournalPlan(str(journal)).end().lsn}
    lines = [json.loads(line) for line in said.getvalue().splitlines()]
    assert {line["step"] for line in lines} == {"begin", "part", "batch"} and all(
        line["job"] == "ingest" for line in lines
    )


@pytest.fixture
def one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each table of a lake is a query of its own: some tests need only the first, beside that of holes."""
    monkeypatch.setattr(filling, "COMMIT_ORDER", ("events", "holes"))


@pytest.mark.sample
@pytest.mark.usefixtures("one_table")
def test_what_was_deleted_before_the_first_ingest_is_said(spark: Any, tmp_path: Path) -> None:
    """A journal that keeps nothing for anybody may have lost its beginning: figures will be those of the rest."""
    journal, lake = tmp_path / "journal", str(tmp_path / "lake")
    filled(journal)
    first, second, *_ = sorted(journal.glob("*.log"))
    first.unlink()
    said = io.StringIO()
    told = ingest(spark, IngestOptions(str(journal), lake), Progress("ingest", said))
    assert told["missing"].startswith(f"records 1 to {int(second.stem) - 1} were deleted before the first ingest")
    assert '"step": "missing"' in said.getvalue()
    assert "missing" not in ingest(spark, IngestOptions(str(journal), lake), Progress("ingest", io.StringIO()))


def test_a_lake_that_sparks_own_sink_filled(spark: Any, tmp_path: Path) -> None:
    """As the release before did it, the last batch killed when it was listed but not committed: read as it is, then
    made Delta tables by the next ingest, which goes on behind it. Rows from before have no node, since that sink knew
    none, and keep none: they are the first node's. Those of the next ingest have it."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = filled(journal, 12)

    def as_before(table: str) -> None:
        stream = spark.readStream.format("leveret_journal").option("table", table).load(str(journal))
        stream = stream.selectExpr("*", "to_date(ts) AS date") if table in BY_DATE else stream
        writer = stream.writeStream.format("parquet").option("path", str(lake / table))
        writer = writer.option("checkpointLocation", str(lake / "_checkpoints" / table))
        writer = writer.partitionBy("date") if table in BY_DATE else writer
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()

    before = {}
    for table in ("events", "segments"):
        retry_slow_workers(lambda table=table: as_before(table), Progress("test"))
        before[table] = expected(journal, table)
    one.publish("q", 3)
    one.tick()
    retry_slow_workers(lambda: as_before("events"), Progress("test"))
    before["events"] = expected(journal)
    (lake / "_checkpoints" / "events" / "commits" / "1").unlink()
    assert collected(read_table(spark, str(lake), "events")) == of_node(before["events"], None, None)
    one.publish("q", 5)
    one.tick()
    said = io.StringIO()
    told = ingest(None, IngestOptions(str(journal), str(lake), node="east"), Progress("ingest", said))
    assert told["rows"]["events"] == 10 and said.getvalue().count('"migrated"') == 2
    for table, old in before.items():
        new = of_node(expected(journal, table) - old, "east", JournalPlan(str(journal)).journal_id)
        assert collected(read_table(spark, str(lake), table)) == of_node(old, None, None) + new, table
    assert not list(lake.rglob("_spark_metadata")) and not (lake / "_checkpoints").exists()
