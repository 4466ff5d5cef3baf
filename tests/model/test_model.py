"""The engine does what a model of lists and dicts does: generated programs for some seconds."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from effort import IS_CI, examples

sys.path.insert(0, str(Path(__file__).parent))
from differential import KINDS, saved, search

from leveret.interop.differential.regressions import load

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))


#: A find of chance is no fault of the change that CI tests.
SEEDS = {"fixed": 1} if IS_CI else {"fixed": 1, "fresh": random.SystemRandom().randrange(10, 10**9)}
#: Of each kind, how many operations are compared, and how many sorts of them there are.
AMOUNTS = {"model": (6_000, 13), "leases": (4_000, 15), "flow": (2_000, 7)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_the_engine_does_what_the_model_does(kind: str, seed: int, tmp_path: Path) -> None:
    """Redelivery, expiry, rings, last values; leases; limits. What differs is made small, with seed and file."""
    count, sorts = AMOUNTS[kind]
    result = search(kind, examples(count), seed)
    assert not result.found, (
        f"seed {seed}: {result.found[0].difference}\n{saved(kind, result.found[0], tmp_path).read_text()}"
    )
    assert result.tally.operations >= count and result.tally.races == 0 and not result.tally.known
    assert len(result.tally.methods) >= sorts


@pytest.mark.parametrize("path", REGRESSIONS, ids=[path.stem for path in REGRESSIONS])
def test_what_was_found(path: Path) -> None:
    """The programs that differed once; the model still says the same."""
    regression = load(path)
    for side in KINDS[regression.reference][:2]:
        difference = regression.check(side())
        assert difference is None, str(difference)
