"""Facts about the cluster, as the answering node knows them. `src/leveret/serving` collects them.

Nodes have the names that tools see: `rabbit@NAME`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .node_facts import Certificate, HostFacts, Listening

#: Why checks fail when no node serves clients.
NOT_LED = "no node of this cluster leads"


@dataclass(slots=True, frozen=True)
class NodeFacts:
    """Facts about one node.

    `host`: the last report about its process; None: the answering node has none.
    `is_older`: its release cannot read what the leader may write.
    `alarms`: resources, as health checks name them.
    `lag`: the number of records that it does not have on disk yet. `lag_s`: for how long it has lacked them.
    `lag_octets`: octets that are not sent to it yet; None: they are in several segments.
    `sent`: octets sent to it over its link.
    """

    name: str
    is_running: bool = False
    is_in_sync: bool = False
    is_drained: bool = False
    is_older: bool = False
    host: HostFacts | None = None
    alarms: tuple[str, ...] = ()
    listeners: tuple[Listening, ...] = ()
    started_ms: int = 0
    product_version: str = ""
    data: str = ""
    disk_reserve: int = 0
    clients: int = 0
    lag: int = 0
    lag_octets: int | None = 0
    lag_s: float = 0.0
    sent: int = 0


@dataclass(slots=True, frozen=True)
class ClusterFacts:
    """Facts about the cluster. `own`: the answering node. `leader`: None if no known node serves clients. `name`: the
    key of [cluster].

    The fields from `is_refused` on, without `name`, are about the answering node:
    `is_refused`: an operator has to decide before the node can join.
    `etcd`: why the node does not reach etcd; empty: it does.
    `state`: one of `states`. `end`: the LSN after its last record. `agreed`: the agreed LSN.
    `takeovers`: the number of times that it began to lead. `held_s`: seconds for which it blocked publishers.
    `received`: octets of the journal that it received over its link. `certificates`: of its links.
    """

    own: str
    leader: str | None
    nodes: tuple[NodeFacts, ...]
    min_in_sync: int
    is_refused: bool = False
    etcd: str = ""
    name: str = ""
    state: str = ""
    states: tuple[str, ...] = ()
    term: int = 0
    end: int = 0
    agreed: int = 0
    takeovers: int = 0
    held_s: float = 0.0
    received: int = 0
    certificates: tuple[Certificate, ...] = ()
    by_name: dict[str, NodeFacts] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {node.name: node for node in self.nodes})

    @property
    def running(self) -> list[str]:
        return [node.name for node in self.nodes if node.is_running]

    @property
    def holders(self) -> list[str]:
        """The names of the running nodes that have all confirmed messages."""
        return [node.name for node in self.nodes if node.is_in_sync and node.is_running]

    def needs(self, name: str) -> bool:
        """Whether publishers would be blocked without this node."""
        return name in self.holders and len(self.holders) <= self.min_in_sync

    def has_no_successor(self, name: str) -> bool:
        """Whether a node leads and no other one can: none is in sync and runs, or those are drained or of older
        releases.
        """
        others = (self.by_name[one] for one in self.holders if one != name)
        return name == self.leader and all(one.is_drained or one.is_older for one in others)


@dataclass(slots=True, frozen=True)
class Replicas:
    """The nodes that have the replicas of durable queues: all nodes of the cluster. `online`: those that run."""

    leader: str
    members: Sequence[str]
    online: Sequence[str]


def replicas_of(own: str, cluster: ClusterFacts | None) -> Replicas:
    """The replicas of durable queues. `own`: the answering node, which leads."""
    if cluster is None:
        return Replicas(own, [own], [own])
    return Replicas(own, [node.name for node in cluster.nodes], cluster.running)
