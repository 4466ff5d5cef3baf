"""How long each fault that is planted in the broker stays hidden: simulator/planted.py.

    python tests/simulation/find_planted.py [--seconds 60] [--seed N] [NAME ...]

Exit status 1 when one was not found in so many CPU seconds of one core.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from simulator.planted import PLANTED
from simulator.planted_plans import plan_for
from simulator.world import World


@dataclass(slots=True)
class Found:
    """`fault`: how it showed; None: it did not."""

    cpu_s: float
    worlds: int
    fault: str | None


def find(name: str | None, seed: int, seconds: float) -> Found:
    """Worlds until one breaks that does not break without it, or until so many CPU seconds are over; one at least."""
    begun, worlds = process_time(), 0
    while True:
        plan = plan_for(name, seed + worlds)
        report = World(plan).run()
        fault, worlds = report.fault, worlds + 1
        cpu_s = process_time() - begun
        if fault is not None and name is not None:
            plan.planted, plan.seconds = None, min(plan.seconds, report.virtual_s)
            plan.pauses = [at_s for at_s in plan.pauses if at_s <= plan.seconds]
            if World(plan).run().fault is not None:  # it has another fault, until then
                fault = None
            begun = process_time() - cpu_s  # that was no search
        if fault is not None or cpu_s > seconds:
            return Found(cpu_s, worlds, fault)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    missed = []
    for name in options.names or PLANTED:
        found = find(name, options.seed, options.seconds)
        print(f"{name}: {found.cpu_s:.1f} s, {found.worlds} worlds: {found.fault or 'NOT FOUND'}"[:200], flush=True)
        if found.fault is None:
            missed.append(name)
    print(f"{len(missed)} not found: {', '.join(missed)}" if missed else "all found")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
