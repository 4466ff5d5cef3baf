"""The engine does what a model of lists and dicts does: generated programs for some seconds."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from effort import examples

sys.path.insert(0, str(Path(__file__).parent))
from differential import saved, search
from engine_side import EngineSide
from model_side import ModelSide

from leveret.interop.differential.regressions import load

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))


@pytest.mark.parametrize("seed", [1, random.SystemRandom().randrange(10, 10**9)], ids=["fixed", "fresh"])
def test_the_engine_does_what_the_model_does(seed: int, tmp_path: Path) -> None:
    """Redelivery, dead letters, expiry, rings, last values; what differs is made small, with its seed and its file."""
    result = search(examples(6_000), seed)
    assert not result.found, (
        f"seed {seed}: {result.found[0].difference}\n{saved(result.found[0], tmp_path).read_text()}"
    )
    assert result.tally.operations >= 6_000 and result.tally.races == 0 and not result.tally.known
    assert len(result.tally.methods) >= 13


@pytest.mark.parametrize("path", REGRESSIONS, ids=[path.stem for path in REGRESSIONS])
def test_what_was_found(path: Path) -> None:
    """The programs that differed once; the model still says the same."""
    for side in (ModelSide(), EngineSide()):
        difference = load(path).check(side)
        assert difference is None, str(difference)
