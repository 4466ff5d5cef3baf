"""A node's report: the status that it sends to the other nodes, and its view of the cluster, for the API.

The status travels over each link as JSON. Another release may lack fields or have more.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..cluster.agreement.states import State
from ..cluster.agreement.view import InSync, NodeKey
from ..cluster.link.follower_links import FollowerStatistics
from ..cluster.node import Node
from ..cluster.status import CONFIGURATION, STATE, leader_state
from ..console.cluster import ClusterFacts, NodeFacts
from ..console.node_facts import Certificate, HostFacts, Listening
from ..settings.declared.cluster import own_host_port, shown_node
from .process_facts import host_facts_of
from .reloading import CurrentConfiguration
from .runtime import SystemClock
from .shared_configuration import SharedConfiguration
from .tls_files import configured_path

#: Kind of an address in a node's key -> RabbitMQ's name of the protocol.
_PROTOCOLS = {
    "amqp": "amqp",
    "amqps": "amqp/ssl",
    "http": "http",
    "https": "https",
    "metrics": "http/prometheus",
    "metrics-tls": "https/prometheus",
}
_STATES = tuple(state.name.lower() for state in State)
#: Samples of the journal's end, which date a follower's lag: maximum number, and minimum distance in milliseconds.
ENDS_MAX, ENDS_MS = 1200, 500
#: Maximum faults of a reload in a status, and maximum characters of each.
FAULTS_MAX, FAULT_MAX = 5, 300
#: Maximum octets, as JSON, of the lines in a status about queues that are not hosted.
NOT_HOSTED_MAX = 8 * 1024
#: Key of a status: the leaderships that a node knows.
_HISTORY = "led"
#: States in which a leader serves clients.
_SERVES = frozenset({State.LEADING, State.HELD})
#: Figures of a process -> their names in a status.
_HOST_FIELDS = {field.name: field.name.replace("_", "-") for field in fields(HostFacts)}


@dataclass(slots=True, frozen=True)
class LeaderFacts:
    """Facts that only the leader has. `not_hosted`: node -> a line for each queue that is not hosted for it."""

    alarms: Callable[[], tuple[str, ...]]
    cluster_name: Callable[[], str]
    not_hosted: Mapping[str, Sequence[str]]


@dataclass(slots=True, frozen=True)
class ConfigurationFacts:
    """The configuration of another node.

    `differences`: the names of the parts that differ from this node's. `faults`: of its last reload.
    """

    node: str
    differences: tuple[str, ...]
    reloads: int
    faults: tuple[str, ...]


class NodeReport:
    """Reports the state of this node. `node`: called for each report. `data`: the directory of the journal.

    `reserve`: octets that the journal leaves free. `clients`: number of connections that are held or passed on.
    """

    def __init__(
        self,
        node: Callable[[], Node],
        data: str,
        started_ms: int,
        cluster_name: str,
        reserve: Callable[[], int],
        clients: Callable[[], int],
        shared: SharedConfiguration,
        current: CurrentConfiguration,
    ) -> None:
        self.leader_facts: LeaderFacts | None = None  # set while this node leads
        self._node = node
        self.data = data
        self._started_ms = started_ms
        self._cluster_name = cluster_name
        self._reserve = reserve
        self._ends: deque[tuple[int, int]] = deque(maxlen=ENDS_MAX)  # wall time in ms, end of the leader's journal
        self._sampled: object = None  # the leadership of these samples
        self._clients = clients
        self._shared = shared
        self._current = current

    @property
    def reserve(self) -> int:
        """Octets that the journal leaves free."""
        return self._reserve()

    # -- the status for other nodes -----------------------------------------------------------------------------------

    def status(self) -> dict[str, object]:
        """Figures of this process, and what it knows; the leader's status also has the alarms of all nodes."""
        status, leader_facts = self._figures(), self.leader_facts
        state = self._node().agreement.state.name.lower()
        status |= {STATE: state, CONFIGURATION: self._configuration(), _HISTORY: self._history()}
        if leader_facts is not None:
            self._note_end()
            alarms = [list(one) for one in self._follower_alarms()]
            status |= {"cluster-name": leader_facts.cluster_name(), "cluster-alarms": alarms}
            status["not-hosted"] = first_lines(leader_facts.not_hosted)
        return status

    def _figures(self) -> dict[str, object]:
        host = host_facts_of(self.data)
        return {
            **{name: getattr(host, field) for field, name in _HOST_FIELDS.items()},
            "clients": self._clients(),
            "started-ms": self._started_ms,
            "data": self.data,
            "disk-reserve": self.reserve,
            "alarms": list(self._alarms(host)),
        }

    def _history(self) -> list[list[object]]:
        """The leaderships that this node knows, including those in the other nodes' statuses."""
        history = self._node().history
        for status in self._statuses().values():
            history.learn(status.get(_HISTORY))
        return history.recent_leaderships()

    def _configuration(self) -> dict[str, object]:
        """The digests of this node's configuration. Logs the differences from the other nodes'."""
        own, others = self._node().options.name, self._other_configurations()
        for name, other in others.items():
            self._shared.warn(other, own, name)
        faults = [fault[:FAULT_MAX] for fault in self._current.faults[:FAULTS_MAX]]
        return {**self._shared.for_status(others.values()), "reloads": self._current.reloads, "faults": faults}

    def _statuses(self) -> dict[str, Mapping[str, object]]:
        """Name of each linked node (the leader, or all followers) -> its last status."""
        node = self._node()
        found = {} if node.following.followed is None else {node.following.followed: node.following.leader_status}
        for node_id, link in self._linked().items():
            key = None if node.view is None else node.view.node_with_id(node_id)
            if key is not None:
                found[key.name] = link.status
        return found

    def _other_configurations(self) -> dict[str, Mapping[str, object]]:
        """Name of each linked node -> the digests of its configuration."""
        found = {name: status.get(CONFIGURATION) for name, status in self._statuses().items()}
        return {name: one for name, one in found.items() if isinstance(one, dict)}

    def configurations(self) -> list[ConfigurationFacts]:
        """For each linked node: the differences from this node's configuration, and the faults of its last reload."""
        own = self._node().options.name
        return [
            ConfigurationFacts(
                name,
                tuple(self._shared.differences(other, own, name)),
                _number(other, "reloads"),
                tuple(_strings(other, "faults")),
            )
            for name, other in sorted(self._other_configurations().items())
        ]

    def compared(self, parts: Mapping[str, object], name: str) -> list[str]:
        """The differences between this node's configuration and one that is not in force."""
        return self._shared.differences(parts, self._node().options.name, name)

    def not_hosted(self, name: str) -> list[str]:
        """The leader's refusals to host queues that a node declares, one line each."""
        facts = self.leader_facts
        found = self._node().following.leader_status.get("not-hosted") if facts is None else facts.not_hosted
        return _strings(found, name) if isinstance(found, Mapping) else []

    def _alarms(self, host: HostFacts) -> tuple[str, ...]:
        """The alarms of this node. A follower has only the alarm of a full disk."""
        if self.leader_facts is not None:
            return self.leader_facts.alarms()
        return ("disk",) if host.disk_free < self.reserve else ()

    def _follower_alarms(self) -> Iterable[tuple[str, str]]:
        """(node, resource) of each alarm of the linked followers."""
        for node_id, link in self._linked().items():
            key = None if (view := self._node().view) is None else view.node_with_id(node_id)
            if key is not None:
                yield from ((shown_node(key.name), alarm) for alarm in _strings(link.status, "alarms"))

    # -- the view of the cluster --------------------------------------------------------------------------------------

    @property
    def cluster_name(self) -> str:
        """The cluster's name in the leader's last status."""
        if self.leader_facts is not None:
            return self.leader_facts.cluster_name()
        return _text(self._node().following.leader_status, "cluster-name") or self._cluster_name

    @property
    def leader(self) -> str | None:
        """The node that leads and serves clients: this node, or the one that it follows; None: none is known."""
        node = self._node()
        if node.leading is not None:
            is_serving = node.leading.is_served and node.agreement.state in _SERVES
            return shown_node(node.options.name) if is_serving else None
        followed = node.following.followed
        return None if followed is None or leader_state(node) not in _SERVES else shown_node(followed)

    def alarms(self) -> list[tuple[str, str]]:
        """(node, resource) of each alarm of this node, and of the nodes that it knows about."""
        node, host = self._node(), host_facts_of(self.data)
        own = shown_node(node.options.name)
        found = [(own, alarm) for alarm in self._alarms(host)]
        if self.leader_facts is not None:
            return [*found, *self._follower_alarms()]
        leader, status = node.following.followed, node.following.leader_status
        if leader is None:
            return found
        found += [(shown_node(leader), alarm) for alarm in _strings(status, "alarms")]
        others = status.get("cluster-alarms")
        for one in others if isinstance(others, list) else ():
            if isinstance(one, list) and len(one) == 2 and one[0] != own:
                found.append((str(one[0]), str(one[1])))
        return found

    def facts(self) -> ClusterFacts:
        """The cluster as this node sees it. Only the leader knows details of followers."""
        node = self._node()
        view, own = node.view, node.key()
        insync = None if view is None else view.insync
        keys, linked = {} if view is None else {one.name: one for one in view.nodes}, self._linked()
        return ClusterFacts(
            shown_node(own.name),
            self.leader,
            tuple(
                self._facts_of(name, own if name == own.name else keys.get(name), own, insync, linked)
                for name in node.options.nodes
            ),
            node.options.min_in_sync,
            node.agreement.state is State.REFUSED,
            node.etcd_trouble,
            name=node.options.credentials.cluster,
            state=node.agreement.state.name.lower(),
            states=_STATES,
            term=own.term,
            end=own.end,
            agreed=node.agreed_lsn,
            takeovers=node.takeovers,
            held_s=self._held_s(),
            received=node.following.received,
            certificates=self._certificates(),
        )

    def _certificates(self) -> tuple[Certificate, ...]:
        """The certificate of this node's links, as read last."""
        cluster, configuration = self._current.cluster, self._current.configuration
        if cluster is None or not cluster.tls.expires_ms:
            return ()
        listening = Listening("clustering", *own_host_port(configuration.cluster), True)
        file = configured_path(configuration, "cluster.tls", "certificate") or ""
        return (Certificate(listening, file, cluster.tls.expires_ms),)

    def _held_s(self) -> float:
        """Total seconds in which this node blocked publishers, including the present state."""
        node = self._node()
        present_ms = SystemClock.wall_ms() - node.since_ms if node.agreement.state is State.HELD else 0
        return (node.held_ms + max(0, present_ms)) / 1000

    def _facts_of(
        self,
        name: str,
        key: NodeKey | None,
        own: NodeKey,
        insync: InSync | None,
        linked: Mapping[bytes, FollowerStatistics],
    ) -> NodeFacts:
        if key is None:
            return NodeFacts(shown_node(name))
        node, link = self._node(), linked.get(key.node_id)
        behind: dict[str, Any] = {}
        status: Mapping[str, object] = {}
        if key is own:
            is_running, status = True, self._figures()
        elif node.leading is not None:
            is_running = link is not None
            if link is not None:
                status = link.status
                behind = self._behind(link)
        else:
            is_running = name in own.reaches or name == node.following.followed
            status = node.following.leader_status if name == node.following.followed else {}
        return NodeFacts(
            shown_node(name),
            is_running=is_running,
            is_in_sync=insync is not None and key.node_id in insync.nodes,
            is_drained=key.is_drained,
            is_older=insync is not None and key.level < insync.level,
            host=_host_of(status),
            alarms=tuple(_strings(status, "alarms")),
            listeners=tuple(_listeners_of(key)),
            started_ms=_number(status, "started-ms"),
            product_version=key.version,
            data=_text(status, "data"),
            disk_reserve=_number(status, "disk-reserve"),
            clients=_number(status, "clients"),
            **behind,
        )

    def _behind(self, link: FollowerStatistics) -> dict[str, Any]:
        """How far a follower's copy is behind."""
        end, acknowledged = self._note_end(), link.acknowledged_lsn
        oldest_ms = self._ends[0][0]
        since_ms = next((at_ms for at_ms, lsn in reversed(self._ends) if lsn <= acknowledged), oldest_ms)
        return {
            "lag": max(0, end - acknowledged),
            "lag_octets": link.behind_octets,
            "lag_s": max(0.0, (SystemClock.wall_ms() - since_ms) / 1000) if acknowledged < end else 0.0,
            "sent": link.sent_octets,
        }

    def _note_end(self) -> int:
        """Returns the end of the leading journal, and samples it, so that a copy's lag can be given in seconds."""
        leading, now_ms = self._node().leading, SystemClock.wall_ms()
        if leading is not self._sampled:  # samples of an earlier leadership would count the time since as lag
            self._sampled = leading
            self._ends.clear()
        journal = None if leading is None else leading.journal
        end = 0 if journal is None else journal.next_lsn
        if not self._ends or now_ms - self._ends[-1][0] >= ENDS_MS:
            self._ends.append((now_ms, end))
        return end

    def _linked(self) -> dict[bytes, FollowerStatistics]:
        leading = self._node().leading
        links = None if leading is None else leading.links
        return {} if links is None else {one.node_id: one for one in links.statistics()}


