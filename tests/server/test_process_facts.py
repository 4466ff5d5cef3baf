"""Facts about this process, for the console and the other nodes."""

from pathlib import Path

import pytest
import trio

from leveret.serving.metrics_facts import process_figures
from leveret.serving.process_facts import host_facts_of


@pytest.mark.parametrize("path, is_known", [("data", True), ("no/data", False)])
def test_free_space_is_told_while_the_directory_is_replaced(tmp_path: Path, path: str, is_known: bool) -> None:
    """A full copy takes the place of the journal in two steps; a node without room would raise an alarm."""

    async def free() -> list[int]:
        directory = str(tmp_path / path)
        return [host_facts_of(directory).disk_free, process_figures(directory, 0).disk_free]

    assert [octets > 0 for octets in trio.run(free)] == [is_known] * 2
