"""The rows of planted faults fit the code, and a fault is found where a test covers it and not where none does."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from covering import Covering
from mutant import MODULE, BadRow, function_at, read_rows
from mutants import tried_by_tests
from tree import Tree, Verdict

#: A test that passes whatever settings do.
ELSEWHERE = "tests/mutants/test_rows.py::test_functions_by_line"
ROOMS = ("engine/", "journal/", "amqp_frontend/", "settings/", "expressions/")


def test_each_row_names_one_place() -> None:
    """Whoever moves the code moves the row; names are unique, and say what a user would see."""
    rows = read_rows()
    assert [name for name, count in Counter(row.name for row in rows).items() if count > 1] == []
    assert [row.name for row in rows if len(row.harm) < 10] == []


def test_rows_are_in_the_rooms_that_lose_messages() -> None:
    """Each of these has its list."""
    files = [row.file for row in read_rows()]
    assert [room for room in ROOMS if not any(file.startswith(room) for file in files)] == []


@pytest.mark.parametrize(
    "find, why", [("no such text", "stands 0 times"), ("self", "times in"), ("def read_rows(", "invalid syntax")]
)
def test_a_row_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, find: str, why: str) -> None:
    """With its file and the reason."""
    row = f"[[mutant]]\nname = 'x'\nfile = 'tests/mutants/mutant.py'\nfind = {json.dumps(find)}\n"
    (tmp_path / "a.toml").write_text(row + "replace = '('\nharm = 'nothing works'\n")
    monkeypatch.setattr("mutant.ROWS", tmp_path)
    with pytest.raises(BadRow, match=f"^a/x: .*{re.escape(why)}"):
        read_rows()


def test_functions_by_line() -> None:
    """Decorators belong to their function; class bodies and constants to the module."""
    source = (
        "A = 1\nclass B:\n    c = 2\n    @property\n    def d(self):\n        def e(): return 1\n        return e\n"
    )
    assert [function_at(source, line) for line in range(1, 8)] == [MODULE, MODULE, MODULE, "B.d", "B.d", "B.d.e", "B.d"]


def test_a_fault_is_found_by_the_tests_that_run_it(tmp_path: Path) -> None:
    """And survives where those that run it do not look."""
    row = next(row for row in read_rows("settings/") if row.name == "settings/longer-pattern-loses")
    looks = "tests/settings/test_matching.py::test_matches_in_order[1-a.b-.#*]"
    key = f"{row.file}::{row.function}"
    seconds = {looks: 0.1, ELSEWHERE: 0.1}
    covering, blind = Covering({key: [looks]}, seconds), Covering({key: [ELSEWHERE]}, seconds)
    with Tree(tmp_path / "tree") as tree:
        tree.plant(row)
        verdict, how = tried_by_tests(tree, row, covering, 120)
        assert verdict is Verdict.FOUND and "test_matching" in how
        assert tried_by_tests(tree, row, blind, 120).verdict is Verdict.SURVIVED
        tree.remove(row)
        assert tried_by_tests(tree, row, covering, 120).verdict is Verdict.SURVIVED
        assert tree.run_tests([looks], 0).verdict is Verdict.UNDECIDED
