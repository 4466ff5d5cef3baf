"""What a session needs beside Spark itself."""

import zipfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")
pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")

from leveret.pipeline.session import SENT, pack

ROOT = Path(__file__).resolve().parents[2]


def test_executors_get_every_module_of_the_rooms_that_they_need(tmp_path: Path) -> None:
    """Rooms inside rooms, too: an import that fails on another host is found late."""
    names = set(zipfile.ZipFile(pack(tmp_path)).namelist())
    assert "leveret/__init__.py" in names
    for room in SENT:
        modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / room).rglob("*.py")}
        assert {f"leveret/{module}" for module in modules} == {n for n in names if n.startswith(f"leveret/{room}/")}
