"""trace, deadletters and replay: planted stories; replay through the sink into a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pika
import pytest
from broker_process import leveret_serve
from recorded_broker import RecordedBroker
from told_events import answered, at, told

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
import pyarrow
from pyarrow import parquet

from leveret.engine import Field
from leveret.pipeline.amqp.publishing import NotSent
from leveret.pipeline.answers import Answer
from leveret.pipeline.engines.protocol import rows as rows_of
from leveret.pipeline.error_texts import spark_error_text
from leveret.pipeline.jobs import commands, functions
from leveret.pipeline.jobs.failures import deadletters
from leveret.pipeline.jobs.opening import open_log
from leveret.pipeline.jobs.outputs import REPLAY_LOG
from leveret.pipeline.jobs.replay import CHOSEN, LOG, ReplayOptions, choose, log_of, marked_headers, send, urls
from leveret.pipeline.jobs.tables import NotRecorded, Tables
from leveret.pipeline.jobs.trace import trace
from leveret.pipeline.jobs.whatif import whatif
from leveret.pipeline.options import parse
from leveret.pipeline.progress import Progress
from leveret.pipeline.reading.table_reader import TableReader
from leveret.pipeline.retries import SLOW_WORKER, retry_slow_workers
from leveret.pipeline.schemas import TABLES, arrow

#: Message 1 dies in q and goes on as 2 to the dead-letter queue; 3 is of nobody's concern; 4 was replayed often.
STORY = (
    "1 0 published 1 address=x", "2 0 enqueued 1 q", "3 5 delivered 1 q attempt=1 consumer=c",
    "4 9 dead_lettered 1 q reason=rejected address=dlx", "5 9 published 2 address=dlx", "6 9 enqueued 2 dead",
    "7 10 published 3 address=x", "8 10 enqueued 3 q", "9 11 published 4 address=x", "10 11 enqueued 4 q",
    "11 12 killed 4 q reason=delivery_limit",
)  # fmt: skip


def content(msg_id: int, lsn: int, cause_id: int = 0, headers: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "lsn": lsn,
        "ts": at(0),
        "msg_id": msg_id,
        "cause_id": cause_id,
        "vhost": "/",
        "address": "dlx" if cause_id else "",
        "routing_key": "again",
        "headers_json": json.dumps(headers or {}),
        "properties_json": json.dumps({"message_id": f"m{msg_id}", "correlation_id": f"c{msg_id}", "priority": 3}),
        "body": b"body %d" % msg_id,
        "segment": "s1",
    }


def story(engine: Any) -> Tables:
    payloads = [
        content(1, 1, headers={"order": "77"}),
        content(2, 5, 1, {"x-death": [{"count": 1}]}),
        content(3, 7),
        content(4, 9, headers={"x-replay-count": 3, "x-replay-id": "long ago"}),
    ]
    return told(engine, *STORY, payloads=payloads)


def test_trace(engine: Any) -> None:
    """By id, correlation id or header; a copy brings its original along, and the other way round."""
    frames = story(engine)
    whole = ["published", "enqueued", "delivered", "dead_lettered", "published", "enqueued"]
    for message in ("1", "2", "c1", "m2", "order=77"):
        assert [row.kind for row in answered(frames, "trace", trace(frames, message))] == whole, message
    assert answered(frames, "trace", trace(frames, "order=78")) == []
    odd = [{**content(1, 1), "properties_json": json.dumps({"message_id": "a=b"})}]
    odd += [{**content(3, 7), "properties_json": json.dumps({"correlation_id": "4"})}]
    other = told(engine, *STORY, payloads=odd)
    assert {row.msg_id for row in answered(other, "trace", trace(other, "a=b"))} == {1}
    assert {row.msg_id for row in answered(other, "trace", trace(other, "4"))} == {3, 4}, (
        "an id of a program's, and the broker's"
    )
    with pytest.raises(NotRecorded, match="--payloads"):
        trace(told(engine, *STORY), "order=77")


def test_copies_are_traced_without_contents(engine: Any) -> None:
    """From queue to queue, forwards and back; the contents of an older release's rows add what events lack."""
    lines = [line + " cause_id=1" * line.startswith("5 ") for line in STORY]
    lines += ["13 20 dead_lettered 2 dead reason=expired", "14 20 published 5 address=", "15 20 enqueued 5 last"]
    for payloads, way in (([], {1, 2}), ([content(5, 14, 2)], {1, 2, 5})):
        tables = told(engine, *lines, payloads=payloads)
        for message in sorted(way):
            assert {row.msg_id for row in answered(tables, "trace", trace(tables, str(message)))} == way, message


