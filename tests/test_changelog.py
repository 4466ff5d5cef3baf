"""CHANGELOG.md is what the fragments say: run `make changelog` when this fails."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_changelog_is_drawn() -> None:
    """`make changelog` would write the same."""
    drawn = subprocess.run(
        [sys.executable, ROOT / "docs" / "draw_changelog.py"], capture_output=True, text=True, check=True
    )
    assert (ROOT / "CHANGELOG.md").read_text() == drawn.stdout, "run make changelog"
