"""What a process writes on may be closed, full, or of another character set: the work is done all the same."""

import errno
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from recorded_broker import RecordedBroker

pytest.importorskip("duckdb", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from leveret.__main__ import main as leveret_main
from leveret.cli import pipeline_command
from leveret.pipeline.engines.local import LocalEngine
from leveret.pipeline.output import results
from leveret.pipeline.progress import Progress


class Full(io.StringIO):
    """A log on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_progress_that_nobody_can_read_stops_nothing() -> None:
    """A log on a full disk, a logger that ended: the job goes on."""
    Progress("ingest", Full()).say("begin")
    closed = io.StringIO()
    closed.close()
    progress = Progress.__new__(Progress)
    progress._stream = closed
    progress._write("begin")


@pytest.mark.skipif(os.name == "nt", reason="descriptors of a shell")
def test_streams_that_are_closed_or_cannot_say_it(tmp_path: Path) -> None:
    """Closed, and of ASCII alone: exit code 0, what is written has escapes."""
    one = RecordedBroker(tmp_path / "journal")
    one.declare("d\u00e9lai")
    one.publish("d\u00e9lai", 2)
    one.tick()
    one.close()
    command = shlex.join([sys.executable, "-m", "leveret.pipeline", "depth", "--journal", "journal", "--format", "csv"])
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    shell = f"{command} 2>log && {command} --out all.csv >&- 2>&-"
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (tmp_path / "log").read_text()
    assert done.stdout.splitlines()[1].startswith("/,d\\xe9lai,")
    assert "d\u00e9lai" in (tmp_path / "all.csv").read_text(encoding="utf-8")
    assert all(json.loads(line) for line in (tmp_path / "log").read_text().splitlines())


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
def test_a_reader_that_has_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `head`: no sentence, no failure, and nothing more is said when Python ends."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        results.print_text("rows\n")
        results.print_text("more rows\n")


def test_a_directory_of_others_is_not_replaced(tmp_path: Path) -> None:
    """--out X.parquet takes the place of a file or of what Spark wrote, not of whatever else is there."""
    engine: Any = LocalEngine(tmp_path)
    try:
        mine = tmp_path / "mine.parquet"
        mine.mkdir()
        (mine / "notes.txt").write_text("kept")
        with pytest.raises(ValueError, match="other files than Spark's"):
            engine.write("SELECT 1 AS n", str(mine))
        assert [one.name for one in mine.iterdir()] == ["notes.txt"]
        sparks = tmp_path / "sparks.parquet"
        sparks.mkdir()
        for name in ("part-00000.parquet", "_SUCCESS", "._SUCCESS.crc", ".part-00000.parquet.crc"):
            (sparks / name).write_text("")
        engine.write("SELECT 1 AS n", str(sparks))
        assert sparks.is_file()
    finally:
        engine.close()


def test_an_interrupt_before_or_after_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while it starts, or a second one while it ends: exit code 130, no traceback."""

    def run(arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline_command, "run", run)
    assert leveret_main(["pipeline", "audit"]) == 130