def test_deadletters(engine: Any) -> None:
    """Why, from where to where, how many, and whose they were last."""
    tables = story(engine)
    found = {row.kind: row for row in answered(tables, "deadletters", deadletters(tables))}
    assert set(found) == {"dead_lettered", "killed"}
    dead = found["dead_lettered"]
    assert (dead.queue, dead.reason, dead.target, dead.n, dead.samples) == ("q", "rejected", "dlx", 1, [1])
    assert (dead.outcome, dead.arrived_in, found["killed"].outcome) == ("arrived", ["dead"], "gone")
    assert (dead.last_consumer, dead.attempts_max) == ("c", 1)


@pytest.mark.parametrize("scope", ["all", "durable"])
def test_what_became_of_the_dead(engine: Any, tmp_path: Path, scope: str) -> None:
    """Of a broker's journal: arrived through the default exchange or another, nowhere, expired and gone."""
    one = RecordedBroker(tmp_path, scope=scope)

    def dying(name: str, exchange: str | None, key: str, **more: int) -> None:
        arguments = {f"x-{word.replace('_', '-')}": Field("l", value) for word, value in more.items()}
        if exchange is not None:
            arguments |= {
                "x-dead-letter-exchange": Field("S", exchange.encode()),
                "x-dead-letter-routing-key": Field("S", key.encode()),
            }
        one.declare(name, arguments=arguments)
        one.publish(name)

    one.declare("dead")
    dying("through the default", "", "dead", message_ttl=100)
    dying("to nobody", "", "no such queue", message_ttl=100)
    dying("to no exchange", "no such exchange", "x", message_ttl=100)
    dying("expired and gone", None, "", message_ttl=100)
    for name, exchange in (("rejected", ""), ("rejected for good", None)):
        dying(name, exchange, "dead")
        tag = one.session.get(one.vhost.queues.named(name), no_ack=False)[0]
        one.session.reject(tag, requeue=False)
    one.settle()
    one.clock.advance_ns(10**9)
    one.broker.advance()
    one.tick()
    for name, columns in TABLES.items():
        batches = TableReader(str(tmp_path), name, columns).all_batches()
        engine.memory_table(f"whole_{name}", pyarrow.Table.from_batches(batches, arrow(columns)))
    tables = Tables(engine)
    rows = answered(tables, "deadletters", deadletters(tables))
    found = {row.queue: (row.outcome, row.target, row.arrived_in) for row in rows}
    unknown = {"all": "gone", "durable": "not recorded"}[scope]
    assert found == {
        "through the default": ("arrived", "", ["dead"]),
        "to nobody": ("nowhere", "", []) if scope == "all" else ("not recorded", None, []),
        "to no exchange": (unknown, None, []),
        "expired and gone": (unknown, None, []),
        "rejected": ("arrived", "", ["dead"]),
        "rejected for good": ("gone", None, []),
    }


def test_a_missing_history_is_said(engine: Any, monkeypatch: Any, capsys: Any) -> None:
    """By every job, on stderr and in its result: figures of a part must not be taken for the whole."""
    for base_lsn, words in ((90, "records 1 to 89 were deleted before the first ingest"), (1, "")):
        frames = told(engine, "100 0 published 9", "101 0 enqueued 9 q", base_lsn=base_lsn)
        monkeypatch.setattr(commands, "open_tables", lambda *_, frames=frames: frames)
        facts = commands.run(engine, "loss", parse(["loss", "--lake", "x"]), Progress("loss")).facts
        assert words in facts.get("missing", "") and ("missing" in facts) is bool(words)
        assert words in capsys.readouterr().err


