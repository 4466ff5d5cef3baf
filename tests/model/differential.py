"""Programs against the model and the engine at once: what RabbitMQ does not have.

    python tests/model/differential.py [--operations 100000] [--seed N] [--out DIR]

What differs is made small, printed and saved; exit status 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from engine_side import EngineSide
from model_programs import program
from model_side import ModelSide

from leveret.interop.differential.comparison import Tally
from leveret.interop.differential.regressions import Regression, save
from leveret.interop.differential.search import Found, Search


def search(operations: int, seed: int) -> Search:
    """Run programs until so many operations were compared, or one differs; it is made small."""
    found = Search(ModelSide(), EngineSide(), generate=program, found_max=1)
    found.until(operations, seed)
    return found


def saved(found: Found, directory: Path) -> Path:
    """The file of a difference, which replays."""
    path = directory / f"model-{found.seed}.json"
    save(path, Regression(f"found with seed {found.seed}", "model", found.program, found.expected))
    return path


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=100_000, help="how many to compare (default: 100000)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--out", type=Path, default=Path(), help="where a difference is saved (default: here)")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    began = time.process_time()
    result = search(options.operations, options.seed)
    for found in result.found:
        print(f"{found.difference}\nsaved {saved(found, options.out)}")
    print(report(result.tally, time.process_time() - began))
    return 1 if result.found else 0


def report(tally: Tally, seconds: float) -> str:
    """The figures of a run."""
    each = ", ".join(f"{name} {count}" for name, count in tally.methods.most_common())
    rate = tally.operations / max(seconds, 0.001)
    return f"{tally.operations} operations in {tally.programs} programs, {rate:.0f} a CPU second: {each}"


if __name__ == "__main__":
    sys.exit(main())
