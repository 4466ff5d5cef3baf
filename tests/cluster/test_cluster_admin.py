"""What an operator's commands do at the node that leads: a, with the follower b; c is not there."""

from types import SimpleNamespace
from typing import Any

import pytest

from leveret.cluster.agreement.view import InSync, NodeKey, View
from leveret.cluster.history import History
from leveret.operator.command_error import CommandError
from leveret.serving.cluster_admin import ClusterAdmin
from leveret.serving.node_report import ConfigurationFacts

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


class Bench:
    """`orders`: what followers with a link were told. `asked`: whom the node was to hand over to, and by a drain?"""

    def __init__(self, *linked: bytes, refusal: str = "") -> None:
        self.asked: list[tuple[str | None, bool]] = []
        self.orders: list[tuple[bytes, str]] = []
        self.raised: list[int] = []
        self.linked = linked
        self.refusal = refusal
        node: Any = SimpleNamespace(
            node_id=A,
            view=View(7, nodes=(NodeKey("a", A, "a:1"), NodeKey("b", B, "b:1"))),
            options=SimpleNamespace(name="a", nodes={"a": None, "b": None, "c": None}, min_in_sync=2),
            leading=SimpleNamespace(links=SimpleNamespace(order=self._order)),
            hand_over=self._hand_over,
            handover=None,
            raise_level=lambda level: self.raised.append(level),
        )
        report: Any = SimpleNamespace(
            configurations=lambda: [ConfigurationFacts("b", ("[broker] heartbeat",), 3, ("leveret.toml:1: wrong",))],
            compared=lambda parts, name: [f"{name}: {parts['fingerprint']}"],
            led=SimpleNamespace(not_hosted={"b": ("queue 'orders': E-MISMATCH",)}),
        )
        self.admin = ClusterAdmin(node, report)

    def _order(self, node_id: bytes, verb: str) -> bool:
        if node_id in self.linked:
            self.orders.append((node_id, verb))
        return node_id in self.linked

    def _hand_over(self, to: NodeKey | None, *, drains: bool = False) -> str:
        self.asked.append((None if to is None else to.name, drains))
        return self.refusal


def test_the_lead_is_handed_over_to_another_node() -> None:
    """To one that is named, or to whichever has the most; clients are not stopped for the node itself."""
    bench = Bench(B)
    for name in ("b", "rabbit@b", None):
        bench.admin.handover(name)
    assert bench.asked == [("b", False), ("b", False), (None, False)]
    with pytest.raises(CommandError, match="node a leads already"):
        bench.admin.handover("a")
    with pytest.raises(CommandError, match="node c is absent: it is not registered in etcd; start it first"):
        bench.admin.handover("c")
    assert len(bench.asked) == 3


def test_a_handover_that_cannot_be_is_not_said_to_be_done() -> None:
    """Nor a drain of the leader."""
    bench = Bench(B, refusal="b is drained")
    with pytest.raises(CommandError, match="not handed over: b is drained"):
        bench.admin.handover("b")
    with pytest.raises(CommandError, match="not drained: b is drained"):
        bench.admin.drain("a")


def test_a_node_is_drained_where_it_is() -> None:
    """A follower is told by its link; the leader hands over."""
    bench = Bench(B)
    bench.admin.drain("b")
    bench.admin.revive("b")
    assert bench.orders == [(B, "drain"), (B, "revive")] and bench.asked == []
    bench.admin.drain("a")
    assert bench.asked == [(None, True)]
    with pytest.raises(CommandError, match="not drained"):
        bench.admin.revive("a")


def levels(bench: Bench, level: int, members: frozenset[bytes] = frozenset({A, B}), **read: int) -> None:
    """The level of the journal, and what nodes read."""
    nodes = tuple(NodeKey(name, name.encode() * 16, "h:1", level=one, version=f"0.{one}") for name, one in read.items())
    bench.admin._node.view = View(7, insync=InSync(1, members, 0, level), nodes=nodes)


