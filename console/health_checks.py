"""Health checks of a node, as functions of facts about it. They need no broker, so each node of a cluster can answer.

Source: management page 3, 9.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..engine import Queue
from .cluster import NOT_LED, ClusterFacts
from .http_messages import Answer, Refusal, bad_request
from .node_facts import Certificate, HostFacts, Listening
from .steps import ListSteps, Steps, filter_in_steps, map_in_steps

_DAY_MS = 86_400_000
_UNITS = {"days": 1, "weeks": 7, "months": 30, "years": 365}
#: Other names of protocols -> the names that listeners have.
_ALIASES = {
    "amqp091": "amqp",
    "amqp0-9-1": "amqp",
    "amqp0.9.1": "amqp",
    "amqp10": "amqp",
    "amqps": "amqp/ssl",
    "http_api": "http",
    "management": "http",
    "ui": "http",
}
OK = {"status": "ok"}
_NOT_SERVING = "this rabbit node is not currently available to serve"


@dataclass(slots=True, frozen=True)
class Subject:
    """The node that a check is about. `alarms`: (node, resource), of all nodes. `cluster`: None if there is none.

    `queues`: those of all virtual hosts; empty on a node that does not lead.
    """

    node: str
    host_facts: Callable[[], HostFacts]
    listeners: Callable[[], Iterable[Listening]]
    certificates: Callable[[], Iterable[Certificate]]
    wall_ms: Callable[[], int]
    alarms: Callable[[], Iterable[tuple[str, str]]]
    cluster: ClusterFacts | None = None
    queues: Callable[[], Sequence[Queue]] = tuple

    @property
    def is_led(self) -> bool:
        """Whether a leader serves clients, or there is no cluster."""
        return self.cluster is None or self.cluster.leader is not None

    @property
    def is_in_service(self) -> bool:
        """Whether operators let this node serve clients."""
        cluster = self.cluster
        if cluster is None:
            return True
        node = cluster.by_name.get(self.node)
        return node is not None and not node.is_drained and not (cluster.is_refused and self.node == cluster.own)


#: The variable parts of the path.
Names = Mapping[str, str]
#: A check. Returns an answer, the body of one with status 200, or the steps to one of these. Raises: Refusal.
Check = Callable[[Subject, Names], Any]


def _failed(reason: str, **more: Any) -> Answer:
    return Answer(503, {"status": "failed", "reason": reason, **more})


def _alarms(subject: Subject, names: Names) -> Any:
    return _no_alarms(subject.alarms(), "There are alarms in effect in the cluster")


def _local_alarms(subject: Subject, names: Names) -> Any:
    return _no_alarms(_alarms_of_node(subject), "There are alarms in effect on the node")


def _alarms_of_node(subject: Subject) -> list[tuple[str, str]]:
    return [one for one in subject.alarms() if one[0] == subject.node]


def _no_alarms(alarms: Iterable[tuple[str, str]], reason: str) -> Any:
    """OK without alarms, else a failure that lists them."""
    found = [{"node": node, "resource": resource} for node, resource in alarms]
    return _failed(reason, alarms=found) if found else OK


def _certificates(subject: Subject, names: Names) -> Any:
    within, unit = names["WITHIN"], names["UNIT"]
    digits = within[1:] if within.startswith(("-", "+")) else within
    if not digits.isascii() or not digits.isdigit() or len(digits) > 6:
        raise bad_request("Invalid expiration value.")
    if unit not in _UNITS:
        raise bad_request("Time unit not recognised. Supported units: days, weeks, months, years.")
    until_ms = subject.wall_ms() + int(within) * _UNITS[unit] * _DAY_MS
    expired = [
        {
            "node": subject.node,
            "protocol": one.listening.protocol,
            "interface": one.listening.ip_address,
            "port": one.listening.port,
            "certfile": one.file,
            "cacertfile": one.authority,
            "certfile_expires_on": list(map(_utc, one.expires_ms)),
            "cacertfile_expires_on": list(map(_utc, one.authority_expires_ms)),
        }
        for one in (*subject.certificates(), *(() if subject.cluster is None else subject.cluster.certificates))
        if min((*one.expires_ms, *one.authority_expires_ms), default=until_ms + 1) <= until_ms
    ]
    return _failed("Certificates expiring", expired=expired) if expired else OK


def _utc(wall_ms: int) -> str:
    return f"{datetime.fromtimestamp(wall_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _port(subject: Subject, names: Names) -> Any:
    text = names["PORT"]
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise bad_request("Invalid port")
    port, ports = int(text), [one.port for one in subject.listeners()]
    if port in ports:
        return {"status": "ok", "port": port}
    return _failed("No active listener", missing=port, ports=ports)


def _protocol(subject: Subject, names: Names) -> Any:
    """Whether there are listeners for the protocol in the path, or for several with commas, as since RabbitMQ 4.2."""
    protocols = sorted({one.protocol for one in subject.listeners()})
    given = names["PROTOCOL"].split(",")
    wanted = [_ALIASES.get(name.lower(), name.lower()) for name in given]
    missing = [name for name in wanted if name not in protocols]
    if len(given) > 1:
        if missing:
            return _failed("No active listener", missing=missing, protocols=protocols)
        return {"status": "ok", "protocols": wanted}
    if missing:
        return _failed("No active listener", missing=missing[0], protocols=protocols)
    return {"status": "ok", "protocol": wanted[0]}


def _virtual_hosts(subject: Subject, names: Names) -> Any:
    """Whether all virtual hosts run: they do if the broker does."""
    return OK if subject.is_led else _failed("Some virtual hosts are down", **{"virtual-hosts": [], "detail": NOT_LED})


def _metadata(subject: Subject, names: Names) -> Any:
    return OK if subject.is_led else _failed("Metadata store has not yet been initialised", detail=NOT_LED)


def _elected(subject: Subject, names: Names) -> Steps:
    """Whether quorum queues have a leader: they have the cluster's."""
    if subject.is_led:
        return OK
    queues = yield from _queues(subject, "quorum")
    queues = [one for one in queues if names.get("V") in (None, one["virtual_host"])]
    return _failed("Detected quorum queues without an elected leader", queues=queues, detail=NOT_LED)


