"""What a session needs beside Spark itself."""

import os
import stat
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")
pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")

from leveret.pipeline.session import SENT_ROOMS, pack, private_directory

ROOT = Path(__file__).resolve().parents[2]


def test_executors_get_every_module_of_the_rooms_that_they_need(tmp_path: Path) -> None:
    """Rooms inside rooms, too: an import that fails on another host is found late."""
    names = set(zipfile.ZipFile(pack(tmp_path)).namelist())
    assert "leveret/__init__.py" in names
    for room in SENT_ROOMS:
        modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / room).rglob("*.py")}
        assert {f"leveret/{module}" for module in modules} == {n for n in names if n.startswith(f"leveret/{room}/")}


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs users")
def test_the_temporary_directory_is_the_users_own(tmp_path: Path) -> None:
    """Code is run from it: nobody else can write there, and what somebody else put there is refused."""
    path = private_directory(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    path.chmod(0o777)
    assert private_directory(tmp_path) == path and stat.S_IMODE(path.stat().st_mode) == 0o700
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="not a directory of this user's own"):
        private_directory(tmp_path)


def test_spark_logs_no_stack_of_java_where_we_report() -> None:
    """Spark's Python logs a wrong query as JSON, with Java's stack in it, before our sentence."""
    logger = pytest.importorskip("pyspark.logger", reason="Spark is not installed (make spark)").PySparkLogger
    from leveret.pipeline.session import CONTEXT_LOGGERS, disable_context_loggers

    before = {name: logger.getLogger(name).disabled for name in CONTEXT_LOGGERS}
    try:
        disable_context_loggers()
        assert all(logger.getLogger(name).disabled for name in CONTEXT_LOGGERS)
    finally:
        for name, disabled in before.items():
            logger.getLogger(name).disabled = disabled
