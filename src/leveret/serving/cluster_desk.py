"""What `leveret ctl cluster` and the console ask of the node that leads (`operator.cluster_desk.ClusterDesk`)."""

from collections.abc import Callable
from typing import Any

from ..cluster.agreement.events import Drain, HandOver
from ..cluster.node import Node
from ..cluster.status import cluster_status
from ..console.cluster import ClusterFacts
from ..operator.command_error import CommandError
from ..settings.declared.cluster import shown_node


class LeaderDesk:
    """Of one node, while its broker leads."""

    def __init__(self, node: Node, facts: Callable[[], ClusterFacts]) -> None:
        self._node = node
        self.facts = facts

    def status(self) -> dict[str, Any]:
        return cluster_status(self._node)

    def handover(self, node: str | None) -> dict[str, Any]:
        to = None if node is None else self._id_of(node)
        if to == self._node.node_id:
            raise CommandError(f"node {node} leads already")
        self._node.handle(HandOver(to))
        return {"from": self._node.options.name, "to": node}

    def drain(self, node: str) -> dict[str, Any]:
        if self._id_of(node) == self._node.node_id:
            self._node.handle(Drain())
        else:
            self._order(node, "drain")
        return {"node": node, "is-drained": True}

    def revive(self, node: str) -> dict[str, Any]:
        if self._id_of(node) == self._node.node_id:
            raise CommandError(f"node {node} leads, so it is not drained")
        self._order(node, "revive")
        return {"node": node, "is-drained": False}

    def forget(self, node: str) -> dict[str, Any]:
        node = self._name_of(node)
        if node not in self._node.options.nodes:
            raise CommandError(f"there is no node {node}; nodes are {', '.join(sorted(self._node.options.nodes))}")
        raise CommandError("a node that is gone leaves the in-sync set by itself, as far as min-in-sync allows")

    def _order(self, node: str, order: str) -> None:
        """Pass an order on to a follower, which registers what comes of it."""
        links = None if self._node.leading is None else self._node.leading.links
        if links is None or not links.order(self._id_of(node), order):
            raise CommandError(f"node {node} is not connected to the leader")

    def _name_of(self, name: str) -> str:
        """The name in [cluster] of a node, which tools know as `rabbit@NAME`."""
        return next((one for one in self._node.options.nodes if shown_node(one) == name), name)

    def _id_of(self, name: str) -> bytes:
        key = None if self._node.view is None else self._node.view.node(self._name_of(name))
        if key is None:
            raise CommandError(f"node {name} is not there; nodes are {', '.join(sorted(self._node.options.nodes))}")
        return key.node_id
