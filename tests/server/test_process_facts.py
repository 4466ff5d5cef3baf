"""Facts about this process, for the console and the other nodes."""

from pathlib import Path

import pytest
import trio

from leveret.serving.process_facts import host_facts_of


@pytest.mark.parametrize("path, is_known", [("data", True), ("no/data", False)])
def test_free_space_is_told_while_the_directory_is_replaced(tmp_path: Path, path: str, is_known: bool) -> None:
    """A full copy takes the place of the journal in two steps; a node without room would raise an alarm."""

    async def free() -> int:
        return host_facts_of(str(tmp_path / path)).disk_free

    assert (trio.run(free) > 0) is is_known