def test_a_python_that_did_not_start_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By every job, at most three times; a replay tries its steps again, and sends nothing twice."""
    starts: list[str] = []

    def whatif_(*_: Any) -> Answer:
        starts.append("start")
        if len(starts) < 3:
            raise RuntimeError(f"{SLOW_WORKER}.")
        return Answer("whatif", facts={"rows": len(starts)})

    tables = SimpleNamespace(missing_text=lambda: None, holes_text=lambda: None)
    monkeypatch.setattr(commands, "open_tables", lambda *_: tables)
    monkeypatch.setitem(commands.JOBS, "whatif", whatif_)
    options = parse(["whatif", "--lake", "x", "--settings", "y"])
    engine: Any = SimpleNamespace(name="spark")
    assert commands.run(engine, "whatif", options, Progress("whatif")).facts["rows"] == 3
    retries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["attempt"] for line in retries if line["step"] == "retry"] == [1, 2]
    with pytest.raises(RuntimeError, match="connect back"):  # not for ever
        retry_slow_workers(lambda: (_ for _ in ()).throw(RuntimeError(SLOW_WORKER)), Progress("x"))
    with pytest.raises(KeyError):
        retry_slow_workers({}.popitem, Progress("x"))


def test_a_trace_without_a_hit_fails(engine: Any, monkeypatch: Any) -> None:
    """As a search does; without contents it says what could not be looked for."""
    frames = story(engine)
    monkeypatch.setattr(commands, "open_tables", lambda *_: frames)
    with pytest.raises(ValueError, match="no message '99' in the lake$"):
        commands.run(engine, "trace", parse(["trace", "--lake", "x", "99"]), Progress("trace"))
    frames = told(engine, *STORY)
    with pytest.raises(ValueError, match="no message '99' in the lake; correlation ids"):
        commands.run(engine, "trace", parse(["trace", "--lake", "x", "99"]), Progress("trace"))


def to_send(tables: Tables, options: ReplayOptions) -> list[dict[str, Any]]:
    """What replay chooses, in the order in which it would be sent."""
    assert choose(tables, options) == len(rows := rows_of(tables.engine, f"SELECT * FROM {CHOSEN} ORDER BY source_lsn"))
    return rows


def test_what_replay_chooses(engine: Any) -> None:
    """A dead letter's copy is replayed as its original; what was replayed too often, or by this id, is left out."""
    tables = story(engine)
    engine.parquet_files(LOG, [], REPLAY_LOG)
    first = ReplayOptions("r1", "kind = 'enqueued'")
    rows = to_send(tables, first)  # in the order of what was chosen: 1's copy was enqueued before 3
    assert [(row["msg_id"], row["exchange"], row["routing_key"]) for row in rows] == [
        (1, "", "again"),
        (3, "", "again"),
    ]

    def ids(id_: str, where: str, replays_max: int = 3) -> set[int]:
        return {row["msg_id"] for row in to_send(tables, ReplayOptions(id_, where, replays_max=replays_max))}

    assert ids("r1", "queue = 'dead'") == {1}
    assert ids("r1", "true", 4) == {1, 3, 4}
    assert ids("long ago", "msg_id = 4", 9) == set()
    assert ids("r1", "vhost = '/' AND exchange = '' AND octet_length(body) > 0 AND headers_json LIKE '%77%'") == {1}
    with pytest.raises(ValueError, match="(?i)syntax|parse"):
        choose(tables, ReplayOptions("r1", "kind = = 'enqueued'"))
    choose(tables, first)
    engine.memory_table(LOG, engine.arrow(log_of(tables, "1, 3", first, 1)))
    assert ids("r1", first.where) == set() and ids("r2", first.where) == {1, 3}


def test_marks() -> None:
    """What a broker wrote of a former life goes; the count of replays rises."""
    headers = json.loads(marked_headers('{"x-death": [], "a": 1, "x-replay-count": "1"}', "r"))
    assert headers == {"a": 1, "x-replay-count": 2, "x-replay-id": "r"}
    for odd in ('"abc"', "null", "[1]", "{}"):
        assert json.loads(marked_headers(f'{{"x-replay-count": {odd}}}', "r"))["x-replay-count"] == 1


def test_replay_into_a_broker(engine: Any, tmp_path: Path) -> None:
    """Bodies, properties and headers as they were, in order, confirmed."""
    with leveret_serve(tmp_path) as broker:
        url = broker.url
        connection = pika.BlockingConnection(pika.URLParameters(url))
        channel = connection.channel()
        channel.queue_declare("again")
        options = ReplayOptions("r1", "kind = 'enqueued'", rate=0)
        tables = story(engine)
        engine.parquet_files(LOG, [], REPLAY_LOG)
        assert send(to_send(tables, options), options, url) == 2
        got = [channel.basic_get("again", auto_ack=True) for _ in range(3)]
        assert {body for _, _, body in got} == {b"body 1", b"body 3", None}
        for _, properties, body in got:
            if body:
                assert properties.headers["x-replay-id"] == "r1" and "x-death" not in properties.headers
                assert (properties.message_id, properties.priority) == (f"m{body.decode()[-1]}", 3)
        lost = [{"body": b"x", "vhost": "/", "exchange": "", "routing_key": "nowhere", "headers_json": "", "msg_id": 1}]
        with pytest.raises(NotSent, match="returned"):  # mandatory: no queue takes it
            send(lost, options, url)
        connection.close()


