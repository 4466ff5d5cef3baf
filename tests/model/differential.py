"""Programs against a model and the engine at once: what RabbitMQ does not have.

    python tests/model/differential.py [--kind leases] [--operations 100000] [--seed N] [--out DIR]

What differs is made small, printed and saved; exit status 1.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import flow_programs
import lease_programs
import model_programs
from engine_side import EngineSide
from flow_sides import FlowEngineSide, FlowModelSide
from lease_sides import LeaseEngineSide, LeaseModelSide
from model_side import ModelSide

from leveret.interop.differential.choices import Chooser
from leveret.interop.differential.comparison import Tally
from leveret.interop.differential.regressions import Regression, save
from leveret.interop.differential.search import Found, Search

#: What there is a model of -> the model, the engine as its peer, programs. The name stands in recorded programs, too.
KINDS: dict[str, tuple[Callable[[], Any], Callable[[], Any], Callable[[Chooser], list[dict[str, Any]]]]] = {
    "model": (ModelSide, EngineSide, model_programs.program),
    "flow": (FlowModelSide, FlowEngineSide, flow_programs.program),
    "leases": (LeaseModelSide, LeaseEngineSide, lease_programs.program),
}


def search(kind: str, operations: int, seed: int, seconds: float = math.inf) -> Search:
    """Run programs until so many operations were compared, or one differs; it is made small."""
    reference, subject, generate = KINDS[kind]
    found = Search(reference(), subject(), generate=generate, found_max=1)
    found.until(operations, seed, seconds=seconds)
    return found


def saved(kind: str, found: Found, directory: Path) -> Path:
    """The file of a difference, which replays."""
    path = directory / f"{kind}-{found.seed}.json"
    save(path, Regression(f"found with seed {found.seed}", kind, found.program, found.expected))
    return path


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, nargs="*", default=list(KINDS), help="of which models (default: all)")
    parser.add_argument("--operations", type=int, default=100_000, help="how many to compare of each (default: 100000)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="how long at most, each")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--out", type=Path, default=Path(), help="where a difference is saved (default: here)")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    differs = False
    for kind in options.kind:
        began = time.process_time()
        result = search(kind, options.operations, options.seed, options.seconds)
        for found in result.found:
            print(f"{found.difference}\nsaved {saved(kind, found, options.out)}")
        print(f"{kind}: {report(result.tally, time.process_time() - began)}", flush=True)
        differs = differs or bool(result.found)
    return int(differs)


def report(tally: Tally, seconds: float) -> str:
    """The figures of a run."""
    each = ", ".join(f"{name} {count}" for name, count in tally.methods.most_common())
    rate = tally.operations / max(seconds, 0.001)
    return f"{tally.operations} operations in {tally.programs} programs, {rate:.0f} a CPU second: {each}"


if __name__ == "__main__":
    sys.exit(main())
