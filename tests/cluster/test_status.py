"""What a node says of its cluster: of itself, and of nodes that it reaches or does not."""

from dataclasses import InitVar, dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from agreement_stage import A, B, C, Stage, leader, registered

from leveret.cluster.agreement.context import ETCD_ROLLED_BACK
from leveret.cluster.agreement.events import Read
from leveret.cluster.agreement.view import InSync, NodeKey, View
from leveret.cluster.node import HandoverAttempt, Node
from leveret.cluster.status import cluster_status


@dataclass
class FakeNode:
    """The node `a`, as the status reads it; `reached`: the nodes whose links it reaches."""

    stage: Stage
    reached: InitVar[frozenset[str]] = frozenset()
    leading: Any = None
    why: str = "the node has just started"
    coordinator: Any = field(default_factory=lambda: SimpleNamespace(trouble=""))
    etcd_trouble: str = ""
    following: Any = field(default_factory=lambda: SimpleNamespace(trouble="", followed=None, leader_status={}))
    handover: HandoverAttempt | None = None
    since_ms: int = 1
    agreed_lsn: int = 9
    node_id: bytes = A
    options: Any = field(
        default_factory=lambda: SimpleNamespace(
            name="a",
            nodes={"a": "h:1", "b": "h:2", "c": "h:3"},
            credentials=SimpleNamespace(cluster="t"),
            min_in_sync=2,
        )
    )

    def __post_init__(self, reached: frozenset[str]) -> None:
        self.reachability = SimpleNamespace(reached=reached)

    @property
    def agreement(self) -> Any:
        """The real one."""
        return self.stage.agreement

    @property
    def view(self) -> View | None:
        """What it read."""
        return self.stage.agreement.context.view

    def key(self) -> NodeKey:
        """Its own."""
        return replace(registered(0)[0], end=10)


def status(node: FakeNode) -> dict[str, Any]:
    """Of this node."""
    return cluster_status(cast(Node, node))


def states(node: FakeNode) -> dict[str, str]:
    """State of each node."""
    return {one["name"]: one["state"] for one in status(node)["nodes"]}


def followers(*linked: bytes, **link: bool) -> Any:
    """A leader with links of these. `link`: how they are sent what they miss."""
    how = {"is_full_copy": False, "is_from_files": False} | link
    found = [SimpleNamespace(node_id=one, acknowledged_lsn=8, status={}, **how) for one in linked]
    return SimpleNamespace(links=SimpleNamespace(statistics=lambda: found), journal=SimpleNamespace(next_lsn=10))


def test_a_node_that_is_dead_is_lost_until_its_lease_is_over() -> None:
    """Its key says that it is in sync and which nodes it reaches: both are old."""
    reaches = frozenset({"a", "c"})
    stage = Stage(nodes=(*registered(0), *registered(1, reaches=reaches))).lead(B, C)
    node = FakeNode(stage, frozenset({"b"}), followers(B))
    assert states(node) == {"a": "leading", "b": "in_sync", "c": "absent"}
    assert status(node)["insync"] == ["a", "b"]
    node.reachability.reached, node.leading = frozenset(), followers()
    row = status(node)["nodes"][1]
    assert (row["state"], row["is-linked"], row["reaches"]) == ("lost", False, [])
    assert status(node)["insync"] == ["a"]


@pytest.mark.parametrize(
    "link, shown",
    [({}, None), ({"is_from_files": True}, "from files"), ({"is_full_copy": True, "is_from_files": True}, "full copy")],
)
def test_why_a_follower_is_behind(link: dict[str, bool], shown: str | None) -> None:
    """A full copy takes long; what was missed comes from the leader's files."""
    stage = Stage(nodes=registered(0, 1)).lead(B)
    rows = status(FakeNode(stage, leading=followers(B, **link)))["nodes"]
    assert [one.get("catching-up") for one in rows] == [None, shown, None]
    assert rows[1]["lag"] == 2


def test_a_follower_shows_which_nodes_it_reaches() -> None:
    """The leader, too: it may be dead while etcd still names it."""
    stage = Stage(nodes=registered(0, 1, 2), leader=leader(1, 1, 4))
    stage.read()
    node = FakeNode(stage, frozenset({"b"}))
    assert states(node) == {"a": "in_sync", "b": "leading", "c": "lost"}
    assert status(node)["why"] == "follows b"
    node.following.trouble = "h:2 refuses connections"
    assert status(node)["why"] == "follows b, but has no link: h:2 refuses connections"


def test_a_follower_shows_a_leader_that_serves_nobody() -> None:
    """By its beacons. The next leader is not taken for the last one, nor is one of the release before."""
    stage = Stage(nodes=registered(0, 1, 2), leader=leader(1, 1, 4))
    stage.read()
    node = FakeNode(stage, frozenset({"b"}))
    node.following.followed, node.following.leader_status = "b", {"state": "suspended"}
    assert (states(node)["b"], status(node)["why"]) == ("suspended", "follows b, which is suspended")
    node.following.leader_status = {"state": "held"}
    assert (states(node)["b"], status(node)["why"]) == ("held", "follows b")
    for followed, told in ((None, {"state": "suspended"}), ("b", {}), ("b", {"state": "a state of a later release"})):
        node.following.followed, node.following.leader_status = followed, told
        assert (states(node)["b"], status(node)["why"]) == ("leading", "follows b")


