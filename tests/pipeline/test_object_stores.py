"""Lakes in an object store, a stand-in for S3 on this machine (moto), and their rows through Iceberg's metadata.

Needs the extra dev-stores (`make object-stores`); without it everything here skips.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("moto", reason="moto is not installed (make object-stores)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

import boto3
from botocore.config import Config
from lakes import counted, in_journal
from pyarrow import parquet
from recorded_broker import RecordedBroker

from leveret.pipeline.__main__ import main
from leveret.pipeline.lake.lake import committed_files
from leveret.pipeline.reading.arrow_files import locate
from leveret.pipeline.schemas import TABLES

BUCKET = "lakes"


@pytest.fixture(scope="module")
def store() -> Iterator[None]:
    """A server with a bucket. The environment says where it is, as it does for any program."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # A process of its own: pyarrow may close a file while it holds the interpreter's lock.
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=-3, stderr=-3
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", "secret"), ("REGION", "us-east-1"),
            ("DEFAULT_REGION", "us-east-1"), ("ENDPOINT_URL", f"http://127.0.0.1:{port}"), ("ALLOW_HTTP", "true"),
        ):  # fmt: skip
            patch.setenv(f"AWS_{name}", value)
        retries = Config(retries={"max_attempts": 50, "mode": "standard"})
        boto3.client("s3", config=retries).create_bucket(Bucket=BUCKET)
        yield
    server.terminate()
    server.wait()


@pytest.fixture
def lake(store: None, request: pytest.FixtureRequest) -> str:
    return f"s3://{BUCKET}/{request.node.name}"


def broker(directory: Path, messages: int = 10) -> RecordedBroker:
    """With a checkpoint in its journal, in several segments."""
    one = RecordedBroker(directory / "journal", segment_size=20_000)
    one.declare("q")
    for _ in range(messages):
        one.publish("q", 3)
    one.checkpoint()
    one.tick()
    return one


def rows_in(lake: str, table: str = "events") -> Counter[str]:
    """The rows that count, read as any program reads them."""
    files, root = locate(lake)
    names = [one.name for one in TABLES[table]]
    found = []
    for uri in committed_files(lake, table):
        read = parquet.read_table(root + uri.removeprefix(lake), filesystem=files.system, partitioning=None)
        found += [{name: row.get(name) for name in names} for row in read.to_pylist()]
    return counted(found)


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


def test_a_lake_is_filled_asked_and_cut(lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each row once over two ingests; answers without Java; a log of replays; compaction; old days go."""
    one = broker(tmp_path)
    ingest = ["ingest", "--journal", str(tmp_path), "--lake", lake, "--payloads"]
    assert main(ingest) == 0
    one.get("q", 5)
    one.clock.advance_ns(3 * 86_400 * 10**9)
    one.publish("q", 2)
    one.tick()
    one.close()
    assert main(ingest) == 0 and main(ingest) == 0
    capsys.readouterr()
    for table in ("events", "snapshots", "payloads"):
        assert rows_in(lake, table) == in_journal(tmp_path, table), table
    assert main(["audit", "--lake", lake, "--format", "json"]) == 0
    assert printed(capsys)["fates"] == {"acked": 5, "open": 27}
    for words in (["depth", "--format", "json"], ["report"]):
        assert main([*words, "--lake", lake, "--out", f"{lake}-answers"]) == 1
        assert "URI" in capsys.readouterr().err
    assert main(["depth", "--lake", lake, "--out", f"{lake}-answers"]) == 0
    files, root = locate(f"{lake}-answers")
    assert parquet.read_table(f"{root}/depth.parquet", filesystem=files.system).num_rows > 0
    capsys.readouterr()
    assert main(["replay", "--lake", lake, "--where", "kind = 'acked'", "--format", "json"]) == 0
    assert printed(capsys)["chosen"] == 5
    assert main(["compact", "--lake", lake]) == 0
    assert rows_in(lake) == in_journal(tmp_path)
    assert main(["retain", "--lake", lake, "--days", "1"]) == 0
    assert sum(rows_in(lake).values()) < sum(in_journal(tmp_path).values())


def command(directory: Path, lake: str) -> list[str]:
    return [sys.executable, "-m", "leveret.pipeline", "ingest", "--journal", str(directory), "--lake", lake]


def test_an_ingest_is_killed_again_and_again(lake: str, tmp_path: Path) -> None:
    """In the middle of its commits: each row is there once."""
    broker(tmp_path).close()
    for count in (1, 2, 4, 7):
        with subprocess.Popen([*command(tmp_path, lake), "--max-bytes", "4000"], stderr=subprocess.PIPE) as one:
            assert one.stderr is not None
            for _ in range(count):
                one.stderr.readline()  # of a commit, or of the beginning
            one.send_signal(signal.SIGKILL)
    assert main(["ingest", "--journal", str(tmp_path), "--lake", lake]) == 0
    assert rows_in(lake) == in_journal(tmp_path)


def test_two_ingests_at_the_same_time(lake: str, tmp_path: Path) -> None:
    """There is no lock in an object store: the second commit of a position fails, and says why; each row is once."""
    broker(tmp_path).close()
    one_by_one = [*command(tmp_path, lake), "--max-bytes", "4000"]
    several = [subprocess.Popen(one_by_one, stdout=-1, stderr=-1, text=True) for _ in range(3)]
    for one in several:
        _, said = one.communicate(timeout=300)
        assert one.returncode == 0 or "another ingest is at work" in said or "already exists" in said, said
    assert main(["ingest", "--journal", str(tmp_path), "--lake", lake]) == 0
    assert rows_in(lake) == in_journal(tmp_path)


def test_iceberg_has_the_same_rows(lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog of Iceberg takes the committed files as they are: nothing is copied."""
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed (make object-stores)")
    from pyiceberg.catalog.sql import SqlCatalog

    broker(tmp_path).close()
    assert main(["ingest", "--journal", str(tmp_path), "--lake", lake]) == 0
    place = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{lake}-iceberg"}
    place["s3.endpoint"] = os.environ["AWS_ENDPOINT_URL"]
    for name, value in place.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__TEST__{name.upper().replace('.', '__')}", value)
    offer = [sys.executable, "-m", "leveret.pipeline", "iceberg", "--lake", lake, "--catalog", "test"]
    subprocess.run(offer, check=True)
    for table in ("events", "snapshots", "segments"):
        names = [one.name for one in TABLES[table]]
        scan = SqlCatalog("test", **place).load_table(("leveret", table)).scan(selected_fields=tuple(names))
        assert counted(scan.to_arrow().select(names).to_pylist()) == in_journal(tmp_path, table), table
