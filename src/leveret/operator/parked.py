"""Blocked publishers in answers of commands: their limits, their waits, and their parked publishes."""

from collections.abc import Iterator
from typing import Any

from ..engine import MS, Broker, Client


def blocked_by(broker: Broker) -> Iterator[tuple[Client, dict[str, Any]]]:
    """The clients that wait for room, each with the limit and the duration; the longest wait first."""
    now_ns = broker.context.clock.monotonic_ns()
    for blocked in broker.flow.blocked():
        assert isinstance(blocked.client, Client)
        waiting_ms = (now_ns - blocked.since_ns) // MS
        yield blocked.client, {"destination": blocked.destination, "limit": blocked.limit, "waiting_ms": waiting_ms}


def parked_of(client: Client) -> dict[str, Any]:
    """The amount of a client's parked publishes, in memory and in the temp store; {}: none.

    `unread`: the client is not read, because too much is parked.
    """
    parked = client.parked
    if parked is None or not (parked.publishes or parked.octets):
        return {}
    return {
        "publishes": parked.publishes,
        "bytes": parked.octets,
        "spooled_bytes": parked.spooled,
        "unread": parked.is_reading_paused,
    }


def parked_of_all(broker: Broker) -> dict[str, Any]:
    """The amount of all clients' parked publishes, and its maximum octets in memory; 0: no limit."""
    rows = [row for row in map(parked_of, broker.connections) if row]
    return {
        "connections": len(rows),
        "publishes": sum(row["publishes"] for row in rows),
        "bytes": broker.flow.parked.octets,
        "bytes_max": broker.flow.parked.limit,
        "spooled_bytes": sum(row["spooled_bytes"] for row in rows),
        "unread": sum(row["unread"] for row in rows),
    }
