"""Counts whose goal is zero are zero; and the census finds what it should."""

from pathlib import Path

import census
import pytest
from census import CIRCLES, KIND_CHECKS, MEASURES, NONE, PAST_FACADE, QUEUE_WRITES, STORE_WRITES, Finding, counted


@pytest.fixture(scope="module")
def found() -> list[Finding]:
    """In this tree."""
    return census.census()


@pytest.mark.parametrize("measure", NONE)
def test_there_is_none(measure: str, found: list[Finding]) -> None:
    """A failure names each finding, with its file."""
    assert [one for one in found if one.measure == measure] == []


LONG = "\n".join(f"    {number}" for number in range(60))
METHODS = "\n".join(f"    def m{number}(self) -> None: ..." for number in range(26))
#: A small tree with one of each, next to code that looks like it and is right.
TREE = {
    "engine/__init__.py": "from .queues.queue import Queue\n",
    "engine/queues/__init__.py": "",
    "engine/queues/queue.py": f"""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from .limits import limit
class Queue:
    count: int
    def __init__(self, ready):
        self.ready = ready
        self.octets = 0
class BigQueue(Queue):
{METHODS}
""",
    "engine/queues/limits.py": f"""
from .queue import BigQueue, Queue
from ..stores.plain import PlainStore
def limit(queue):
    queue.octets -= 1
    queue.other = 3
    isinstance(queue, BigQueue)
    isinstance(queue.ready, (PlainStore, list))
def long():
{LONG}
""",
    "engine/stores/__init__.py": "",
    "engine/stores/plain.py": "class PlainStore:\n    def __init__(self):\n        self.count = 0\n",
    "journal/__init__.py": "from ..engine import Queue\nfrom ..engine.state import Everything\n",
    "journal/restore.py": """
from ..engine.stores.plain import PlainStore
def restore(one: "PlainStore", queue):
    one.count = 3
    queue.count, own = 3, 4
""",
    "settings/__init__.py": "\n" * 401,
    "settings/fault.py": "# See behaviour page 2.4.\n",
}


def test_each_measure_finds_its_fault(tmp_path: Path) -> None:
    """And nothing else. The tree has no reference pages, so its citation leads nowhere."""
    for name, text in TREE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = census.census(tmp_path)
    assert [(MEASURES.index(one.measure), one.key) for one in found if one.measure == CIRCLES] == [
        (0, "engine/queues/limits.py: one of 2"),
        (0, "engine/queues/queue.py: one of 2"),
    ]
    assert {(one.measure, one.key) for one in found if one.measure != CIRCLES} == {
        (census.CLASSES, "engine/queues/queue.py: BigQueue"),
        (census.FILES, "settings/__init__.py"),
        (census.FUNCTIONS, "engine/queues/limits.py: long"),
        (QUEUE_WRITES, "engine/queues/limits.py: octets"),
        (QUEUE_WRITES, "journal/restore.py: count"),
        (STORE_WRITES, "journal/restore.py: count"),
        (KIND_CHECKS, "engine/queues/limits.py: PlainStore (1)"),
        (PAST_FACADE, "journal/restore.py: engine.stores.plain"),
        (census.CITATIONS, "settings/fault.py: (1)"),
    }
    assert counted(found)[QUEUE_WRITES] == {"engine": 1, "journal": 1}
