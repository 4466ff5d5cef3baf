"""Jobs straight from a journal, of a part of it, several in one start."""

import json
from pathlib import Path
from typing import Any

import pytest
from recorded_broker import RecordedBroker

pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")
from pyarrow import parquet

from leveret.engine import Field
from leveret.pipeline.ingest_command import default_lake
from leveret.pipeline.lazy_engines import LazyEngines
from leveret.pipeline.options import parse
from leveret.pipeline.running import check, run_with

pytestmark = pytest.mark.spark
MINUTE = 60 * 10**9


@pytest.fixture(params=["local", "spark"])
def engine(request: pytest.FixtureRequest) -> str:
    """The word for --engine."""
    return str(request.param)


def asked(spark: Any | None, engine: str, capsys: Any, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code, and the lines on stdout."""
    options = parse([*arguments, "--engine", engine])
    engines = LazyEngines(options, lambda: spark)
    code = run_with(engines, options, check(options))
    engines.close()
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ring of two that lost one message at once and one ten minutes later; a queue with two messages."""
    data = tmp_path_factory.mktemp("one_step") / "data"
    one = RecordedBroker(data / "journal")
    one.declare("ring", arguments={"x-max-length": Field("l", 2)})
    one.declare("plain")
    one.publish("ring", 3)
    one.publish("plain", 2, message_id=b"here")
    one.get("plain")
    one.clock.advance_ns(10 * MINUTE)
    one.publish("ring")
    one.tick()
    one.close()
    return data


def test_straight_from_a_journal(journal: Path, tmp_path: Path, capsys: Any) -> None:
    """The lake is made beside the data directory and brought up to date; each job's line; the gravest exit code."""
    asking = ["audit,loss", "--journal", str(journal), "--payloads", "--fail-if", "loss: n > 0"]
    code, (audit, loss) = asked(None, "local", capsys, *asking)
    assert code == 3 and audit["fates"] == {"acked": 1, "dropped": 2, "open": 3} and audit["rows"] == 0
    assert [(row["queue"], row["cause"], row["n"]) for row in loss["table"]] == [("ring", "dropped", 1)] * 2
    assert loss["fail_if"] == ["n > 0"] and "fail_if" not in audit
    beside = str(journal) + "-lake"
    assert default_lake(str(journal)) == default_lake(str(journal / "journal")) == beside

    file = str(tmp_path / "losses.csv")
    code, (written,) = asked(
        None,
        "local",
        capsys,
        "loss",
        "--lake",
        beside,
        "--vhost",
        "/",
        "--queue",
        "plain",
        "--fail-if",
        "n > 0",
        "--out",
        file,
    )
    assert (code, written["out"], written["rows"]) == (0, [file], 0)
    assert Path(file).read_text().count("\n") == 1
    assert asked(None, "local", capsys, "loss", "--lake", beside, "--queue", "nobody's") == (1, [])
    code, (story,) = asked(None, "local", capsys, "trace", "--lake", beside, "--queue", "plain", "here")
    assert code == 0 and {row["queue"] for row in story["table"]} == {"", "plain"}
    code, _ = asked(None, "local", capsys, "audit", "--lake", beside, "--out", str(tmp_path / "all"))
    assert code == 0 and len(parquet.read_table(tmp_path / "all" / "message_fate.parquet")) == 6


def test_a_part_of_the_time(spark: Any, engine: str, journal: Path, capsys: Any) -> None:
    """`until` is as if the journal ended there, also for the audit; `since` leaves out older rows, counts all."""
    lake = ["--journal", str(journal)]
    _, (loss,) = asked(spark, engine, capsys, "loss", *lake)
    first, second = (row["window_start"] for row in loss["table"])
    code, (audit, loss, depth) = asked(spark, engine, capsys, "audit,loss,depth", *lake, "--until", second)
    assert (code, audit["fates"]) == (0, {"acked": 1, "dropped": 1, "open": 3})
    assert {row["window_start"] for row in (*loss["table"], *depth["table"])} == {first}
    code, (audit, loss, depth) = asked(spark, engine, capsys, "audit,loss,depth", *lake, "--since", second)
    assert (code, audit["fates"], audit["rows"]) == (0, {"open": 1}, 0)
    assert {row["window_start"] for row in (*loss["table"], *depth["table"])} == {second}
    rings = [row["depth_end"] for row in depth["table"] if row["queue"] == "ring"]
    assert rings == [2], "what came before is counted"
