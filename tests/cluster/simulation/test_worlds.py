"""Three nodes in storms: nothing confirmed is lost, nothing agreed is cut, and afterwards all are in sync."""

import pytest

from .planted import PLANTED
from .world import World

#: A seed whose storm of 40 s finds the fault.
FOUND_BY = {
    "confirms_by_durable": 0,
    "cuts_by_the_end_alone": 4,
    "shrinks_before_it_is_done": 0,
    "grows_early": 4,
    "campaigns_from_outside_the_set": 1,
    "an_old_leader_still_sends": 7,
    "ids_of_lost_leaders_are_used_again": 3,
    "deletes_before_the_checkpoint_is_agreed": 7,
    "nothing_is_written_when_it_leads": 1,
}


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
    """Whatever says so: a book, an assertion of the product, or a journal that cannot be read."""
    PLANTED[name](monkeypatch)
    with pytest.raises(Exception, match=r"."):
        stormy(FOUND_BY[name])
