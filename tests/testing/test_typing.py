"""mypy and pyright agree with what the public interface of leveret.testing says about itself."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
USAGE = Path(__file__).with_name("typed_usage.py")


def test_mypy() -> None:
    """Strict; an ignore that is not needed is a fault, so the wrong lines are found to be wrong."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", str(USAGE)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout


def test_pyright(tmp_path: Path) -> None:
    """The same file by the checker of VS Code; skips where its Node part can't be had."""
    if shutil.which("node") is None:
        pytest.skip("pyright needs node")
    config = {
        "include": [USAGE.name],
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": "error",
        "enableTypeIgnoreComments": False,
        "pythonVersion": "3.11",
    }
    shutil.copy(USAGE, tmp_path)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--project",
        str(tmp_path),
        "--pythonpath",
        sys.executable,
        "--outputjson",
    ]
    try:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180)
        report = json.loads(done.stdout)
    except (ValueError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"pyright cannot be run: {error}")
    assert report["summary"]["filesAnalyzed"] == 1
    found = [f"{one['range']['start']['line'] + 1}: {one['message']}" for one in report["generalDiagnostics"]]
    assert not found, "\n".join(found)
