"""Pages that are drawn from tables are what the tables say."""

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.mark.parametrize("name", ["states", "configuration"])
def test_drawn_pages_are_current(name: str) -> None:
    """Run docs/draw_NAME.py again when this fails."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"draw_{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / f"{name}.md").read_text() == module.page() + "\n"


def test_every_hostile_vector_has_a_test_that_exists() -> None:
    """Each row of the tables names tests, and they are there."""
    root = DOCS.parent
    rows = [line for line in (DOCS / "hostile-peers.md").read_text().splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith("| vector |")]
    assert len(rows) > 40
    for row in rows:
        named = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", row)
        assert named, row
        for path, test in named:
            assert (root / path).exists(), path
            assert not test or f"def {test}(" in (root / path).read_text(), (path, test)