def _queues(subject: Subject, kind: str) -> ListSteps[dict[str, str]]:
    """The durable queues of a type."""
    found = yield from filter_in_steps(lambda one: one.durable and one.type == kind, subject.queues())
    return (yield from map_in_steps(_queue_view, found))


def _queue_view(queue: Queue) -> dict[str, str]:
    vhost, name = queue.vhost_name, queue.name
    readable = f"queue '{name}' in vhost '{vhost}'"
    return {"name": name, "readable_name": readable, "type": queue.type, "virtual_host": vhost}


def _quorum_critical(subject: Subject, names: Names) -> Any:
    reason = "There are quorum queues that would lose their quorum if the target node is shut down"
    return _critical(subject, reason, "quorum")


def _mirror_critical(subject: Subject, names: Names) -> Any:
    return _critical(subject, "There are classic mirrored queues without online synchronised mirrors", "classic")


def _critical(subject: Subject, reason: str, kind: str) -> Steps:
    """Fail if publishers would be blocked without this node, or if no other node could lead."""
    cluster = subject.cluster
    if cluster is None or len(cluster.nodes) == 1:
        return {"status": "ok", "reason": "single node cluster"}
    if cluster.etcd:
        words = f"{cluster.etcd}, so no node could lead after this one"
    elif cluster.needs(subject.node):
        in_sync = len(cluster.holders)
        words = f"{in_sync} of {len(cluster.nodes)} nodes are in sync, and confirms need {cluster.min_in_sync}"
    elif cluster.has_no_successor(subject.node):
        words = f"{subject.node} leads, and no other node in sync can: they are drained, or of an older release"
    else:
        return OK
    return _failed(reason, queues=(yield from _queues(subject, kind)), detail=words)


def _in_service(subject: Subject, names: Names) -> Any:
    return OK if subject.is_in_service else _failed(_NOT_SERVING)


def _below_limit(subject: Subject, names: Names) -> Any:
    host = subject.host_facts()
    if host.descriptors_max and host.descriptors >= host.descriptors_max:
        return _failed("the limit of connections is reached")
    return OK


def _ready(subject: Subject, names: Names) -> Any:
    """Whether clients that connect now are served; without a cluster, whether no alarm is on. For load balancers."""
    if subject.cluster is None:
        return _alarms(subject, names)
    if not subject.is_in_service:
        return _failed(_NOT_SERVING)
    return _below_limit(subject, names) if subject.is_led else _failed(NOT_LED)


def _cluster_size(subject: Subject, names: Names) -> Any:
    """Whether all nodes of the cluster run."""
    cluster = subject.cluster
    online, target = (1, 1) if cluster is None else (len(cluster.running), len(cluster.nodes))
    if online >= target:
        return OK
    reason = f"target cluster size not reached: {online} of {target} nodes are online"
    return _failed(reason, online=online, target=target)


def node_check(subject: Subject, names: Names) -> Any:
    """The check at the old path `healthchecks/node`."""
    node = None if subject.cluster is None else subject.cluster.by_name.get(subject.node)
    if node is not None and not node.is_running:
        return _failed("nodedown")
    return _no_alarms(_alarms_of_node(subject), "resource alarm(s) in effect")


#: Path below `health/checks/` -> the check.
CHECKS: dict[str, Check] = {
    "alarms": _alarms,
    "local-alarms": _local_alarms,
    "certificate-expiration/WITHIN/UNIT": _certificates,
    "port-listener/PORT": _port,
    "protocol-listener/PROTOCOL": _protocol,
    "virtual-hosts": _virtual_hosts,
    "node-is-mirror-sync-critical": _mirror_critical,
    "node-is-quorum-critical": _quorum_critical,
    "metadata-store/initialized": _metadata,
    "metadata-store/initialized/with-data": _metadata,
    "quorum-queues-without-elected-leaders/all-vhosts": _elected,
    "quorum-queues-without-elected-leaders/all-vhosts/pattern/P": _elected,
    "quorum-queues-without-elected-leaders/vhost/V": _elected,
    "quorum-queues-without-elected-leaders/vhost/V/pattern/P": _elected,
    "is-in-service": _in_service,
    "below-node-connection-limit": _below_limit,
    "ready-to-serve-clients": _ready,
    "reached-target-cluster-size": _cluster_size,
}


def answer_of(check: Check, subject: Subject, names: Names) -> Steps:
    """The steps of a check to its `Answer`, also if it raises Refusal."""
    try:
        found = check(subject, names)
        if isinstance(found, Generator):
            found = yield from found
    except Refusal as refusal:
        return refusal.answer()
    return found if isinstance(found, Answer) else Answer(200, found)
