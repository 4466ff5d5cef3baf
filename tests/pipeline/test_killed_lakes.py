"""An ingest, a migration, a compaction, a retention killed at their operations on files, one after another: no row
lost, none twice.

At one of 74 operations, others in each of the tests; LEVERET_EFFORT=10: at one of seven; 74: at each. What takes long
has the mark of Spark's tests: `make spark` runs it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from damage import as_node_of_a_cluster, blocks_of, harm
from lakes import fill, fill_as_before
from recorded_broker import RecordedBroker

from leveret.journal.disk.files import REAL
from leveret.journal.disk.segment import segments_in
from leveret.pipeline.lake.delta_tables import PROPERTIES

HERE = Path(__file__).parent / "killing"
STRIDE = max(1, 74 // int(os.environ.get("LEVERET_EFFORT", "1")))


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What counts operations, and kills."""
    if not sys.platform.startswith("linux") or not shutil.which("cc"):
        pytest.skip("needs Linux and a C compiler")
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, HERE / "faults.c", "-ldl"], check=True)
    return library


def filled(path: Path) -> RecordedBroker:
    """A journal with a checkpoint."""
    one = RecordedBroker(path, segment_size=3000)
    one.declare("q")
    one.publish("q", 20)
    one.checkpoint()
    one.tick()
    return one


def make_copies(directory: Path) -> None:
    """`journal`, damaged, and `other` of two nodes of a cluster."""
    as_node_of_a_cluster(directory)
    shutil.copytree(directory / "journal", directory / "other" / "journal")
    base = segments_in(REAL, str(directory / "journal"))[1]
    harm(directory / "journal", base, blocks_of(directory / "journal", base)[3][0])


def make_stages(directory: Path) -> None:
    """Two brokers, as they are at four times: one comes later, is away on the second day, and is back."""
    made = directory / "made"
    (directory / "stages").mkdir()
    one, other = filled(made / "one" / "journal"), None
    for at in range(4):
        if at:
            one.clock.advance_ns(43_200 * 10**9)
            one.publish("q", 10)
            one.get("q", 5)
            one.tick()
        if at == 1:
            other = filled(made / "other" / "journal")
        if other is not None and at == 3:
            other.clock.advance_ns(86_400 * 10**9)
            other.publish("q", 5)
            other.tick()
        shutil.copytree(made, directory / "stages" / str(at))
    shutil.rmtree(directory / "stages" / "2" / "other")


@pytest.mark.parametrize(
    "before",
    ["nothing", "some", "sparks", "small files", "old days", "a hole", pytest.param("days", marks=pytest.mark.spark)],
)
def test_killed_at_an_operation(before: str, faults: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a first ingest, of a second one (whose commits sum up the log), of one that migrates, of a compaction, of a
    retention, of an ingest that fills a hole from the copy of another node, of following brokers for days."""
    monkeypatch.setitem(PROPERTIES, "delta.checkpointInterval", "2")
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = filled(journal)
    if before == "sparks":
        # As where it was filled first, which is not where it is.
        fill_as_before(journal, tmp_path / "original", ("events", "snapshots", "checkpoints", "segments"))
        (tmp_path / "original").rename(lake)
    elif before != "nothing":
        fill(journal, lake)
    if before != "nothing":
        one.publish("q", 5)
        one.checkpoint()
        one.tick()
    if before in ("small files", "old days"):
        fill(journal, lake)
    if before == "old days":
        one.clock.advance_ns(86_400 * 10**9)
        one.publish("q", 5)
    one.close()
    if before == "a hole":
        shutil.rmtree(lake)
        make_copies(tmp_path)
    if before == "days":
        shutil.rmtree(lake)
        make_stages(tmp_path)
    what = {"small files": "compact", "old days": "retain", "a hole": "fill", "days": "follow"}.get(before, "ingest")
    if what not in ("ingest", "follow"):
        fill(journal, lake)
    stride = 4 * STRIDE if what == "follow" and STRIDE > 1 else STRIDE
    done = subprocess.run(
        [sys.executable, HERE / "kill_at_each_step.py", tmp_path, what, str(1 + len(before)), str(stride)],
        env={**os.environ, "LD_PRELOAD": str(faults)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 40, "it has more operations than that"
