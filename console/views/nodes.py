"""Views of a node, and its alarms. Fields that only make sense in Erlang are constants that tools expect.

Source: management page 4.
"""

import gc
from typing import Any

from ...engine import Broker
from ..cluster import NodeFacts
from ..node_facts import HostFacts
from ..options import ConsoleOptions
from .overview import contexts_view, exchange_types_view

#: The maximum of Erlang's processes. Tools divide by it.
PROCESSES_MAX = 1_048_576
#: The parts of the memory in RabbitMQ. All but two are 0.
_MEMORY = (
    "connection_readers", "connection_writers", "connection_channels", "connection_other", "queue_procs",
    "queue_slave_procs", "quorum_queue_procs", "quorum_queue_dlx_procs", "stream_queue_procs",
    "stream_queue_replica_reader_procs", "stream_queue_coordinator_procs", "plugins", "other_proc", "metrics",
    "mgmt_db", "mnesia", "quorum_ets",
    "metadata_store", "metadata_store_ets",  # since 4.0
    "other_ets", "binary", "msg_index", "code", "atom", "other_system", "allocated_unused", "reserved_unallocated",
)  # fmt: skip
#: The parts of binaries in RabbitMQ. All but one are 0.
_BINARY = (
    "connection_readers", "connection_writers", "connection_channels", "connection_other", "queue_procs",
    "queue_slave_procs", "quorum_queue_procs", "quorum_queue_dlx_procs", "stream_queue_procs",
    "stream_queue_replica_reader_procs", "stream_queue_coordinator_procs", "plugins", "mgmt_db", "msg_index", "other",
)  # fmt: skip
_MECHANISMS = {
    "AMQPLAIN": "QPid AMQPLAIN mechanism",
    "EXTERNAL": "SASL EXTERNAL authentication mechanism",
    "PLAIN": "SASL PLAIN authentication mechanism",
}


def is_memory_alarm(broker: Broker) -> bool:
    """Whether publishers are blocked for memory, or by an operator."""
    return broker.flow.alarm_reason is not None or any(node.limit_name == "memory" for node in broker.flow.full_nodes())


def alarms_of(broker: Broker) -> tuple[str, ...]:
    """The alarms of this node, as health checks name them."""
    alarms = (
        ("memory", is_memory_alarm(broker)),
        ("disk", broker.flow.disk.is_full),  # or it fails
        ("replication", broker.flow.replication.is_full),  # too few nodes are in sync
    )
    return tuple(resource for resource, is_on in alarms if is_on)


def memory_view(host: HostFacts, bodies: int) -> dict[str, Any]:
    """The memory by RabbitMQ's names. `bodies`: octets of the bodies of messages."""
    bodies = min(bodies, host.memory)
    parts = dict.fromkeys(_MEMORY, 0) | {"binary": bodies, "other_proc": host.memory - bodies}
    total = {"erlang": host.memory, "rss": host.memory, "allocated": host.memory}
    return {**parts, "strategy": "rss", "total": total}


def binary_view(bodies: int) -> dict[str, int]:
    """The memory for binaries by RabbitMQ's names."""
    return dict.fromkeys(_BINARY, 0) | {"queue_procs": bodies}


def own_facts(broker: Broker, options: ConsoleOptions) -> NodeFacts:
    """The facts about the answering node."""
    return NodeFacts(
        options.node,
        is_running=True,
        host=options.host_facts(),
        alarms=alarms_of(broker),
        listeners=tuple(options.listeners()),
        started_ms=options.started_ms,
        product_version=options.product_version,
        data=options.data or "",
        disk_reserve=options.disk_reserve,
        clients=len(broker.connections),
    )


def plain_node_view(node: NodeFacts) -> dict[str, Any]:
    """A node without statistics."""
    return {"name": node.name, "type": "disc", "running": node.host is not None}


def down_view(node: NodeFacts) -> dict[str, Any]:
    # `being_drained`: rabbitmqadmin 2 lists no nodes at all if one lacks it.
    return {"name": node.name, "type": "disc", "running": False, "being_drained": node.is_drained, "cluster_links": []}


def node_view(node: NodeFacts, host: HostFacts, options: ConsoleOptions, now_ms: int) -> dict[str, Any]:
    """A running node, without rates. `options`: of the answering node."""
    is_own = node.name == options.node
    return {
        "applications": [{"name": "leveret", "description": "Leveret", "version": node.product_version}],
        "auth_mechanisms": [
            {"name": name, "description": description, "enabled": name in options.mechanisms}
            for name, description in _MECHANISMS.items()
        ],
        "being_drained": node.is_drained,  # since 3.13
        "cluster_links": [],
        "config_files": list(options.config_files) if is_own else [],
        "context_switches": host.context_switches,
        "contexts": contexts_view(node.name, node.listeners, options),
        "db_dir": node.data,
        "disk_free": host.disk_free,
        "disk_free_alarm": "disk" in node.alarms,
        "disk_free_limit": node.disk_reserve,
        "enabled_plugins": ["rabbitmq_management"],
        "exchange_types": exchange_types_view(),
        "fd_total": host.descriptors_max,
        "fd_used": host.descriptors,
        "gc_bytes_reclaimed": 0,
        "gc_num": sum(one["collections"] for one in gc.get_stats()) if is_own else 0,
        "log_files": [],
        "mem_alarm": "memory" in node.alarms,
        "mem_calculation_strategy": "rss",
        "mem_limit": host.memory_max,
        "mem_used": host.memory,
        "metrics_gc_queue_length": {},
        "name": node.name,
        "net_ticktime": 60,
        "os_pid": str(host.process_id),
        "partitions": [],
        "proc_total": PROCESSES_MAX,
        "proc_used": host.tasks,
        "processors": host.processors,
        "ra_open_file_metrics": {},
        "rates_mode": "basic",
        "run_queue": host.tasks_ready,
        "running": True,
        "sockets_total": host.descriptors_max,
        "sockets_used": node.clients + len(node.listeners),
        "type": "disc",
        "uptime": now_ms - node.started_ms,
    }
