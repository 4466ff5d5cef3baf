"""Every trap of behaviour page 7 has a test that carries its number, `@trap(14)`, or a reason why it has none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "reference" / "behaviour.md"

WITHOUT_A_TEST: dict[int, str] = {}


def traps() -> set[int]:
    """The numbers of the page."""
    section = PAGE.read_text().split("\n## 7. ", 1)[1].split("\n## ", 1)[0]
    return {int(number) for number in re.findall(r"^([0-9]+)\. ", section, re.MULTILINE)}


def marked(source: str) -> Iterator[int]:
    """The numbers that tests of this source carry."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) in ("trap", "pytest.mark.trap"):
                    yield ast.literal_eval(mark.args[0])


def test_every_trap_has_a_test_or_a_reason() -> None:
    """None is missing, none has both, and none is marked that the page does not have."""
    sources = (path.read_text() for path in sorted(TESTS.rglob("test_*.py")))
    tested = {number for source in sources if "trap(" in source for number in marked(source)}
    assert len(traps()) > 80
    assert tested | WITHOUT_A_TEST.keys() == traps()
    assert tested & WITHOUT_A_TEST.keys() == set()


def test_the_marks_are_found() -> None:
    """On tests only, and also beside other marks."""
    tests = "@trap(1)\n@pytest.mark.peer\ndef test_a(): ...\n@pytest.mark.trap(2)\ndef test_b(): ...\n"
    assert list(marked(tests + "@trap(3)\ndef helper(): ...")) == [1, 2]
