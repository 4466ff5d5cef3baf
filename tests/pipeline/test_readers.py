"""The readers that Spark gets, without Spark's Java: filters, offsets, admission control, registration."""

import json
import pickle
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")

from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    EqualTo,
    GreaterThan,
    In,
    IsNotNull,
    IsNull,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from recorded_broker import RecordedBroker

from leveret.journal import JournalError
from leveret.journal.disk.readers import reader_offsets
from leveret.pipeline.reading import events
from leveret.pipeline.reading.positions import JournalGone
from leveret.pipeline.reading.source import JournalSource, PlainReader, PushingReader, StreamReader


def options(path: Path, **more: str) -> Any:
    """As Spark hands them over."""
    return CaseInsensitiveDict({"path": str(path), **more})


@pytest.fixture
def broker(tmp_path: Path) -> RecordedBroker:
    """Several segments."""
    one = RecordedBroker(tmp_path, segment_size=3000)
    one.declare("q")
    for _ in range(40):
        one.publish("q")
    one.tick()
    return one


def rows(reader: Any, partitions: list[Any]) -> int:
    """What tasks would read; each gets its own copies of everything."""
    return sum(
        batch.num_rows
        for partition in partitions
        for batch in pickle.loads(pickle.dumps(reader)).read(pickle.loads(pickle.dumps(partition)))
    )


def test_filters_taken_and_left(broker: RecordedBroker, tmp_path: Path) -> None:
    """What is answered exactly is taken; the rest is given back, the same objects."""
    reader = PushingReader(options(tmp_path))
    when = datetime(2023, 11, 14, tzinfo=UTC)
    taken = [
        EqualTo(("kind",), "published"),
        In(("queue",), ("q", "")),
        Not(EqualTo(("kind",), "acked")),
        GreaterThan(("ts",), when),
        LessThanOrEqual(("msg_id",), 30),
        IsNotNull(("queue",)),
    ]
    left = [
        IsNotNull(("consumer",)),
        IsNull(("reason",)),
        StringStartsWith(("queue",), "q"),
        GreaterThan(("queue",), "a"),
        EqualTo(("size_bytes",), 1),
        EqualTo(("lsn",), None),
        Not(StringStartsWith(("queue",), "x")),
        EqualTo(("no", "column"), 1),
    ]
    assert list(reader.pushFilters([*taken, *left])) == left
    assert rows(reader, reader.partitions()) == 30
    other = PushingReader(options(tmp_path, table="snapshots"))
    assert list(other.pushFilters([EqualTo(("queue",), "q")])) != []