@pytest.mark.parametrize(
    "keys, why",
    [
        ({}, "no node leads"),
        ({"insync": None}, "the journal of the cluster has no set of nodes in sync: see `leveret cluster recover`"),
        ({"insync": None, "journal": None}, "the cluster has not begun: it needs all nodes, and waits for b, c"),
    ],
)
def test_why_no_node_leads(keys: dict[str, Any], why: str) -> None:
    """As the node knows it."""
    stage = Stage(nodes=registered(0), **keys)
    stage.agreement.context.abstains_until_ns = 2**62
    stage.tell(Read(stage.etcd, stage.now_ns))
    assert status(FakeNode(stage))["why"] == why


def test_a_node_with_the_records_of_another_broker_is_refused() -> None:
    """Also as others show it: its log is on its machine. One whose other journal is empty copies this one."""
    other = {"journal": b"another journal!", "end": 11}
    stage = Stage(nodes=(*registered(0), *registered(1, **other), *registered(2, **other | {"end": 1}))).lead(B)
    assert states(FakeNode(stage, frozenset({"b", "c"}), followers())) == {
        "a": "leading",
        "b": "refused",
        "c": "in_sync",
    }


def test_a_node_without_etcd_says_so() -> None:
    """It is starting, and knows nothing else."""
    node = FakeNode(Stage())
    node.coordinator.trouble = node.etcd_trouble = "etcd is not reached: http://h:2379: Connection refused"
    found = status(node)
    assert (found["state"], found["leader"], found["why"]) == ("starting", None, "etcd was not read yet")
    assert found["etcd"] == "etcd is not reached: http://h:2379: Connection refused"


def test_without_etcd_and_without_a_link_nobody_is_known_to_lead() -> None:
    """What etcd said last is old: it names no leader, and nobody is a number of records behind."""
    stage = Stage(nodes=registered(0, 1), leader=leader(1, 1, 4))
    stage.read()
    node = FakeNode(stage)
    node.following.followed = "b"
    assert (status(node)["leader"], status(node)["nodes"][1]["lag"]) == ("b", None)
    node.coordinator.trouble = node.etcd_trouble = "etcd is not reached: http://h:2379: Connection refused"
    assert (status(node)["leader"], states(node)["b"]) == ("b", "lost")
    node.following.followed = None
    found = status(node)
    assert (found["leader"], found["term"], states(node)["b"]) == (None, None, "lost")
    node.reachability.reached = frozenset({"b"})
    assert states(node)["b"] == "in_sync"


def test_a_leader_whose_etcd_lost_its_data_says_that_it_leads_and_what_to_do() -> None:
    """It serves on. `ctl status`, `wait-safe-to-stop` and the page go by the field `etcd`."""
    stage = Stage(nodes=registered(0, 1)).lead(B)
    stage.etcd = View(1, nodes=registered(0, 1))
    stage.now_ns += 1
    stage.read()
    found = status(FakeNode(stage, frozenset({"b"}), followers(B), etcd_trouble=ETCD_ROLLED_BACK))
    assert (found["leader"], found["why"], found["etcd"]) == ("a", ETCD_ROLLED_BACK, ETCD_ROLLED_BACK)
    assert (found["insync"], found["term"]) == (["a", "b"], 2)


def test_the_last_handover_of_a_leader() -> None:
    """`leveret ctl` looks at it until it is done."""
    node = FakeNode(Stage(nodes=registered(0, 1)).lead(B), leading=followers(B))
    assert status(node)["handover"] is None
    node.handover = HandoverAttempt("b", "etcd is not reached")
    assert status(node)["handover"] == {"to": "b", "refused": "etcd is not reached"}


def test_a_node_says_why_it_does_not_campaign() -> None:
    """Where no node leads, an operator asks each one."""
    stage = Stage(nodes=registered(0, 1), insync=InSync(1, frozenset({B, C}), 0, revision=3))
    stage.read()
    assert status(FakeNode(stage))["why"] == "no node leads, and this one does not campaign: it is not in sync"


def test_a_leader_shows_who_has_a_link_and_not_whose_address_answers() -> None:
    """A node that is reached, and does not copy, holds nothing of what is confirmed."""
    stage = Stage(nodes=registered(0, 1, 2)).lead(B, C)
    rows = status(FakeNode(stage, frozenset({"b", "c"}), followers(B)))["nodes"]
    assert [(one["name"], one["is-linked"]) for one in rows] == [("a", True), ("b", True), ("c", False)]


def test_the_configuration_of_a_follower_is_compared_and_not_shown() -> None:
    """It may have names of users."""
    leading = followers(B)
    (link,) = leading.links.statistics()
    link.status = {"configuration": {"users": "a digest"}, "disk-free": 7}
    row = status(FakeNode(Stage(nodes=registered(0, 1)).lead(B), leading=leading))["nodes"][1]
    assert row["status"] == {"disk-free": 7}
