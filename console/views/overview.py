"""Views of the broker as a whole: totals, listeners, exchange types. Source: management page 4."""

from collections.abc import Sequence
from typing import Any

from ...engine import EXCHANGE_TYPES, Broker, Client, User
from ..counters import consumers_of
from ..node_facts import Listening
from ..options import ConsoleOptions
from ..permissions import is_monitor, may_list
from ..steps import Steps

_DESCRIPTIONS = {
    "direct": "AMQP direct exchange, as per the AMQP specification",
    "fanout": "AMQP fanout exchange, as per the AMQP specification",
    "topic": "AMQP topic exchange, as per the AMQP specification",
    "headers": "AMQP headers exchange, as per the AMQP specification",
}
#: By kind of object, the seconds for which samples are kept. RabbitMQ's page offers them as ranges.
RETENTION = {"global": [600, 3600, 28800, 86400], "basic": [600, 3600], "detailed": [600]}


def exchange_types_view() -> list[dict[str, Any]]:
    """The types of exchanges that clients can declare."""
    return [
        {"name": name, "description": _DESCRIPTIONS.get(name, ""), "enabled": True} for name in sorted(EXCHANGE_TYPES)
    ]


def listeners_view(options: ConsoleOptions) -> list[dict[str, Any]]:
    """All listeners of all nodes."""
    return [
        {
            "node": node,
            "protocol": one.protocol,
            "ip_address": one.ip_address,
            "port": one.port,
            "socket_opts": {"backlog": 1024, "nodelay": True},
        }
        for node, listeners in _listeners(options)
        for one in listeners
    ]


def _listeners(options: ConsoleOptions) -> list[tuple[str, Sequence[Listening]]]:
    """The names of the running nodes, and their listeners."""
    cluster = options.cluster()
    if cluster is None:
        return [(options.node, options.listeners())]
    return [(node.name, node.listeners) for node in cluster.nodes if node.is_running]


def contexts_view(node: str, listeners: Sequence[Listening], options: ConsoleOptions) -> list[dict[str, Any]]:
    """The HTTP listeners of a node."""
    return [_context(node, one, options) for one in listeners if one.protocol.startswith("http")]


def _context(node: str, one: Listening, options: ConsoleOptions) -> dict[str, Any]:
    is_metrics = one.protocol.endswith("prometheus")
    return {
        "ssl_opts": _tls_view(one, options) if node == options.node else [],
        "node": node,
        "description": "RabbitMQ Prometheus" if is_metrics else "RabbitMQ Management",
        "path": "/",
        "cowboy_opts": "[]",
        "ip": one.ip_address,
        "port": str(one.port),
        **({"protocol": f"'{one.protocol}'"} if is_metrics else {}),
    }


def _tls_view(one: Listening, options: ConsoleOptions) -> Any:
    """The files of the first certificate, for a TLS listener of the answering node; []: none, as in RabbitMQ."""
    certificates = options.certificates() if one.is_tls else ()
    if not certificates:
        return []
    first = certificates[0]
    authority = {"cacertfile": first.authority} if first.authority else {}
    return {"certfile": first.file, **authority}


def clients_of(broker: Broker, user: User) -> list[Client]:
    """The connections that a user may see: all for a monitor, else the user's own."""
    if is_monitor(user):
        return list(broker.connections)
    return [client for client in broker.connections if client.user.name == user.name]


def totals_of(broker: Broker, user: User, *, has_consumers: bool) -> Steps:
    """The steps to the numbers of objects that a user may see, by kind. `has_consumers`: count consumers, too;
    otherwise their number is 0.
    """
    clients = clients_of(broker, user)
    vhosts = [vhost for vhost in broker.virtual_hosts.values() if may_list(user, vhost.name)]
    queues = [queue for vhost in vhosts for queue in vhost.queues.values()] if has_consumers else []
    return {
        "channels": sum(len(client.sessions) for client in clients),
        "connections": len(clients),
        "consumers": (yield from consumers_of(queues)),
        "exchanges": sum(len(vhost.exchanges) for vhost in vhosts),
        "queues": sum(len(vhost.queues) for vhost in vhosts),
    }


def overview_view(
    totals: dict[str, int], options: ConsoleOptions, user: User, cluster_name: str, node: str, *, has_statistics: bool
) -> dict[str, Any]:
    """The overview, without rates. Only monitors see the node, the listeners and the number of consumers.

    `totals`: from `totals_of`. `node`: the one to which the client is connected.
    """
    view: dict[str, Any] = {
        "management_version": options.version,
        "rates_mode": "basic",
        "sample_retention_policies": RETENTION,
        "exchange_types": exchange_types_view(),
        "product_version": options.product_version,
        "product_name": "Leveret",
        "rabbitmq_version": options.version,
        "cluster_name": cluster_name,
        "erlang_version": "25.2.3",
        "erlang_full_version": options.python_version,
        "release_series_support_status": "supported",
        "disable_stats": not has_statistics,
    }
    if is_monitor(user):
        view["node"] = node
    if not has_statistics:
        return {**view, "object_totals": {key: totals[key] for key in ("queues", "exchanges", "connections")}}
    shown = totals if is_monitor(user) else {key: count for key, count in totals.items() if key != "consumers"}
    view |= {"object_totals": shown, "statistics_db_event_queue": 0}
    if is_monitor(user):
        contexts = [one for node, listeners in _listeners(options) for one in contexts_view(node, listeners, options)]
        view |= {"listeners": listeners_view(options), "contexts": contexts}
    return view
