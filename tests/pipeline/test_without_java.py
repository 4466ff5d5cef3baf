"""A machine without Java: from the journal to every job's answer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from recorded_broker import RecordedBroker

pytest.importorskip("duckdb", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")


@pytest.mark.skipif(os.name == "nt", reason="links to programs")
def test_every_job(tmp_path: Path) -> None:
    """Every job on a machine where no Java can be found: from the journal to its answer."""
    journal = tmp_path / "journal"
    one = RecordedBroker(journal)
    one.declare("plain")
    one.publish("plain", 2, message_id=b"here")
    one.get("plain")
    one.tick()
    one.close()
    (tmp_path / "bin").mkdir()
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("JAVA", "SPARK", "JDK"))}
    environment |= {"PATH": str(tmp_path / "bin"), "LEVERET_TRACEBACK": "1"}
    (tmp_path / "if.toml").write_text("")
    page, lake = str(tmp_path / "report.html"), ["--lake", str(tmp_path / "lake")]
    several = "audit,latency,depth,redelivery,loss,fairness,blocked,deadletters"
    for arguments in (
        [several, "--journal", str(journal), "--payloads", *lake],
        ["report", *lake, "--out", page],
        ["trace", "here", *lake],
        ["whatif", "--settings", str(tmp_path / "if.toml"), *lake],
        ["whatif", "--verify", *lake],
        ["replay", "--where", "kind = 'enqueued' AND queue = 'plain'", *lake],
    ):
        command = [sys.executable, "-m", "leveret.pipeline", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        begun = [line for line in map(json.loads, done.stderr.splitlines()) if line["step"] == "begin"]
        assert {line["engine"] for line in begun if line["job"] != "ingest"} == {"local"}
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert [answer["job"] for answer in answers] == arguments[0].split(",")
    assert "<html" in Path(page).read_text()
