"""A real standalone cluster: a master and two workers, each a process with its own Java, run the ingest and follow.

Takes a minute or two and 2 GB, so only where it is asked for: `make spark-cluster`.
"""

import json
import os
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
from recorded_broker import RecordedBroker

from leveret.pipeline.java import NoJava, find_java
from leveret.pipeline.reading.table_reader import TableReader
from leveret.pipeline.schemas import TABLES

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not os.environ.get("LEVERET_SPARK_CLUSTER"), reason="asks for much: make spark-cluster"),
]
CLUSTER = Path(__file__).parents[2] / "benchmarks" / "spark_cluster.py"


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The URL of a cluster with two workers of one core each."""
    try:
        find_java(os.environ, tmp_path)
    except NoJava as error:
        pytest.skip(str(error))
    with subprocess.Popen(
        [sys.executable, CLUSTER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert (url := program.stdout.readline().strip()), "the cluster did not start"
        yield url


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


def test_ingest_on_a_cluster(master: str, tmp_path: Path) -> None:
    """The same rows as without; and executors of both workers did the work."""
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
            "--payloads", *on_cluster(master),
        ],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    expected = kinds_in(journal)
    assert kinds_in_lake(lake) == expected
    assert rows["events"] == sum(expected.values()) and rows["payloads"] == 1000 and rows["segments"] >= 5
    executors = {path.parent.name for path in (tmp_path / "work").glob("app-*/*/stderr")}
    assert len(executors) == 2


def test_follow_on_a_cluster(master: str, tmp_path: Path) -> None:
    """The executors of one session do all rounds; each row comes once; an end is a success."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = RecordedBroker(journal, segment_size=20_000)
    one.declare("q")
    command = [sys.executable, "-m", "leveret.pipeline", "follow", "--journal", str(journal), "--lake", str(lake)]
    command += ["--every", "1s", *on_cluster(master)]
    read = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
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
