"""docs/testing-your-application.md does what it says: its files, put into a folder, run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

from guide import write_guide


def run(folder: Path, *arguments: str) -> str:
    """Python with these arguments in the folder. Returns what it printed; fails when it fails."""
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_tests_pass(tmp_path: Path) -> None:
    """All of them, and they leave nothing behind."""
    names = write_guide(tmp_path)
    tests = [name for name in names if name.startswith("test_")]
    assert len(tests) >= 7 and "shop.py" in names
    output = run(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", *tests)
    assert re.search(r"= \d+ passed in", output)  # none failed, none skipped
    assert "left behind" not in output, output


def test_without_pytest(tmp_path: Path) -> None:
    """The script prints the queue with its order."""
    write_guide(tmp_path)
    assert run(tmp_path, "try_it.py").splitlines()[:3] == [
        "queue 'orders' in virtual host '/', 0 consumers",
        "  ready: 1",
        '    {"id": 7}',
    ]
