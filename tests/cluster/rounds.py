"""Rounds of failures of real nodes, by seeds: `make cluster-rounds`. What they do: tests/support/cluster_rounds.py.

python tests/cluster/rounds.py --rounds 20 --seed 1
python tests/cluster/rounds.py --rounds 60 --clusters 20 --pace both --quiet
"""

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from cluster_rounds import BLOWS, EXTRA, PACES, Blow, run


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="with one cluster")
    parser.add_argument("--seed", type=int, default=1, help="of the first cluster; the next one has the next")
    parser.add_argument("--clusters", type=int, default=1, help="clusters, one after the other")
    parser.add_argument("--until", help="begin no other cluster after HH:MM (UTC)")
    parser.add_argument("--pace", choices=[*PACES, "both"], default="short", help="both: every tenth with defaults")
    parser.add_argument("--only", action="append", help="a blow, by its name; repeatable")
    parser.add_argument("--quiet", action="store_true", help="a line for each cluster")
    parser.add_argument("--keep", action="store_true", help="keep logs and journals")
    options = parser.parse_args()
    blows = [blow for blow in (*BLOWS, *EXTRA) if blow.__name__ in options.only] if options.only else BLOWS

    def choose(chance: random.Random) -> Blow:
        return chance.choice(blows)

    count = 0
    for seed in range(options.seed, options.seed + options.clusters):
        if options.until is not None and time.strftime("%H:%M", time.gmtime()) >= options.until:
            break
        pace = options.pace if options.pace != "both" else "defaults" if seed % 10 == 0 else "short"
        count += bool(run(options.rounds, seed, choose, pace, is_quiet=options.quiet, is_kept=options.keep))
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
