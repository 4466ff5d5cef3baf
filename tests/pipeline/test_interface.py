"""What `leveret pipeline` is asked and what it hands out: options, selections, conditions, formats, progress."""

import csv
import errno
import gc
import io
import json
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
import pyarrow
from lakes import fill
from pyarrow import parquet
from recorded_broker import RecordedBroker

from leveret.pipeline.__main__ import main
from leveret.pipeline.answers import Answer
from leveret.pipeline.engines.local import LocalDialect
from leveret.pipeline.engines.spark import SparkDialect
from leveret.pipeline.error_texts import lost_cluster_text, one_line, spark_error_text, sql_error_text
from leveret.pipeline.options import Refused, parse
from leveret.pipeline.output.conditions import conditions
from leveret.pipeline.output.formats import as_csv, as_json, as_text, write
from leveret.pipeline.progress import Progress
from leveret.pipeline.schemas import Columns, columns
from leveret.pipeline.selection import Selection, moment_us

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[2J\n'; DROP"
LOSSES = columns(
    "vhost string, queue string, window_start timestamp, n bigint, age_ms_max double?, samples array<bigint>"
)


class Given:
    """A `Table` of rows."""

    columns: Columns = LOSSES

    def __init__(self, *rows: tuple[str, int, float | None]) -> None:
        at = datetime(2026, 11, 21, 10, tzinfo=UTC)
        names = [column.name for column in LOSSES]
        values = [dict(zip(names, ("/", queue, at, n, age, [n]), strict=True)) for queue, n, age in rows]
        self._rows = pyarrow.table({name: [row[name] for row in values] for name in names})

    def count(self) -> int:
        return len(self._rows)

    def head(self, rows: int | None = None) -> Any:
        return iter(self._rows.slice(0, rows).to_pylist())

    def write_parquet(self, path: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(self._rows, path)


def answer(*rows: tuple[str, int, float | None]) -> Answer:
    return Answer("loss", {"loss": Given(*rows)}, {"seconds": 1})


def test_formats() -> None:
    """The same rows for people, for programs and for spreadsheets; names stay what they are, or are escaped."""
    found = answer((HOSTILE, 3, 1234567.891), ("a,b", 1, None))
    read = json.loads(as_json(found, None))
    assert (read["job"], read["rows"], read["seconds"]) == ("loss", 2, 1)
    assert read["table"][0] == {
        "vhost": "/",
        "queue": HOSTILE,
        "window_start": "2026-11-21T10:00:00.000Z",
        "n": 3,
        "age_ms_max": 1234567.891,
        "samples": [3],
    }
    assert len(json.loads(as_json(found, 1))["table"]) == 1
    head, first, second = csv.reader(io.StringIO(as_csv(found.main, None)))
    assert head == ["vhost", "queue", "window_start", "n", "age_ms_max", "samples"]
    assert first == ["/", HOSTILE, "2026-11-21T10:00:00.000Z", "3", "1234567.891", "[3]"]
    assert second[1:5] == ["a,b", "2026-11-21T10:00:00.000Z", "1", ""]
    text = as_text(found, None)
    assert "\x1b" not in text and len(text.splitlines()) == 5, "job, facts, head and two rows"
    assert "  1234568  " in text and "<img src=x" in text
    assert "1 of 2 rows" in as_text(found, 1) and "no rows" in as_text(answer(), None)


def test_files(tmp_path: Path) -> None:
    """By the file's name; a directory has each table; another format than the name says is refused."""
    found = Answer("audit", {"faults": Given(("q", 1, None)), "message_fate": Given()})
    assert write(found, str(tmp_path / "x.csv"), None, None) == [str(tmp_path / "x.csv")]
    assert (tmp_path / "x.csv").read_text().count("\n") == 2
    paths = write(found, str(tmp_path / "all"), "json", None)
    assert paths == [str(tmp_path / "all" / name) for name in ("faults.json", "message_fate.json")]
    assert [json.loads(Path(path).read_text())["rows"] for path in paths] == [1, 0]
    assert write(found, str(tmp_path / "X.CSV"), None, None) == [str(tmp_path / "X.CSV")]
    (tmp_path / "X.CSV").unlink()
    write(found, str(tmp_path / "parts"), None, None)
    assert parquet.read_table(tmp_path / "parts" / "faults.parquet").num_rows == 1
    with pytest.raises(ValueError, match="its name means csv, but --format is json"):
        write(found, str(tmp_path / "x.csv"), "json", None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all", "parts", "x.csv"], "no half a file"


@pytest.mark.parametrize(
    "text, holds, of_none",
    [
        ("n > 2", True, False),
        ("n > 3", False, False),
        ("loss: n > 2 AND queue LIKE 'a%'", False, False),
        ("queue LIKE 'b%' AND n = 3", True, False),
        ("rows = 0", False, True),
        ("rows > 1", True, False),
        ("age_ms_max IS NULL", True, True),
        ("age_ms_max > 60 * 1000", False, False),
        ("samples = 3", True, False),
        ("window_start < 0", False, False),
    ],
)
def test_conditions(text: str, holds: bool, of_none: bool) -> None:
    """--fail-if holds if it is true for a row; without rows it is asked once."""
    (condition,) = conditions([text], {"loss": [column.name for column in LOSSES]})["loss"]
    table = Given(("a", 1, None), ("b", 3, 5.0))
    assert condition.is_met(table.head(), 2) is holds
    assert condition.is_met([], 0) is of_none


@pytest.mark.parametrize(
    "text, words",
    [
        ("n >", "column 4: expected a value"),
        ("m > 1", "there is no column m; there are rows, n"),
        ("n > 1 OR m > 1", "there is no column m"),
        ("depth: n > 1", "this command has no job depth with a table"),
        ("__import__('os')", "--fail-if __import__"),
        ("", "--fail-if"),
    ],
)
def test_conditions_that_are_none(text: str, words: str) -> None:
    """Refused before anything starts."""
    with pytest.raises(ValueError, match=words):
        conditions([text], {"loss": ["n"]})


NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "text, at",
    [
        ("2026-11-23T10:00", datetime(2026, 11, 23, 10, tzinfo=UTC)),
        ("2026-11-23", datetime(2026, 11, 23, tzinfo=UTC)),
        ("2026-11-23T11:00:00.5+01:00", datetime(2026, 11, 23, 10, 0, 0, 500_000, tzinfo=UTC)),
        ("2h", datetime(2026, 11, 23, 10, tzinfo=UTC)),
        ("30m", datetime(2026, 11, 23, 11, 30, tzinfo=UTC)),
        ("1d", datetime(2026, 11, 22, 12, tzinfo=UTC)),
    ],
)
def test_times(text: str, at: datetime) -> None:
    """ISO 8601, UTC unless it says otherwise; or so long ago."""
    assert moment_us(text, lambda: NOW) == round(at.timestamp() * 1e6)


@pytest.mark.parametrize("text", ["", "yesterday", "2 fortnights", "-2h", "9999999999999d", "2026-13-01", "2h ago"])
def test_times_that_are_none(text: str) -> None:
    """Refused with examples."""
    with pytest.raises(ValueError, match="is not a time; such as"):
        moment_us(text, lambda: NOW)


def test_a_selection_in_sql() -> None:
    """Texts cannot leave their quotes; days are chosen before times; windows are whole."""
    evil = "a\\' OR 1=1 --"
    chosen = Selection(("/",), (evil,), since_us=90_500_000, until_us=172_800_000_000)
    assert chosen.since_of("depth", 60) == 60_000_000 and chosen.since_of("trace", 60) == 90_500_000
    events = chosen.events_condition("latency", 60, SparkDialect())
    assert events is not None
    assert "queue IN ('a\\\\\\' OR 1=1 --') OR queue = ''" in events
    assert "date <= DATE '1970-01-03'" in events and "date >= DATE '1970-01-01'" in events
    assert "queue IN ('a\\'' OR 1=1 --')" in (chosen.rows_condition("loss", 60, LocalDialect()) or "")
    assert chosen.events_condition("deadletters", 60, SparkDialect()) == (
        "ts < timestamp_micros(172800000000L) AND date <= DATE '1970-01-03' AND (ts >= timestamp_micros(90500000L)"
        " OR kind NOT IN ('dead_lettered', 'killed', 'expired'))"
    ), "copies are in other queues"
    assert Selection().events_condition("audit", 60, SparkDialect()) is None and not Selection()


def test_several_jobs_and_their_options(capsys: Any) -> None:
    """One start; options of all of them; what does not go together is refused with exit code 1."""
    found = parse(["audit,redelivery", "--journal", "x", "--poison-attempts", "3", "--since", "2026-11-21"])
    assert (found.jobs, found.poison_attempts, found.lake) == (["audit", "redelivery"], 3, None)
    assert found.selection.since_us == 1795219200_000_000
    for arguments, words in (
        ([], "JOB is missing"),
        (["--lake", "x"], "unknown option '--lake'"),
        (["audit,nonsense", "--lake", "x"], "there is no job 'nonsense'"),
        (["audit,audit", "--lake", "x"], "a job is named twice"),
        (["audit,trace", "--lake", "x"], "trace cannot be combined with other jobs"),
        (["audit"], "one of --lake and --journal"),
        (["audit", "--journal", "hdfs://x"], "--lake is needed"),
        (["audit", "--lake", "x", "--since", "1h", "--until", "2h"], "--since is not before --until"),
        (["audit", "--lake", "x", "--since", "soon"], "'soon' is not a time"),
        (["audit", "--lake", "x", "--format", "parquet"], "needs --out"),
        (["audit,loss", "--lake", "x", "--format", "csv"], "need --out DIR"),
        ([""], "JOB is missing"),
        (["ingest", "--journal", "", "--lake", "x"], "--journal is empty"),
        (["audit", "--journal", "x", "--lake", ""], "--lake is empty"),
        (["audit", "--journal", "x", "--journal=y"], "--lake is needed beside several journals"),
        (["compact", "--lake", "x", "--lake=y"], "--lake is given twice"),
        (["compact", "--lake", "x", "--lak", "y"], "--lake is given twice"),
        (["ingest", "--journal", "j", "--lake", "x", "--out", "y"], "--lake is given twice"),
        (["depth", "--lake", "x", "--window", "2147483648"], "--window: must be 2147483647 or less"),
        (["report", "--lake", "x", "--fail-if", "rows > 0"], "report has no table for --fail-if"),
        (["audit,loss", "--lake", "x", "--out", "y.csv"], "several jobs need a directory"),
        (["whatif", "--lake", "x", "--settings", "y", "--since", "1h"], "it has no --since"),
    ):
        with pytest.raises(Refused) as refused:
            parse(arguments)
        assert refused.value.code == 1
        assert words in capsys.readouterr().err, arguments
    with pytest.raises(Refused) as refused:
        parse(["--help"])
    assert refused.value.code == 0 and "deadletters" in capsys.readouterr().out


def test_a_file_uri_is_a_place_on_this_machine() -> None:
    """So that it is read without Java, too."""
    found = parse(["audit", "--journal", "file:///data/a%20b", "--lake", "file:///lake"])
    assert (found.journal, found.lake) == (["/data/a b"], "/lake")
    assert parse(["audit", "--lake", "hdfs://x/lake"]).lake == "hdfs://x/lake"


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def test_progress() -> None:
    """A bar on a terminal, whose names cannot write on it elsewhere; else lines of JSON."""
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        progress = Progress("audit", stream)
        progress.say("faults", lost=1)
        progress.say("missing", what="records 1 to 89 \x1b[2J")
        progress.close()
    assert [json.loads(line)["step"] for line in pipe.getvalue().splitlines()] == ["faults", "missing"]
    shown = terminal.getvalue().split("\r\x1b[K")
    assert shown[1] == "audit  faults, lost 1  0 s" and shown[2] == "audit: missing: records 1 to 89 [2J\n"
    assert shown[-1] == "", "nothing is left of the bar"
    measured = Progress("audit", terminal)
    measured._measure = lambda: (1, 4)
    measured.draw()
    assert "██████░░░░░░░░░░░░░░░░░░ 1/4" in terminal.getvalue()


def test_words_of_others_are_plain() -> None:
    """Neither colours of delta-rs, nor the kinds of DuckDB's errors, nor where in Spark's library something failed."""
    coloured = "Generic LocalFileSystem error\n  \x1b[31m↳\x1b[0m Unable to copy\n    \x1b[31m↳\x1b[0m No space left\n"
    assert one_line(coloured) == "Generic LocalFileSystem error: Unable to copy: No space left"
    for said, words in (
        ('Binder Error: Referenced column "x" not found\nLINE 1: SELECT', 'Referenced column "x" not found'),
        ("Out of Memory Error: could not allocate block", "could not allocate block"),
        ('IO Error: Async write failed: {"exception_type":"IO","exception_message":"Could not write \\"a\\": full"}',
         'Could not write "a": full'),
        ("nothing of a kind", "nothing of a kind"),
    ):  # fmt: skip
        assert sql_error_text(Exception(said)) == words
    call = "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.readRDDFromFile."
    lost = Exception(
        f"{call}\n: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n\tat x"
    )
    assert spark_error_text(lost) == "Cannot call methods on a stopped SparkContext."
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{nobody.getsockname()[1]}"
        words = lost_cluster_text(lost, master) or ""
    assert words.startswith(f"the cluster {master} is lost: nothing answers at {master[8:]} (")
    assert "Cannot call methods on a stopped SparkContext. The page and the logs of its master" in words
    assert lost_cluster_text(Exception(f"{call}\n: java.lang.ArithmeticException: by zero"), master) is None


def test_a_full_disk_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which file was being written; and no writer tries again when it is forgotten, and prints that it cannot."""
    from leveret.pipeline.lake import parts

    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    one = RecordedBroker(tmp_path / "journal")
    one.declare("q")
    one.publish("q", 3)
    one.close()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device")

    monkeypatch.setattr(parts.parquet.ParquetWriter, "write_table", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        fill(tmp_path / "journal", tmp_path / "lake")
    assert str(caught.value.filename).startswith(f"{tmp_path}/lake/") and caught.value.errno == errno.ENOSPC
    monkeypatch.setattr(parts.parquet.ParquetWriter, "close", full)
    del caught
    gc.collect()
    assert unraisable == []


def test_where_says_what_is_wrong_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In words of its own, beside what was given."""
    pytest.importorskip("duckdb", reason="DuckDB is not installed (make spark)")
    one = RecordedBroker(tmp_path / "journal")
    one.declare("q")
    one.publish("q", 3)
    one.close()
    fill(tmp_path / "journal", tmp_path / "lake", payloads=True)
    assert main(["replay", "--lake", str(tmp_path / "lake"), "--where", "nonsense = 1"]) == 1
    (said,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("{")]
    assert said.startswith('leveret pipeline replay: --where nonsense = 1: Referenced column "nonsense" not found')
