"""A disk that was put back: with a part of what its node had acknowledged, it leads at no time, however it ends."""

from itertools import count
from typing import Any

import pytest

from leveret.cluster.agreement import candidate
from leveret.cluster.agreement.follower import Follower

from .real_node import RealNode, real_nodes
from .world import World

MS = 1_000_000


def keep_its_place(patch: pytest.MonkeyPatch) -> None:
    """It does not lead with less than etcd knows to be agreed, which is late; that it lacks more, it forgets."""
    review, obstacle = Follower.review, candidate.obstacle

    def review_whole(self: Any) -> None:
        end, self.context.end = self.context.end, 2**62
        review(self)
        self.context.end = end

    def obstacle_of_the_key(context: Any, view: Any) -> str | None:
        return "it lacks records" if context.end < context.known_agreed else obstacle(context, view)

    patch.setattr(Follower, "review", review_whole)
    patch.setattr(candidate, "obstacle", obstacle_of_the_key)


def restart_while_it_copies(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third node is down. The power is cut once more when it has what etcd knows, and not all that is agreed."""
    with real_nodes(seed):
        world = World(seed, RealNode, has_sites=False)
        world.run(4)
        leader = next(node for node in world.nodes.values() if node.broker is not None)
        one, other = (node for node in world.nodes.values() if node is not leader)
        other.kill(power=False)
        world.run(4)
        while (told := world.etcd.view().agreed) is None or one.backup is None or told.lsn < one.backup[1] + 50:
            one.back_up()
            world.run(1.5)
        old = one.backup
        while world.agreed_lsn < told.lsn + 300:
            world.run(0.05)
        for node in (leader, one):
            node.kill(power=True)
        one.backup = old
        one.put_back()
        late = count(5 * MS, 5 * MS)
        monkeypatch.setattr(world, "latency_ns", lambda: next(late))  # each piece comes alone
        leader.start()
        one.start()
        while not told.lsn <= one.durable_lsn < world.agreed_lsn:
            assert one.durable_lsn <= told.lsn, "it has copied all"
            world.run(0.001)
        monkeypatch.delattr(world, "latency_ns")
        for node in (leader, one):
            node.kill(power=True)
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
