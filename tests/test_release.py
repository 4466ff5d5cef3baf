"""A release: the changelog's fragments become its section, and the version is set where it is written."""

import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from leveret import __version__

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What a release reads and writes, with two fragments."""
    for name in ("docs/release.py", "docs/draw_changelog.py", "pyproject.toml", "src/leveret/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "changelog.d").mkdir()
    fragment(tmp_path, "1.hares.added.md", "Hares.")
    fragment(tmp_path, "2.foxes.fixed.md", "Foxes, see [page](../docs/tls.md).")
    return tmp_path


def fragment(tree: Path, name: str, text: str) -> None:
    """One more."""
    (tree / "changelog.d" / name).write_text(text + "\n")


def release(tree: Path, *arguments: str) -> str:
    """Run it. Returns what it complained about."""
    command = [sys.executable, tree / "docs" / "release.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True).stderr.strip()


def test_two_releases(tree: Path) -> None:
    """Newest first; nothing is left of the fragments."""
    day = datetime.now(UTC).date()
    assert release(tree, "0.9.0") == ""
    fragment(tree, "3.more.changed.md", "More.")
    assert release(tree, "0.10.0") == ""
    assert 'version = "0.10.0"' in (tree / "pyproject.toml").read_text()
    assert '__version__ = "0.10.0"' in (tree / "src/leveret/__init__.py").read_text()
    assert (tree / "CHANGELOG.md").read_text().split("## ", 1)[1] == (
        f"Unreleased\n\n## 0.10.0 ({day})\n\n### Changed\n\n- More.\n\n"
        f"## 0.9.0 ({day})\n\n### Added\n\n- Hares.\n\n### Fixed\n\n- Foxes, see [page](docs/tls.md).\n"
    )
    assert [path.name for path in (tree / "changelog.d").iterdir()] == ["released"]


def test_what_is_no_release(tree: Path) -> None:
    """And nothing is changed by it."""
    before = (tree / "pyproject.toml").read_text()
    assert "'1.2' is not a version such as 0.2.0" in release(tree, "1.2")
    assert "usage" in release(tree)
    assert release(tree, "9.0.0") == ""
    assert "nothing has changed" in release(tree, "9.0.1")
    fragment(tree, "3.more.changed.md", "More.")
    assert "9.0.0 is not above 9.0.0" in release(tree, "9.0.0")
    assert (tree / "pyproject.toml").read_text() == before.replace(f'version = "{__version__}"', 'version = "9.0.0"')
