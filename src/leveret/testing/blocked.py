"""Who waits for room: connections whose publishes are held, as a test sees them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..settings.printable import printable
from .nearest_names import nearest_names

if TYPE_CHECKING:
    from .edge import Edge


@nearest_names
@dataclass(slots=True, frozen=True)
class BlockedSnapshot:
    """A connection that waits. `connection`: the name that its client gave it, or where it comes from.

    `destination`: what is full, such as "queue 'orders' in vhost '/'", or "broker". `limit`: which limit of it: memory,
    store, temp, max-size-bytes, max-size-messages. `since`: seconds of the broker's clock since its start. `messages`:
    publishes of this connection that are held, wherever to.
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
        """Whether it is the one that a test means: parts of names, and the limit."""
        return (
            destination in self.destination and connection in self.connection and (limit is None or limit == self.limit)
        )


def blocked_of(edge: "Edge", vhost: str) -> tuple[BlockedSnapshot, ...]:
    """Those of a virtual host, the longest first; in the broker's loop."""
    endpoints = {endpoint.client: endpoint for endpoint in edge.endpoints_of(vhost)}
    return tuple(
        BlockedSnapshot(
            endpoints[blocked.client].name,
            blocked.destination,
            blocked.limit,
            blocked.since_ns / 1e9,
            endpoints[blocked.client].session.backlog.parking.contents.publishes,
        )
        for blocked in edge.broker.flow.blocked()
        if blocked.client in endpoints
    )


def blocked_failure(found: Sequence[BlockedSnapshot], wanted: str, edge: "Edge") -> str:
    """Why `assert_blocked` fails: who waits, and how full everything is that has a limit."""
    lines = [f"expected {wanted}, but it is otherwise", "held:" if found else "nothing is held"]
    lines += [f"  {one}" for one in found]
    nodes = edge.broker.flow.nodes()
    lines.append("limits:" if nodes else "there is no limit")
    for node in nodes:
        unit = "messages" if node.in_messages else "octets"
        state = ", full" if node.is_full else ""
        lines.append(f"  {node.destination}: {node.limit_name}: {node.used} of {node.limit} {unit}{state}")
    return "\n".join(lines)
