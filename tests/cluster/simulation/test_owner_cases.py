"""Cases of owners on three simulated nodes. Their names are those of the cluster page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from owners_book import SitedQueue

from leveret.engine.errors import QueueNotHosted

from . import sites
from .models import real_nodes
from .node_broker import NodeBroker
from .sites import WorldSites, headers_of
from .world import World

#: Of a world whose queue `owned` has no limits, and in which a leads.
SEED = 2


class Quiet(World):
    """Without clients and storms."""

    def _populate(self) -> None:
        assert self.sites is not None
        self.queues = list(self.sites.queues)
        self.publishers, self.consumers, self.clients = [], [], []

    @property
    def leader(self) -> NodeBroker:
        """The broker that leads."""
        return next(node.broker for node in self.nodes.values() if node.broker is not None)

    def publish(self, site: str, *bodies: str) -> None:
        """By a client there."""
        assert self.sites is not None
        session = self.leader.connect(site=site)
        for body in bodies:
            self.sites.publishes(body, site)
            self.leader.publish(body, key="owned", by=session, headers=headers_of(body))

    def consume(self, site: str, prefetch: int, tag: str = "") -> Any:
        """A consumer there, which acknowledges nothing. Returns its session."""
        session = self.leader.connect(site=site)
        self.leader.consume("owned", tag or site, by=session, prefetch=prefetch)
        return session


@contextmanager
def quiet() -> Iterator[Quiet]:
    """Three nodes in sync."""
    with real_nodes(SEED):
        world = Quiet(SEED, has_sites=True)
        world.run(3)
        assert world.leader.node.name == "a"
        yield world


@pytest.fixture
def world() -> Iterator[Quiet]:
    with quiet() as made:
        yield made


@pytest.mark.parametrize(("consumers", "takers"), [("c", "c"), ("bc", "b"), ("ac", "ac")])
def test_who_is_served_first(world: Quiet, consumers: str, takers: str) -> None:
    """D01 to D03: a consumer elsewhere alone; also one at home; idle ones at two other nodes. One delivery each."""
    for site in consumers:
        world.consume(site, 100)
    world.publish("b", "x")
    world.run(0.2)
    taken = {site: world.leader.taken(site) for site in consumers}
    assert "".join(taken.values()) == "x" and any(taken[site] for site in takers)


def test_each_node_has_its_own_local_queue(world: Quiet) -> None:
    """D13: published at b, it is in that of b alone."""
    assert world.sites is not None
    world.sites.publishes("x", "b")
    world.leader.publish("x", key="desk", by=world.leader.connect(site="b"))
    assert {site: world.leader.named(f"desk@{site}").ready_count for site in "abc"} == {"a": 0, "b": 1, "c": 0}


def test_two_domains_of_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """D09: published in the one, the other is unaffected."""
    declared = WorldSites.declared_by

    def also(self: WorldSites, name: str) -> list[list[Any]]:
        other = {"x-queue-type": "amps", "x-replication": "group", "x-initial-owner": "c", "x-queue-domain": "other"}
        return [*declared(self, name), *([["/", "bills", other]] if name == "c" else [])]

    def add(self: WorldSites, world: World, seed: int) -> None:
        begin(self, world, seed)
        self.queues["bills@other"] = SitedQueue("bills", frozenset("c"), "c")

    begin = WorldSites.__init__
    monkeypatch.setattr(WorldSites, "declared_by", also)
    monkeypatch.setattr(WorldSites, "__init__", add)
    with quiet() as world:
        assert world.sites is not None
        for site, bodies in (("b", "xy"), ("c", "z")):
            for body in bodies:
                world.sites.publishes(body, site)
            world.leader.publish(*bodies, key="bills", by=world.leader.connect(site=site))
        counts = {name: world.leader.named(name).ready_count for name in world.sites.queues if name.startswith("bills")}
        assert sorted(counts.values()) == [1, 2] and counts["bills@other"] == 1


def test_a_barrier_waits_for_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """D14: an earlier message is out at c; released when that is settled."""
    monkeypatch.setattr(sites, "OPTIONS", (sites.BARRIER,))
    barrier = f"S.{sites.SYNC_EVERY}"
    with quiet() as world:
        session = world.consume("c", 1)
        world.publish("b", "a")
        world.consume("b", 10)
        world.publish("b", barrier, "d")
        world.run(0.2)
        assert (world.leader.taken("c"), world.leader.taken("b")) == ("a", "")
        session.ack(1)
        world.leader.end_turn()
        assert (world.leader.taken("c"), world.leader.taken("b")) == (barrier, f"{barrier}d")


def test_the_backlog_is_that_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """D15: MaxBacklog 2, consumers at three nodes: 2 at each."""
    monkeypatch.setattr(sites, "OPTIONS", ({"x-max-backlog-total": 2},))
    with quiet() as world:
        for site in "abc":
            world.consume(site, 100)
        world.publish("b", *"0123456789")
        world.run(1)
        assert [len(world.leader.taken(site)) for site in "abc"] == [2, 2, 2]


def test_the_messages_of_a_killed_owner(world: Quiet) -> None:
    """D05, D06: b owns ten, two of them leased, and is killed; each goes to c once; b is back, and gets none."""
    session = world.consume("b", 2)
    world.publish("b", *"0123456789")
    assert world.leader.taken("b") == "01"
    world.nodes["b"].kill(power=False)
    world.run(0.3)
    world.consume("c", 100)
    assert world.leader.taken("c") == "23456789"  # the link may be opened again, and the leases go on
    world.run(0.3)
    assert world.leader.taken("c") == "01"
    session.client.close(failed=True)
    world.nodes["b"].start()
    world.run(4)
    world.consume("b", 100, "again")
    assert world.leader.taken() == "" and not world.leader.named("owned").ready_count


def test_what_nobody_took_is_the_owners_own_again(world: Quiet) -> None:
    """Stranded for a while; then its own consumers come first."""
    world.publish("b", "x", "y")
    world.nodes["b"].kill(power=False)
    world.run(5)
    assert world.leader.broker.sites.is_lost("b")
    world.nodes["b"].start()
    world.run(4)
    world.consume("b", 1)
    world.consume("c", 1)
    assert world.leader.taken("b") == "x"
    world.run(0.1)
    assert world.leader.taken("c") == "y"


def test_owners_over_a_takeover(world: Quiet) -> None:
    """A transfer that is agreed is known to the next leader."""
    session = world.consume("c", 1)
    world.publish("b", "x", "y")
    session.reject(1, requeue=True)
    world.leader.end_turn()
    world.run(1)
    world.nodes["a"].kill(power=False)
    world.run(15)
    assert world.leader.node.name != "a"
    world.consume("b", 1)
    world.consume("c", 1)
    assert (world.leader.taken("b"), world.leader.taken("c")) == ("y", "x")


def test_a_node_that_declares_a_queue_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """D10: it does not host the queue, and its clients are told why."""
    declared = WorldSites.declared_by

    def otherwise(self: WorldSites, name: str) -> list[list[Any]]:
        queues = declared(self, name)
        if name == "c":
            queues[0][2] = {**queues[0][2], "x-queue-filter": "a = 1"}
        return queues

    monkeypatch.setattr(WorldSites, "declared_by", otherwise)
    with quiet() as world:
        assert world.leader.named("owned", world.leader.connect(site="b")).name == "owned"
        with pytest.raises(QueueNotHosted, match="E-MISMATCH"):
            world.leader.named("owned", world.leader.connect(site="c"))
        world.publish("c", "x")
        assert world.leader.named("owned").ready_count == 0
