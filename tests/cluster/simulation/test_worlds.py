"""Three nodes in storms: nothing confirmed is lost, nothing agreed is cut, and afterwards all are in sync."""

import pytest

from .models import real_nodes
from .planted import FOUND_BY, OF_SITES, PLANTED
from .world import World

#: Faults that the first worlds find within a second. `simulate.py --planted` looks for all.
QUICK = (
    "confirms_by_durable",
    "deliveries_do_not_wait",
    "a_takeover_counts_as_a_start",
    "an_old_leader_still_sends",
)


#: Of these, faults of queues with owners.
QUICK_OF_SITES = ("an_owner_is_forgotten_at_transfer", "backlogs_are_of_all_nodes", "scopes_are_ignored_in_capture")


def stormy(seed: int, seconds: float = 40, *, has_sites: bool | None = False) -> World:
    """A world after its storm."""
    with real_nodes(seed):
        world = World(seed, has_sites=has_sites)
        world.run(3)
        world.storm(seconds)
        world.calm()
        return world


def test_after_the_storm() -> None:
    """The books are asked while it lasts, and at its end."""
    world = stormy(1)
    assert world.takeovers > 2 and len(world.books.confirmed) > 100


def test_owners_in_a_storm() -> None:
    """Queues of all nodes, of some, and of each: whose messages they are is in a book."""
    world = stormy(7, 12, has_sites=True)
    assert world.sites is not None
    counted = world.sites.counted
    assert all(counted[f"deliveries of {name}"] > 20 for name in ("owned", "desk", "bills"))
    assert counted["transfers"] > 20


@pytest.mark.parametrize("has_sites", [False, True])
def test_the_same_seed_is_the_same_world(has_sites: bool) -> None:
    assert stormy(6, 4, has_sites=has_sites).log == stormy(6, 4, has_sites=has_sites).log


def test_each_planted_fault_has_its_book() -> None:
    assert FOUND_BY.keys() == PLANTED.keys()


@pytest.mark.parametrize("name", QUICK)
def test_planted_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the book of its rule, and not by any error that a change of the code makes of the patch."""
    PLANTED[name](monkeypatch)
    with pytest.raises(AssertionError, match=FOUND_BY[name]):
        for seed in range(1, 9):
            stormy(seed)


@pytest.mark.contradicts
@pytest.mark.parametrize("name", QUICK_OF_SITES)
def test_planted_faults_of_owners_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert name in OF_SITES
    PLANTED[name](monkeypatch)
    with pytest.raises(AssertionError, match=FOUND_BY[name]):
        for seed in range(1, 9):
            stormy(seed, 20, has_sites=True)
