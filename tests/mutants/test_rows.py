"""The rows of planted faults fit the code, and a fault is found where a test covers it and not where none does."""

import json
import re
import shutil
import sys
import tomllib
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from covering import Covering
from mutant import MODULE, BadRow, Mutant, function_at, name_finder, read_rows, sample_operators
from mutants import is_missed, make_job, try_each
from noting import NOTE, noting
from simulated import KINDS, SHORT, STORM, Seed, run_world
from swap import changed_functions
from tree import Job, Result, Tree, Verdict, WorldsJob
from worlds_map import WorldsMap

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
    """Whoever renames such a test, or a state machine, renames it in the row."""
    named = [row.found_by.partition("[")[0].split("::")[:2] for row in all_rows() if row.found_by]
    root = Path(__file__).parents[2]

    def is_in(file: str, test: str) -> bool:
        return (
            re.search(rf"^(async def|def|class) {test}\(|^{test} = ", (root / file).read_text(), re.MULTILINE)
            is not None
        )

    assert [test for file, test in named if not is_in(file, test)] == []


@pytest.mark.parametrize(
    "result, is_said",
    [
        ((Verdict.FOUND, "tests/a.py::test_b"), False),
        ((Verdict.FOUND, "tests/a.py::test_b[1-x]"), False),
        ((Verdict.FOUND, "tests/a.py::test_bc[1]"), True),
        ((Verdict.SURVIVED, "5 tests passed"), True),
        ((Verdict.FOUND, "a module cannot be imported"), False),
    ],
)
def test_a_row_whose_own_test_does_not_find_it_is_named(result: tuple[Verdict, str], is_said: bool) -> None:
    """Also where another test finds it; not where no test began."""
    row = replace(all_rows()[0], found_by="tests/a.py::test_b[0]")
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


def test_a_fault_that_is_only_a_wrong_name_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test that runs it would find it, whatever the test looks at."""
    row = "[[mutant]]\nname = 'x'\nfile = 'tests/mutants/mutant.py'\nfind = 'return compile(source, '\n"
    (tmp_path / "a.toml").write_text(row + "replace = 'return compile(former, '\nharm = 'nothing works'\n")
    monkeypatch.setattr("mutant.ROWS", tmp_path)
    with pytest.raises(BadRow, match="^a/x: tests/mutants/mutant.py has no former$"):
        read_rows()


def test_the_finder_of_a_row_is_named_in_it_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other rows, words between them and their order stay; the test is the one that was found, whatever its name."""
    row = replace(all_rows()[0], name="a/x-y")
    monkeypatch.setattr("mutant.ROWS", tmp_path)
    path = tmp_path / "a.toml"
    rows = [f'[[mutant]]\nname = "{name}"\nharm = "none \\"yet\\""\n' for name in ("x", "x-y", "z")]
    path.write_text("\n# of z\n".join(rows))
    test = 'tests/a.py::test_b[/p = "1"\\n-\\x00]'
    name_finder(row, test)
    rows[1] += "found-by = " + json.dumps(test) + "\n"
    assert path.read_text() == "\n# of z\n".join(rows)
    assert tomllib.loads(path.read_text())["mutant"][1]["found-by"] == test


def test_functions_by_line() -> None:
    """Decorators belong to their function; class bodies and constants to the module."""
    source = (
        "A = 1\nclass B:\n    c = 2\n    @property\n    def d(self):\n        def e(): return 1\n        return e\n"
    )
    assert [function_at(source, line) for line in range(1, 8)] == [MODULE, MODULE, MODULE, "B.d", "B.d", "B.d.e", "B.d"]


#: Lines with one number or truth value each.
OPERATED = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    limit = 1
@dataclass(slots=True, frozen=True)
class A:
    part: Literal[1]
    rest: Literal[1] = 2
    size: int = 1
def add(one: Literal[1], *, other=2) -> Literal[3]:
    assert one != 1
    logger.info("%d", 1)
    log.restore(1)
"""


def test_faults_by_operators_without_those_that_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of fields and defaults are changed; annotations, stars, assertions and words of loggers are not."""
    pytest.importorskip("cosmic_ray")
    monkeypatch.setattr("mutant.ROOT", tmp_path)
    (tmp_path / "a.py").write_text(OPERATED)
    changed = [mutant.harm.partition("  ->")[0] for mutant in sample_operators("a.py", 100, seed=1)]
    assert sorted(changed) == [
        "def add(one: Literal[1], *, other=2) -> Literal[3]:",
        "log.restore(1)",
        "rest: Literal[1] = 2",
        "size: int = 1",
    ]


NOTED = '''
class A:
    def b(self):
        """Says it."""
        def c(): return 1
        return c
def d():
    yield A().b()
async def e(): pass
'''


