"""Faults planted in the code, one at a time, and which of them the tests find.

    python tests/mutants/mutants.py --map                       # which tests cover what; first, and now and then
    python tests/mutants/mutants.py --room engine/queues        # its rows, and 200 faults by operators
    python tests/mutants/mutants.py --rows --by simulation      # all rows, and worlds instead of tests
    python tests/mutants/mutants.py --rows --only journal/fsync-left-out

Prints a line for each fault: found, SURVIVED, or UNDECIDED where the budget was over before all tests were. Exit
status 1 if more than `--survivors` per cent were not found.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from time import monotonic

sys.path.insert(0, str(Path(__file__).parent))
from covering import Covering, measure, read_covering
from mutant import Mutant, read_rows, sample_operators
from tree import Result, Tree, Verdict


def tried_by_tests(tree: Tree, mutant: Mutant, covering: Covering, seconds: float) -> Result:
    """By those that run the function, as many as half of the budget has room for when they are alone."""
    tests, sum_s = [], 0.0
    for test in covering.of(mutant.file, mutant.function):
        sum_s += covering.seconds[test] + 0.01
        if sum_s > seconds / 2:
            break
        tests.append(test)
    return tree.run_tests(tests, seconds)


def try_all(mutants: list[Mutant], options: argparse.Namespace) -> Iterator[tuple[Mutant, Result, float]]:
    """Each with what became of it, and the seconds that it took."""
    covering = read_covering() if options.by == "tests" else None
    trees: SimpleQueue[Tree] = SimpleQueue()

    def attempt(mutant: Mutant) -> tuple[Mutant, Result, float]:
        tree, begun = trees.get(), monotonic()
        tree.plant(mutant)
        try:
            if covering is not None:
                result = tried_by_tests(tree, mutant, covering, options.budget)
            else:
                result = tree.run_simulation(options.seed, options.budget)
        finally:
            tree.remove(mutant)
            trees.put(tree)
        return mutant, result, monotonic() - begun

    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        copies = [Tree(Path(directory) / str(lane)).__enter__() for lane in range(options.lanes)]
        for copy in copies:
            trees.put(copy)
        with ThreadPoolExecutor(options.lanes) as lanes:
            yield from lanes.map(attempt, mutants)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--map", action="store_true", help="measure which tests cover what, and end")
    parser.add_argument("--room", default="", help="a folder or a file; default: all that have rows")
    parser.add_argument("--rows", action="store_true", help="no faults by operators")
    parser.add_argument("--operators", action="store_true", help="no rows")
    parser.add_argument("--only", nargs="*", help="rows by name")
    parser.add_argument("--by", choices=("tests", "simulation"), default="tests")
    parser.add_argument("--sample", type=int, default=200, help="faults by operators")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(10**9), help="of the sample, of worlds"
    )
    parser.add_argument("--budget", type=float, default=60, help="seconds a fault")
    parser.add_argument("--survivors", type=float, default=10, help="per cent that are allowed")
    parser.add_argument("--lanes", type=int, default=2, help="processes")
    parser.add_argument("--out", type=Path, help="a file for the results, as JSON")
    options = parser.parse_args()
    if options.map:
        measure(str(options.lanes))
        return 0
    mutants = [] if options.operators else read_rows(options.room)
    if options.only:
        mutants = [mutant for mutant in mutants if mutant.name in options.only]
    elif not options.rows and options.room:
        mutants += sample_operators(options.room, options.sample, options.seed)
    print(f"seed {options.seed}, {len(mutants)} faults", flush=True)
    results, begun = [], monotonic()
    for mutant, (verdict, how), seconds in try_all(mutants, options):
        results.append({"name": mutant.name, "verdict": verdict.value, "how": how, "seconds": round(seconds, 1)})
        told = how if verdict is Verdict.FOUND else f"{mutant.harm} ({how})"
        print(f"{verdict.value:9} {seconds:5.1f} s {mutant.name}: {told}"[:240], flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps({"seed": options.seed, "by": options.by, "results": results}, indent=1))
    count = Counter(str(result["verdict"]) for result in results)
    share = 100 * (1 - count["found"] / max(1, len(mutants)))
    took_s = monotonic() - begun
    print(f"{', '.join(f'{number} {verdict}' for verdict, number in count.items())} in {took_s:.0f} s")
    return share > options.survivors


if __name__ == "__main__":
    sys.exit(main())