def test_a_replay_that_dies_goes_on(engine: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Chosen is written down first, sent in batches; what a batch before the end had sent is not sent again."""
    monkeypatch.setattr(functions, "REPLAY_BATCH", 1)
    path = str(tmp_path / "lake" / "replay_log")
    with leveret_serve(tmp_path) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.queue_declare("again", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        told_to = ["replay", "--lake", str(tmp_path / "lake"), "--where", "kind = 'enqueued'", "--go", "--rate", "0"]
        options = parse([*told_to, "--url", broker.url, "--id", "r1"])

        def replay() -> dict[str, Any]:
            work = commands.JobContext("replay", story(engine), options, Progress("replay"))
            return dict(commands.JOBS["replay"](work).facts)

        words = (
            r"^amqp://127.*: a message could not be delivered: .* nack; at least 1 of 2 messages were sent, and"
            r" --id r1 sends the others \(up to 1 of them again\)$"
        )
        with pytest.raises(ValueError, match=words):  # the second finds the queue full
            replay()
        rows = parquet.read_table(path).sort_by([("msg_id", "ascending"), ("sent", "ascending")]).to_pylist()
        assert [(row["msg_id"], row["sent"]) for row in rows] == [(1, 0), (1, 1), (3, 0)]
        assert channel.basic_get("again", auto_ack=True)[2] == b"body 1"
        assert replay()["sent"] == 1
        assert channel.basic_get("again", auto_ack=True)[2] == b"body 3"
        told_of = replay()
        assert (told_of["chosen"], told_of["sent"]) == (0, 0)
        connection.close()


@pytest.mark.parametrize("left", ["", ".8c1d.part", "_temporary/0/part-1.parquet"])
def test_a_log_of_replays_without_a_whole_file(left: str, engine: Any, tmp_path: Path) -> None:
    """Is empty: a replay was killed, or found the disk full, when it wrote the first one."""
    log = tmp_path / LOG
    log.mkdir()
    if left:
        (log / left).parent.mkdir(parents=True, exist_ok=True)
        (log / left).write_bytes(b"PAR1")
    open_log(str(tmp_path), engine)
    assert rows_of(engine, f"SELECT * FROM {LOG}") == []


def test_a_replay_keeps_to_the_virtual_host() -> None:
    """Each message goes to its own; a URL that names another is refused."""
    assert urls(["a/b", "/"], "amqp://u:p@h:1") == {"/": "amqp://u:p@h:1/%2F", "a/b": "amqp://u:p@h:1/a%2Fb"}
    assert urls(["/"], "amqp://h/%2F?heartbeat=5") == {"/": "amqp://h/%2F?heartbeat=5"}
    for named in ("other", "%2F"):
        with pytest.raises(ValueError, match="--url names .* but the chosen messages are of '/', 'a/b'"):
            urls(["a/b", "/"], f"amqp://h/{named}")


def test_a_broker_that_is_not_there_is_said() -> None:
    """Which one, and why, and not the password."""
    options = ReplayOptions("r1", "true")
    message = {"body": b"x", "vhost": "/", "headers_json": "", "msg_id": 1}
    with pytest.raises(NotSent, match="refused|failed") as raised:
        send([message], options, "amqp://guest:secret@127.0.0.1:1")
    words = spark_error_text(raised.value)
    assert words.startswith("amqp://127.0.0.1:1/%2F: ") and "Connect" in words


def test_what_if_of_a_queue_that_was_made_again(engine: Any) -> None:
    """Without the arguments that it had before it was deleted."""
    tables = told(
        engine, '1 0 declared 0 q reason={"x-max-length":1}', "2 1 undeclared 0 q", "3 2 declared 0 q",
        "4 3 enqueued 1 q", "5 4 enqueued 2 q",
    )  # fmt: skip
    found = {row.what: (row.was, row.would_be) for row in answered(tables, "whatif", whatif(tables, ""))}
    assert (found["dropped"], found["open"]) == ((0, 0), (2, 2))


def test_what_if(engine: Any) -> None:
    """Four came while nobody consumed; a ring of two would have kept the last two, of which one is taken."""
    came = [f"{n} {n} enqueued {n} q" for n in range(1, 5)]
    frames = told(engine, *came, "9 100 delivered 1 q attempt=1", "10 150 acked 1 q")
    ring = '[[address-setting]]\nmatch = "q"\ndefault-ring-size = 2\n'
    found = {row.what: (row.was, row.would_be) for row in answered(frames, "whatif", whatif(frames, ring))}
    assert (found["acknowledged"], found["replaced"], found["open"]) == ((1, 1), (0, 2), (3, 1))