def first_lines(lines: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The first lines of each node, as many as fit in a status, then the number of lines left out."""
    shown: dict[str, list[str]] = {}
    for name, of_node in lines.items():
        room = NOT_HOSTED_MAX // len(lines)
        kept = shown[name] = []
        for line in of_node:
            room -= len(json.dumps(line)) + 1
            if room < 0:
                kept.append(f"and {len(of_node) - len(kept)} more")
                break
            kept.append(line)
    return shown


def _listeners_of(key: NodeKey) -> Iterable[Listening]:
    for kind, address in (*key.addresses, ("clustering", key.link)):
        host, _, port = address.rpartition(":")
        is_tls = kind in ("amqps", "https", "metrics-tls")
        if port.isdigit():
            yield Listening(_PROTOCOLS.get(kind, kind), host.removeprefix("[").removesuffix("]"), int(port), is_tls)


def _host_of(status: Mapping[str, object]) -> HostFacts | None:
    """None: the node has not sent its status yet, or its release sends other figures."""
    if "process-id" not in status:
        return None
    return HostFacts(**{field: _number(status, name) for field, name in _HOST_FIELDS.items()})


def _number(status: Mapping[str, object], name: str) -> int:
    value = status.get(name)
    return value if type(value) is int else 0


def _text(status: Mapping[str, object], name: str) -> str:
    value = status.get(name)
    return value if isinstance(value, str) else ""


def _strings(status: Mapping[str, object], name: str) -> list[str]:
    value = status.get(name)
    return [str(one) for one in value] if isinstance(value, list) else []
