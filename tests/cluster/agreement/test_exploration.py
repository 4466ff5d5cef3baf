"""All interleavings of a small cluster, and each rule switched off in turn: it must be found.

`make cluster-agreement` explores larger worlds to the end, and walks at random for 10^7 steps; here are smaller ones.
"""

import os

import pytest
from agreement_explorer import Explorer, Scope
from agreement_faults import FAULTS, Fault
from agreement_walk import Walk, walk

from leveret.cluster.agreement.members import Member


@pytest.mark.parametrize(
    "scope, least",
    [
        pytest.param(Scope(writes=1, crashes=1, breaks=0, changes=0), 10_000, id="two leaders, a crash"),
        pytest.param(Scope(writes=1, crashes=0, breaks=0, changes=1), 10_000, id="two leaders, the set changes"),
        pytest.param(
            Scope(terms=1, writes=1, crashes=1, breaks=0, changes=2, tails=True), 3_000, id="one leader, torn tails"
        ),
        pytest.param(
            Scope(terms=1, writes=1, crashes=0, breaks=1, changes=1, losses=1), 2_000, id="one leader, lost answers"
        ),
        pytest.param(Scope(writes=1, crashes=0, breaks=0, changes=1, outside=1), 5_000, id="a node outside the set"),
    ],
)
def test_no_order_of_events_breaks_an_invariant(scope: Scope, least: int) -> None:
    """To the end: each world that can be reached was looked at, or one that shows the same.

    `least` would notice a scope that shrank.
    """
    explorer = Explorer(scope)
    explorer.run()
    print(f"{explorer.states} worlds, {explorer.steps} steps, {len(explorer.machines.states)} states of a node")
    assert explorer.is_whole and explorer.states >= least


@pytest.mark.parametrize(
    "scope",
    [
        pytest.param(Scope(terms=1, writes=1, crashes=0, breaks=1, changes=1), id="one leader, a partition"),
        pytest.param(
            Scope(terms=1, writes=1, crashes=1, breaks=0, changes=1, losses=1, settled=True),
            id="one leader, lost answers",
        ),
        pytest.param(Scope(writes=0, crashes=1, breaks=0, changes=0, settled=True), id="two leaders, a crash"),
    ],
)
def test_each_world_is_covered_by_one_that_was_looked_at(scope: Scope) -> None:
    """Nothing that the exploration passes over is lost: names of nodes, revisions and budgets are rightly forgotten."""
    reduced, full = Explorer(scope), Explorer(scope)
    reduced.run()
    full.machines, full.model = reduced.machines, reduced.model
    count = missing = 0
    for world in full.run_in_full():
        count += 1
        missing += not reduced.reduction.covers(world)
    print(f"{count} worlds, {reduced.states} of them looked at")
    assert missing == 0 and count > 1.1 * reduced.states > 300


def test_a_follower_that_is_waited_for_early_enters_when_it_has_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """However far behind it was when the leader began to wait."""
    monkeypatch.setattr(Member, "check_pace", lambda *how: True)
    explorer = Explorer(Scope(terms=1, writes=1, crashes=0, breaks=1, changes=2))
    explorer.run()
    assert explorer.is_whole and explorer.states >= 2_000


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_rule_that_is_switched_off_is_found(fault: Fault) -> None:
    """The shortest way to what it breaks is printed."""
    explorer = Explorer(fault.scope, fault.rules)
    with fault.planted():
        found = explorer.shortest()
    assert found is not None, f"{explorer.states} worlds, and nothing is broken"
    steps, why = found
    print(*steps, why, sep="\n")
    assert fault.says in why


def test_storms_break_no_invariant_and_the_cluster_comes_to_rest_after_each() -> None:
    """Five nodes; `LEVERET_AGREEMENT_SEED` begins elsewhere. Somebody leads, all are in sync, all is agreed."""
    seed = int(os.environ.get("LEVERET_AGREEMENT_SEED", "1"))
    print(f"seed {seed}")
    last = walk(seed, steps=150_000)
    print(f"{last.steps} steps, {last.takeovers} takeovers")
    assert last.takeovers > 50


def test_the_same_seed_is_the_same_world() -> None:
    """Whatever is found can be looked at again."""
    one, other = Walk(7), Walk(7)
    for each in (one, other):
        each.calm()
        each.run(2000)
    assert one.describe() == other.describe() and one.world.agreed == other.world.agreed
