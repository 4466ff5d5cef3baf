"""The two engines beside each other: values, SQL that is spelled in two ways, files, and what both refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from told_events import answered, at, told

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
import pyarrow
from pyarrow import parquet

from leveret.engine import TERMINAL, EventKind
from leveret.pipeline.engines.protocol import PERCENTILES, rows, value
from leveret.pipeline.engines.spark import PARTITIONS, SparkEngine
from leveret.pipeline.ingest_command import runs_on_this_machine
from leveret.pipeline.jobs import opening
from leveret.pipeline.jobs.lives import TERMINALS
from leveret.pipeline.jobs.opening import LOCAL, LOCAL_MAX, SPARK, choose_engine
from leveret.pipeline.jobs.tables import Tables
from leveret.pipeline.jobs.trace import trace
from leveret.pipeline.options import parse
from leveret.pipeline.schemas import EVENTS, columns
from leveret.pipeline.selection import Selection

#: Names that want out of their quotes, or mean something to a shell, to JSON, to a pattern or to Spark.
HOSTILE = (
    "it's", '"', "`", "\\", "\\'; DROP TABLE events; --", "a\nb\r\tc", "${spark.master}", "${env:HOME}", "{}", "%_",
    "$.x", "/a/b~0~1", "a.b['c']", "\x1a\x01", "ünïcødé \U0001f407", "\u202e", "é e\u0301", " ", "NULL", "?", ":a",
    "--", "/*", "*/", "\\u0024", "\\n",
)  # fmt: skip


def test_texts_are_what_they_are(engine: Any) -> None:
    """Whatever is in them, also as names of headers."""
    dialect = engine.dialect
    header = dialect.text(json.dumps({text: f"<{text}>" for text in HOSTILE}))
    parts = [
        f"{dialect.text(text)} AS t{at}, {dialect.json_field(header, text)} AS m{at}" for at, text in enumerate(HOSTILE)
    ]
    (row,) = rows(engine, f"SELECT {', '.join(parts)}")
    assert list(row.values()) == [value for text in HOSTILE for value in (text, f"<{text}>")]
    for text in ("a\0b", "\ud800", "\udc80"):
        with pytest.raises(ValueError, match="cannot be searched for"):
            dialect.text(text)


def test_members_of_json(engine: Any) -> None:
    """Texts without quotes, all else as JSON; null without one."""
    texts = {"s": "x", "n": 12345678901234567890, "t": True, "nothing": None, "l": [1, "a"], "o": {"a": {"b": 1}}}
    found = {
        name: value(engine, f"SELECT {engine.dialect.json_field(engine.dialect.text(json.dumps(texts)), name)}")
        for name in (*texts, "other")
    }
    assert found == {
        "s": "x", "n": "12345678901234567890", "t": "true", "nothing": None, "l": '[1,"a"]', "o": '{"a":{"b":1}}',
        "other": None,
    }  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 2, 3, 20, 100, 999, 1000, 1001])
def test_percentiles_are_of_the_nearest_rank(engine: Any, count: int) -> None:
    """One of the values: the first that so many of them do not exceed. Nulls do not count."""
    engine.memory_table(
        "measured", pyarrow.table({"ms": pyarrow.array([*range(count, 0, -1), None], pyarrow.float64())})
    )
    dialect = engine.dialect
    points = ", ".join(f"{dialect.percentile('every', name)} AS {name}" for name in PERCENTILES)
    (found,) = rows(
        engine, f"SELECT {points} FROM (SELECT {dialect.percentile_state('ms')} AS every FROM measured) AS folded"
    )
    expected = {name: float(-(-count * point // 1000)) if count else None for name, point in PERCENTILES.items()}
    assert found == expected


def test_values(engine: Any) -> None:
    """Times know that they are UTC; whole numbers are divided to doubles; arrays, octets and nulls."""
    micro = datetime(2026, 1, 1, 0, 0, 0, 123457, tzinfo=UTC)
    engine.memory_table(
        "given", pyarrow.table({"ts": pyarrow.array([micro], pyarrow.timestamp("us", "UTC")), "b": [b"\0x"]})
    )
    text = (
        "SELECT *, timestamp_micros(unix_micros(ts) + 1) AS later, timestamp_seconds(unix_seconds(ts)) AS whole,"
        " unix_millis(ts) % 1000 AS ms, 7 / 2 AS half FROM given"
    )
    (row,) = rows(engine, text)
    assert row["ts"] == micro and row["later"] == micro.replace(microsecond=123458) and row["ts"].tzinfo is not None
    assert (row["whole"], row["ms"], row["half"], row["b"]) == (micro.replace(microsecond=0), 123, 3.5, b"\0x")
    parts = [pyarrow.table({"x": pyarrow.array(some, pyarrow.int64())}) for some in ([], [1, 2], [], [3])]
    engine.memory_table("joined", pyarrow.concat_tables(parts))
    assert value(engine, "SELECT count(*) FROM joined") == 3, "also of a table whose first part is empty"
    engine.memory_table("few", pyarrow.table({"x": [3, None, 1, 3], "place": [4, 3, 2, 1]}))
    lists = f"array_sort(collect_set(x)) AS a, {engine.dialect.ordered_array('x', 'place', 'x > 0')} AS b"
    (row,) = rows(engine, f"SELECT {lists}, slice(array_sort(collect_set(x)), 1, 1) AS c FROM few")
    assert row == {"a": [1, 3], "b": [3, 1, 3], "c": [1]}
    (row,) = rows(engine, f"SELECT {lists}, size(array_sort(collect_set(x))) AS c FROM few WHERE false")
    assert row == {"a": [], "b": [], "c": 0}
    (each,) = zip(*(row.values() for row in rows(engine, "SELECT explode(sequence(1, 9, 4)) AS one")), strict=True)
    assert each == (1, 5, 9)
    assert [row["x"] for row in rows(engine, "SELECT DISTINCT x FROM few ORDER BY x")] == [None, 1, 3]
    assert [row["x"] for row in rows(engine, "SELECT DISTINCT x FROM few ORDER BY x DESC")] == [3, 1, None]


def test_hostile_names_in_jobs(engine: Any) -> None:
    """In virtual hosts, queues and messages: found by them, and by nothing else."""
    evil = HOSTILE[4]
    assert evil.startswith("\\'; DROP")
    message = {
        "lsn": 1, "ts": at(0), "msg_id": 1, "cause_id": 0, "vhost": evil, "address": "", "routing_key": "",
        "headers_json": json.dumps({evil: evil}), "properties_json": json.dumps({"message_id": evil}), "body": b"",
        "segment": "s1",
    }  # fmt: skip
    tables = told(engine, "1 0 published 1", "2 0 enqueued 1 q", "3 0 enqueued 2 q", payloads=[message])
    for sought, ids in ((evil, {1}), (f"{evil}={evil}", {1}), (f"{evil}={evil[:-1]}", set())):
        assert {row.msg_id for row in answered(tables, "trace", trace(tables, sought))} == ids
    engine.view("whole_events", _renamed(engine, evil), cached=True)
    tables = Tables(engine)
    found = rows(engine, f"SELECT vhost, queue, count(*) AS n FROM {tables.lives_view()} GROUP BY vhost, queue")
    assert {(row["vhost"], row["queue"]): row["n"] for row in found} == {(evil, evil): 1, ("/", "q"): 1}
    selection = Selection((evil,), (evil,)).rows_condition("loss", 60, engine.dialect)
    assert value(engine, f"SELECT count(*) FROM lives WHERE {selection}") == 1


def _renamed(engine: Any, name: str) -> str:
    """The events, of which those of message 1 are in a queue and a virtual host of this name."""
    engine.view("before", "SELECT * FROM whole_events", cached=True)
    names = {
        of: f"IF(msg_id = 1 AND queue <> '', {engine.dialect.text(name)}, {of}) AS {of}" for of in ("vhost", "queue")
    }
    every = (names.get(column.name, column.name) for column in EVENTS)
    return f"SELECT {', '.join(every)} FROM before"


def test_terminal_events() -> None:
    """Those of the broker's engine, in its order: their place is part of a packed number."""
    assert tuple(kind.value for kind in EventKind if kind in TERMINAL) == TERMINALS


