"""A disk that was rolled back: with a part of what its node had acknowledged, it leads at no time, however it ends."""

from collections.abc import Callable
from typing import Any

import pytest

from leveret.cluster.agreement import candidate
from leveret.cluster.agreement.follower import Follower

from .models import real_nodes
from .node import Link
from .world import World


def keep_its_place(patch: pytest.MonkeyPatch) -> None:
    """It does not lead with less than etcd knows to be agreed, which is late; that it lacks more, it forgets."""
    review, obstacle = Follower.review, candidate.obstacle

    def review_whole(self: Any) -> None:
        end, self.context.end = self.context.end, 2**62
        review(self)
        self.context.end = end

    def obstacle_of_the_key(context: Any, view: Any) -> str | None:
        return "it lacks records" if context.end < context.agreed_in_etcd else obstacle(context, view)

    patch.setattr(Follower, "review", review_whole)
    patch.setattr(candidate, "obstacle", obstacle_of_the_key)


def until(world: World, is_so: Callable[[], bool], seconds: float = 30, step: float = 0.05) -> None:
    """Let time pass until something is so."""
    for _ in range(round(seconds / step)):
        if is_so():
            return
        world.run(step)
    raise TimeoutError("it did not come about")


def restart_while_it_copies(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third node is down. The power is cut once more when it has what etcd knows, and not all that is agreed."""
    with real_nodes(seed):
        world = World(seed, has_sites=False)
        world.run(4)
        leader = next(node for node in world.nodes.values() if node.broker is not None)
        one, other = (node for node in world.nodes.values() if node is not leader)
        other.kill(power=False)
        world.run(4)
        one.back_up()
        old = one.backup
        assert old is not None

        def told() -> int:
            agreed = world.etcd.view().agreed
            return 0 if agreed is None else agreed.lsn

        until(world, lambda: old[1] + 50 < told() < world.agreed_lsn - 300)
        for node in (leader, one):
            node.kill(power=True)
        one.backup = old
        one.put_back()
        take = one.take

        def take_a_part(link: Link, *piece: Any) -> None:
            if one.copied is None or one.copied.written_lsn < told():
                take(link, *piece)

        monkeypatch.setattr(one, "take", take_a_part)
        leader.start()
        one.start()
        until(world, lambda: one.durable_lsn >= told(), step=0.001)
        assert one.durable_lsn < world.agreed_lsn
        for node in (leader, one):
            node.kill(power=True)
        monkeypatch.delattr(one, "take")
        one.start()
        world.run(20)
        world.calm()


def test_it_leads_in_no_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """CL11, rule R10: it is another node before it copies anything."""
    restart_while_it_copies(1, monkeypatch)


def test_a_node_that_keeps_its_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_its_place(monkeypatch)
    with pytest.raises(AssertionError, match=r"leads from \d+ on, and \d+ is agreed"):
        restart_while_it_copies(1, monkeypatch)
