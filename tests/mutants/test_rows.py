"""The rows of planted faults fit the code, and a fault is found where a test covers it and not where none does."""

import json
import re
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from covering import Covering
from mutant import MODULE, BadRow, Mutant, function_at, read_rows
from mutants import is_missed, make_job, try_each
from swap import changed_functions
from tree import Job, Result, Tree, Verdict, WorldsJob

#: A test that passes whatever settings do.
ELSEWHERE = "tests/mutants/test_rows.py::test_functions_by_line"
ROOMS = ("engine/", "journal/", "amqp_frontend/", "settings/", "expressions/", "cluster/")


@cache
def all_rows() -> list[Mutant]:
    """Read once: each is compiled."""
    return read_rows()


def test_each_row_names_one_place() -> None:
    """Whoever moves the code moves the row; names are unique, and say what a user would see."""
    rows = all_rows()
    assert [name for name, count in Counter(row.name for row in rows).items() if count > 1] == []
    assert [row.name for row in rows if len(row.harm) < 10] == []


def test_rows_are_in_the_rooms_that_lose_messages() -> None:
    """Each of these has its list."""
    files = [row.file for row in all_rows()]
    assert [room for room in ROOMS if not any(file.startswith(room) for file in files)] == []


def test_tests_that_rows_name_are_there() -> None:
    """Whoever renames such a test renames it in the row."""
    named = [row.found_by.partition("::") for row in all_rows() if row.found_by]
    root = Path(__file__).parents[2]
    assert [test for file, _, test in named if f"def {test}(" not in (root / file).read_text()] == []


@pytest.mark.parametrize(
    "result, is_said",
    [
        ((Verdict.FOUND, "tests/a.py::test_b"), False),
        ((Verdict.FOUND, "tests/a.py::test_b[1-x]"), False),
        ((Verdict.FOUND, "tests/a.py::test_bc"), True),
        ((Verdict.SURVIVED, "5 tests passed"), True),
        ((Verdict.FOUND, "a module cannot be imported"), False),
    ],
)
def test_a_row_whose_own_test_does_not_find_it_is_named(result: tuple[Verdict, str], is_said: bool) -> None:
    """Also where another test finds it; not where no test began."""
    row = replace(all_rows()[0], found_by="tests/a.py::test_b")
    assert is_missed(row, Result(*result)) is is_said
    assert not is_missed(replace(row, found_by=""), Result(*result))


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


#: A change of a method, of what a closure does, and of what no swap of code can change.
PROGRAM = """
class A:
    limit = 1
    def add(self, by=1):
        return [one + by for one in self.all]
def outer():
    def inner():
        return 1
    return inner
"""


@pytest.mark.parametrize(
    "find, instead, changed",
    [
        ("one + by", "one - by", {"A.add", "A.add.<locals>.<listcomp>"}),
        ("return 1", "return 2", {"outer", "outer.<locals>.inner"}),
        ("return 1", "return True", {"outer", "outer.<locals>.inner"}),
        ("return inner", "return lambda: 1", {"outer"}),
        ("\nclass", "\n\nclass", set()),
        ("limit = 1", "limit = 2", None),
        ("by=1", "by=2", None),
        ("return 1", "return limit", {"outer", "outer.<locals>.inner"}),
    ],
)
def test_changed_functions(find: str, instead: str, changed: set[str] | None) -> None:
    """With those around them; None where a function is not all that differs."""
    found = changed_functions(PROGRAM, PROGRAM.replace(find, instead, 1))
    assert (None if found is None else {name for name, _ in found}) == changed


def test_a_fault_is_found_by_the_tests_that_run_it(tmp_path: Path) -> None:
    """By swapped code and in a process that begins with it; it survives where those that run it do not look;
    what fails without it finds nothing."""
    row = next(row for row in all_rows() if row.name == "settings/longer-pattern-loses")
    looks = "tests/settings/test_matching.py::test_matches_in_order[1-a.b-.#*]"
    key = f"{row.file}::{row.function}"
    seconds = {looks: 0.1, ELSEWHERE: 0.1}
    job = make_job(row, Covering({key: [looks]}, seconds), 120)
    blind = make_job(row, Covering({key: [ELSEWHERE]}, seconds), 120)
    named = make_job(replace(row, found_by=looks.partition("[")[0]), Covering({}, {}), 120)
    constant = replace(row, source=row.source + "\nraise ValueError\n")
    with Tree(tmp_path / "tree") as tree:
        fails = "tests/settings/test_fails.py"
        (tree.directory / fails).write_text("def test_it() -> None:\n    raise ValueError\n")
        broken = [Job(row, [f"{fails}::test_it", *more], 120) for more in ([], [looks], [ELSEWHERE])]
        harmless = Job(replace(row, source=tree.before(row)), job.tests, 120)
        jobs = [
            job,
            blind,
            named,
            harmless,
            Job(row, ["no test"], 120),
            Job(row, job.tests, 0),
            Job(constant, job.tests, 120),
            *broken,
        ]
        found = {id(job): result.verdict for job, result, _ in try_each(tree, jobs)}
        assert [found[id(job)].name for job in jobs] == [
            *("FOUND", "SURVIVED", "FOUND", "SURVIVED", "UNDECIDED", "UNDECIDED", "FOUND"),
            *("UNDECIDED", "FOUND", "SURVIVED"),
        ]
        assert tree.try_anew(job)[0] == (Verdict.FOUND, looks)
        assert tree.before(row) != row.source


def test_worlds_find_what_they_can_see(tmp_path: Path) -> None:
    """Planted by swapped code and from the start; what does not differ breaks no world."""
    row = next(row for row in all_rows() if row.name == "engine_queues/got-counts-no-unacked")
    with Tree(tmp_path / "tree") as tree:
        before = tree.before(row)
        raises = before.replace("class ", "raise ValueError\n\n\nclass ", 1)
        sources = {row.source: "found", before: "SURVIVED", raises: "found"}
        jobs = [WorldsJob(replace(row, source=source), range(13, 15), 60) for source in sources]
        assert [result.verdict.value for _, result, _ in try_each(tree, jobs)] == list(sources.values())
