"""Storms from many seeds, for `make simulate-cluster`: prints each seed's takeovers, and what a failed one logged."""

import sys
import traceback
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "support")]


def main() -> int:
    """Arguments: first seed, how many, seconds of storm."""
    from simulation.world import World

    first, count, seconds = (int(one) for one in (*sys.argv[1:], "0", "20", "60")[:3])
    takeovers = 0
    for seed in range(first, first + count):
        world: World | None = None
        try:
            world = World(seed)
            world.run(3)
            world.storm(seconds)
            world.calm()
        except Exception:
            traceback.print_exc()
            print("\n".join(world.log[-60:] if world is not None else []))
            print(f"seed {seed} failed")
            return 1
        takeovers += world.takeovers
        print(
            f"seed {seed}: {world.takeovers} takeovers, {sum(len(one.confirmed) for one in world.publishers)} confirms"
        )
    print(f"{takeovers} takeovers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
