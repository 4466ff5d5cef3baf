"""The README does what it says: its two examples run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from broker_process import leveret_serve

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("index, library", [(0, "pika"), (1, "aio_pika")])
def test_examples_run(tmp_path: Path, index: int, library: str) -> None:
    """Copied from the page, with only the port changed."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    source = blocks[index]
    assert library in source
    with leveret_serve(tmp_path) as broker:
        source = source.replace(":5672/", f":{broker.port}/")
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "hello, hare\n"


def test_the_top_is_the_two_commands() -> None:
    """Read from the top: make serve, make test."""
    lines = [line for line in (ROOT / "README.md").read_text().splitlines() if line.strip()]
    assert lines[2].startswith("make serve") and lines[3].startswith("make test")


def test_pages_that_are_linked_exist() -> None:
    """No dead links inside the repository, in the README or in docs/."""
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
