"""This process as a node of a cluster: the node, its gate, and the brokers that lead one after the other.

Only a configuration with [cluster] imports this file and the room cluster/.
"""

import logging
import math
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module

import trio

from .. import __version__
from ..amqp_frontend.edge.arrival import Arrival, TerminatedTls
from ..amqp_frontend.edge.poller import until_readable
from ..amqp_frontend.edge.proxy_protocol import ProxyFault, read_header
from ..cluster.agreement.states import State
from ..cluster.agreement.timers import MS, Timers
from ..cluster.agreement.view import Leader
from ..cluster.coordinator.etcd import EtcdCoordinator
from ..cluster.link.challenge import Credentials
from ..cluster.link.client_header import ClientTls, client_header, client_tls
from ..cluster.link.clients import ClientPasser, Passed
from ..cluster.link.listener import LinkListener
from ..cluster.link.options import Address as LinkAddress
from ..cluster.link.options import LinkOptions
from ..cluster.node import Node
from ..cluster.node_directory import DirectoryRefused
from ..cluster.options import NodeOptions
from ..cluster.status import why
from ..configured.configured import Report
from ..console.node_facts import Certificate
from ..engine import OPTIONAL_KINDS
from ..journal import ClusterJournal
from ..settings import Configuration
from ..settings.declared.cluster import cluster_name_of, nodes_of, own_host_port, shown_node
from . import collector
from .addresses import Address, AddressTaken, bind
from .cluster_admin import ClusterAdmin
from .cluster_files import ClusterFiles, load_cluster
from .cluster_sites import site_of
from .composition import DataUnusable
from .gate import Gate, own_paths
from .gate_client import GateClient, Service
from .listeners import Listeners
from .node_pages import NodeChecks, NodePages
from .node_report import NodeReport
from .options import ServeOptions
from .reloading import CurrentConfiguration, log_report
from .runtime import SystemClock
from .served_broker import ServedBroker
from .served_leadership import ServedLeadership
from .shared_configuration import SharedConfiguration

logger = logging.getLogger("leveret.cluster")

LINK_BACKLOG = 64
#: Seconds between two checks whether clients are served; failed checks until the first line in the log, and from one
#: line to the next.
SERVED_CHECK_S, CHECKS_TO_FIRST_LINE, CHECKS_A_LINE = 2.0, 3, 30
#: Modules that only a leader needs. A follower imports them beforehand, so that a takeover does not wait for it.
LEADING_MODULES = (
    "leveret.serving.supervisor",
    "leveret.journal.recording.temp_store",
    *(f"{package}.kind" for package in OPTIONAL_KINDS.values()),
    "leveret.operator.command_table",
    "leveret.operator.definitions",
)
#: Modules that a leader also needs if it serves the console or metrics.
CONSOLE_MODULES = (
    "leveret.serving.console_parts",
    "leveret.serving.console",
    "leveret.serving.metrics_facts",
    "leveret.console.connection",
    "leveret.console.sampler",
    "leveret.console.metrics.requests",
)