def test_each_function_notes_that_it_ran() -> None:
    """By its own name, also one within another; docstrings stay what they are."""
    names: list[str] = []
    has_run = bytearray(5)
    module: dict[str, Any] = {NOTE: has_run}
    exec(compile(noting(NOTED, "a.py", names), "a.py", "exec"), module)
    assert names == ["a.py::A.b.c", "a.py::A.b", "a.py::d", "a.py::e"]
    inner = next(module["d"]())
    assert (list(has_run), module["A"].b.__doc__) == ([0, 1, 1, 0, 0], "Says it.")
    inner()
    assert list(has_run) == [1, 1, 1, 0, 0]


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
    what fails without it finds nothing. The file of tests that found the last fault of a file is tried first there,
    and machines also where other tests use up their half of the time."""
    row = replace(next(row for row in all_rows() if row.name == "settings/longer-pattern-loses"), found_by="")
    looks = "tests/settings/test_matching.py::test_matches_in_order[1-a.b-.#*]"
    key = f"{row.file}::{row.function}"
    job = make_job(row, Covering({key: [looks]}), 120)
    blind = make_job(row, Covering({key: [ELSEWHERE]}), 120)
    named = make_job(replace(row, found_by=looks.partition("[")[0]), Covering({}), 120)
    renamed = make_job(replace(row, found_by=looks.replace("[1-", "[2-")), Covering({}), 120)
    constant = replace(row, source=row.source + "\nraise ValueError\n")
    with Tree(tmp_path / "tree") as tree:
        fails = "tests/settings/test_fails.py"
        (tree.directory / fails).write_text("def test_it() -> None:\n    raise ValueError\n")
        broken = [Job(row, [f"{fails}::test_it", *more], 120) for more in ([], [looks], [ELSEWHERE])]
        slow = "tests/settings/test_slow.py"
        ends = (
            "import time\nimport pytest\n\n\n@pytest.mark.parametrize('end', [3, 6])\ndef test_it(end: int) -> None:\n"
        )
        (tree.directory / slow).write_text(f"{ends}    while time.process_time() < end:\n        pass\n")
        late = make_job(row, Covering({key: [f"{slow}::test_it", ELSEWHERE, looks]}, {ELSEWHERE, looks}), 4)
        again = looks.replace("test_matching", "test_matching_again")
        shutil.copy(tree.directory / "tests/settings/test_matching.py", tree.directory / again.partition("::")[0])
        two = [Job(row, [looks], 120), Job(row, [again, looks], 120)]
        harmless = Job(replace(row, source=tree.before(row)), job.tests, 120)
        jobs = [
            job,
            blind,
            named,
            renamed,
            harmless,
            Job(row, ["no test"], 120),
            Job(row, job.tests, 0),
            Job(constant, job.tests, 120),
            *broken,
            late,
            *two,
        ]
        tried = list(try_each(tree, jobs))
        found, how = ({id(job): result[at] for job, result, _ in tried} for at in (0, 1))
        assert [found[id(job)].name for job in jobs] == [
            *("FOUND", "SURVIVED", "FOUND", "FOUND", "SURVIVED", "UNDECIDED", "UNDECIDED", "FOUND"),
            *("UNDECIDED", "FOUND", "SURVIVED"),
            *("FOUND", "FOUND", "FOUND"),
        ]
        assert how[id(two[1])] == looks
        assert tree.try_anew(job)[0] == (Verdict.FOUND, looks)
        assert tree.before(row) != row.source


def test_a_test_that_waits_fails_and_one_that_computes_slowly_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that takes: on a busy machine a test of four seconds lasts longer than a minute."""
    monkeypatch.setattr("tree.WAITS_S", 2)
    row = next(row for row in all_rows() if row.name == "settings/longer-pattern-loses")
    with Tree(tmp_path / "tree") as tree:
        file = "tests/settings/test_long.py"
        computes = "def test_computes():\n    while time.process_time() < 5:\n        pass\n"
        waits = "def test_waits():\n    select.select([], [], [], 60)\n"
        (tree.directory / file).write_text(f"import select\nimport time\n{computes}{waits}")
        harmless = replace(row, source=tree.before(row))
        jobs = [Job(harmless, [f"{file}::{test}"], 120) for test in ("test_computes", "test_waits")]
        assert [result.verdict.name for _, result, _ in try_each(tree, jobs)] == ["SURVIVED", "FOUND"]


@pytest.mark.parametrize("kind", KINDS)
def test_worlds_of_each_kind_run(kind: str) -> None:
    assert run_world(Seed(kind, 50)) is None


def test_worlds_that_run_a_function_come_first() -> None:
    """Then variants of these, and others, which are storms where only several nodes run the file."""
    worlds = [Seed(SHORT, 7), Seed(STORM, 8), Seed(SHORT, 9)]
    known = WorldsMap(worlds, {"engine/a.py::A.b": [2, 0], "engine/a.py::c": [1], "engine/a.py::cd": [0]})

    def first(file: str, function: str) -> list[Seed]:
        return [*islice(known.of(file, function, 100), 6)]

    assert first("engine/a.py", "A.b") == [
        *((SHORT, 9, 0), (SHORT, 7, 0)),
        *((SHORT, 9, 1), (SHORT, 7, 1), (SHORT, 100, 0), (SHORT, 9, 2)),
    ]
    assert first("engine/a.py", "c")[:3] == [(STORM, 8, 0), (SHORT, 100, 0), (SHORT, 101, 0)]
    assert first("engine/a.py", MODULE)[:4] == [(SHORT, 9, 0), (SHORT, 7, 0), (STORM, 8, 0), (SHORT, 9, 1)]
    assert first("journal/copying/a.py", "d")[0] == (STORM, 100, 0)


def test_worlds_find_what_they_can_see(tmp_path: Path) -> None:
    """Planted by swapped code and from the start; what does not differ breaks no world."""
    row = next(row for row in all_rows() if row.name == "engine_queues/got-counts-no-unacked")
    with Tree(tmp_path / "tree") as tree:
        before = tree.before(row)
        raises = before.replace("class ", "raise ValueError\n\n\nclass ", 1)
        sources = {row.source: "found", before: "SURVIVED", raises: "found"}
        seeds = [Seed(SHORT, seed) for seed in range(16, 18)]
        jobs = [WorldsJob(replace(row, source=source), seeds, 60) for source in sources]
        assert [result.verdict.value for _, result, _ in try_each(tree, jobs)] == list(sources.values())
