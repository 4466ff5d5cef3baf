"""Lakes that older releases have written: today's jobs read them, an ingest goes on, a node comes; no file changes."""

import io
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from lakes import in_journal, in_lake
from recorded_broker import RecordedBroker

from leveret.pipeline.__main__ import main
from leveret.pipeline.jobs.commands import run
from leveret.pipeline.lake.compact import compact
from leveret.pipeline.lake.lake import COMMIT_ORDER, committed_files
from leveret.pipeline.options import parse
from leveret.pipeline.progress import Progress

LAKES = sorted((Path(__file__).parent / "older").glob("*.tar.gz"))
#: What became of its messages before the last get; see older/make.py.
FATES = Counter({"acked": 3, "dead_lettered": 1, "evicted": 2, "open": 6})


@pytest.fixture(params=LAKES, ids=[path.name.partition(".")[0] for path in LAKES])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def ask(engine: Any, lake: Path, *words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Facts of an answer, and the rows of its first table."""
    answer = run(engine, words[0], parse([words[0], "--lake", str(lake), *words[1:]]), Progress("x", io.StringIO()))
    return {**answer.facts, "code": answer.code}, [] if answer.main is None else list(answer.main.head())


def check(engine: Any, lake: Path, fates: "Counter[str]") -> None:
    """Every job's answer."""
    facts, faults = ask(engine, lake, "audit")
    assert (faults, facts["code"], +Counter(facts["fates"])) == ([], 0, fates)
    lost = ask(engine, lake, "loss")[1]
    assert {(row["queue"], row["n"], row["moved"], row["discarded"]) for row in lost} == {
        ("work", 0, 1, 0), ("ring", 0, 0, 2),
    }  # fmt: skip
    way = [(row["kind"], row["queue"]) for row in ask(engine, lake, "trace", "m2")[1]]
    assert ("dead_lettered", "work") in way and ("enqueued", "dead") in way
    assert sum(row["depth_end"] for row in ask(engine, lake, "depth")[1]) == fates["open"]


def test_a_lake_of_before_is_read(made: Path, engine: Any) -> None:
    """As it is, with the rows that it has."""
    check(engine, made / "lake", FATES)


def test_it_grows(made: Path, engine: Any, tmp_path: Path) -> None:
    """By records, and by a node; the old files stay as they are, until a compaction puts them together."""
    lake = made / "lake"
    old = {path: path.read_bytes() for path in lake.rglob("*.parquet")}
    assert main(["ingest", "--journal", str(made / "data"), "--lake", str(lake), "--payloads"]) == 0
    fates = FATES + Counter(acked=1)
    fates["open"] -= 1
    for table in (*COMMIT_ORDER, "payloads"):
        assert in_lake(lake, table) == in_journal(made / "data", table), table
    check(engine, lake, fates)
    other = RecordedBroker(tmp_path / "other" / "journal")
    other.declare("more")
    other.publish("more", 2)
    other.tick()
    other.close()
    given = ["--journal", str(made / "data"), "--journal", f"new={tmp_path / 'other'}"]
    assert main(["ingest", *given, "--lake", str(lake), "--payloads"]) == 0
    files = {path for table in (*COMMIT_ORDER, "payloads") for path in committed_files(str(lake), table)}
    assert {str(path) for path in old} <= files and all(path.read_bytes() == data for path, data in old.items())
    facts, _ = ask(engine, lake, "audit")
    assert {name: +Counter(one["fates"]) for name, one in facts["nodes"].items()} == {
        "data": fates, "new": Counter(open=2),
    }  # fmt: skip
    depths = {(row["node"], row["queue"]): row["depth_end"] for row in ask(engine, lake, "depth")[1]}
    assert depths["new", "more"] == 2 and depths["data", "work"] == 1
    compact(str(lake), Progress("compact", io.StringIO()))
    facts, _ = ask(engine, lake, "audit")
    assert sum(map(Counter, (one["fates"] for one in facts["nodes"].values())), Counter()) == fates + Counter(open=2)
