"""Pages that are drawn from tables are what the tables say."""

import importlib.util
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