class ServedNode:
    """A cluster node, served instead of a broker (`app.Served`, `NodeProcess`). Raises: DataUnusable."""

    def __init__(
        self,
        current: CurrentConfiguration,
        options: ServeOptions,
        listeners: Listeners,
        build: Callable[[ClusterJournal], ServedBroker],
        reload: Callable[[str], object] | None = None,
    ) -> None:
        configuration = options.configuration
        assert options.data is not None, "checked with the configuration"
        self._current = current
        self._listeners = listeners
        self._options = options
        self._build = build
        files, faults, warnings = load_cluster(configuration)
        log_report(Report(warnings=tuple(warnings)))
        if files is None:
            raise DataUnusable("\n".join(faults))
        current.join(files)
        self._shared = SharedConfiguration(files.secret, configuration, current.tls)
        current.on_reload = self._reloaded
        self._node_options = node_options(configuration, options.data, listeners, files, self._shared.fingerprint)
        cluster = configuration.cluster
        coordinator = EtcdCoordinator(files.etcd, cluster.name, math.ceil(cluster.lease_ms / 1000))
        node = self._node_options
        self._listener = LinkListener(
            node.credentials,
            node.name,
            self._serve_client,
            node.link,
            tls=node.tls,
            takes_clients=lambda: self.gate.frontends is not None,
        )
        self._passer = ClientPasser(node.credentials, node.name, node.link, tls=node.tls)
        self._report = NodeReport(
            lambda: self.node,
            options.data,
            SystemClock.wall_ms(),
            cluster_name_of(configuration),
            lambda: int(current.configuration.journal.reserve),
            lambda: self.gate.clients,
            self._shared,
            current,
        )
        self.node = Node(
            node,
            coordinator,
            self._listener,
            self,
            status=self._status,
            reload=lambda: None if reload is None else reload("the leader asked for it"),
        )
        checks = NodeChecks(self._report, options.data, self._certificates)
        self.gate = Gate(
            listeners,
            lambda: current.configuration.cluster.patience_ms / 1000,
            NodePages(self.node, self._report, checks, lambda: current.configuration).answer,
            options=current.frontend_options,
            own_paths=lambda: own_paths(current.configuration.management.path_prefix),
        )
        self.stopping = self.node.stopping
        self._site = site_of(configuration)
        self._not_hosted: list[str] = []  # the refusals for this node that were logged last
        self._passed_to: tuple[int, str] | None = None  # the leader that clients are passed on to

    async def run(self, on_serving: Callable[[], object], on_console: Callable[[], object]) -> None:
        name = self._options.configuration.cluster.node
        host, port = own_host_port(self._options.configuration.cluster)
        try:
            question = f'is node = "{name}" right on this machine?'
            hint = f"another process has this node's address in nodes; {question}"
            link_listener = bind(Address(host, port), LINK_BACKLOG, hint, question)
        except AddressTaken as error:
            raise DataUnusable(f"the link of this node: {error}") from error
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.gate.run)
                nursery.start_soon(log_waiting, self._waits_for)
                on_serving()
                on_console()
                await self.node.run([link_listener])
                nursery.cancel_scope.cancel()
        except* DirectoryRefused as group:
            raise DataUnusable("; ".join(str(one) for one in group.exceptions)) from group
        finally:
            link_listener.close()

    def stop(self) -> None:
        self.node.stop()

    def _waits_for(self) -> str:
        """The reason why no client is served through this node; "": clients are served, or another line tells why."""
        node = self.node
        if not node.is_open:
            return "it opens its data directory"
        if node.stopping.is_set() or node.agreement.state is State.REFUSED or self._report.leader is not None:
            return ""
        reasons = [why(node), *([node.etcd_trouble] if node.etcd_trouble else [])]
        return "; ".join(dict.fromkeys(reasons))

    def _status(self) -> dict[str, object]:
        """The status for the next beacon. Logs the leader's refusals to host this node's queues."""
        report = self._report
        if report.leader_facts is None and (refused := report.not_hosted(self._node_options.name)) != self._not_hosted:
            self._not_hosted = refused
            for line in refused:
                logger.warning("this node does not host a queue that its files declare: %s", line)
        return report.status()

    # -- `NodeProcess` -----------------------------------------------------------------------------------------------

    def preload(self) -> None:
        modules = LEADING_MODULES + (CONSOLE_MODULES if self._listeners.console or self._listeners.metrics else ())
        for name in modules:
            import_module(name)
        collector.set_up()  # examining the objects of these modules takes 15 ms a time

    def build(self, cluster: ClusterJournal) -> ServedLeadership:
        others = tuple(self._node_options.others)
        leadership = ServedLeadership(self._build(cluster), self.gate, others, self._report)
        built = leadership.broker.built
        leadership.broker.runtime.check_standstill = self.node.check_standstill
        built.control.operator.cluster = ClusterAdmin(self.node, self._report)
        operator, node = built.control.operator, self._node_options
        own_status = operator.process_status
        leads = f"node {node.name} leads cluster {node.credentials.cluster}"
        operator.process_status = lambda: {**own_status(), "cluster": leads}
        return leadership

    def site(self) -> Mapping[str, object]:
        return self._site

    def hold_clients(self) -> None:
        self._passed_to = self._report.leader_facts = None
        self.gate.hold()

    def pass_clients_on(self, leader: Leader) -> None:
        if self._passed_to == (leader.term, leader.address):
            return
        self._passed_to = leader.term, leader.address
        address = LinkAddress.parse(leader.address)

        async def pass_on(client: GateClient) -> Passed:
            tls = client.tls
            header = client_header(
                _host_and_port(client.address),
                _host_and_port(client.local),
                None if tls is None else ClientTls(tls.protocol, tls.cipher, tls.certificate),
            )
            return await self._passer.pass_on(client.stream(), client.first, address, header, client.service.value)

        self.gate.pass_on(pass_on)

    def _reloaded(self) -> None:
        """Tell the node what a reload has changed: nothing, if the files had faults."""
        self._shared.read(self._current.configuration, self._current.tls)
        self.node.set_fingerprint(self._shared.fingerprint)
        if (site := site_of(self._current.configuration)) != self._site:
            self._site = site
            self.node.following.reconnect()
        if self._node_options.tls.has_dropped:
            logger.warning(
                "[cluster.tls] ca: a certificate is no longer trusted: links end, with the clients that they pass on"
            )
            self._node_options.tls.has_dropped = False
            self._listener.end_all()
            self._passer.end_all()
            self.node.following.reconnect()

    def refuse_clients(self) -> None:
        self.gate.close()

    # -- clients ----------------------------------------------------------------------------------------------------

    def _serve_client(self, sock: socket.socket, rest: bytes, header: bytes, service: str, node: str) -> None:
        """Give the broker a client that another node has passed on, with the client's own address."""
        frontends = self.gate.frontends
        try:
            found = read_header(header)
        except ProxyFault as fault:
            logger.error("a client of node %s: %s", node, fault)
            found = None
        if found is not None and found.size != len(header):
            logger.error("a client of node %s: octets after its PROXY header", node)
            found = None
        if node not in self._node_options.nodes or node == self._node_options.name:
            logger.error("a client of node %s, which is not one of the other nodes", node)
            found = None
        if frontends is None or found is None or rest:
            sock.close()
            return
        tls = self._tls_of(header)
        arrivals = frontends.console if service == Service.CONSOLE.value else frontends.amqp
        try:
            source, local = found.source or "", found.destination
            arrivals.send_nowait(Arrival(sock, source, False, shown_node(node), local, tls, site=node))
        except (trio.BrokenResourceError, trio.ClosedResourceError):  # the broker is ending
            sock.close()

    def _tls_of(self, header: bytes) -> TerminatedTls | None:
        """The TLS that another node terminated. Its certificate can log a user in by EXTERNAL, so it is dropped if
        links are not authenticated: they are limited to loopback, but any process there could pose as a node.
        """
        tls, node = client_tls(header), self._node_options
        if tls is None:
            return None
        certificate = tls.certificate
        if certificate is not None and not node.credentials.secret and node.tls.server is None:
            logger.warning("a client's certificate is not trusted: links have no cluster.secret-file or cluster.tls")
            certificate = None
        return TerminatedTls(tls.version, tls.cipher, certificate)

    def _certificates(self) -> list[Certificate]:
        """The certificates of the TLS listeners, as read last."""
        if self._current.tls.chain is None:
            return []
        from .console import certificates_of, listening

        return certificates_of(self._current.tls, listening(self._listeners))


