"""OpenLineage events of jobs, and how far behind a journal's readers are."""

import json
import signal
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("duckdb", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")
from recorded_broker import RecordedBroker

from leveret.journal import reader_offsets, register_reader
from leveret.pipeline.__main__ import main
from leveret.pipeline.output.lineage import emit, event
from leveret.pipeline.schemas import columns

LOSSES = columns("queue string, n bigint")


@pytest.fixture(autouse=True)
def _signals() -> Any:
    """`main` takes over SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two messages, one taken."""
    one = RecordedBroker(tmp_path / "data" / "journal")
    one.declare("q")
    one.publish("q", 2)
    one.get("q")
    one.tick()
    one.close()
    return tmp_path / "data"


def test_an_event() -> None:
    """What OpenLineage wants of a run: its state, its job, its datasets by namespace and name, a schema."""
    found = event(
        "loss",
        inputs=["s3://bucket/a/lake"],
        outputs={"/srv/x.csv": (LOSSES, 3)},
        at=datetime(2026, 11, 23, tzinfo=UTC),
        run_id="3f5e83fa-3480-44ff-99c5-ff943904e5e8",
    )
    assert (found["eventType"], found["eventTime"]) == ("COMPLETE", "2026-11-23T00:00:00+00:00")
    assert found["job"] == {"namespace": "leveret", "name": "pipeline.loss"}
    assert found["inputs"] == [{"namespace": "s3://bucket", "name": "a/lake"}]
    (output,) = found["outputs"]
    assert (output["namespace"], output["name"]) == ("file", "/srv/x.csv")
    assert output["facets"]["schema"]["fields"][1] == {"name": "n", "type": "bigint"}
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 3
    failed = event("loss", inputs=["lake"], outputs={}, error="no lake")
    assert failed["eventType"] == "FAIL" and failed["run"]["facets"]["errorMessage"]["message"] == "no lake"


def test_a_job_tells(data: Path, tmp_path: Path, capsys: Any) -> None:
    """A line for each job, also of one that failed; what cannot be told is said, and is not the job's fault."""
    told, out = tmp_path / "events.jsonl", tmp_path / "loss.csv"
    asked = ["--lake", str(tmp_path / "lake"), "--engine", "local", "--lineage", str(told)]
    ingesting = ["ingest", "--journal", str(data), "--lake", str(tmp_path / "lake"), "--lineage", str(told)]
    assert main(ingesting) == 0
    assert main(["loss", *asked, "--out", str(out)]) == 0
    assert main(["loss", *asked, "--queue", "nobody's"]) == 1
    ingest, done, failed = map(json.loads, told.read_text().splitlines())
    assert [one["name"].rsplit("/", 1)[1] for one in ingest["outputs"]] == [
        *("holes", "events", "snapshots", "checkpoints", "segments"),
    ]
    assert (done["eventType"], done["outputs"][0]["name"]) == ("COMPLETE", str(out))
    assert (failed["eventType"], failed["outputs"]) == ("FAIL", [])
    assert "knows no queue" in failed["run"]["facets"]["errorMessage"]["message"]
    capsys.readouterr()
    assert main(["loss", *asked[:-1], str(tmp_path)]) == 0
    assert "--lineage" in capsys.readouterr().err


def test_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """One POST of JSON; an answer that is an error is one."""
    monkeypatch.setenv("no_proxy", "*")
    got: list[bytes] = []
    codes = [201, 500]

    class Collector(BaseHTTPRequestHandler):
        """Keeps what is posted."""

        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(codes[len(got) - 1])
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/api/v1/lineage"
        emit({"eventType": "COMPLETE"}, url)
        with pytest.raises(OSError, match="500"):
            emit({}, url)
        server.shutdown()
        thread.join()
    assert json.loads(got[0]) == {"eventType": "COMPLETE"}


def test_readers(data: Path, capsys: Any) -> None:
    """Furthest behind first; --fail-if for those who watch it; no lake, no engine."""
    for name, lsn in (("new", 0), ("old", 3)):
        register_reader(str(data / "journal"), name, lsn)
    assert main(["readers", "--journal", str(data), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    end = found["end_lsn"]
    assert [(row["reader"], row["lsn"], row["behind"]) for row in found["table"]] == [
        ("new", 0, end - 1),
        ("old", 3, end - 3),
    ]
    assert all(row["segments"] >= 1 and row["octets"] > 0 for row in found["table"])
    assert main(["readers", "--journal", str(data), "--format", "table", "--fail-if", "behind > 1"]) == 3
    assert "reader" in capsys.readouterr().out
    assert main(["readers", "--journal", str(data / "nowhere")]) == 1


def test_readers_of_many_journals(data: Path, tmp_path: Path, capsys: Any) -> None:
    """One table; one that cannot be read hides no other; a reader, or a lake, is forgotten wherever it is known."""
    other = RecordedBroker(tmp_path / "other" / "journal")
    other.declare("q")
    other.tick()
    other.close()
    places = [str(one / "journal") for one in (data, tmp_path / "other")]
    both = [word for place in places for word in ("--journal", place)]
    lake = str(tmp_path / "lake")
    assert main(["ingest", *both, "--lake", lake]) == 0
    register_reader(places[0], "old", 3)
    capsys.readouterr()
    assert (
        main(["readers", *both, "--format", "json", "--fail-if", "behind > 1 AND journal LIKE '%/data/journal'"]) == 3
    )
    found = json.loads(capsys.readouterr().out)
    assert sorted(found["journals"]) == sorted(places)
    assert {row["journal"] for row in found["table"]} == set(places) and found["table"][0]["reader"] == "old"
    names = {row["reader"] for row in found["table"]} - {"old"}
    assert len(found["table"]) == 1 + 2 * len(names)
    assert main(["readers", *both, "--journal", str(tmp_path / "none")]) == 1
    told = capsys.readouterr()
    assert len(json.loads(told.out)["table"]) == 1 + 2 * len(names) and "no journal here" in told.err
    assert main(["readers", *both, "--drop", min(names), "--drop", "old"]) == 0
    assert set(reader_offsets(places[0])) == set(reader_offsets(places[1])) == names - {min(names)}
    capsys.readouterr()
    assert main(["forget", "--journal", str(tmp_path / "none"), *both, "--lake", lake]) == 1
    assert set(json.loads(capsys.readouterr().out)["forgotten"]) == set(places)
    assert not reader_offsets(places[0]) and not reader_offsets(places[1])
    assert main(["forget", *both, "--lake", lake]) == 1
    assert "keeps nothing for a lake" in capsys.readouterr().err


def test_fairness_has_names(data: Path, tmp_path: Path, capsys: Any) -> None:
    """A connection's name beside its id, also where --since leaves out its beginning."""
    asked = ["fairness", "--journal", str(data), "--lake", str(tmp_path / "lake"), "--engine", "local"]
    assert main([*asked, "--since", "1970-01-01"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["table"]
    assert row["connection"] == "client" and row["deliveries"] == 1


def test_a_reader_that_was_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is shown; the next ingest says so, keeps nothing, and goes on behind what is gone when told so."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = RecordedBroker(journal, segment_size=3000, reader_size=1)
    one.declare("q")
    one.publish("q", 5)
    one.tick()
    ingesting = ["ingest", "--journal", str(journal), "--lake", str(lake)]
    assert main(ingesting) == 0
    for _ in range(9):
        one.publish("q", 5)
        one.get("q", 5)
    one.get("q", 5)
    one.checkpoint(reclaims=True)
    one.tick()
    capsys.readouterr()
    assert main(["readers", "--journal", str(journal)]) == 0
    rows = json.loads(capsys.readouterr().out)["table"]
    assert {(row["segments"], row["behind"] > 0, bool(row["dropped"])) for row in rows} == {(0, True, True)}
    assert len(rows) == 5 and "octets (the oldest 0.0 days old)" in rows[0]["why"]
    for _ in range(2):
        assert main(ingesting) == 1
        said = capsys.readouterr().err
        assert "is deleted" in said and "the broker has dropped reader lake-" in said
        assert reader_offsets(str(journal)) == {}
    assert main([*ingesting, "--past-deleted"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"]["holes"] == 1
    assert main(["loss", "--lake", str(lake)]) == 0
    assert "(deleted before they were read" in json.loads(capsys.readouterr().out)["holes"]
    one.close()
    assert main(ingesting) == 0 and len(reader_offsets(str(journal))) == 5
    name = next(iter(reader_offsets(str(journal))))
    assert main(["readers", "--journal", str(journal), "--drop", "nobody"]) == 1
    assert "has no reader 'nobody'; it has lake-" in capsys.readouterr().err
    assert main(["readers", "--journal", str(journal), "--drop", name]) == 0
    assert len(reader_offsets(str(journal))) == 4
