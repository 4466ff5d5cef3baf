"""`leveret pipeline`: a child process that ends with its parent, and takes Spark's Java with it."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")

from lakes import fill
from recorded_broker import RecordedBroker

from leveret.journal import reader_offsets, register_reader
from leveret.pipeline.__main__ import main
from leveret.pipeline.java import NoJava, find_java
from leveret.pipeline.lake.lake import reader_name
from leveret.pipeline.reading.positions import JournalPlan

pytestmark = pytest.mark.spark
LEVERET = [sys.executable, "-m", "leveret", "pipeline"]
QUICK = ["--master", "local[1]", "--driver-memory", "600m", "--conf"]
QUICK += ["spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]


def test_what_is_wrong_is_said_before_spark_starts(tmp_path: Path) -> None:
    """A sentence, exit 1, no traceback; wrong arguments as everywhere, exit 2."""
    done = subprocess.run(
        [*LEVERET, "ingest", "--journal", str(tmp_path), "--lake", str(tmp_path / "lake")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == f"leveret pipeline ingest: {tmp_path}: no journal here (there is no file 'format')\n"
    done = subprocess.run([*LEVERET, "ingest"], capture_output=True, text=True)
    assert done.returncode == 1 and "--journal" in done.stderr
    done = subprocess.run([*LEVERET, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "ingest" in done.stdout


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["audit", "--lake", "nowhere"], "nowhere: no lake here; `leveret pipeline ingest --journal DIR"),
        (["replay", "--lake", ".", "--where", "true", "--go"], "--go needs --url"),
        (["audit", "--lake", "x", "--journal", "bad.toml"], "bad.toml': Not a directory"),
        (["whatif", "--lake", ".", "--settings", "nowhere.toml"], "nowhere.toml: No such file or directory"),
        (["whatif", "--lake", ".", "--settings", "bad.toml"], "TOML"),
        (["depth", "--lake", ".", "--window", "0"], "--window: must be 1 or more"),
        (["replay", "--lake", ".", "--where", "true", "--rate", "nan"], "--rate: must be 0 or more"),
        (["loss", "--lake", ".", "--rows", "many"], "--rows: 'many' is not a number"),
        (["audit", "--lake", ".", "--conf", "foo"], "--conf foo: expected NAME=VALUE"),
        (["audit", "--lake", ".", "--outt", "x"], "unknown option '--outt', did you mean '--out'?"),
        (["ingest", "--journl", "x"], "unknown option '--journl', did you mean '--journal'?"),
        (["ingset", "--journal", "x"], "there is no job 'ingset', did you mean 'ingest'?"),
    ],
)
def test_what_is_wrong_is_said_without_java(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    """Faults of the command line, and paths where nothing is: a sentence, and exit code 1, for 2 is an audit's word."""
    (tmp_path / "_checkpoints").mkdir()
    (tmp_path / "bad.toml").write_text("zzz=")
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(arguments) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert words in capsys.readouterr().err


def test_another_journal_than_the_lakes_is_refused(tmp_path: Path, capsys: Any) -> None:
    """It was ingested as "nothing new", with readers at its end, so that what nobody read could be deleted."""
    RecordedBroker(tmp_path / "old").close()
    RecordedBroker(tmp_path / "new").close()
    place = JournalPlan(str(tmp_path / "old")).end()
    offsets = tmp_path / "lake" / "_checkpoints" / "checkpoints" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text(f"v1\n{{}}\n{json.dumps(place.as_dict())}\n")
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["ingest", "--journal", str(tmp_path / "new"), "--lake", str(tmp_path / "lake")]) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert f"not {place.journal}, which the lake {tmp_path}/lake has read" in capsys.readouterr().err
    assert reader_offsets(str(tmp_path / "new")) == {}


def test_forget(tmp_path: Path) -> None:
    """The journal keeps nothing for that lake any more; other readers stay; twice, or no journal, is an error."""
    journal, lake = str(tmp_path / "journal"), str(tmp_path / "lake")
    RecordedBroker(tmp_path / "journal").close()
    for name in (reader_name(lake, "events"), reader_name(lake, "payloads"), reader_name(lake + "2", "events"), "x"):
        register_reader(journal, name, 1)
    command = [*LEVERET, "forget", "--journal", journal, "--lake", lake]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(reader_offsets(journal)) == {reader_name(lake + "2", "events"), "x"}
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "keeps nothing" in done.stderr
    command[command.index(journal)] = str(tmp_path / "elsewhere")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "no journal here" in done.stderr


def descendants(pid: int) -> set[int]:
    """All processes that come from one."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*"):
            found += [int(child) for child in (task / "children").read_text().split()]
    return set(found) - {pid}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see processes")
def test_java_ends_with_it(tmp_path: Path) -> None:
    """Ctrl-C, or the worst: nothing that it started is left. (Two at once: what takes long is the start of Java.)"""
    try:
        find_java(os.environ, tmp_path)
    except NoJava as error:
        pytest.skip(str(error))
    one = RecordedBroker(tmp_path / "journal")
    one.declare("q")
    one.publish("q", 10)
    one.tick()
    fill(tmp_path / "journal", tmp_path / "lake")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda how: nothing_is_left(tmp_path, *how), ((signal.SIGINT, 130), (signal.SIGKILL, -9))))


def nothing_is_left(directory: Path, how: signal.Signals, code: int) -> None:
    """Start a job, end it when it works, and look for what it started."""
    command = [*LEVERET, "audit", "--lake", str(directory / "lake"), "--engine", "spark", *QUICK]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if '"begin"' in line:
                break
        started = descendants(process.pid)
        names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in started}
        assert "java" in names
        process.send_signal(how)
        assert process.wait() == code
        process.stderr.read()  # it ends when the last process that has it is gone
    assert not {pid for pid in started if is_alive(pid)}


def is_alive(pid: int) -> bool:
    """Whether the process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
