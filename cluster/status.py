"""The state of a cluster as JSON, from the nodes' keys in etcd and the leader's links."""

from typing import Any

from ..journal.format.terms import FIRST_LSN
from .agreement.states import BROKER_RUNS, State
from .agreement.view import Leader, NodeKey, View
from .link.follower_links import FollowerStatistics
from .node import Node

#: Fields of the status that a node sends to others: its state, and its configuration, which is not shown.
STATE, CONFIGURATION = "state", "configuration"
_FOLLOWER_STATES = frozenset({State.FOLLOWING, State.IN_SYNC})


def cluster_status(node: Node) -> dict[str, Any]:
    """The state of the cluster as this node sees it. Only a leader knows how far its followers are."""
    view, key = node.view, node.key()
    leader = _leader(node)
    links = None if node.leading is None else node.leading.links
    linked = {} if links is None else {one.node_id: one for one in links.statistics()}
    end = key.end if node.leading is None or node.leading.journal is None else node.leading.journal.next_lsn
    rows = _Rows(node, view, leader, linked, end)
    nodes = [rows.row(name) for name in sorted(node.options.nodes)]
    return {
        "cluster": node.options.credentials.cluster,
        "node": key.name,
        "state": node.agreement.state.name.lower(),
        "since-ms": node.since_ms,
        "why": why(node),
        "leader": None if leader is None else leader.name,
        "term": None if leader is None else leader.term,
        "agreed": node.agreed_lsn,
        "end": end,
        "level": 0 if rows.insync is None else rows.insync.level,
        "min-in-sync": node.options.min_in_sync,
        "insync": [one["name"] for one in nodes if one.get("is-in-sync") and one["state"] != "lost"],
        "etcd": node.etcd_trouble or "answers",
        "handover": _handover(node),
        "nodes": nodes,
    }


def _leader(node: Node) -> Leader | None:
    """The leader; None: there is none, or this node cannot know, as it reaches neither etcd nor the leader."""
    leadership = node.agreement.leadership
    if leadership is not None and node.agreement.state in BROKER_RUNS:
        return leadership.key  # etcd may have lost its data
    is_known = node.leading is not None or node.following.followed is not None or not node.coordinator.trouble
    return node.view.leader if is_known and node.view is not None else None


def leader_state(node: Node) -> State:
    """The leader's state by its last beacon. LEADING without a link, and if its release does not tell."""
    told = None if node.following.followed is None else node.following.leader_status.get(STATE)
    return next((one for one in State if one.name.lower() == told), State.LEADING)


def why(node: Node) -> str:
    """Why a node is in its state, in words."""
    state, view, leadership = node.agreement.state, node.view, node.agreement.leadership
    if leadership is not None and state in (State.LEADING, State.HELD):
        return leadership.why
    if state in (State.REFUSED, State.RESIGNING, *BROKER_RUNS):
        return node.why
    if state is State.TAKING_OVER:
        return "it was elected, and restores the broker from its journal"
    if state is State.DRAINED:
        return "an operator has drained it"
    if view is None:
        return "etcd was not read yet"
    if state is State.STARTING:
        return node.agreement.follower.noted or node.why
    if view.leader is None:
        obstacle = node.agreement.obstacle
        return "no node leads" if obstacle is None else f"no node leads, and this one does not campaign: {obstacle}"
    if view.leader.node_id == node.node_id:
        return "it led, and has not read etcd since then"
    if state in _FOLLOWER_STATES:
        trouble = f", but has no link: {node.following.trouble}" if node.following.trouble else ""
        state = leader_state(node)
        idle = "" if state in (State.LEADING, State.HELD) else f", which is {state.name.lower()}"
        return f"follows {view.leader.name}{trouble}{idle}"
    return "no node led, so this one campaigned"


def _handover(node: Node) -> dict[str, Any] | None:
    """The last handover for which an operator asked this leader."""
    attempt = node.handover
    return None if attempt is None else {"to": attempt.to, "refused": attempt.refusal or None}


def _catching_up(link: FollowerStatistics | None) -> str | None:
    """How a follower gets what it missed; None: it has missed nothing, or is not linked."""
    if link is None:
        return None
    return "full copy" if link.is_full_copy else "from files" if link.is_from_files else None


class _Rows:
    """Makes the rows of nodes. `linked`: the leader's links by node id, empty at a follower. `end`: of this journal."""

    def __init__(
        self, node: Node, view: View | None, leader: Leader | None, linked: dict[bytes, FollowerStatistics], end: int
    ) -> None:
        self._node, self._view, self._leader, self._linked, self._end = node, view, leader, linked, end
        leadership = node.agreement.leadership  # it knows the set also if etcd has lost its data
        self.insync = leadership.members.insync if leadership is not None else None if view is None else view.insync

    def row(self, name: str) -> dict[str, Any]:
        """The row of a node. Its state is "absent" if etcd has no key of it."""
        node, view = self._node, self._view
        is_own = name == node.options.name
        key = node.key() if is_own else None if view is None else view.node_named(name)
        if key is None:
            return {"name": name, "state": "absent", "link": str(node.options.nodes[name])}
        link = self._linked.get(key.node_id)
        is_linked = is_own or link is not None or (node.leading is None and name in node.reachability.reached)
        is_lost = not is_linked and name not in node.reachability.reached
        end = link.acknowledged_lsn if link is not None else self._end if is_own else key.end
        is_member = self.insync is not None and key.node_id in self.insync.nodes
        return {
            "name": name,
            "id": key.node_id.hex(),
            "state": "lost" if is_lost else self._state_of(key, is_own=is_own, is_member=is_member),
            "is-linked": is_linked,
            "is-in-sync": is_member,
            "is-drained": key.is_drained,
            "term": key.term,
            "end": end,
            "lag": None if node.leading is None else max(0, self._end - end),
            "catching-up": _catching_up(link),
            "reaches": [] if is_lost else sorted(key.reaches),
            "version": key.version,
            "level": key.level,
            "fingerprint": key.fingerprint,
            "link": key.link,
            "addresses": [f"{kind}://{place}" for kind, place in key.addresses],
            "status": {} if link is None else {name: one for name, one in link.status.items() if name != CONFIGURATION},
        }

    def _state_of(self, key: NodeKey, *, is_own: bool, is_member: bool) -> str:
        if is_own:
            return self._node.agreement.state.name.lower()
        if self._leader is not None and self._leader.node_id == key.node_id:
            return leader_state(self._node).name.lower()
        ours = None if self._view is None else self._view.journal
        if ours is not None and key.journal not in (None, ours) and key.end > FIRST_LSN:
            return "refused"
        if key.is_drained:
            return "drained"
        return "in_sync" if is_member else "following"
