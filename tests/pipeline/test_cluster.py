"""A real standalone cluster: a master and two workers, each a process with its own Java, run the ingest and follow.

Takes a minute or two and 2 GB, so only where it is asked for: `make spark-cluster`.
"""

import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")

import pyarrow.parquet
import pyspark
from recorded_broker import RecordedBroker

from leveret.pipeline.java import NoJava, find_java
from leveret.pipeline.reading.table_reader import TableReader
from leveret.pipeline.schemas import TABLES

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not os.environ.get("LEVERET_SPARK_CLUSTER"), reason="asks for much: make spark-cluster"),
]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


class Daemon:
    """A part of the cluster; `wait_for` gives what its log says."""

    def __init__(self, environment: dict[str, str], log: Path, *arguments: str) -> None:
        self.log = log
        self._stream = open(log, "w")  # noqa: SIM115
        self.process = subprocess.Popen(
            [str(SPARK_CLASS), *arguments], env=environment, stdout=self._stream, stderr=self._stream
        )

    def wait_for(self, pattern: str) -> "re.Match[str]":
        with subprocess.Popen(["tail", "-n", "+1", "-F", self.log], stdout=subprocess.PIPE, text=True) as tail:
            alarm = threading.Timer(240, tail.kill)
            alarm.start()
            try:
                assert tail.stdout is not None
                for line in tail.stdout:
                    if match := re.search(pattern, line):
                        return match
            finally:
                alarm.cancel()
                tail.kill()
        raise AssertionError(f"{pattern!r} was not said:\n{self.log.read_text()}")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        self._stream.close()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of a cluster with two workers of one core each, and the environment that it lives in."""
    try:
        home = find_java(os.environ, tmp_path)
    except NoJava as error:
        pytest.skip(str(error))
    environment = {**os.environ, "JAVA_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    environment["SPARK_WORKER_DIR"] = str(tmp_path / "work")
    running: list[Daemon] = []
    try:
        one = Daemon(
            environment, tmp_path / "master.log", "org.apache.spark.deploy.master.Master",
            "--host", "127.0.0.1", "--port", "0", "--webui-port", "0",
        )  # fmt: skip
        running.append(one)
        url = one.wait_for(r"(spark://127\.0\.0\.1:\d+)")[1]
        for number in (1, 2):
            worker = Daemon(
                environment, tmp_path / f"worker-{number}.log", "org.apache.spark.deploy.worker.Worker",
                "--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0", url,
            )  # fmt: skip
            running.append(worker)
            worker.wait_for("Successfully registered with master")
        yield url, environment
    finally:
        for daemon in reversed(running):
            daemon.stop()


def on_cluster(url: str) -> list[str]:
    """Options for a small driver and two small executors."""
    conf = ("spark.executor.memory=700m", "spark.executor.cores=1", "spark.sql.shuffle.partitions=2")
    return ["--master", url, "--driver-memory", "1g", *(word for one in conf for word in ("--conf", one))]


def kinds_in(journal: Path) -> Counter[str]:
    reader = TableReader(str(journal), "events", TABLES["events"])
    return Counter(kind for batch in reader.all_batches() for kind in batch.column("kind").to_pylist())


def kinds_in_lake(lake: Path) -> Counter[str]:
    found = pyarrow.parquet.ParquetDataset(lake / "events", filters=None).read(columns=["kind"])
    return Counter(found.column("kind").to_pylist())


def test_ingest_on_a_cluster(master: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    """The same rows as without; and executors of both workers did the work."""
    url, environment = master
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = RecordedBroker(journal, segment_size=20_000)
    one.declare("q")
    for _ in range(100):
        one.publish("q", 10)
    one.get("q", 200)
    one.close()
    done = subprocess.run(
        [
            sys.executable, "-m", "leveret.pipeline", "ingest", "--journal", str(journal), "--lake", str(lake),
            "--payloads", *on_cluster(url),
        ],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    expected = kinds_in(journal)
    assert kinds_in_lake(lake) == expected
    assert rows["events"] == sum(expected.values()) and rows["payloads"] == 1000 and rows["segments"] >= 5
    executors = {path.parent.name for path in (tmp_path / "work").glob("app-*/*/stderr")}
    assert len(executors) == 2


def test_follow_on_a_cluster(master: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    """The executors of one session do all rounds; each row comes once; an end is a success."""
    url, environment = master
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = RecordedBroker(journal, segment_size=20_000)
    one.declare("q")
    command = [sys.executable, "-m", "leveret.pipeline", "follow", "--journal", str(journal), "--lake", str(lake)]
    command += ["--every", "1s", *on_cluster(url)]
    read = 0
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        alarm = threading.Timer(600, process.kill)
        alarm.start()
        try:
            assert process.stdout is not None and process.stderr is not None
            for _ in range(3):
                one.publish("q", 500)
                one.get("q", 400)
                one.tick()
                wanted = sum(kinds_in(journal).values())
                while read < wanted:
                    line = process.stderr.readline()
                    assert line, f"follow ended with {process.wait()}"
                    said = json.loads(line) if line.startswith("{") else {}  # Java warns on stderr, too
                    read += said.get("events", 0) if said.get("step") == "read" else 0
            process.terminate()
            told = json.loads(process.stdout.readline())
            assert process.wait() == 0
        finally:
            alarm.cancel()
            process.kill()
    assert kinds_in_lake(lake) == kinds_in(journal)
    assert told["rows"]["events"] == read == sum(kinds_in(journal).values()) and told["rounds"] >= 3
    assert len(list((tmp_path / "work").glob("app-*/*/stderr"))) == 2, "executors of one application"
