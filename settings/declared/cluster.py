"""The nodes of a cluster, and the checks of [cluster]: of its keys with each other, and with other tables."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..frozen import frozen
from ..loopback import is_loopback
from ..rows.cluster import ClusterKeys, host_port_of
from ..values import shown

if TYPE_CHECKING:
    from .configuration import Configuration


#: (table, key, text of the fault or warning).
Problem = tuple[str, str, str]


@frozen
class ClusterNode:
    """One of `nodes`: its name, and where the others reach it."""

    name: str
    host: str
    port: int


def shown_node(name: str) -> str:
    """The name of a node as RabbitMQ's clients and tools read it."""
    return name if "@" in name else f"rabbit@{name}"


def node_of(configuration: "Configuration") -> str:
    """The name of this node for clients and tools."""
    own = configuration.cluster.node if configuration.is_clustered else None
    return str(configuration.management.node) if own is None else shown_node(own)


def cluster_name_of(configuration: "Configuration") -> str:
    """The name of the cluster, or of a single broker, until an operator sets another one."""
    if configuration.is_clustered and ("broker", "cluster-name") not in configuration.explicit:
        return str(configuration.cluster.name)
    return str(configuration.broker.cluster_name)


def nodes_of(keys: ClusterKeys) -> tuple[ClusterNode, ...]:
    """All nodes, in the order of the list."""
    return tuple(ClusterNode(name, *_host_port(text)) for name, _, text in (one.partition("=") for one in keys.nodes))


def own_host_port(keys: ClusterKeys) -> tuple[str, int]:
    """Host and port where this node listens for the others. Only for keys without faults."""
    if keys.listen is not None:
        return _host_port(keys.listen)
    return next((node.host, node.port) for node in nodes_of(keys) if node.name == keys.node)


def cluster_problems(configuration: "Configuration") -> Iterator[Problem]:
    """The faults of [cluster], for a configuration that has this table."""
    keys, nodes = configuration.cluster, nodes_of(configuration.cluster)
    names, host_ports = [node.name for node in nodes], [(node.host, node.port) for node in nodes]
    if not nodes:
        yield "cluster", "nodes", 'is missing, expected all nodes: ["a=HOST:PORT", "b=HOST:PORT", "c=HOST:PORT"]'
    elif keys.node is None:
        yield "cluster", "node", f"is missing, expected one of {', '.join(names)}"
    elif keys.node not in names:
        yield "cluster", "node", f"{shown(keys.node)} is not among nodes: {', '.join(names)}"
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield "cluster", "nodes", f"two nodes are called {shown(name)}"
    shown_names = [shown_node(name) for name in dict.fromkeys(names)]
    for name in dict.fromkeys(name for name in shown_names if shown_names.count(name) > 1):
        yield "cluster", "nodes", f"two nodes are {shown(name)} for tools"
    for host, port in dict.fromkeys(one for one in host_ports if host_ports.count(one) > 1):
        yield "cluster", "nodes", f"two nodes have the address {host}:{port}"
    for host in dict.fromkeys(node.host for node in nodes if node.host in ("0.0.0.0", "::")):
        yield "cluster", "nodes", f"other nodes cannot connect to {host}: it is for listen alone"
    if nodes and keys.min_in_sync > len(nodes):
        yield "cluster", "min-in-sync", f"{keys.min_in_sync} nodes cannot be in sync, there are {len(nodes)}"
    if not keys.etcd:
        yield "cluster", "etcd", "is missing, expected the URLs of its members (`leveret cluster etcd` sets one up)"
    if keys.etcd_user is not None and keys.etcd_password_file is None:
        yield "cluster", "etcd-password-file", "is missing, etcd-user needs it"
    yield from _unprotected(configuration)
    yield from _not_on_disk(configuration)


def _unprotected(configuration: "Configuration") -> Iterator[Problem]:
    """Links that are neither secret nor limited to this machine, so that anybody could join."""
    keys, tls = configuration.cluster, configuration.cluster_tls
    given = {key: getattr(tls, key) for key in ("ca", "certificate", "key")}
    if any(given.values()):
        for key in ("ca", "certificate"):
            if given[key] is None:
                yield "cluster.tls", key, "is missing, nodes show each other their certificates"
    elif keys.secret_file is None:
        texts = [one.partition("=")[2] for one in keys.nodes] + [one for one in (keys.listen, keys.advertise) if one]
        outside = next((text for text in texts if not is_loopback(_host_port(text)[0])), None)
        if outside is not None:
            what = f"{outside} is outside loopback, where anybody could join"
            yield "cluster", "secret-file", f"is missing: {what}: expected a secret-file, or [cluster.tls]"
    if configuration.etcd_tls.key is not None and configuration.etcd_tls.certificate is None:
        yield "cluster.etcd-tls", "certificate", "is missing, key belongs to it"


def _not_on_disk(configuration: "Configuration") -> Iterator[Problem]:
    """A node that does not write to disk before it confirms: after a crash it could lead without confirmed messages."""
    fsync = configuration.journal.fsync
    if fsync != "commit":
        problem = f'is {shown(fsync)}, a node of a cluster needs "commit": confirmed messages must be on disk'
        yield "journal", "fsync", problem
    if not configuration.broker.data:
        yield "broker", "data", "is empty, a node of a cluster needs a data directory"


def cluster_warnings(configuration: "Configuration") -> Iterator[Problem]:
    """Warnings: settings of [cluster] that are valid but probably a mistake."""
    keys, count = configuration.cluster, len(configuration.cluster.nodes)
    if keys.min_in_sync == 1:
        yield "cluster", "min-in-sync", "with 1, a confirmed message may be on one disk alone, and is lost with it"
    elif count == keys.min_in_sync:
        what = f"with {count} nodes, publishers are blocked while one of them is away"
        yield "cluster", "min-in-sync", f"{what}: expected more nodes than min-in-sync"
    if keys.suspend_after_ms >= keys.lease_ms:
        yield "cluster", "suspend-after", "is not below lease: a lost leader could still deliver when another leads"
    if ("management", "node") in configuration.explicit:
        yield "management", "node", "does nothing on a node of a cluster, whose name is that in [cluster]"
    if len(keys.etcd) == 2:
        yield "cluster", "etcd", "2 members of etcd stop when one stops: expected 3"


def _host_port(text: str) -> tuple[str, int]:
    found = host_port_of(text)
    assert found is not None, "the reader of the key has checked it"
    return found
