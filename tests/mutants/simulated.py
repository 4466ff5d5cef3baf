"""The two kinds of simulated worlds, by their seeds: short ones of one broker, and storms of three nodes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / part) for part in ("support", "simulation", "cluster")]

SHORT, STORM = "short", "storm"
#: Virtual seconds of a storm: it takes one or two CPU seconds.
STORM_S = 10


class Seed(NamedTuple):
    """Which world: one of a kind. `variant`: above 0, one with the same inhabitants, and another story (`vary`)."""

    kind: str
    seed: int
    variant: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.seed}" + (f" variant {self.variant}" if self.variant else "")


def run_world(seed: Seed) -> str | None:
    """To its end. Returns what broke; None: nothing."""
    return KINDS[seed.kind](seed)


def _short(seed: Seed) -> str | None:
    from simulator.swarm import make_swarm, vary
    from simulator.world import World

    plan = make_swarm(seed.seed)
    if seed.variant:
        vary(plan, seed.variant)
    return World(plan).run().fault


def _storm(of: Seed) -> str | None:
    from simulation.models import real_nodes
    from simulation.world import World

    assert not of.variant
    seed, logger = of.seed, logging.getLogger("leveret")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with real_nodes(seed):
            world = World(seed)
            world.run(3)
            world.storm(STORM_S)
            world.calm()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        logger.setLevel(before)
    return None


KINDS: dict[str, Callable[[Seed], str | None]] = {SHORT: _short, STORM: _storm}
