"""Views of users, permissions, virtual hosts and limits. Source: management page 4, 8."""

from collections.abc import Iterable, Iterator
from typing import Any

from ...engine import Broker, User, VirtualHost


def user_view(user: User) -> dict[str, Any]:
    """A user, with the hash of the password, for administrators."""
    return {
        "name": user.name,
        "password_hash": user.password.text(),
        "hashing_algorithm": user.password.algorithm,
        "tags": list(user.tags),
        "limits": user_limits(user),
    }


def user_limits(user: User) -> dict[str, int]:
    """The limits that are set for a user."""
    limits = {"max-connections": user.max_connections, "max-channels": user.max_channels}
    return {name: value for name, value in limits.items() if value is not None}


def vhost_limits(vhost: VirtualHost) -> dict[str, int]:
    """The limits that are set for a virtual host."""
    limits = {"max-connections": vhost.context.limits.max_connections, "max-queues": vhost.context.limits.max_queues}
    return {name: value for name, value in limits.items() if value is not None}


def permission_rows(user: User, broker: Broker) -> Iterator[dict[str, Any]]:
    """The permissions of a user, one row for each virtual host."""
    for vhost, grant in user.grants(broker.virtual_hosts).items():
        yield {
            "user": user.name,
            "vhost": vhost,
            "configure": grant.configure,
            "write": grant.write,
            "read": grant.read,
        }


def topic_rows(user: User) -> Iterator[dict[str, Any]]:
    """The topic permissions of a user, one row for each virtual host and exchange."""
    for vhost, exchange, topic in user.topics():
        yield {"user": user.name, "vhost": vhost, "exchange": exchange, "write": topic.write, "read": topic.read}


def vhost_view(vhost: VirtualHost, nodes: Iterable[str], about: dict[str, Any]) -> dict[str, Any]:
    """A virtual host, without rates. `nodes`: the running ones. `about`: its description and tags."""
    default = vhost.context.limits.default_queue_type
    metadata: dict[str, Any] = dict(about)
    if default is not None:
        metadata["default_queue_type"] = default
    return {
        "name": vhost.name,
        **about,
        "default_queue_type": "undefined" if default is None else default,
        "metadata": metadata,
        "tracing": vhost.context.firehose is not None,
        "cluster_state": dict.fromkeys(nodes, "running"),
    }
