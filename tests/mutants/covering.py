"""Which tests run which function, and how long each takes: measured once, kept in `.mutants/`."""

from __future__ import annotations

import ast
import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Collection
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path
from xml.etree import ElementTree

from mutant import MODULE, ROOT

KEPT = ROOT / ".mutants"
#: The tests that run the code in their own process.
DIRECTORIES = (
    "tests/engine",
    "tests/conformance",
    "tests/amqp_frontend",
    "tests/settings",
    "tests/expressions",
    "tests/journal",
    "tests/frontends",
    "tests/spec",
    "tests/simulation",
    "tests/console",
    "tests/fuzz",
    "tests/server",
    "tests/cluster",
)
#: Tests of a room where these are not in the directory of its name.
OWN = {"engine": ("tests/engine/", "tests/conformance/"), "src": ("tests/server/", "tests/cluster/")}
#: Tests kept of a function: the quick ones, then the slow ones, which promise the most. Those of its room come first,
#: each time those that run the fewest other functions, and some of each file. The slow ones that try much
#: at random come last, however many there are, and of each room state machines before others: they find what no example
#: names.
QUICK_MAX, SLOW_MAX, SLOW_S = 800, 150, 0.5


class Covering:
    """Tests by function. `machines`: those among them that come last."""

    def __init__(self, tests: dict[str, list[str]], machines: Collection[str] = ()) -> None:
        self._tests = tests
        self._machines = frozenset(machines)

    def of(self, file: str, function: str) -> tuple[list[str], list[str]]:
        """Node ids of the tests that run it, the most particular first, and of the machines that do; of a module's own
        code: of all in its file."""
        if function != MODULE:
            found = dict.fromkeys(self._tests.get(f"{file}::{function}", []))
        else:
            of_file = [tests for name, tests in self._tests.items() if name.startswith(f"{file}::")]
            found = dict.fromkeys(test for tests in of_file for test in tests[:20])
            found |= dict.fromkeys(test for tests in of_file for test in tests if test in self._machines)
        machines = [test for test in found if test in self._machines]
        return [test for test in found if test not in self._machines], machines


def read_covering() -> Covering:
    """What was measured last.

    Raises: SystemExit: nothing was.
    """
    kept = KEPT / "covering.json"
    if not kept.exists():
        raise SystemExit("which tests cover what is not known yet: make mutants-map")
    read = json.loads(kept.read_text())
    return Covering(read["tests"], read["machines"])


def measure(processes: str) -> None:
    """Run `DIRECTORIES` with coverage and keep what they cover; some ten minutes on two cores."""
    KEPT.mkdir(exist_ok=True)
    data, times = KEPT / "coverage.db", KEPT / "times.xml"
    config = KEPT / "coverage.ini"
    config.write_text("[run]\nbranch = false\n")  # lines are enough, and a tenth of what branches take
    command = [sys.executable, "-m", "pytest", "-q", "-n", processes, "--dist", "loadfile", "-p", "no:cacheprovider"]
    command += ["--cov=leveret", "--cov-context=test", "--cov-report=", f"--cov-config={config}"]
    command += [f"--junitxml={times}", *DIRECTORIES]
    subprocess.run(command, cwd=ROOT, check=False, env={**os.environ, "COVERAGE_FILE": str(data)})
    seconds = _seconds(times)
    machines = {test for test, took_s in seconds.items() if took_s > SLOW_S and _is_random(test)}
    tests = _tests_by_function(data, seconds, machines)
    (KEPT / "covering.json").write_text(json.dumps({"tests": tests, "machines": sorted(machines)}))
    print(f"{len(seconds)} tests cover {len(tests)} functions")


def _seconds(times: Path) -> dict[str, float]:
    """Of each test by node id."""
    seconds = {}
    for case in ElementTree.parse(times).iter("testcase"):
        module, within = case.get("classname", "").replace(".", "/"), ""
        if not (ROOT / f"{module}.py").exists():  # a stateful test is a method of a class
            module, _, name = module.rpartition("/")
            within = f"{name}::"
        if (ROOT / f"{module}.py").exists() and case.find("skipped") is None:
            seconds[f"{module}.py::{within}{case.get('name')}"] = float(case.get("time", "0"))
    return seconds


def _is_random(test: str) -> bool:
    """Whether Hypothesis makes its examples: a state machine, or a function with `@given`."""
    file, _, name = test.partition("::")
    return name.endswith("::runTest") or name.partition("[")[0].rpartition("::")[2] in _given(file)


@cache
def _given(file: str) -> set[str]:
    functions = [node for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)]
    return {one.name for one in functions if any(ast.unparse(mark).startswith("given(") for mark in one.decorator_list)}


def _tests_by_function(data: Path, seconds: dict[str, float], machines: set[str]) -> dict[str, list[str]]:
    """By coverage's own tables: its library would need minutes and gigabytes for all tests."""
    covered = sqlite3.connect(data)
    lines_of: dict[int, dict[str, int]] = {}
    for file, measured in covered.execute("select id, path from file"):
        if (path := Path(measured).resolve()).is_relative_to(ROOT):
            functions = _lines_of_functions(path.read_text()).items()
            lines_of[file] = {f"{path.relative_to(ROOT)}::{name}": lines for name, lines in functions}
    contexts = {id_: name.partition("|")[0] for id_, name in covered.execute("select id, context from context")}
    found: dict[str, set[str]] = defaultdict(set)
    for file, context, numbits in covered.execute("select file_id, context_id, numbits from line_bits"):
        if (test := contexts[context]) in seconds:
            run = int.from_bytes(numbits, "little")
            for name, lines in lines_of.get(file, {}).items():
                if run & lines:
                    found[name].add(test)
    breadth = Counter(test for tests in found.values() for test in tests)

    def rank(test: str) -> float:
        return breadth[test] * (0.01 + seconds[test])

    kept = {}
    for name, tests in found.items():
        own = OWN.get(room := name.partition("/")[0], (f"tests/{room}/",))
        order = sorted(_spread(sorted(tests, key=rank)), key=lambda test: not test.startswith(own))
        by_states = sorted(order, key=lambda test: (not test.startswith(own), not test.endswith("::runTest")))
        last = [test for test in by_states if test in machines]
        slow = [test for test in order if seconds[test] > SLOW_S and test not in machines]
        kept[name] = [test for test in order if seconds[test] <= SLOW_S][:QUICK_MAX] + slow[:SLOW_MAX] + last
    return kept


def _spread(tests: list[str]) -> list[str]:
    """Each in turn from this order, and from another: the first of each file, then the second of each."""
    files: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        files[test.partition("::")[0]].append(test)
    by_file = [test for some in zip_longest(*files.values()) for test in some if test is not None]
    return list(dict.fromkeys(chain.from_iterable(zip(tests, by_file))))


def _lines_of_functions(source: str) -> dict[str, int]:
    """Of each function a bit for each line, as coverage counts them (bit 1 is the first line). Without the line of its
    `def`, which runs when the module is imported, and without the functions in it.
    """
    functions: dict[int, str] = {}

    def look(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if not isinstance(child, ast.ClassDef):
                    body = range(child.body[0].lineno, (child.end_lineno or child.lineno) + 1)
                    functions.update(dict.fromkeys(body, f"{prefix}{child.name}"))
                look(child, f"{prefix}{child.name}.")
            else:
                look(child, prefix)

    look(ast.parse(source), "")
    lines: dict[str, int] = defaultdict(int)
    for line, name in functions.items():
        lines[name] |= 1 << line
    return lines
