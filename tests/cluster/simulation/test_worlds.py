"""Three nodes in storms: nothing confirmed is lost, nothing agreed is cut, and afterwards all are in sync."""

import pytest

from .planted import PLANTED
from .world import World

#: What the book of the rule says.
FOUND_BY = {
    "confirms_by_durable": r"ends at \d+; \d+ is confirmed",
    "cuts_by_the_end_alone": r"goes on at \d+",
    "shrinks_before_it_is_done": r"ends at \d+; \d+ is confirmed",
    "grows_early": r"agreed is cut",
    "campaigns_from_outside_the_set": r"leads, and is not in the set",
    "acknowledges_while_it_campaigns": r"acknowledges in term \d+, and was elected for term \d+",
    "acknowledges_before_the_fsync": r"had acknowledged \d+, and ends at \d+ after its start",
    "an_old_leader_still_sends": r"resigned, and still serves",
    "ids_of_lost_leaders_are_used_again": r"ids mean two messages",
    "deletes_before_the_checkpoint_is_agreed": r"frees segments, and \d+ is agreed",
    "nothing_is_written_when_it_leads": r"goes on at \d+",
}
#: Storms of 40 s in which a fault has to be found. Most are found in the first or the third.
WORLDS = 12


def stormy(seed: int, seconds: float = 40) -> World:
    """A world after its storm."""
    world = World(seed)
    world.run(3)
    world.storm(seconds)
    world.calm()
    return world


@pytest.mark.parametrize("seed", [3, 6])
def test_after_the_storm(seed: int) -> None:
    """The books are asked while it lasts, and at its end."""
    world = stormy(seed)
    assert world.takeovers > 2 and sum(len(one.confirmed) for one in world.publishers) > 300


def test_the_same_seed_is_the_same_world() -> None:
    assert stormy(5, 10).log == stormy(5, 10).log


def test_each_planted_fault_has_a_seed() -> None:
    assert FOUND_BY.keys() == PLANTED.keys()


@pytest.mark.parametrize("name", FOUND_BY)
def test_planted_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the book of its rule, and not by any error that a change of the code makes of the patch."""
    PLANTED[name](monkeypatch)
    with pytest.raises(AssertionError, match=FOUND_BY[name]):
        for seed in range(WORLDS):
            stormy(seed)
