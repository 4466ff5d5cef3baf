"""The metrics of a node that does not lead, for Prometheus: its identity and process, and how it follows.

Queues, clients and messages are the leader's, so that sums over all nodes are right.
"""

from collections.abc import Callable

from .. import __version__
from ..console.metrics import families as f
from ..console.metrics.aggregated import PREFIX, identity_of, table, versions_of
from ..console.metrics.cluster import cluster_page
from ..console.metrics.process import build_info, process_table
from ..settings import Configuration
from .metrics_facts import process_figures
from .node_report import NodeReport
from .process_facts import PYTHON

#: Path -> RabbitMQ's name of the endpoint, by which dashboards select.
ENDPOINTS = {"/metrics": "aggregated", "/metrics/per-object": "per-object", "/metrics/detailed": "detailed"}


def node_metrics(report: NodeReport, configuration: Callable[[], Configuration], path: str) -> str:
    """The page at one of `ENDPOINTS`."""
    facts, now = report.facts(), process_figures(report.data, report.reserve)
    own = facts.by_name[facts.own]
    versions = versions_of(configuration().profile.version, __version__, PYTHON)
    sockets, uptime_s = own.clients + len(own.listeners), (report.now_ms() - own.started_ms) / 1000
    is_short = 0 < now.descriptors_max <= now.descriptors
    return "".join(
        [
            identity_of(facts.own, report.cluster_name, facts.name, versions, ENDPOINTS[path], PREFIX),
            table(PREFIX, f.ALARMS, (is_short, "disk" in own.alarms, "memory" in own.alarms)),
            table(PREFIX, f.NODE, now.node_values(sockets, uptime_s)),
            build_info(__version__),
            process_table(now, own.started_ms),
            cluster_page(facts),
        ]
    )
