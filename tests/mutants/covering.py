"""Which tests run which function, and how long each takes: measured once, kept in `.mutants/`."""

from __future__ import annotations

import ast
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path

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
CHOSEN = "not long and not peer and not toolchain and not cluster"
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
    """Run `DIRECTORIES` and keep which functions each test runs in its own process.

    Raises: SystemExit: nothing was noted.
    """
    KEPT.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", processes, "--dist", "loadfile", "-p", "no:cacheprovider"]
    with tempfile.TemporaryDirectory(prefix="noted-") as noted:
        command += ["-m", CHOSEN, "-p", "noting", f"--noted={noted}", *DIRECTORIES]
        path = f"{ROOT / 'src'}:{Path(__file__).parent}"
        subprocess.run(command, cwd=ROOT, check=False, env={**os.environ, "PYTHONPATH": path})
        ran = list(_read_noted(Path(noted)))
    seconds = {test: took_s for test, _, took_s in ran}
    machines = {test for test, took_s in seconds.items() if took_s > SLOW_S and _is_random(test)}
    tests = _tests_by_function(ran, seconds, machines)
    if not tests:
        raise SystemExit("no test ran a function of the rooms")
    (KEPT / "covering.json").write_text(json.dumps({"tests": tests, "machines": sorted(machines)}))
    print(f"{len(seconds)} tests cover {len(tests)} functions")


def _read_noted(directory: Path) -> Iterator[tuple[str, set[str], float]]:
    """Node id, functions, and CPU seconds of each test that ran (`noting.py`)."""
    for path in directory.glob("*.pickle"):
        names, noted = pickle.loads(path.read_bytes())
        for test, (ran, took_s) in noted.items():
            yield test, {names[at] for at in ran}, took_s


def _is_random(test: str) -> bool:
    """Whether Hypothesis makes its examples: a state machine, or a function with `@given`."""
    file, _, name = test.partition("::")
    return name.endswith("::runTest") or name.partition("[")[0].rpartition("::")[2] in _given(file)


@cache
def _given(file: str) -> set[str]:
    functions = [node for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)]
    return {one.name for one in functions if any(ast.unparse(mark).startswith("given(") for mark in one.decorator_list)}


def _tests_by_function(
    ran: list[tuple[str, set[str], float]], seconds: dict[str, float], machines: set[str]
) -> dict[str, list[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for test, functions, _ in ran:
        for name in functions:
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