@pytest.mark.parametrize(
    ("filters", "is_by_footer"),
    [
        ([LessThanOrEqual(("lsn",), 30)], True),
        ([GreaterThan(("ts",), datetime(2023, 11, 14, 23, tzinfo=UTC))], True),
        ([EqualTo(("kind",), "acked")], True),
        ([EqualTo(("queue",), "rare")], False),
        ([EqualTo(("vhost",), "/"), In(("queue",), ("rare", "none"))], False),
    ],
)
def test_only_what_is_asked_for_is_decoded(
    filters: list[Any], is_by_footer: bool, broker: RecordedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns that are named, of rows that filters want; segments without any are passed over, by their footers."""
    broker.clock.advance_ns(3600 * 10**9)
    broker.declare("rare")
    broker.publish("rare")
    broker.get("q", 2)
    broker.tick()
    decoded: Counter[str] = Counter()

    def counting(name: str, make: Any) -> Any:
        def counted(some: Any) -> Any:
            decoded[name] += len(some.index)
            return make(some)

        return counted

    for name, make in events.COLUMNS.items():
        monkeypatch.setitem(events.COLUMNS, name, counting(name, make))
    plain = PlainReader(options(tmp_path))
    every = len(plain.partitions())
    whole = rows(plain, plain.partitions())
    assert decoded == dict.fromkeys(events.COLUMNS, whole)
    decoded.clear()
    reader = PushingReader(options(tmp_path, columns="lsn,ts,kind,queue,vhost"))
    assert list(reader.pushFilters(filters)) == []
    found = reader.partitions()
    assert (len(found) < every) == is_by_footer
    count = rows(reader, found)
    assert 0 < count < whole // 2 and decoded == dict.fromkeys(("lsn", "ts", "kind", "queue", "vhost"), count)


def test_schemas(tmp_path: Path) -> None:
    """As Spark asks for them."""
    assert (
        JournalSource(options(tmp_path, columns="lsn,queue")).schema() == "lsn bigint NOT NULL, queue string NOT NULL"
    )
    assert "attempt smallint NOT NULL" in JournalSource(options(tmp_path)).schema()


def test_a_stream_goes_step_by_step(broker: RecordedBroker, tmp_path: Path) -> None:
    """Offsets that a checkpoint can hold; limits; nothing new is the same offset; retention waits for the commit."""
    reader = StreamReader(options(tmp_path, reader="r", maxBytesPerTrigger="4000"))
    start = reader.initialOffset()
    assert reader_offsets(str(tmp_path)) == {"r": 0}
    assert reader.getDefaultReadLimit() == ReadMaxBytes(4000)
    at, total, steps = start, 0, 0
    while (following := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        again = StreamReader(options(tmp_path, reader="r", maxBytesPerTrigger="4000"))  # as after a kill
        found = rows(again, again.partitions(at, following))
        assert found == rows(reader, reader.partitions(at, following))
        total, at, steps = total + found, following, steps + 1
    everything = reader.latestOffset(start, ReadAllAvailable())
    assert {**everything, "offsetsBehindLatest": 0} == {**at, "offsetsBehindLatest": 0} == reader.reportLatestOffset()
    assert steps > 2
    assert total == rows(reader, reader.partitions(start, everything))
    reader.commit(at)
    assert reader_offsets(str(tmp_path)) == {"r": at["lsn"]}
    assert rows(reader, reader.partitions(at, at)) == 0 and len(reader.partitions(at, at)) == 1


def test_available_now_ends_where_it_began(broker: RecordedBroker, tmp_path: Path) -> None:
    """What comes later is for the next run."""
    reader = StreamReader(options(tmp_path))
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start, ReadAllAvailable())
    broker.publish("q", 5)
    broker.tick()
    assert reader.latestOffset(start, ReadAllAvailable()) == end == reader.latestOffset(end, ReadAllAvailable())
    assert reader_offsets(str(tmp_path)) == {}, "it has no name, and keeps nothing"
    later = StreamReader(options(tmp_path))
    assert later.latestOffset(end, ReadAllAvailable()) != end


def test_another_journal_is_refused(broker: RecordedBroker, tmp_path: Path) -> None:
    """Shorter or longer than the one that was read: said, and no reader is registered at a place of the other."""
    place = StreamReader(options(tmp_path)).reportLatestOffset()
    assert place is not None
    for messages in (1, 400):
        path = tmp_path / f"new-{messages}"
        one = RecordedBroker(path, segment_size=3000)
        one.declare("q")
        one.publish("q", messages)
        one.close()
        reader = StreamReader(options(path, reader="r"))
        with pytest.raises(JournalError, match="this is journal .*, not .*, which this reader has read"):
            reader.latestOffset(place, ReadAllAvailable())
        with pytest.raises(JournalError, match="this is journal"):
            StreamReader(options(path, reader="r", startingOffsets=json.dumps(place))).initialOffset()
        assert reader_offsets(str(path)) == {}


def test_an_older_copy_of_the_journal_is_refused(broker: RecordedBroker, tmp_path: Path) -> None:
    """It is the same journal by its name, but what was read in it is not there."""
    place = StreamReader(options(tmp_path)).reportLatestOffset()
    for path in sorted(tmp_path.glob("*.log"))[2:]:
        path.unlink()
    with pytest.raises(JournalError, match="the journal ends before record .* up to which this reader has read"):
        StreamReader(options(tmp_path, reader="r")).latestOffset(place or {}, ReadAllAvailable())
    assert reader_offsets(str(tmp_path)) == {}


def test_bad_options(tmp_path: Path) -> None:
    """Said when the query is made."""
    for name in ("maxBytesPerTrigger", "maxOffsetsPerTrigger", "minPartitions"):
        with pytest.raises(ValueError, match="is not a whole number above 0"):
            StreamReader(options(tmp_path, **{name: "0"}))
    with pytest.raises(ValueError, match="neither earliest, latest nor JSON"):
        StreamReader(options(tmp_path, startingOffsets="{"))
    with pytest.raises(ValueError, match="not a number of milliseconds"):
        PlainReader(options(tmp_path, endingTimestamp="90s"))
    with pytest.raises(ValueError, match="a stream has no end"):
        StreamReader(options(tmp_path, endingOffsets="latest"))


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"startingOffsets": "latest"}, "a batch that begins with latest has no rows"),
        ({"endingOffsets": "earliest"}, "a batch that ends with earliest has no rows"),
        ({"startingTimestamp": "2000", "endingTimestamp": "1000"}, "it is before startingTimestamp"),
    ],
)
def test_bounds_without_a_row_between(bounds: dict[str, str], words: str, tmp_path: Path) -> None:
    """A mistake: said when the query is made."""
    with pytest.raises(ValueError, match=words):
        PlainReader(options(tmp_path, **bounds))


def test_a_batch_that_begins_behind_its_end(broker: RecordedBroker, tmp_path: Path) -> None:
    """By positions, or by one and a time: said when it is planned. From a place to the same there is nothing."""
    end = json.dumps(StreamReader(options(tmp_path)).reportLatestOffset())
    with pytest.raises(ValueError, match="and ends before it, with 1"):
        PlainReader(options(tmp_path, startingOffsets=end, endingTimestamp="1000")).partitions()
    empty = PlainReader(options(tmp_path, startingOffsets=end, endingOffsets=end))
    assert rows(empty, empty.partitions()) == 0


def test_options_of_the_kafka_source(broker: RecordedBroker, tmp_path: Path) -> None:
    """Where it begins and ends, how much it takes at once, and how far behind it is."""
    end = StreamReader(options(tmp_path)).plan.end()
    whole = PlainReader(options(tmp_path))
    assert len(PlainReader(options(tmp_path, minPartitions="12")).partitions()) >= 12 > len(whole.partitions())
    middle = StreamReader(options(tmp_path, maxOffsetsPerTrigger="20"))
    assert middle.getDefaultReadLimit() == ReadMaxRows(20)
    at = middle.latestOffset(middle.initialOffset(), ReadMaxRows(20))
    assert 0 < at["lsn"] <= 21
    report = middle.reportLatestOffset()
    assert report is not None and report["offsetsBehindLatest"] == end.lsn - at["lsn"] > 0
    again = StreamReader(options(tmp_path))  # it plans a micro-batch that was not committed, and says how far that is
    assert again.reportLatestOffset() == {**end.as_dict(), "offsetsBehindLatest": None}
    again.partitions(again.initialOffset(), at)
    assert again.reportLatestOffset() == report
    ending = PlainReader(options(tmp_path, endingOffsets=json.dumps(at)))
    beginning = PlainReader(options(tmp_path, startingOffsets=json.dumps(at)))
    parts = [rows(one, one.partitions()) for one in (ending, beginning, whole)]
    assert parts[0] + parts[1] == parts[2] and all(parts)
    late = {"startingTimestamp": "4102444800000"}
    assert StreamReader(options(tmp_path, **late)).initialOffset() == end.as_dict()
    assert StreamReader(options(tmp_path, startingOffsets="latest", reader="r")).initialOffset() == end.as_dict()
    assert reader_offsets(str(tmp_path)) == {"r": end.lsn}
    early = PlainReader(options(tmp_path, startingTimestamp="1000", endingTimestamp="4102444800000"))
    assert rows(early, early.partitions()) == parts[2]


@pytest.mark.parametrize("start", [{"startingOffsets": "latest"}, {"startingTimestamp": "4102444800000"}])
def test_the_first_micro_batch_is_planned_again(start: dict[str, str], broker: RecordedBroker, tmp_path: Path) -> None:
    """Until it is committed Spark asks for its start anew: it is the same, and what follows is kept."""
    first = StreamReader(options(tmp_path, reader="r", **start))
    begin = first.initialOffset()
    for messages in (1, 100):
        broker.publish("q", messages)
        broker.tick()
    end = first.latestOffset(begin, ReadAllAvailable())
    planned = rows(first, first.partitions(begin, end))
    broker.publish("q", 5)
    broker.tick()
    again = StreamReader(options(tmp_path, reader="r", **start))  # as after a kill
    assert again.initialOffset() == begin and planned == rows(again, again.partitions(begin, end)) > 0
    assert reader_offsets(str(tmp_path)) == {"r": begin["lsn"]}
    last = again.latestOffset(end, ReadAllAvailable())
    assert last["lsn"] > end["lsn"] and reader_offsets(str(tmp_path)) == {"r": end["lsn"]}
    earlier = StreamReader(options(tmp_path, reader="r", startingTimestamp="1000"))
    assert earlier.initialOffset()["lsn"] == 1 and reader_offsets(str(tmp_path)) == {"r": 1}, "as it was asked to"


def test_a_start_behind_the_end_of_the_first_micro_batch(broker: RecordedBroker, tmp_path: Path) -> None:
    """Without a name nothing keeps the start: the rows between are not lost without a word."""
    first = StreamReader(options(tmp_path, startingOffsets="latest"))
    begin = first.initialOffset()
    for messages in (10, 5):
        broker.publish("q", messages)
        broker.tick()
        if messages == 10:
            end = first.latestOffset(begin, ReadAllAvailable())
    again = StreamReader(options(tmp_path, startingOffsets="latest"))
    with pytest.raises(JournalError, match=f"a micro-batch that ends with {end['lsn']} and was not committed"):
        again.partitions(again.initialOffset(), end)
    lax = StreamReader(options(tmp_path, startingOffsets="latest", failOnDataLoss="false"))
    assert rows(lax, lax.partitions(lax.initialOffset(), end)) == 0


def test_the_place_behind_a_record(tmp_path: Path) -> None:
    """Of each block's end, also of one in a segment that is sealed; what was deleted is gone."""
    one = RecordedBroker(tmp_path, segment_size=3000)
    one.declare("q")
    for _ in range(60):
        one.publish("q")
    one.tick()
    plan = StreamReader(options(tmp_path)).plan
    end, at, seen = plan.end(), plan.first(), 0
    while at != end:
        at = plan.advance(at, end, 1)
        place = plan.position_before(at.lsn)
        assert place.lsn == at.lsn and place[1:3] >= at[1:3], "perhaps behind a block without records"
        seen += 1
    assert seen > 20 and plan.position_before(0).lsn == 0
    first = min(tmp_path.glob("*.log"))
    first.unlink()
    with pytest.raises(JournalGone):
        plan.check_available(plan.position_before(5))


def test_a_schema_chooses_columns(broker: RecordedBroker, tmp_path: Path) -> None:
    """`.schema(...)`: in its order; what the table does not have is refused when the query is planned."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    asked = StructType([StructField("queue", StringType()), StructField("lsn", LongType(), False)])
    source = JournalSource(options(tmp_path))
    reader: Any = source.reader(asked)
    batch = next(reader.read(reader.partitions()[0]))
    assert [(one.name, one.nullable) for one in batch.schema] == [("queue", True), ("lsn", False)]
    stream: Any = source.streamReader(asked)
    assert stream.table.columns == reader.table.columns
    for field, words in (
        (StructField("lsn", StringType()), "column 'lsn' of table 'events' is lsn bigint NOT NULL, not string"),
        (StructField("consumer", StringType(), False), "column 'consumer' .* is consumer string, not string NOT NULL"),
        (StructField("colour", StringType()), "table 'events' has no column 'colour'; it has lsn, "),
    ):
        with pytest.raises(ValueError, match=words):
            source.reader(StructType([field]))


def test_days_are_joined_by_their_bounds(tmp_path: Path) -> None:
    """Each row is in one of them, also those of the block in which a day ends: it is of the next one."""
    one = RecordedBroker(tmp_path)
    one.declare("q")
    one.tick()
    for _ in range(10):
        one.publish("q")
        one.clock.advance_ns(10_000_000)
    one.tick()
    one.close()
    whole = PlainReader(options(tmp_path))
    total = rows(whole, whole.partitions())
    times = [
        row["ts"]
        for part in whole.partitions()
        for batch in whole.read(part)
        for row in batch.to_pylist()
        if row["kind"] == "published"
    ]
    moment = str(int(times[5].timestamp() * 1000))
    counts = []
    for name in ("endingTimestamp", "startingTimestamp"):
        half = PlainReader(options(tmp_path, **{name: moment}))
        counts.append(rows(half, half.partitions()))
    assert sum(counts) == total and all(counts)
