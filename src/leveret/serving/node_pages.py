"""Metrics, health and state of a node that does not lead, over HTTP, without a broker and without a login.

The health checks are those of RabbitMQ's HTTP API. `leveret ctl` asks for /cluster at the AMQP port while the node
holds its connection because no node leads.
"""

import json
from collections.abc import Callable
from http import HTTPStatus

import trio

from .. import __version__
from ..cluster.node import Node
from ..cluster.status import cluster_status
from ..console.dispatcher import Dispatcher, Route
from ..console.encoding import encoded
from ..console.health_checks import CHECKS, Subject, answer_of, node_check
from ..console.http_messages import Refusal
from ..console.metrics import families as f
from ..console.metrics.aggregated import PREFIX as METRICS_PREFIX
from ..console.metrics.aggregated import identity_of, table, versions_of
from ..console.metrics.cluster import cluster_page
from ..console.metrics.leveret_page import build_info, process_table
from ..console.node_facts import Certificate
from ..console.server import peer_of
from ..operator.steps import finished
from ..settings import Configuration
from .gate_client import GateClient, Service
from .metrics_facts import process_figures
from .node_report import NodeReport
from .process_facts import PYTHON, host_facts_of
from .runtime import SystemClock

PREFIX = "/api/"
#: Maximum seconds for a request and its answer, and maximum octets of a request's head.
ANSWER_S, HEAD_MAX = 5.0, 16 * 1024
_LIVE, _READY, _CLUSTER = "/health/live", "/health/ready", "/cluster"
#: Path -> RabbitMQ's name of the endpoint, which dashboards select.
ENDPOINTS = {"/metrics": "aggregated", "/metrics/per-object": "per-object", "/metrics/detailed": "detailed"}


class NodeChecks:
    """The health checks of this node. `data`: the directory of the journal."""

    def __init__(self, report: NodeReport, data: str, certificates: Callable[[], list[Certificate]]) -> None:
        self._report = report
        self._data = data
        self._certificates = certificates
        self._checks = {f"health/checks/{path}": check for path, check in CHECKS.items()}
        self._checks |= {"healthchecks/node": node_check, "healthchecks/node/N": node_check}
        self._dispatcher = Dispatcher()
        self._dispatcher.add([Route(path, {}) for path in self._checks])

    def obstacle(self) -> str:
        """The reason why clients that connect to this node now are not served; "": they are."""
        status, body = self.answer(f"{PREFIX}health/checks/ready-to-serve-clients", is_detailed=True)
        return "" if status == HTTPStatus.OK else str(json.loads(body)["reason"])

    def answer(self, path: str, *, is_detailed: bool) -> tuple[int, bytes]:
        """Status and JSON of a check. `path`: absolute and percent-encoded.

        Without details the JSON only says whether the check failed: details have ports, paths and names of nodes.
        """
        try:
            found = self._dispatcher.find(path.removeprefix(PREFIX))
        except Refusal as refusal:
            return refusal.status, encoded(refusal.answer().value)
        facts = self._report.facts()
        if found is None or found[1].get("N", facts.own) not in facts.by_name:
            return 404, encoded({"error": "Object Not Found", "reason": "Not Found"})
        route, names = found
        node = names.get("N", facts.own)
        own = facts.by_name[node]
        subject = Subject(
            node,
            lambda: own.host or host_facts_of(self._data),
            lambda: own.listeners,
            self._certificates,
            SystemClock.wall_ms,
            self._report.alarms,
            facts,
        )
        answer = finished(answer_of(self._checks[route.pattern], subject, names))
        value = answer.value
        if not is_detailed and "status" in value:
            value = {"status": value["status"]}
        return answer.status, encoded(value)


