"""The state of a cluster as its nodes' keys and the leader's links show it, for JSON."""

from typing import Any

from .agreement.states import State
from .agreement.view import NodeKey
from .link.follower_links import FollowerStatistics
from .node import Node


def cluster_status(node: Node) -> dict[str, Any]:
    """As this node sees it. Of followers it knows more while it leads."""
    view, key = node.view, node.key()
    leader = None if view is None else view.leader
    insync = None if view is None else view.insync
    members = frozenset() if insync is None else insync.nodes
    links = None if node.leading is None else node.leading.links
    linked = {} if links is None else {one.node_id: one for one in links.statistics()}
    registered = {} if view is None else {one.name: one for one in view.nodes}
    end = key.end if node.leading is None or node.leading.journal is None else node.leading.journal.next_lsn
    return {
        "cluster": node.options.circle.cluster,
        "node": key.name,
        "state": node.agreement.state.name.lower(),
        "since-ms": node.since_ms,
        "why": node.why,
        "leader": None if leader is None else leader.name,
        "term": None if leader is None else leader.term,
        "agreed": node.agreed_lsn,
        "end": end,
        "insync": sorted(one.name for one in registered.values() if one.node_id in members),
        "nodes": [
            _of_node(node, name, registered.get(name), linked, members, end) for name in sorted(node.options.nodes)
        ],
    }


def _of_node(
    node: Node,
    name: str,
    key: NodeKey | None,
    linked: dict[bytes, FollowerStatistics],
    members: frozenset[bytes],
    end: int,
) -> dict[str, Any]:
    is_own = name == node.options.name
    if key is None and not is_own:
        return {"name": name, "state": "absent", "link": str(node.options.nodes[name])}
    key = node.key() if is_own or key is None else key
    link = linked.get(key.node_id)
    known = link.acknowledged_lsn if link is not None else end if is_own else key.end
    if is_own:
        state = node.agreement.state.name.lower()
    elif key.is_drained:
        state = State.DRAINED.name.lower()
    else:
        state = "in_sync" if key.node_id in members else "following"
    return {
        "name": name,
        "id": key.node_id.hex(),
        "state": state,
        "is-linked": is_own or link is not None,
        "is-in-sync": key.node_id in members,
        "is-drained": key.is_drained,
        "term": key.term,
        "end": known,
        "lag": max(0, end - known),
        "reaches": sorted(key.reaches),
        "version": key.version,
        "fingerprint": key.fingerprint,
        "link": key.link,
        "addresses": [f"{kind}://{place}" for kind, place in key.addresses],
        "status": {} if link is None else dict(link.status),
    }
