"""A journal as rows: what the broker did is what the tables say, without any Java."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")

from recorded_broker import RecordedBroker  # noqa: E402

from leveret.engine.clients.session import NACKED  # noqa: E402
from leveret.engine.events import EventKind  # noqa: E402
from leveret.engine.messages.field_table import Field  # noqa: E402
from leveret.journal import Damaged  # noqa: E402
from leveret.journal.format.heap import IdsSeen, encode_runs  # noqa: E402
from leveret.journal.format.record import CODE_OF, DURABLE, QUEUE, RANGE, VHOST, Record  # noqa: E402
from leveret.pipeline.reading.events import ROWS  # noqa: E402
from leveret.pipeline.reading.predicate import Predicate  # noqa: E402
from leveret.pipeline.reading.table_reader import TableReader, reader_of  # noqa: E402
from leveret.pipeline.schemas import TABLES, arrow, chosen  # noqa: E402


def rows(where: Path, table: str = "events", **more: Any) -> list[dict[str, Any]]:
    """All rows of a table that may be trusted."""
    reader = TableReader(str(where), table, more.pop("columns", TABLES[table]), **more)
    found: list[dict[str, Any]] = []
    for batch in reader.all_batches():
        assert batch.schema == arrow(reader.columns)
        batch.validate(full=True)
        found += batch.to_pylist()
    return found


@pytest.fixture
def story(tmp_path: Path) -> RecordedBroker:
    """Messages through most of what can happen to them."""
    one = RecordedBroker(tmp_path)
    one.declare("orders")
    one.declare("fleeting", durable=False)
    one.publish("orders", 3, b"abc")
    one.publish("fleeting", 2, persistent=False, priority=4)
    one.session.consume(one.vhost.queues.named("orders"), "tag", no_ack=False, exclusive=False, arguments={})
    one.settle()
    one.session.reject(1, requeue=True, why=NACKED)
    one.settle()
    one.session.ack(4)
    one.session.ack(2)
    one.settle()
    one.clock.advance_ns(5_000_000)
    one.publish("fleeting", expiration=b"1500", persistent=False)
    one.publish("nowhere")
    one.tick()
    return one


def test_rows_are_what_happened(story: RecordedBroker, tmp_path: Path) -> None:
    """Kinds, counts and names; the broker's own counters agree."""
    found = rows(tmp_path)
    tally = Counter(row["kind"] for row in found)
    counters = story.broker.statistics().counters
    for kind, counter in (("published", "published"), ("enqueued", "enqueued"), ("delivered", "delivered")):
        assert tally[kind] == counters[counter]
    assert tally["acked"] == counters["acknowledged"] == 2 and tally["requeued"] == 1 and tally["unroutable"] == 1
    assert [row["lsn"] for row in found] == sorted(row["lsn"] for row in found)
    assert {row["segment"] for row in found} == {f"{1:020d}.log"}
    assert {row["vhost"] for row in found if row["queue"]} == {"/"}
    first = [row for row in found if row["msg_id"] == 1]
    assert [row["kind"] for row in first] == ["published", "enqueued", "delivered", "requeued", "delivered", "acked"]
    published, enqueued, delivered, requeued, again, acked = first
    assert published["size_bytes"] == enqueued["size_bytes"] == 3 and published["address"] == ""
    assert (delivered["attempt"], again["attempt"], acked["attempt"]) == (1, 2, 0)
    assert {row["consumer"] for row in (delivered, again, acked)} == {"tag"} and enqueued["consumer"] is None
    assert delivered["conn_id"] == acked["conn_id"] != 0 and enqueued["conn_id"] == 0
    assert requeued["reason"] == "nacked" and enqueued["reason"] is None
    assert enqueued["flags"] & DURABLE and not delivered["flags"] & DURABLE and again["flags"] & 32


def test_times_are_relative_and_utc(story: RecordedBroker, tmp_path: Path) -> None:
    """`arg_ms` is from the row's own time on; priorities and sizes are the message's."""
    found = rows(tmp_path)
    wall = story.clock.wall_ms()
    late = [row for row in found if row["arg_ms"] is not None]
    assert [(row["kind"], row["arg_ms"]) for row in late] == [("published", 1500), ("enqueued", 1500)]
    assert late[0]["ts"].timestamp() * 1000 == wall
    assert {row["priority"] for row in found if row["queue"] == "fleeting" and row["kind"] == "published"} <= {0, 4}


