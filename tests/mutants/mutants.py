"""Faults planted in the code, one at a time, and which of them the tests find.

    python tests/mutants/mutants.py --map                       # which tests cover what; first, and now and then
    python tests/mutants/mutants.py --room engine/queues        # its rows, and 200 faults by operators
    python tests/mutants/mutants.py --rows --by simulation      # all rows, and worlds instead of tests
    python tests/mutants/mutants.py --rows --only journal/fsync-left-out

Prints a line for each fault and names the survivors; exit status 1 if there are more than `--survivors` per cent.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from time import monotonic

sys.path.insert(0, str(Path(__file__).parent))
from covering import Covering, measure, read_covering
from mutant import Mutant, read_rows, sample_operators
from tree import Tree


def found_by_tests(tree: Tree, mutant: Mutant, covering: Covering, seconds: float) -> tuple[str | None, int]:
    """What failed, and how many tests could have been tried: those that run the function, within the budget."""
    tests, sum_s = [], 0.0
    for test in covering.of(mutant.file, mutant.function):
        sum_s += covering.seconds[test] + 0.01
        if sum_s > seconds / 2:
            break
        tests.append(test)
    return (tree.fails(tests, seconds) if tests else None), len(tests)


def try_all(mutants: list[Mutant], options: argparse.Namespace) -> Iterator[tuple[Mutant, str | None, float]]:
    """Each with what found it, and the seconds that it took."""
    covering = read_covering() if options.by == "tests" else None
    trees: SimpleQueue[Tree] = SimpleQueue()

    def attempt(mutant: Mutant) -> tuple[Mutant, str | None, float]:
        tree, begun = trees.get(), monotonic()
        tree.plant(mutant)
        try:
            if covering is not None:
                found, _ = found_by_tests(tree, mutant, covering, options.budget)
            else:
                found = tree.breaks_simulation(options.seed, options.budget)
        finally:
            tree.remove(mutant)
            trees.put(tree)
        return mutant, found, monotonic() - begun

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
    survivors, results, begun = [], [], monotonic()
    for mutant, found, seconds in try_all(mutants, options):
        results.append({"name": mutant.name, "found": found, "seconds": round(seconds, 1), "harm": mutant.harm})
        print(
            f"{'found   ' if found else 'SURVIVED'} {seconds:5.1f} s {mutant.name}: {found or mutant.harm}"[:240],
            flush=True,
        )
        if found is None:
            survivors.append(mutant)
    if options.out is not None:
        options.out.write_text(json.dumps({"seed": options.seed, "by": options.by, "results": results}, indent=1))
    share = 100 * len(survivors) / max(1, len(mutants))
    took_s = monotonic() - begun
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} found in {took_s:.0f} s; {share:.1f} % survived")
    return share > options.survivors


if __name__ == "__main__":
    sys.exit(main())
