"""The node. Fields that only Erlang has contain the constants that tools expect. Source: management page 4."""

import gc
from typing import Any

from ...engine import Broker
from ..options import ConsoleOptions, HostFacts
from .overview import contexts_view, exchange_types_view

#: Maximum Erlang processes; tools divide by it.
PROCESSES_MAX = 1_048_576
#: The names of the parts of memory; unknown ones are 0.
_MEMORY = (
    "connection_readers",
    "connection_writers",
    "connection_channels",
    "connection_other",
    "queue_procs",
    "queue_slave_procs",
    "quorum_queue_procs",
    "quorum_queue_dlx_procs",
    "stream_queue_procs",
    "stream_queue_replica_reader_procs",
    "stream_queue_coordinator_procs",
    "plugins",
    "other_proc",
    "metrics",
    "mgmt_db",
    "mnesia",
    "quorum_ets",
    "metadata_store",  # these two since 4.0
    "metadata_store_ets",
    "other_ets",
    "binary",
    "msg_index",
    "code",
    "atom",
    "other_system",
    "allocated_unused",
    "reserved_unallocated",
)
_MECHANISMS = {
    "AMQPLAIN": "QPid AMQPLAIN mechanism",
    "EXTERNAL": "SASL EXTERNAL authentication mechanism",
    "PLAIN": "SASL PLAIN authentication mechanism",
}
_BINARY = (
    "connection_readers",
    "connection_writers",
    "connection_channels",
    "connection_other",
    "queue_procs",
    "queue_slave_procs",
    "quorum_queue_procs",
    "quorum_queue_dlx_procs",
    "stream_queue_procs",
    "stream_queue_replica_reader_procs",
    "stream_queue_coordinator_procs",
    "plugins",
    "mgmt_db",
    "msg_index",
    "other",
)


def is_memory_alarm(broker: Broker) -> bool:
    """Whether the memory alarm is on, or an operator blocks publishers."""
    return broker.flow.alarm_reason is not None or any(
        node.is_full and node.limit_name == "memory" for node in broker.flow.nodes()
    )


def is_disk_alarm(broker: Broker) -> bool:
    """Whether publishers are blocked because the disk is full or fails."""
    return broker.flow.disk.is_full


def is_replication_alarm(broker: Broker) -> bool:
    """Whether publishers are blocked because too few nodes of the cluster have the journal."""
    return broker.flow.replication.is_full


def memory_view(machine: HostFacts, broker: Broker) -> dict[str, Any]:
    """Octets by RabbitMQ's names: bodies of messages, and the rest of the process."""
    bodies = min(broker.context.storage.memory.total, machine.memory)
    parts = dict.fromkeys(_MEMORY, 0) | {"binary": bodies, "other_proc": machine.memory - bodies}
    total = {"erlang": machine.memory, "rss": machine.memory, "allocated": machine.memory}
    return {**parts, "strategy": "rss", "total": total}


def binary_view(broker: Broker) -> dict[str, int]:
    """Octets of bodies."""
    return dict.fromkeys(_BINARY, 0) | {"queue_procs": broker.context.storage.memory.total}


def node_view(broker: Broker, options: ConsoleOptions) -> dict[str, Any]:
    """The node, without the sampler's values."""
    machine = options.machine()
    garbage = gc.get_stats()
    return {
        "applications": [{"name": "leveret", "description": "Leveret", "version": options.product_version}],
        "auth_mechanisms": [
            {"name": name, "description": description, "enabled": name in options.mechanisms}
            for name, description in _MECHANISMS.items()
        ],
        "being_drained": False,  # since 3.13; rabbitmqadmin 2 requires it
        "cluster_links": [],
        "config_files": list(options.config_files),
        "context_switches": machine.context_switches,
        "contexts": contexts_view(options),
        "db_dir": options.data or "",
        "disk_free": machine.disk_free,
        "disk_free_alarm": is_disk_alarm(broker),
        "disk_free_limit": options.disk_reserve,
        "enabled_plugins": ["rabbitmq_management"],
        "exchange_types": exchange_types_view(),
        "fd_total": machine.descriptors_max,
        "fd_used": machine.descriptors,
        "gc_bytes_reclaimed": 0,
        "gc_num": sum(one["collections"] for one in garbage),
        "log_files": list(options.log_files),
        "mem_alarm": is_memory_alarm(broker),
        "mem_calculation_strategy": "rss",
        "mem_limit": machine.memory_max,
        "mem_used": machine.memory,
        "metrics_gc_queue_length": {},
        "name": options.node,
        "net_ticktime": 60,
        "os_pid": str(machine.process_id),
        "partitions": [],
        "proc_total": PROCESSES_MAX,
        "proc_used": machine.tasks,
        "processors": machine.processors,
        "ra_open_file_metrics": {},
        "rates_mode": "basic",
        "run_queue": machine.tasks_ready,
        "running": True,
        "sockets_total": machine.descriptors_max,
        "sockets_used": len(broker.connections) + len(options.listeners()),
        "type": "disc",
        "uptime": broker.context.clock.wall_ms() - options.started_ms,
    }
