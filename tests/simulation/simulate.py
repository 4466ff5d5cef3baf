"""The whole broker in worlds that a seed decides: see docs/simulation.md.

    python tests/simulation/simulate.py [--seconds 60] [--seed N] [--lanes 2]
    python tests/simulation/simulate.py --seed N --worlds 1        # one world again
    python tests/simulation/simulate.py --plan FILE                # a plan that was kept

Worlds have consecutive seeds; of several lanes, each takes its share of them. When one breaks, its plan is made shorter
and written into a file; exit status 1.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import traceback
from pathlib import Path
from time import monotonic

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from simulator.lanes import BROKEN, Totals, run_lanes
from simulator.plan import Plan, make_plan
from simulator.planted import PLANTED
from simulator.shorten import shorten
from simulator.swarm import make_world
from simulator.world import Report, World


def run_worlds(options: argparse.Namespace) -> tuple[int, Totals]:
    """Until the time is over, so many are done, or one breaks. Returns: exit status, totals."""
    totals, end = Totals(), monotonic() + options.seconds
    step, seed = (1, options.seed) if options.lane is None else (options.lanes, options.seed + options.lane)
    last = options.seed + (options.worlds or 1 << 62)
    while seed < last and monotonic() < end:
        plan = make_plan(seed, options.virtual_seconds) if options.virtual_seconds else make_world(seed)
        plan.planted = options.planted
        world = World(plan)
        report = world.run()
        gc.collect()  # while it runs, little is
        totals.add(report)
        if report.fault is not None:
            explain(plan, report, world.fault, options)
            if not options.goes_on:
                return BROKEN, totals
        seed += step
    return (BROKEN if totals.broken else 0), totals


def explain(plan: Plan, report: Report, fault: BaseException | None, options: argparse.Namespace) -> None:
    """What broke, how to see it again, and a shorter plan that breaks as well."""
    traceback.print_exception(fault)
    print(f"\nBROKEN in the world of seed {plan.seed}, at {report.virtual_s:.3f} s: {report.fault}", file=sys.stderr)
    file = Path(options.keep) / f"simulation-{plan.seed}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(plan.to_json())
    print(f"its plan is {file}; a shorter one is looked for {options.shorten:.0f} s", file=sys.stderr, flush=True)
    shorter, report = shorten(plan, report, options.shorten)
    file.write_text(shorter.to_json())
    print(
        f"{len(shorter.clients)} clients, {len(shorter.queues)} queues, {len(shorter.faults)} faults in "
        f"{shorter.seconds:.1f} s: {report.fault}\nagain: simulate.py --plan {file}",
        file=sys.stderr,
    )


def run_plan(file: str) -> int:
    """A kept plan. Returns: exit status."""
    world = World(Plan.from_json(Path(file).read_text()))
    report, totals = world.run(), Totals()
    totals.add(report)
    print(*totals.lines(), sep="\n")
    if report.fault is None:
        return 0
    traceback.print_exception(world.fault)
    print(f"BROKEN at {report.virtual_s:.3f} s: {report.fault}", file=sys.stderr)
    return BROKEN


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, help="of real time; default: 60, or as --worlds takes")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="of the first world")
    parser.add_argument("--worlds", type=int, help="how many; default: as many as there is time for")
    parser.add_argument("--virtual-seconds", type=float, help="of each world; default: by its seed")
    parser.add_argument("--lanes", type=int, default=1, help="processes")
    parser.add_argument("--lane", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--plan", help="a file with the plan of a world")
    parser.add_argument("--planted", choices=PLANTED, help="give the broker this fault, to see that it is found")
    parser.add_argument("--keep", default=".", help="directory for the plan of a world that broke")
    parser.add_argument("--goes-on", action="store_true", help="with other worlds when one broke")
    parser.add_argument("--shorten", type=float, default=60, help="seconds to look for a shorter plan")
    options = parser.parse_args()
    if options.plan:
        return run_plan(options.plan)
    if options.seconds is None:
        options.seconds = 1e9 if options.worlds else 60
    if options.lane is not None:
        status, totals = run_worlds(options)
        print(totals.to_json())
        return status
    print(f"seed {options.seed}", flush=True)
    if options.lanes > 1:
        arguments = sys.argv[1:] if "--seed" in " ".join(sys.argv) else [*sys.argv[1:], "--seed", str(options.seed)]
        status, totals = run_lanes(options.lanes, arguments)
    else:
        status, totals = run_worlds(options)
    print(*totals.lines(), sep="\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
