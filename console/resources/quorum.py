"""Replicas of quorum queues: each queue has one here; the refusal of others. Source: management page 3."""

from typing import Any

from ..api import Api
from ..bodies import json_object
from ..dispatcher import Action, Level, Route
from ..messages import Request, bad_request, not_found

_ONE_NODE = "there is one node: a queue has one replica, no more and no less"


def _status(api: Api, request: Request) -> list[dict[str, Any]]:
    """The status of its only member."""
    if api.queue(request).type != "quorum":
        raise bad_request("not a quorum queue")
    return [{"Node Name": api.options.node, "Raft State": "leader", "Membership": "voter"}]


def _change(api: Api, request: Request) -> Any:
    """Refuse a change of one queue's replicas. Raises: Refusal."""
    json_object(request)
    api.queue(request)
    raise bad_request(_ONE_NODE)


def _change_all(api: Api, request: Request) -> Any:
    """Refuse a change of all replicas on a node. Raises: Refusal."""
    json_object(request)
    if not api.is_node(request.names["N"]):
        raise not_found()
    raise bad_request(_ONE_NODE)


_ADMINISTRATOR = Level.ADMINISTRATOR
ROUTES = [
    Route("queues/quorum/V/Q/status", {"GET": Action(_ADMINISTRATOR, _status)}),
    Route("queues/quorum/V/Q/replicas/add", {"POST": Action(_ADMINISTRATOR, _change)}),
    Route("queues/quorum/V/Q/replicas/delete", {"DELETE": Action(_ADMINISTRATOR, _change)}),
    Route("queues/quorum/replicas/on/N/grow", {"POST": Action(_ADMINISTRATOR, _change_all)}),
    Route("queues/quorum/replicas/on/N/shrink", {"DELETE": Action(_ADMINISTRATOR, _change_all)}),
]
