"""Replicas of quorum queues. Each durable queue has one on each node of the cluster. Source: management page 3."""

from typing import Any

from ..api import Api
from ..bodies import json_object, require
from ..cluster import ClusterFacts
from ..dispatcher import Action, Level, Route
from ..http_messages import Answer, Request, bad_request, not_found

_ONE_NODE = "there is only one node: each queue has exactly one replica"


def _check_is_quorum(api: Api, request: Request) -> None:
    """Check that the queue in the path is a quorum queue. Raises: Refusal."""
    if api.queue(request).type != "quorum":
        raise bad_request("not a quorum queue")


def _status(api: Api, request: Request) -> list[dict[str, Any]]:
    """The replicas of a queue. The leader of the cluster leads all queues."""
    _check_is_quorum(api, request)
    options = api.options
    cluster = options.cluster()
    if cluster is None:
        return [{"Node Name": options.node, "Raft State": "leader", "Membership": "voter"}]
    return [
        {
            "Node Name": node.name,
            "Raft State": "leader" if node.name == options.node else "follower" if node.is_running else "nodedown",
            "Membership": "voter" if node.is_in_sync else "promotable",
        }
        for node in cluster.nodes
    ]


def _cluster(api: Api) -> ClusterFacts:
    """The cluster. Raises: Refusal, if there is none."""
    cluster = api.options.cluster()
    if cluster is None:
        raise bad_request(_ONE_NODE)
    return cluster


def _node_in_body(api: Api, request: Request) -> tuple[ClusterFacts, str]:
    """The cluster, and the name of the node in the body. Raises: Refusal."""
    given = json_object(request)
    _check_is_quorum(api, request)
    cluster = _cluster(api)
    (node,) = require(given, "node")
    if not isinstance(node, str) or node not in cluster.by_name:
        raise bad_request(f"{str(node)[:80]} is not among the nodes of this cluster: {', '.join(cluster.by_name)}")
    return cluster, node


def _add(api: Api, request: Request) -> Answer:
    """Add a replica to a node. Nothing is done: it has one already."""
    _node_in_body(api, request)
    return Answer(204)


def _grow(api: Api, request: Request) -> Answer:
    """Add replicas of all queues to a node. Nothing is done: it has them already, if it runs."""
    json_object(request)
    cluster, node = _node_in_path(api, request)
    if not cluster.by_name[node].is_running:
        raise not_found()
    return Answer(204)


def _node_in_path(api: Api, request: Request) -> tuple[ClusterFacts, str]:
    """The cluster, and the name of the node in the path. Raises: Refusal."""
    node = api.node(request)
    return _cluster(api), node


def _delete(api: Api, request: Request) -> Answer:
    """Remove the replica of a queue from a node."""
    return _check_removable(*_node_in_body(api, request))


def _shrink(api: Api, request: Request) -> Answer:
    """Remove the replicas of all queues from a node."""
    json_object(request)
    return _check_removable(*_node_in_path(api, request))


def _check_removable(cluster: ClusterFacts, node: str) -> Answer:
    """Answer 202 if the node may be switched off: only that removes its replicas. Raises: Refusal."""
    facts = cluster.by_name[node]
    if cluster.needs(node):
        reason = f"{len(cluster.holders)} nodes are in sync, and confirms need {cluster.min_in_sync}"
        raise bad_request(f"{node} cannot be removed: {reason}")
    if facts.is_running and not facts.is_drained:
        raise bad_request(f"every durable queue is on every node: drain {node} before it is removed")
    return Answer(202)


_ADMINISTRATOR = Level.ADMINISTRATOR
ROUTES = [
    Route("queues/quorum/V/Q/status", {"GET": Action(_ADMINISTRATOR, _status)}),
    Route("queues/quorum/V/Q/replicas/add", {"POST": Action(_ADMINISTRATOR, _add)}),
    Route("queues/quorum/V/Q/replicas/delete", {"DELETE": Action(_ADMINISTRATOR, _delete)}),
    Route("queues/quorum/replicas/on/N/grow", {"POST": Action(_ADMINISTRATOR, _grow)}),
    Route("queues/quorum/replicas/on/N/shrink", {"DELETE": Action(_ADMINISTRATOR, _shrink)}),
]