def test_files(engine: Any, tmp_path: Path) -> None:
    """Columns that a file lacks are null; without files there are no rows; what is written is read again."""
    wanted = columns("a bigint, b string?, c array<bigint>, t timestamp?")
    engine.parquet_files("none", [], wanted)
    assert rows(engine, "SELECT * FROM none") == []
    old, new = tmp_path / "it's old.parquet", tmp_path / "new.parquet"
    parquet.write_table(pyarrow.table({"a": [1], "more": ["x"]}), old)
    parquet.write_table(pyarrow.table({"a": [2], "b": ["y"], "c": [[1, 2]]}), new)
    engine.parquet_files("two_files", [str(old), str(new)], wanted)
    assert rows(engine, "SELECT * FROM two_files ORDER BY a") == [
        {"a": 1, "b": None, "c": None, "t": None},
        {"a": 2, "b": "y", "c": [1, 2], "t": None},
    ]
    for _ in range(2):
        engine.write("SELECT * FROM two_files ORDER BY a", str(tmp_path / "out" / "written"))
        engine.append("SELECT 5 AS a", str(tmp_path / "log"))
    assert parquet.read_table(tmp_path / "out" / "written")["a"].to_pylist() == [1, 2]
    assert parquet.read_table(tmp_path / "log")["a"].to_pylist() == [5, 5]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["written"]


