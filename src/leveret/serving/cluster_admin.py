"""The leading node's answers to `leveret ctl cluster` and the console."""

from collections.abc import Mapping
from typing import Any

from ..cluster.agreement.view import NodeKey
from ..cluster.node import Node
from ..cluster.status import cluster_status
from ..console.cluster import ClusterFacts
from ..operator.command_error import CommandError
from ..settings.declared.cluster import shown_node
from .node_report import NodeReport


class ClusterAdmin:
    """The administration of a cluster through its leading node. Answers are for JSON, errors are `CommandError`.

    `handover`, `drain`, `revive`, `forget` and `raise_level` only begin; a later `status` shows the result.
    """

    def __init__(self, node: Node, report: NodeReport) -> None:
        self._node = node
        self._report = report

    def facts(self) -> ClusterFacts:
        """The facts that the console shows."""
        return self._report.facts()

    def status(self) -> dict[str, Any]:
        """The nodes with their states, term, end and lag; the nodes in sync; the agreed LSN."""
        configurations = {one.node: one for one in self._report.configurations()}
        status, facts = cluster_status(self._node), self._report.facts().by_name
        for row in status["nodes"]:
            if row.get("lag"):
                row["lag-s"] = round(facts[shown_node(row["name"])].lag_s, 1)
            if (one := configurations.get(row["name"])) is not None:
                row |= {"differences": list(one.differences), "reloads": one.reloads, "faults": list(one.faults)}
        led = self._report.leader_facts
        not_hosted = {} if led is None else led.not_hosted
        if lines := [f"{name}: {line}" for name, lines in not_hosted.items() for line in lines]:
            status["not-hosted"] = lines
        return status

    def history(self) -> dict[str, Any]:
        """The leaders and the nodes in sync over time, as far as this process knows."""
        found = self._node.history
        changes = [
            {"at-ms": one.at_ms, "what": one.kind, "node": one.node, "term": one.term, "why": one.why}
            for one in found.changes
        ]
        return {"node": self._node.options.name, "since-ms": found.since_ms, "changes": changes}

    def configurations(self) -> dict[str, Any]:
        """The differences between the nodes' configurations and the leader's, and the faults of their last reloads."""
        found = self._report.configurations()
        return {
            "leader": self._node.options.name,
            "compared": [one.node for one in found],
            "differences": [{"node": one.node, "differs": what} for one in found for what in one.differences],
            "faults": [{"node": one.node, "fault": fault} for one in found for fault in one.faults],
        }

    def compare(self, parts: Mapping[str, object]) -> dict[str, Any]:
        """The differences from a configuration that is not in force. `parts`: its digests, and its node's name."""
        name = parts.get("node")
        found = self._report.compared(parts, name if isinstance(name, str) and name else "the files")
        return {"leader": self._node.options.name, "differences": found}

    def reload(self) -> dict[str, Any]:
        """Let the other nodes reload their files; `configurations` has the results later."""
        before = {one.node: one.reloads for one in self._report.configurations()}
        others = [name for name in self._node.options.nodes if name != self._node.options.name]
        for name in others:
            if name in before:
                self._order(name, "reload")
        return {"reloads": before, "not-asked": [name for name in others if name not in before]}

    def handover(self, node: str | None) -> dict[str, Any]:
        """Let another node lead; None: the one with most of the journal."""
        key = None if node is None else self._key_of(node)
        if key is not None and key.node_id == self._node.node_id:
            raise CommandError(f"node {node} leads already")
        return self._hand_over(key)

    def drain(self, node: str) -> dict[str, Any]:
        """Keep a node from leading until it is revived."""
        key = self._key_of(node)
        node = key.name
        if key.node_id == self._node.node_id:
            return {"node": node, **self._hand_over(None, drains=True)}
        self._order(node, "drain")
        return {"node": node, "is-drained": True}

    def revive(self, node: str) -> dict[str, Any]:
        """Let a drained node lead again."""
        key = self._key_of(node)
        node = key.name
        if key.node_id == self._node.node_id:
            raise CommandError(f"node {node} leads, so it is not drained")
        self._order(node, "revive")
        return {"node": node, "is-drained": False}

    def raise_level(self) -> dict[str, Any]:
        """Raise the journal's level to what the newest node reads."""
        view = self._node.view
        if view is None or view.insync is None:
            raise CommandError("not raised: etcd was not read yet")
        unknown = view.insync.nodes - {one.node_id for one in view.nodes}
        if unknown:
            raise CommandError("not raised: a node in sync is not registered in etcd, so its level is unknown")
        level = max(one.level for one in view.nodes)
        if older := [one for one in view.nodes if one.level < level]:
            nodes = ", ".join(f"{one.name} ({one.version}) reads level {one.level}" for one in older)
            raise CommandError(f"not raised to level {level}: node {nodes}: upgrade it first")
        before = view.insync.level
        if level > before:
            self._node.raise_level(level)
        return {"level": max(level, before), "before": before}

    def forget(self, node: str) -> dict[str, Any]:
        """Forget a node that is down and not needed."""
        self._check_is_node(node)
        node = self._name_of(node)
        row = next(one for one in self.status()["nodes"] if one["name"] == node)
        if row["state"] not in ("lost", "absent"):
            raise CommandError(f"node {node} is up: stop it first")
        self._check_needed(node, row)
        if row["state"] == "lost" and not self._is_gone(bytes.fromhex(row["id"])):
            seconds = round(self._node.options.timers.lease_ns / 1e9)
            why = f"its lease in etcd is valid, so it may run; a dead node's lease ends within {seconds} s"
            raise CommandError(f"node {node} does not answer, but {why}")
        self._node.forget(node)
        return {"node": node, "state": "absent"}

    def _check_needed(self, node: str, row: dict[str, Any]) -> None:
        """Raises: CommandError."""
        view = self._node.view
        members = frozenset() if view is None or view.insync is None else view.insync.nodes
        registered = frozenset() if view is None else frozenset(one.node_id for one in view.nodes)
        names = {self._node.history.name_of(one) for one in members - registered}  # None: unknown, perhaps the node
        if row.get("is-in-sync") or (row["state"] == "absent" and names & {node, None}):
            least = self._node.options.min_in_sync
            why = f"it is one of {len(members)} nodes with all confirmed messages, and min-in-sync is {least}"
            raise CommandError(f"node {node} is needed: {why}; start another node, and it leaves by itself")

    def _is_gone(self, node_id: bytes) -> bool:
        """Whether the node's link refuses connections, so that its process must have ended."""
        leadership = self._node.agreement.leadership
        member = None if leadership is None else leadership.members.by_id.get(node_id)
        return member is not None and member.is_gone

    def _hand_over(self, to: NodeKey | None, *, drains: bool = False) -> dict[str, Any]:
        refusal = self._node.hand_over(to, drains=drains)
        if refusal:
            raise CommandError(f"not {'drained' if drains else 'handed over'}: {refusal}")
        attempt = self._node.handover
        return {"from": self._node.options.name, "to": None if attempt is None else attempt.to}

    def _order(self, node: str, order: str) -> None:
        """Send an order to a follower, which registers the result in etcd. Raises: CommandError."""
        links = None if self._node.leading is None else self._node.leading.links
        if links is None or not links.order(self._key_of(node).node_id, order):
            raise CommandError(f"node {node} is not connected to the leader")

    def _name_of(self, name: str) -> str:
        """A node's name in [cluster], from that name or from `rabbit@NAME`."""
        return next((one for one in self._node.options.nodes if shown_node(one) == name), name)

    def _key_of(self, name: str) -> NodeKey:
        key = None if self._node.view is None else self._node.view.node_named(self._name_of(name))
        if key is None:
            self._check_is_node(name)
            raise CommandError(f"node {name} is absent: it is not registered in etcd; start it first")
        return key

    def _check_is_node(self, name: str) -> None:
        """Raises: CommandError."""
        nodes = self._node.options.nodes
        if self._name_of(name) not in nodes:
            raise CommandError(f"there is no node {name}; nodes are {', '.join(sorted(nodes))}")
