"""`leveret pipeline iceberg`: a catalog has the rows of the lake, after each command that changes its files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("pyiceberg", reason="pyiceberg is not installed (make object-stores)")

import pyiceberg.catalog
from lakes import counted, in_lake
from pyiceberg.utils.config import Config
from recorded_broker import RecordedBroker

from leveret.pipeline.__main__ import main
from leveret.pipeline.lake.lake import COMMIT_ORDER
from leveret.pipeline.schemas import TABLES


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A catalog in a file, as the environment of a user names it."""
    for name, value in (("URI", f"sqlite:///{tmp_path}/catalog.db"), ("WAREHOUSE", f"file://{tmp_path}/metadata")):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__COMPANY__{name}", value)
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())  # it has read the environment when it was imported
    return pyiceberg.catalog.load_catalog("company")


def in_catalog(catalog: Any, table: str) -> Counter[str]:
    names = tuple(one.name for one in TABLES[table])
    rows = catalog.load_table(("leveret", table)).scan(selected_fields=names).to_arrow().select(list(names)).to_pylist()
    return counted(rows)


def test_a_catalog_follows_the_lake(catalog: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """New rows, a compaction, days that go; what has not changed is no snapshot."""
    lake = tmp_path / "lake"
    ingest = ["ingest", "--journal", str(tmp_path / "journal"), "--lake", str(lake)]
    offer = ["iceberg", "--lake", str(lake), "--catalog", "company"]
    one = RecordedBroker(tmp_path / "journal", segment_size=6000)
    one.declare("q")
    for change in (ingest, ingest, ["compact", "--lake", str(lake)], ["retain", "--lake", str(lake), "--days", "1"]):
        one.publish("q", 10)
        one.checkpoint()
        one.tick()
        assert main(change) == 0
        one.clock.advance_ns(86_400 * 10**9)
        assert main(offer) == 0
        for table in COMMIT_ORDER:
            assert in_catalog(catalog, table) == in_lake(lake, table), (change, table)
    before = len(catalog.load_table("leveret.events").snapshots())
    capsys.readouterr()
    assert main(offer) == 0
    assert set(json.loads(capsys.readouterr().out)["added"].values()) == {0}
    assert len(catalog.load_table("leveret.events").snapshots()) == before > 2


def test_what_is_wrong_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No lake, no such catalog."""
    RecordedBroker(tmp_path / "journal").close()
    assert main(["iceberg", "--lake", str(tmp_path / "lake"), "--catalog", "nowhere"]) == 1
    assert "no lake here" in capsys.readouterr().err
    assert main(["ingest", "--journal", str(tmp_path / "journal"), "--lake", str(tmp_path / "lake")]) == 0
    assert main(["iceberg", "--lake", str(tmp_path / "lake"), "--catalog", "nowhere"]) == 1
    assert "PYICEBERG_CATALOG__NOWHERE__URI" in capsys.readouterr().err
