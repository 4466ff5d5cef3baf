"""A real standalone cluster: a master and two workers, each a process with a Java of its own, run the ingest.

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
            "--master", url, "--driver-memory", "1g", "--conf", "spark.executor.memory=700m",
            "--conf", "spark.executor.cores=1", "--conf", "spark.sql.shuffle.partitions=2", "--payloads",
        ],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    reader = TableReader(str(journal), "events", TABLES["events"])
    expected = Counter(kind for batch in reader.all_batches() for kind in batch.column("kind").to_pylist())
    found = pyarrow.parquet.ParquetDataset(lake / "events", filters=None).read(columns=["kind"])
    assert Counter(found.column("kind").to_pylist()) == expected
    assert rows["events"] == sum(expected.values()) and rows["payloads"] == 1000 and rows["segments"] >= 5
    executors = {path.parent.name for path in (tmp_path / "work").glob("app-*/*/stderr")}
    assert len(executors) == 2
