"""docs/leases.md does what it says: its programs run as they stand, and print what stands under them."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import BrokerProcess, leveret_serve

PAGE = (Path(__file__).parents[2] / "docs" / "leases.md").read_text()
PROGRAMS = re.findall(r"```python\n# (\w+)\.py\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all programs, with a journal."""
    with leveret_serve(tmp_path_factory.mktemp("leases")) as broker:
        yield broker


@pytest.mark.parametrize(("name", "source", "output"), PROGRAMS, ids=[name for name, _, _ in PROGRAMS])
def test_its_programs(broker: BrokerProcess, name: str, source: str, output: str) -> None:
    """Copied from the page, with only the port changed."""
    source = source.replace(":5672/", f":{broker.port}/")
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert done.stdout == output


def test_no_program_is_left_out() -> None:
    """Each has its output."""
    assert PAGE.count("```python") == PAGE.count("```text") == len(PROGRAMS) == 8
