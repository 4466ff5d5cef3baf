"""Faults planted in the code, one at a time, and which of them the tests find.

    python tests/mutants/mutants.py --map                       # which tests cover what; first, and now and then
    python tests/mutants/mutants.py --room engine/queues        # its rows, and 200 faults by operators
    python tests/mutants/mutants.py --rows --by simulation      # all rows, and worlds instead of tests
    python tests/mutants/mutants.py --rows --by simulation --sample 60 --budget 120 --seed 7
    python tests/mutants/mutants.py --rows --only journal/fsync-left-out
    python tests/mutants/mutants.py --rows --name               # a row that names no test gets the one that finds it

Prints a line for each fault with the CPU seconds that it took: found, SURVIVED, or UNDECIDED where the budget was over
before all tests were; and of rows that name a test, those that it did not find. Exit status 1 if there are such, or if
more than `--survivors` per cent of all were not found.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from queue import SimpleQueue
from time import monotonic

sys.path.insert(0, str(Path(__file__).parent))
from covering import Covering, measure, read_covering
from mutant import Mutant, name_finder, read_rows, sample_operators
from swap import changed_functions
from tree import AnyJob, Job, Result, Tree, Verdict, WorldsJob, is_of
from worlds_map import WorldsMap, read_map

#: Worlds for one fault; the budget is over long before.
WORLDS_MAX = 10_000

Tried = tuple[Mutant, Result, float]


def make_job(mutant: Mutant, covering: Covering, seconds: float) -> Job:
    """With the test of its row, first with the parameters that the row says; then those that run the function."""
    named = [mutant.found_by, mutant.found_by.partition("[")[0]] if mutant.found_by else []
    tests, machines = covering.of(mutant.file, mutant.function)
    return Job(mutant, [*named, *tests], seconds, machines)


def make_worlds_job(mutant: Mutant, worlds: WorldsMap, seed: int, seconds: float) -> WorldsJob:
    """With the worlds that run the function, then others from a seed on."""
    is_clustered = mutant.name.startswith("cluster_")
    seeds = worlds.of(mutant.file, mutant.function, seed, is_clustered=is_clustered)
    return WorldsJob(mutant, [*islice(seeds, WORLDS_MAX)], seconds)


def try_each(tree: Tree, jobs: Sequence[AnyJob]) -> Iterator[tuple[AnyJob, Result, float]]:
    """All whose functions alone differ in one process, each other one in a process of its own."""
    swapped: list[AnyJob] = []
    anew: list[AnyJob] = []
    for job in jobs:
        before = tree.before(job.mutant)
        (anew if changed_functions(before, job.mutant.source) is None else swapped).append(job)
    if swapped:
        for (result, seconds), job in zip(tree.try_jobs(swapped), swapped):
            yield job, result, seconds
    for job in anew:
        yield job, *tree.try_anew(job)


def try_by_tests(mutants: list[Mutant], seconds: float, lanes: int) -> Iterator[Tried]:
    """Rows that name a test by it alone, which needs no map; then the others, and those that it does not find.

    Without a map these are undecided.
    """
    left = [mutant for mutant in mutants if not mutant.found_by]
    named = [mutant for mutant in mutants if mutant.found_by]
    for tried in try_all(named, partial(make_job, covering=Covering({}), seconds=seconds), lanes):
        if tried[1].verdict is Verdict.FOUND:
            yield tried
        else:
            left.append(tried[0])
    try:
        covering = read_covering()
    except SystemExit as missing:
        yield from ((mutant, Result(Verdict.UNDECIDED, str(missing)), 0.0) for mutant in left)
    else:
        yield from try_all(left, partial(make_job, covering=covering, seconds=seconds), lanes)


def try_all(mutants: list[Mutant], make: Callable[[Mutant], AnyJob], lane_count: int) -> Iterator[Tried]:
    """Each with what became of it, and the CPU seconds that it took; in several lanes, a copy of the tree for each."""
    if not mutants:
        return
    tried: SimpleQueue[Tried | None] = SimpleQueue()

    def run_lane(number: int) -> None:
        share = mutants[number::lane_count]
        try:
            with Tree(Path(directory) / str(number)) as tree:
                for job, result, seconds in try_each(tree, [make(mutant) for mutant in share]):
                    tried.put((job.mutant, result, seconds))
        finally:
            tried.put(None)

    with tempfile.TemporaryDirectory(prefix="mutants-") as directory, ThreadPoolExecutor(lane_count) as lanes:
        running = [lanes.submit(run_lane, number) for number in range(lane_count)]
        for _ in running:
            yield from iter(tried.get, None)
        for lane in running:
            lane.result()


def is_missed(mutant: Mutant, result: Result) -> bool:
    """Whether the test that its row names did not find it: another one did, or none."""
    is_by_test = result.verdict is not Verdict.FOUND or "::" in result.how  # else no process got so far
    return bool(mutant.found_by) and is_by_test and not is_of(result.how, mutant.found_by)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--map", action="store_true", help="measure which tests cover what, and end")
    parser.add_argument("--room", nargs="*", default=[], help="folders or files; default: all that have rows")
    parser.add_argument("--rows", action="store_true", help="no faults by operators")
    parser.add_argument("--operators", action="store_true", help="no rows")
    parser.add_argument("--only", nargs="*", help="rows and faults by operators, by name: the same sample once more")
    parser.add_argument("--by", choices=("tests", "simulation"), default="tests")
    parser.add_argument("--sample", type=int, help="faults by operators, by default 200; with --rows: rows by lot")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(10**9), help="of the sample, of worlds"
    )
    parser.add_argument("--name", action="store_true", help="write into rows that name no test which one found them")
    parser.add_argument("--budget", type=float, default=60, help="CPU seconds a fault")
    parser.add_argument("--survivors", type=float, default=10, help="per cent that are allowed")
    parser.add_argument("--lanes", type=int, default=2, help="processes")
    parser.add_argument("--out", type=Path, help="a file for the results, as JSON")
    options = parser.parse_args()
    if options.map:
        measure(str(options.lanes))
        return 0
    mutants = [] if options.operators else [row for room in options.room or [""] for row in read_rows(room)]
    if options.rows and options.sample:
        mutants = random.Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    elif not options.rows and options.room:
        samples = [sample_operators(room, options.sample or 200, options.seed) for room in options.room]
        mutants += [mutant for some in zip_longest(*samples) for mutant in some if mutant is not None]
    if options.only:
        mutants = [mutant for mutant in mutants if mutant.name in options.only]
    print(f"seed {options.seed}, {len(mutants)} faults", flush=True)
    results, begun = [], monotonic()
    missed: list[Mutant] = []
    if options.by == "tests":
        all_tried = try_by_tests(mutants, options.budget, options.lanes)
    else:
        make = partial(make_worlds_job, worlds=read_map(), seed=options.seed, seconds=options.budget)
        all_tried = try_all(mutants, make, options.lanes)
    for mutant, (verdict, how), seconds in all_tried:
        results.append({"name": mutant.name, "verdict": verdict.value, "how": how, "seconds": round(seconds, 1)})
        told = how if verdict is Verdict.FOUND else f"{mutant.harm} ({how})"
        print(f"{verdict.value:9} {seconds:5.1f} s {mutant.name}: {told}"[:240], flush=True)
        if options.by == "tests" and is_missed(mutant, Result(verdict, how)):
            missed.append(mutant)
        elif options.name and verdict is Verdict.FOUND and "::" in how and not mutant.found_by:
            name_finder(mutant, how)
    if options.out is not None:
        options.out.write_text(json.dumps({"seed": options.seed, "by": options.by, "results": results}, indent=1))
    count = Counter(str(result["verdict"]) for result in results)
    share = 100 * (1 - count["found"] / max(1, len(mutants)))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = f"{monotonic() - begun:.0f} s, {used.ru_utime + used.ru_stime:.0f} CPU s"
    print(f"{', '.join(f'{number} {verdict}' for verdict, number in count.items())} in {took}")
    for mutant in missed:
        print(f"{mutant.name} is not found by {mutant.found_by}, which its row names")
    return bool(missed) or share > options.survivors


if __name__ == "__main__":
    sys.exit(main())