def test_objects_name_themselves(story: RecordedBroker, tmp_path: Path) -> None:
    """Connections and consumers by name, the start of the broker by what it records."""
    told = {row["kind"]: (row["reason"], row["vhost"]) for row in rows(tmp_path) if row["reason"]}
    assert told["connection_opened"] == ("client", "/") and told["consumer_added"] == ("tag", "/")
    assert told["settings_changed"] == ('{"journal": {"scope": "all"}}', "")


def test_one_record_for_many_is_many_rows(tmp_path: Path) -> None:
    """A deleted queue: a row for each message that was in it, and for no other."""
    one = RecordedBroker(tmp_path)
    one.declare("q")
    for number in range(7):
        one.publish("q", persistent=number % 3 != 0)
    one.get("q", 2)
    one.vhost.queues.delete("q", one.session.client)
    one.tick()
    gone = [row for row in rows(tmp_path) if row["kind"] == "deleted"]
    assert sorted(row["msg_id"] for row in gone) == [3, 4, 5, 6, 7]
    assert len({row["lsn"] for row in gone}) == 2 and all(row["flags"] & RANGE for row in gone)
    assert len({(row["lsn"], row["msg_id"]) for row in rows(tmp_path)}) == len(rows(tmp_path))


def test_a_range_larger_than_any_batch(tmp_path: Path) -> None:
    """A million messages in one record, between others, come as batches of bounded size, in order, none twice."""
    one = RecordedBroker(tmp_path)
    queue = one.journal.objects.define(QUEUE, 0, "big")
    kind = CODE_OF[EventKind.PURGED]
    ids = [*range(10, 200_010), *range(300_000, 300_005)]
    records = [
        Record(kind, 0, 1, 4, RANGE, queue_id=queue, size=4),
        Record(kind, 0, 10, 300_004, RANGE, queue_id=queue, size=len(ids), heap=encode_runs(ids)),
        Record(kind, 0, 400_000, 0, 0, queue_id=queue),
        Record(kind, 0, 500_000, 1_499_999, RANGE, queue_id=queue, size=1_000_000),
    ]
    for record in records:
        one.journal.turns.append(record)
    one.tick()
    reader = TableReader(str(tmp_path), "events", chosen("events", ["msg_id", "kind"]))
    reader.predicate.accept("=", "kind", "purged")
    batches = list(reader.all_batches())
    assert max(batch.num_rows for batch in batches) <= 2 * ROWS
    found = [id_ for batch in batches for id_ in batch.column("msg_id").to_pylist()]
    assert found == [1, 2, 3, 4, *ids, 400_000, *range(500_000, 1_500_000)]


@pytest.mark.parametrize("heap", [b"", encode_runs([1, 2, 9]), b"\x01\0\0\0\xff\xff\xff\xff"])
def test_a_range_that_does_not_say_which(tmp_path: Path, heap: bytes) -> None:
    """Too few ids, too many, or cut short: an error with the LSN, never guessed rows."""
    one = RecordedBroker(tmp_path)
    lsn = one.journal.turns.append(Record(CODE_OF[EventKind.PURGED], 0, 1, 9, RANGE, size=4, heap=heap))
    one.tick()
    with pytest.raises(Damaged, match=f"{lsn}"):
        rows(tmp_path)


def test_snapshots_say_what_is_in_the_queues(tmp_path: Path) -> None:
    """Rows by queue and message; the checkpoint says from where to where they are one picture."""
    one = RecordedBroker(tmp_path)
    one.declare("a")
    one.declare("b")
    one.publish("a", 5)
    one.publish("b", 2)
    one.publish("b", persistent=False)
    one.get("a", 2)
    one.session.get(one.vhost.queues.named("a"), no_ack=False)  # out, and so still there
    one.close()
    found = rows(tmp_path, "snapshots")
    assert sorted((row["queue"], row["vhost"], row["msg_id"]) for row in found) == [
        ("a", "/", 3),
        ("a", "/", 4),
        ("a", "/", 5),
        ("b", "/", 6),
        ("b", "/", 7),
    ]
    (checkpoint,) = rows(tmp_path, "checkpoints")
    assert all(checkpoint["begin_lsn"] <= row["lsn"] < checkpoint["end_lsn"] for row in found)
    assert not [row for row in rows(tmp_path) if row["lsn"] >= checkpoint["begin_lsn"]], "nothing happened"