def test_the_level_is_raised_when_all_nodes_read_it() -> None:
    """Of the set, and others that are there: they could not lead any more."""
    bench = Bench(B)
    levels(bench, 1, a=2, b=2)
    assert bench.admin.raise_level() == {"level": 2, "before": 1} and bench.raised == [2]
    levels(bench, 2, a=2, b=2)
    assert bench.admin.raise_level() == {"level": 2, "before": 2} and bench.raised == [2]
    levels(bench, 3, a=2, b=2)
    assert bench.admin.raise_level()["level"] == 3
    for read in ({"a": 2, "b": 1}, {"a": 2, "b": 2, "c": 1}, {"a": 1, "b": 2}):
        levels(bench, 1, **read)
        older = next(name for name, level in read.items() if level == 1)
        with pytest.raises(CommandError, match=f"not raised to level 2: node {older} .0.1. reads level 1: upgrade it"):
            bench.admin.raise_level()
    levels(bench, 1, frozenset({A, B, C}), a=2, b=2)
    with pytest.raises(CommandError, match="not raised: a node in sync is not registered"):
        bench.admin.raise_level()
    bench.admin._node.view = None
    with pytest.raises(CommandError, match="not raised: etcd was not read yet"):
        bench.admin.raise_level()
    assert bench.raised == [2]


@pytest.mark.parametrize("verb", ["drain", "revive"])
def test_a_follower_without_a_link_is_not_said_to_have_done_it(verb: str) -> None:
    """It would lead next."""
    bench = Bench()
    with pytest.raises(CommandError, match="node b is not connected to the leader"):
        getattr(bench.admin, verb)("b")


def test_an_absent_node_is_needed_if_it_may_be_the_one_of_the_set() -> None:
    """Of two absent nodes one is in sync: the other one can be forgotten, unless nobody knows which is which."""
    bench = Bench()
    node: Any = bench.admin._node
    registered = [NodeKey(name, name.encode() * 16, f"{name}:1") for name in "abc"]
    insync = InSync(1, frozenset({A, B}), 0)
    node.history, node.forget = History(1), lambda name: forgotten.append(name)
    forgotten: list[str] = []
    bench.admin.status = lambda: {"nodes": [{"name": name, "state": "absent"} for name in "bc"]}  # type: ignore[method-assign]
    node.view = View(7, insync=insync, nodes=(registered[0],))
    for name in "bc":
        with pytest.raises(CommandError, match=f"node {name} is needed"):
            bench.admin.forget(name)
    node.history.take_view(View(6, insync=insync, nodes=tuple(registered)), 1)
    with pytest.raises(CommandError, match="node b is needed"):
        bench.admin.forget("b")
    bench.admin.forget("c")
    assert forgotten == ["c"]


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_node_that_may_run_is_not_forgotten(is_gone: bool) -> None:
    """It is only cut off from the leader: its key says so to the others, and its clients are served through it."""
    bench = Bench()
    node: Any = bench.admin._node
    forgotten: list[str] = []
    registered = tuple(NodeKey(name, name.encode() * 16, f"{name}:1") for name in "abc")
    node.view = View(7, insync=InSync(1, frozenset({A, B}), 0), nodes=registered)
    node.history, node.forget = History(1), forgotten.append
    members = SimpleNamespace(by_id={C: SimpleNamespace(is_gone=is_gone)})
    node.agreement = SimpleNamespace(leadership=SimpleNamespace(members=members))
    node.options.timers = SimpleNamespace(lease_ns=6 * 10**9)
    row = {"name": "c", "id": C.hex(), "state": "lost", "is-in-sync": False}
    bench.admin.status = lambda: {"nodes": [row]}  # type: ignore[method-assign]
    if is_gone:
        bench.admin.forget("c")
    else:
        with pytest.raises(CommandError, match="its lease in etcd is valid, so it may run"):
            bench.admin.forget("c")
    assert forgotten == ["c"] * is_gone


def test_a_reload_is_passed_on_to_those_that_are_connected() -> None:
    """The others are named: they read their files when they are started."""
    bench = Bench(B)
    assert bench.admin.reload() == {"reloads": {"b": 3}, "not-asked": ["c"]}
    assert bench.orders == [(B, "reload")]


def test_what_differs_is_told_by_node() -> None:
    """With the faults of files that could not be reloaded."""
    assert Bench(B).admin.configurations() == {
        "leader": "a",
        "compared": ["b"],
        "differences": [{"node": "b", "differs": "[broker] heartbeat"}],
        "faults": [{"node": "b", "fault": "leveret.toml:1: wrong"}],
    }


@pytest.mark.parametrize("said, name", [({"node": "b"}, "b"), ({"node": 7}, "the files"), ({}, "the files")])
def test_files_are_compared_with_what_is_in_force(said: dict[str, object], name: str) -> None:
    """`leveret check --cluster` sends digests of their parts."""
    assert Bench().admin.compare({**said, "fingerprint": "x"}) == {"leader": "a", "differences": [f"{name}: x"]}