def node_options(
    configuration: Configuration, data: str, listeners: Listeners, files: ClusterFiles, fingerprint: str
) -> NodeOptions:
    """The options of this node. Only for a configuration without faults."""
    keys = configuration.cluster
    nodes = {node.name: LinkAddress(node.host, node.port) for node in nodes_of(keys)}
    assert keys.node is not None, "checked with the configuration"
    if keys.advertise is not None:
        nodes[keys.node] = LinkAddress.parse(keys.advertise)
    timers = replace(
        Timers(),
        lease_ns=keys.lease_ms * MS,
        beacon_ns=keys.beacon_ms * MS,
        suspend_after_ns=keys.suspend_after_ms * MS,
        ack_deadline_ns=keys.ack_deadline_ms * MS,
        join_patience_ns=keys.join_patience_ms * MS,
        resign_after_ns=keys.resign_after_ms * MS,
    )
    link = replace(
        LinkOptions(),
        beacon_s=keys.beacon_ms / 1000,
        backlog_octets=keys.link_backlog,
        copy_rate=keys.copy_rate,
        until_readable=until_readable,
    )
    return NodeOptions(
        keys.node,
        data,
        Credentials(keys.name, 0, files.secret),
        nodes,
        timers,
        link,
        files.tls,
        min_in_sync=keys.min_in_sync,
        disk_stall_s=keys.disk_stall_ms / 1000,
        version=__version__,
        fingerprint=fingerprint,
        addresses=tuple(
            (kinds[address.is_tls], f"{address.host}:{listener.getsockname()[1]}")
            for kinds, sockets in (
                (("amqp", "amqps"), listeners.amqp),
                (("http", "https"), listeners.console),
                (("metrics", "metrics-tls"), listeners.metrics),
            )
            for listener, address in sockets.items()
            if not address.path
        ),
    )


async def log_waiting(waits_for: Callable[[], str]) -> None:
    """Log, until cancelled, what this node waits for while it serves no client: otherwise it would look healthy.

    `waits_for`: the reason why no client is served through this node; "": clients are served.
    """
    failed = 0
    while True:
        await trio.sleep(SERVED_CHECK_S)
        why = waits_for()
        failed = failed + 1 if why else 0
        if failed % CHECKS_A_LINE == CHECKS_TO_FIRST_LINE:
            logger.warning("no client is served through this node: %s", why)


def _host_and_port(address: object) -> tuple[str, int] | None:
    return (str(address[0]), int(address[1])) if isinstance(address, tuple) else None
