"""Which tests run which function, and how long each takes: measured once, kept in `.mutants/`."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import defaultdict
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
)
#: So many tests are kept of a function: those that run the fewest others, then the fastest.
TESTS_MAX = 400


class Covering:
    """Tests by function. `seconds`: how long each took when it was measured."""

    def __init__(self, tests: dict[str, list[str]], seconds: dict[str, float]) -> None:
        self._tests = tests
        self.seconds = seconds

    def of(self, file: str, function: str) -> list[str]:
        """Node ids of the tests that run it, the most particular first; of a module's own code: of all in its file."""
        if function != MODULE:
            return self._tests.get(f"{file}::{function}", [])
        found: dict[str, None] = {}
        for name, tests in self._tests.items():
            if name.startswith(f"{file}::"):
                found.update(dict.fromkeys(tests[:20]))
        return list(found)


def read_covering() -> Covering:
    """What was measured last.

    Raises: SystemExit: nothing was.
    """
    kept = KEPT / "covering.json"
    if not kept.exists():
        raise SystemExit("which tests cover what is not known yet: make mutants-map")
    read = json.loads(kept.read_text())
    return Covering(read["tests"], read["seconds"])


def measure(processes: str) -> None:
    """Run `DIRECTORIES` with coverage and keep what they cover; some ten minutes on two cores."""
    KEPT.mkdir(exist_ok=True)
    data, times = KEPT / "coverage.db", KEPT / "times.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-n", processes, "--dist", "loadfile", "-p", "no:cacheprovider"]
    command += ["--cov=leveret", "--cov-context=test", "--cov-report=", "--cov-config=pyproject.toml"]
    command += [f"--junitxml={times}", *DIRECTORIES]
    subprocess.run(command, cwd=ROOT, check=False, env={**os.environ, "COVERAGE_FILE": str(data)})
    seconds = _seconds(times)
    tests = _tests_by_function(data, seconds)
    (KEPT / "covering.json").write_text(json.dumps({"tests": tests, "seconds": seconds}))
    print(f"{len(seconds)} tests cover {len(tests)} functions")


def _seconds(times: Path) -> dict[str, float]:
    """Of each test by node id."""
    seconds = {}
    for case in ElementTree.parse(times).iter("testcase"):
        module = case.get("classname", "").replace(".", "/")
        if (ROOT / f"{module}.py").exists() and case.find("skipped") is None:
            seconds[f"{module}.py::{case.get('name')}"] = float(case.get("time", "0"))
    return seconds


def _tests_by_function(data: Path, seconds: dict[str, float]) -> dict[str, list[str]]:
    from coverage import CoverageData

    covered = CoverageData(basename=str(data))
    covered.read()
    found: dict[str, set[str]] = defaultdict(set)
    breadth: dict[str, int] = defaultdict(int)
    for measured in covered.measured_files():
        path = Path(measured).resolve()
        if not path.is_relative_to(ROOT):
            continue
        names = _functions_by_line(path.read_text())
        for line, contexts in covered.contexts_by_lineno(measured).items():
            if (name := names.get(line)) is None:
                continue
            for context in contexts:
                test = context.partition("|")[0]
                if test in seconds and test not in found[key := f"{path.relative_to(ROOT)}::{name}"]:
                    found[key].add(test)
                    breadth[test] += 1

    def rank(test: str) -> float:
        return breadth[test] * (0.01 + seconds[test])

    return {name: sorted(tests, key=rank)[:TESTS_MAX] for name, tests in found.items()}


def _functions_by_line(source: str) -> dict[int, str]:
    """Lines within functions, without the line of their `def`: that runs when the module is imported."""
    lines: dict[int, str] = {}

    def look(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if not isinstance(child, ast.ClassDef):
                    body = range(child.body[0].lineno, (child.end_lineno or child.lineno) + 1)
                    lines.update(dict.fromkeys(body, f"{prefix}{child.name}"))
                look(child, f"{prefix}{child.name}.")
            else:
                look(child, prefix)

    look(ast.parse(source), "")
    return lines
