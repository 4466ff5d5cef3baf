"""Storms from many seeds, for `make simulate-cluster`: prints each seed's takeovers, and what a failed one logged.

simulate.py [--sites] [SEED [COUNT [SECONDS]]]  # SECONDS: of each storm; --sites: all with queues that have owners
simulate.py --planted [NAME ...]              # each fault has to be found within 60 CPU seconds, by its own book
"""

import logging
import re
import sys
import traceback
from collections import Counter
from pathlib import Path
from time import process_time

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "support")]

#: CPU seconds.
LIMIT = 60


def main() -> int:
    """See the module."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--planted"]:
        return find_planted(arguments[1:])
    has_sites = True if arguments[:1] == ["--sites"] else None
    arguments = arguments[has_sites is True :]
    first, count, seconds = (int(one) for one in (*arguments, *("0", "20", "60")[len(arguments) :]))
    return storms(first, count, seconds, has_sites=has_sites)


def storms(first: int, count: int, seconds: float, *, has_sites: bool | None = None) -> int:
    """Worlds of consecutive seeds; goes on behind one that fails. `has_sites`: see `World`."""
    from simulation.models import real_nodes
    from simulation.world import World

    logging.getLogger("leveret").setLevel(logging.CRITICAL + 1)
    takeovers, sited, failed = 0, 0, []
    counted: Counter[str] = Counter()
    for seed in range(first, first + count):
        world: World | None = None
        try:
            with real_nodes(seed):
                world = World(seed, has_sites=has_sites)
                world.run(3)
                world.storm(seconds)
                world.calm()
        except Exception:
            traceback.print_exc()
            print("\n".join(world.log[-60:] if world is not None else []))
            print(f"seed {seed} failed", flush=True)
            failed.append(seed)
        if world is not None:
            takeovers += world.takeovers
            what = f"{world.takeovers} takeovers, {len(world.books.confirmed)} confirms, {' '.join(world.queues)}"
            if world.sites is not None:
                counted.update(world.sites.counted)
                sited += world.takeovers
            print(f"seed {seed}: {what} ({takeovers} takeovers so far)", flush=True)
    print(f"{takeovers} takeovers in {count} worlds, failed: {failed or 'none'}")
    print(f"{sited} of them with queues that have owners: {dict(sorted(counted.items()))}")
    return 1 if failed else 0


def find_planted(names: list[str]) -> int:
    """Look for each fault in storms of 40 s."""
    import pytest

    from simulation.models import real_nodes
    from simulation.planted import FOUND_BY, OF_SITES, PLANTED
    from simulation.world import World

    logging.getLogger("leveret").setLevel(logging.CRITICAL + 1)

    missed = []
    for name in names or PLANTED:
        start, seed, others = process_time(), 0, 0
        with pytest.MonkeyPatch.context() as patch:
            PLANTED[name](patch)
            while (spent := process_time() - start) < LIMIT:
                try:
                    with real_nodes(seed):
                        world = World(seed, has_sites=name in OF_SITES)
                        world.run(3)
                        world.storm(40)
                        world.calm()
                except Exception as error:
                    if re.search(FOUND_BY[name], str(error)):
                        print(f"{name}: {process_time() - start:.1f} s, seed {seed}: {error}", flush=True)
                        break
                    others += 1
                seed += 1
            else:
                missed.append(name)
                print(f"{name}: NOT FOUND in {seed} worlds and {spent:.0f} s; others said something in {others}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
