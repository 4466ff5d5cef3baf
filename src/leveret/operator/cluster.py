"""Commands about the cluster of a broker. The leader runs them: other nodes pass their clients on to it."""

from typing import TYPE_CHECKING, Annotated, Any

from ..console.dispatcher import Http, Level
from .cluster_waits import in_sync_reasons, stop_reasons
from .command import command
from .command_error import CommandError
from .kinds import NAME, Json
from .operator import Operator

if TYPE_CHECKING:
    from ..serving.cluster_admin import ClusterAdmin

NodeName = Annotated[str, NAME, "of the node, as in [cluster] nodes"]


@command("cluster", http=Http("GET", "leveret/cluster", Level.MONITORING), reads=True)
def cluster(operator: Operator) -> dict[str, Any]:
    """Show which node leads, which are in sync, and how far each has copied the journal."""
    return _admin(operator).status()


@command("cluster wait-in-sync", reads=True)
def wait_in_sync(operator: Operator, node: NodeName | None = None) -> dict[str, Any]:
    """Wait until all nodes are in sync; exit code 1 and the reasons if they are not in time (--timeout).

    node: only until this node is in sync
    """
    return _ready(in_sync_reasons(_admin(operator).status(), node))


@command("cluster wait-safe-to-stop", reads=True)
def wait_safe_to_stop(operator: Operator, node: NodeName | None = None) -> dict[str, Any]:
    """Like wait-in-sync, until a node can be stopped: another could lead, and publishers would not be blocked.

    node: the one that is to be stopped; without it: each node in sync
    """
    return _ready(stop_reasons(_admin(operator).status(), node))


def _ready(reasons: list[str]) -> dict[str, Any]:
    """The answer for this moment; `leveret ctl` repeats the command until `is-ready`."""
    return {"is-ready": not reasons, "reasons": reasons}


@command("cluster differences", http=Http("GET", "leveret/cluster/differences", Level.MONITORING), reads=True)
def differences(operator: Operator, parts: Json = None) -> dict[str, Any]:
    """Show what differs between the leader's configuration and those of the other nodes, and their faults.

    parts: digests of files to compare instead of the leader's; `leveret check --cluster` sends them
    """
    admin = _admin(operator)
    if parts is None:
        return admin.configurations()
    if not isinstance(parts, dict):
        raise CommandError("parts: expected an object")
    return admin.compare(parts)


@command("cluster history", http=Http("GET", "leveret/cluster/history", Level.MONITORING), reads=True)
def history(operator: Operator) -> dict[str, Any]:
    """Show which node led when, which nodes were in sync, and when publishers were blocked, oldest first.

    The last 200 changes since the leader's process began, also those from before it led. Earlier leaders come from
    other nodes.
    """
    return _admin(operator).history()


# These commands write to etcd and not to the journal, so `reads` is true: their answers wait for no record.


@command(
    "cluster raise-level", http=Http("POST", "leveret/cluster/raise-level", Level.ADMINISTRATOR), reads=True, acts=True
)
def raise_level(operator: Operator) -> dict[str, Any]:
    """After an upgrade, let the leader write the newest level that all nodes read; older releases cannot lead then."""
    return _admin(operator).raise_level()


@command("handover", http=Http("POST", "leveret/cluster/handover", Level.ADMINISTRATOR), reads=True, acts=True)
def hand_over(operator: Operator, node: NodeName | None = None) -> dict[str, Any]:
    """Let another node lead; clients are disconnected and connect again.

    node: the next leader; without it: the one that has most of the journal
    """
    return _admin(operator).handover(node)


@command("drain", http=Http("POST", "leveret/cluster/drain", Level.ADMINISTRATOR), reads=True, acts=True)
def drain(operator: Operator, node: NodeName | None = None) -> dict[str, Any]:
    """Let a node copy the journal and not lead, before its machine is switched off.

    node: without it: the one that leads, which hands over first
    """
    admin = _admin(operator)
    return admin.drain(admin.status()["leader"] if node is None else node)


@command("revive", http=Http("POST", "leveret/cluster/revive", Level.ADMINISTRATOR), reads=True, acts=True)
def revive(operator: Operator, node: NodeName | None = None) -> dict[str, Any]:
    """Let a drained node lead again.

    node: without it: the one that is drained
    """
    admin = _admin(operator)
    if node is None:
        drained = [one["name"] for one in admin.status()["nodes"] if one.get("is-drained")]
        if len(drained) != 1:
            raise CommandError(f"which of {', '.join(drained)}?" if drained else "no node is drained")
        node = str(drained[0])
    return admin.revive(node)


@command("forget", http=Http("DELETE", "nodes/N", Level.ADMINISTRATOR, 204), reads=True, acts=True)
def forget(operator: Operator, node: NodeName) -> dict[str, Any]:
    """Forget a node that is down: its key in etcd, and the segments that are kept for it."""
    return _admin(operator).forget(node)


def _admin(operator: Operator) -> "ClusterAdmin":
    """Raises: CommandError."""
    if operator.cluster is None:
        raise CommandError("this broker is not a node of a cluster: its configuration has no [cluster]")
    return operator.cluster
