"""Values for tests about blocked connections, whose publishes wait for room."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..settings.printable import printable
from .nearest_names import nearest_names

if TYPE_CHECKING:
    from .runtime import WatchedRuntime


@nearest_names
@dataclass(slots=True, frozen=True)
class BlockedSnapshot:
    """A blocked connection. `connection`: the name that its client gave it, or its remote address.

    `destination`: the full object, such as "queue 'orders' in vhost '/'", or "broker". `limit`: see the engine's
    `Usage.limit_name`; of an alarm: alarm, disk or replication. `since`: start of the wait, in seconds of the broker's
    clock since its start. `messages`: number of blocked publishes of this connection, to all destinations.
    """

    connection: str
    destination: str
    limit: str
    since: float
    messages: int

    def __str__(self) -> str:
        what = f"{self.messages} publish{'' if self.messages == 1 else 'es'}"
        return f"{what} of {printable(self.connection)} held for {self.destination}: {self.limit} limit"

    def is_like(self, destination: str, connection: str, limit: str | None) -> bool:
        """Whether the names contain these parts, and the limit is this one; None: any limit."""
        return (
            destination in self.destination and connection in self.connection and (limit is None or limit == self.limit)
        )


def blocked_of(runtime: "WatchedRuntime", vhost: str) -> tuple[BlockedSnapshot, ...]:
    """The blocked connections of a virtual host, the longest wait first. Call it in the broker's loop."""
    endpoints = {endpoint.client: endpoint for endpoint in runtime.endpoints_of(vhost)}
    return tuple(
        BlockedSnapshot(
            endpoints[blocked.client].name,
            blocked.destination,
            blocked.limit,
            blocked.since_ns / 1e9,
            endpoints[blocked.client].session.backlog.parking.contents.publishes,
        )
        for blocked in runtime.broker.flow.blocked()
        if blocked.client in endpoints
    )


def blocked_failure(found: Sequence[BlockedSnapshot], wanted: str, runtime: "WatchedRuntime") -> str:
    """The text of a failure of `assert_blocked`: the blocked connections, and the use of all limits."""
    lines = [f"expected {wanted}, but:", "held:" if found else "nothing is held"]
    lines += [f"  {one}" for one in found]
    nodes = runtime.broker.flow.nodes()
    lines.append("limits:" if nodes else "there is no limit")
    for node in nodes:
        unit = "messages" if node.in_messages else "octets"
        state = ", full" if node.is_full else ""
        lines.append(f"  {node.destination}: {node.limit_name}: {node.used} of {node.limit} {unit}{state}")
    return "\n".join(lines)