def test_work_by_group(engine: Any) -> None:
    """Each group's rows once; virtual hosts apart."""
    engine.memory_table("moves", pyarrow.table({"vhost": ["/", "v", "/"], "queue": ["q", "q", "q"], "n": [1, 2, 3]}))

    def work(own: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"vhost": own[0]["vhost"], "total": sum(row["n"] for row in own)}]

    by = ("vhost", "queue")
    engine.each_group("summed", "SELECT * FROM moves", by, work, columns("vhost string, total bigint"))
    assert sorted(rows(engine, "SELECT * FROM summed"), key=str) == [
        {"vhost": "/", "total": 4},
        {"vhost": "v", "total": 2},
    ]


def test_what_is_wrong(engine: Any, tmp_path: Path) -> None:
    """SQL that is none is a sentence; a view stays what it was; nothing half written is left."""
    engine.view("one", "SELECT 1 AS a", cached=True)
    for text in ("SELEC 1", "SELECT b FROM one", "SELECT a FROM nowhere"):
        with pytest.raises(ValueError) as raised:
            rows(engine, text)
        assert "\n" not in str(raised.value)
        with pytest.raises(ValueError):
            engine.write(text, str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []
    engine.view("one", "SELECT 2 AS a")
    assert value(engine, "SELECT a FROM one") == 2


@pytest.mark.spark
def test_partitions_of_a_cluster(spark: Any) -> None:
    """A small lake is not spread over two hundred tasks, each of which costs more than its rows; a large one is."""
    engine, before = SparkEngine(spark), spark.conf.get(PARTITIONS)
    found = []
    try:
        for events in (0, 1_000_000, 50_000_000, 10**9):
            engine.expect(events)
            found.append(int(spark.conf.get(PARTITIONS)))
    finally:
        spark.conf.set(PARTITIONS, before)
    assert found == [2, 4, 200, 200]


def test_what_is_one_process(tmp_path: Path) -> None:
    """Spark's local-cluster[...] has executors, which read and answer as those of any cluster."""
    for master, is_one in (("local[2]", True), ("local", True), ("local-cluster[2,1,700]", False), ("yarn", False)):
        assert runs_on_this_machine(parse(["ingest", "--journal", "j", "--lake", "l", "--master", master])) == is_one
        assert choose_engine(str(tmp_path), master=master) == (LOCAL if is_one else SPARK)


def test_which_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the rows of the largest node unless it is named; a cluster is Spark's; without Spark DuckDB tries."""
    lake = str(tmp_path)
    assert choose_engine(lake) == LOCAL and choose_engine(lake, "spark") == SPARK
    assert choose_engine(lake, master="spark://h:1") == SPARK
    assert choose_engine(lake, "local", master="spark://h:1") == LOCAL
    monkeypatch.setattr(opening, "rows_by_node", lambda *_: Counter(a=LOCAL_MAX, b=1))
    assert choose_engine(lake) == LOCAL, "it reads one node after the other"
    monkeypatch.setattr(opening, "rows_by_node", lambda *_: Counter(a=LOCAL_MAX + 1))
    monkeypatch.setattr(opening, "find_spec", lambda name: name)
    assert choose_engine(lake) == SPARK and choose_engine(lake, "local") == LOCAL
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    told_of: list[str] = []
    assert choose_engine(lake, tell=told_of.append) == LOCAL and choose_engine(lake, "spark") == SPARK
    (words,) = told_of
    assert words.startswith(f"DuckDB answers for {LOCAL_MAX + 1} events") and "leveret[spark]" in words


def test_the_local_engine_keeps_to_itself(tmp_path: Path) -> None:
    """Its files are its user's alone and go with it; no extension is fetched; times are UTC wherever it runs."""
    pytest.importorskip("duckdb")
    program = (
        "import os, sys, time; from pathlib import Path\n"
        "from leveret.pipeline.engines.local import LocalEngine\n"
        "from leveret.pipeline.engines.protocol import value\n"
        "engine = LocalEngine(Path(sys.argv[1]), threads=1, memory_mb=300)\n"
        "(own,) = Path(sys.argv[1]).iterdir(); assert own.stat().st_mode & 0o777 == 0o700\n"
        'assert value(engine, "SELECT hour(timestamp_seconds(0))") == 0\n'
        "for text in ('INSTALL httpfs', 'LOAD httpfs', \"SELECT * FROM 'http://127.0.0.1:1/x.parquet'\"):\n"
        "    try: engine.view('x', text) if text[0] == 'S' else engine._run(text)\n"
        "    except Exception: pass\n"
        "    else: raise AssertionError(text)\n"
        "engine.close(); assert not own.exists()\n"
        "assert not {'pyspark', 'pandas'} & set(sys.modules), 'dear to import'\n"
    )
    environment = {**os.environ, "TZ": "America/New_York", "HOME": str(tmp_path / "home")}
    (tmp_path / "own").mkdir()
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "own")], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