class NodePages:
    """Answers one request on each connection.

    Clients outside loopback get only what probes and load balancers need: health without details, and metrics, which
    name no objects.
    """

    def __init__(
        self, node: Node, report: NodeReport, checks: NodeChecks, configuration: Callable[[], Configuration]
    ) -> None:
        self._node = node
        self._report = report
        self._checks = checks
        self._configuration = configuration

    async def answer(self, client: GateClient) -> None:
        """Read a request and answer it. Raises: OSError, trio.BrokenResourceError."""
        stream, head = client.stream(), client.first
        with trio.move_on_after(ANSWER_S):
            while b"\r\n\r\n" not in head and len(head) < HEAD_MAX:
                data = await stream.receive_some(HEAD_MAX)
                if not data:
                    return
                head += data
            method, _, rest = head.partition(b" ")
            path = self._without_prefix(rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1"))
            is_loopback = peer_of(client.address).is_loopback and not _is_proxied(head)
            if client.service is Service.METRICS and path.startswith(PREFIX):
                status, body = "404 Not Found", b""  # as from a leader: checks belong to the console's listener
            else:
                status, body = self.page(method.decode("latin-1"), path, is_loopback=is_loopback)
            length = f"content-length: {len(body)}\r\nconnection: close\r\n"
            is_json = path == _CLUSTER or path.startswith(PREFIX)
            if method not in (b"GET", b"HEAD") and not status.startswith("404"):
                length += f"allow: {'HEAD, GET, OPTIONS' if path.startswith(PREFIX) else 'HEAD, GET'}\r\n"
            kind = f"content-type: {'application/json' if is_json else 'text/plain; version=0.0.4; charset=utf-8'}\r\n"
            answer = f"HTTP/1.1 {status}\r\n{kind}{length}\r\n".encode()
            await stream.send_all(answer if method == b"HEAD" else answer + body)
            if isinstance(stream, trio.SocketStream):
                await stream.send_eof()
            else:
                await stream.aclose()

    def _without_prefix(self, path: str) -> str:
        """A path of the API without its prefix; other paths unchanged."""
        rest = path.removeprefix(self._configuration().management.path_prefix)
        return rest if rest.startswith(PREFIX) else path

    def page(self, method: str, path: str, *, is_loopback: bool) -> tuple[str, bytes]:
        """Status and body of an answer."""
        if method not in ("GET", "HEAD"):
            if not path.startswith(PREFIX):
                return "405 Method Not Allowed", b""
            found = self.page("GET", path, is_loopback=is_loopback)
            is_there = not found[0].startswith("404")
            return (("200 OK" if method == "OPTIONS" else "405 Method Not Allowed"), b"") if is_there else found
        if path == _LIVE:
            return "200 OK", b"alive\n"
        if not self._node.is_open:
            why = "this node opens its data directory"
            is_json = path == _CLUSTER or path.startswith(PREFIX)
            text = json.dumps({"status": "failed", "reason": why}) if is_json else f"{why}\n"
            return "503 Service Unavailable", text.encode()
        if path.startswith(PREFIX):
            status, body = self._checks.answer(path, is_detailed=is_loopback)
            return f"{status} {HTTPStatus(status).phrase}", body
        if path == _READY:
            why = self._checks.obstacle()
            return ("503 Service Unavailable", f"{why}\n".encode()) if why else ("200 OK", b"ready\n")
        if path == _CLUSTER:
            if not is_loopback:
                return "401 Unauthorized", b""
            return "200 OK", json.dumps(cluster_status(self._node)).encode()
        if path.rstrip("/") not in ENDPOINTS:
            return "404 Not Found", b""
        return "200 OK", _metrics_page(self._report, self._configuration, path.rstrip("/")).encode()


def _metrics_page(report: NodeReport, configuration: Callable[[], Configuration], path: str) -> str:
    """The metrics at one of `ENDPOINTS`: the node's identity and process, and how it follows.

    Queues, clients and messages are only in the leader's metrics, so that sums over all nodes are right.
    """
    facts, now = report.facts(), process_figures(report.data, report.reserve)
    own = facts.by_name[facts.own]
    versions = versions_of(configuration().profile.version, __version__, PYTHON)
    sockets, uptime_s = own.clients + len(own.listeners), (SystemClock.wall_ms() - own.started_ms) / 1000
    is_short = 0 < now.descriptors_max <= now.descriptors
    return "".join(
        [
            identity_of(facts.own, report.cluster_name, facts.name, versions, ENDPOINTS[path], METRICS_PREFIX),
            table(METRICS_PREFIX, f.ALARMS, (is_short, "disk" in own.alarms, "memory" in own.alarms)),
            table(METRICS_PREFIX, f.NODE, now.node_values(sockets, uptime_s)),
            build_info(__version__),
            process_table(now, own.started_ms),
            cluster_page(facts),
        ]
    )


def _is_proxied(head: bytes) -> bool:
    """Whether a proxy on this machine sent the request, perhaps for a remote client."""
    return any(line.lower().startswith((b"x-forwarded-for:", b"forwarded:")) for line in head.split(b"\r\n"))
