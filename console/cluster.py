"""The cluster as the node that answers sees it, for the API. Read-only: the composition root makes it of what it knows.

Names of nodes are those that tools see, `rabbit@NAME`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .node_facts import HostFacts, Listening

#: Why checks fail where no node serves clients.
NOT_LED = "no node of this cluster leads"


@dataclass(slots=True, frozen=True)
class NodeFacts:
    """One node. `host`: what it said of its process last; None: it is down, or this node knows nothing of it.

    `is_older`: its release cannot read what the leader may write. `alarms`: resources, as health checks name them.
    `lag`: records that it does not have on disk yet; `lag_octets`: not sent yet, None if they are in several segments;
    `lag_s`: since when. `sent`: octets over its link.
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
    """`own`: the node that answers. `leader`: None while the answering node knows of none that serves clients.

    `is_refused`: the answering node waits for an operator. `etcd`: why it does not reach etcd; empty: it does. `name`:
    of [cluster]. The last fields are of the answering node: its state among `states`, the end of its journal and the
    agreed LSN, the number of times that it began to lead, for how long it held publishers, and the octets of the
    journal that came by its link.
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
    by_name: dict[str, NodeFacts] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {node.name: node for node in self.nodes})

    @property
    def running(self) -> list[str]:
        return [node.name for node in self.nodes if node.is_running]

    @property
    def holders(self) -> list[str]:
        """The names of the nodes that run and have everything that is confirmed."""
        return [node.name for node in self.nodes if node.is_in_sync and node.is_running]

    def needs(self, name: str) -> bool:
        """Whether publishers would be held without this node."""
        return name in self.holders and len(self.holders) <= self.min_in_sync

    def has_no_successor(self, name: str) -> bool:
        """Whether this node leads, and no other one could: those in sync are drained, or of an older release."""
        others = (self.by_name[one] for one in self.holders if one != name)
        return name == self.leader and all(one.is_drained or one.is_older for one in others)


@dataclass(slots=True, frozen=True)
class Replicas:
    """Where each durable queue is: on every node of the cluster. `online`: nodes that run."""

    leader: str
    members: Sequence[str]
    online: Sequence[str]


def replicas_of(own: str, cluster: ClusterFacts | None) -> Replicas:
    """The places of each durable queue. `own`: the node that answers, which leads."""
    if cluster is None:
        return Replicas(own, [own], [own])
    return Replicas(own, [node.name for node in cluster.nodes], cluster.running)
