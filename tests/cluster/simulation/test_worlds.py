"""Three nodes in storms: nothing confirmed is lost, nothing agreed is cut, and afterwards all are in sync."""

import pytest

from leveret.journal import NotInJournal

from .planted import PLANTED
from .world import World

#: A seed whose storm of 40 s finds the fault, and what says so: a book, or a journal that cannot be read.
FOUND_BY: dict[str, tuple[int, type[Exception], str]] = {
    "confirms_by_durable": (0, AssertionError, r"ends at \d+; \d+ is confirmed"),
    "cuts_by_the_end_alone": (4, NotInJournal, r"is within the block that begins with"),
    "shrinks_before_it_is_done": (0, AssertionError, r"ends at \d+; \d+ is confirmed"),
    "grows_early": (4, AssertionError, r"agreed is cut"),
    "campaigns_from_outside_the_set": (1, AssertionError, r"not all are in sync"),
    "an_old_leader_still_sends": (7, AssertionError, r"still serves term 2, 3 is led"),
    "ids_of_lost_leaders_are_used_again": (3, AssertionError, r"ids mean two messages"),
    "deletes_before_the_checkpoint_is_agreed": (7, NotInJournal, r"is not in the journal any more"),
    "nothing_is_written_when_it_leads": (1, AssertionError, r"ids mean two messages"),
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
    """By what says so, and not by any error that a change of the code makes of the patch."""
    seed, error, text = FOUND_BY[name]
    PLANTED[name](monkeypatch)
    with pytest.raises(error, match=text):
        stormy(seed)