@pytest.mark.parametrize("scope, fsync", [("all", "commit"), ("durable", "interval")])
def test_segments_tell_what_is_recorded(tmp_path: Path, scope: str, fsync: str) -> None:
    """So that a job can say `not recorded` instead of zero."""
    one = RecordedBroker(tmp_path, scope=scope, fsync=fsync, segment_size=2000)
    one.declare("q")
    for _ in range(30):
        one.publish("q")
    one.close()
    found = rows(tmp_path, "segments")
    assert len(found) > 2 and {(row["scope"], row["fsync"], row["program"]) for row in found} == {
        (scope, fsync, "leveret")
    }
    assert [row["base_lsn"] for row in found] == [int(row["segment"].split(".")[0]) for row in found]
    kinds = {row["kind"] for row in rows(tmp_path)}
    assert ("connection_opened" in kinds) is (scope == "all")


def test_payloads_are_as_published(tmp_path: Path) -> None:
    """Body octet by octet, headers and properties as JSON, also octets that are no text; copies name their cause."""
    one = RecordedBroker(tmp_path)
    arguments = {"x-dead-letter-exchange": Field("S", b""), "x-dead-letter-routing-key": Field("S", b"dead")}
    one.declare("q", arguments=arguments)
    one.declare("dead")
    headers = {"n": Field("l", 5), "deep": Field("F", {"t": Field("t", True)}), "raw": Field("x", b"\xff\0")}
    one.publish("q", 1, b"\0\xffbody", headers=headers, correlation_id=b"c-1")
    one.session.get(one.vhost.queues.named("q"), no_ack=False)
    one.session.reject(1, requeue=False)
    one.tick()
    first, copy = rows(tmp_path, "payloads")
    assert first["body"] == copy["body"] == b"\0\xffbody" and first["routing_key"] == "q"
    assert first["headers_json"] == '{"n": 5, "deep": {"t": true}, "raw": {"$binary": "/wA="}}'
    assert first["properties_json"] == '{"delivery_mode": 2, "correlation_id": "c-1"}'
    assert (first["cause_id"], copy["cause_id"]) == (0, first["msg_id"])


def test_predicates_give_the_same_rows_as_a_filter_behind(story: RecordedBroker, tmp_path: Path) -> None:
    """Whatever is pushed down."""
    everything = rows(tmp_path)
    middle = everything[len(everything) // 2]
    cases: list[tuple[str, str, Any]] = [
        ("=", "kind", "acked"),
        ("in", "kind", ["acked", "published"]),
        ("!=", "kind", "enqueued"),
        ("=", "queue", "orders"),
        ("not in", "queue", ["orders", ""]),
        ("=", "vhost", "/"),
        ("=", "address", ""),
        (">", "lsn", middle["lsn"]),
        ("<=", "lsn", middle["lsn"]),
        (">=", "msg_id", 3),
        ("<", "ts", everything[-1]["ts"]),
        ("=", "ts", everything[-1]["ts"]),
        ("in", "msg_id", [1, 5]),
        ("=", "kind", "nothing of the kind"),
        (">", "msg_id", (1 << 63) - 1),
        ("<", "msg_id", -(1 << 63)),
    ]
    compare = {
        "=": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
        "in": lambda a, b: a in b,
        "not in": lambda a, b: a not in b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
    }
    for operator, column, value in cases:
        predicate = Predicate()
        assert predicate.accept(operator, column, value), (operator, column)
        expected = [row for row in everything if compare[operator](row[column], value)]
        assert rows(tmp_path, predicate=predicate) == expected, (operator, column, value)
    predicate = Predicate()
    assert not predicate.accept(">", "queue", "a") and not predicate.accept("=", "lsn", "1")
    assert not predicate.accept("=", "consumer", "tag")
    assert rows(tmp_path, predicate=predicate) == everything


def test_options_say_what_is_wrong() -> None:
    """Unknown names are errors that list the known ones."""
    assert [column.name for column in reader_of({"path": "p", "COLUMNS": "kind, lsn"}).columns] == ["lsn", "kind"]
    with pytest.raises(ValueError, match="no column 'size'; it has lsn"):
        reader_of({"path": "p", "columns": "size"})
    with pytest.raises(ValueError, match="no table 'event'; there are events, payloads"):
        reader_of({"path": "p", "table": "event"})
    with pytest.raises(ValueError, match="no option 'colums'"):
        reader_of({"path": "p", "colums": "lsn"})
    with pytest.raises(ValueError, match="say which journal"):
        reader_of({})


def test_duplicate_ids_are_no_events(tmp_path: Path) -> None:
    """Records of what addresses remember are passed over."""
    one = RecordedBroker(tmp_path)
    one.declare("q")
    one.publish("q", 2)
    one.tick()
    before = rows(tmp_path)
    seen = IdsSeen("q", 9, [("one", 1)])
    one.journal.objects.ids_seen(one.journal.objects.define(VHOST, 0, "/"), seen)
    one.tick()
    assert rows(tmp_path) == before
