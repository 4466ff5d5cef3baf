"""What is still to be done in a virtual host, and what a test left behind, in words."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..engine import holder_of
from ..settings.printable import printable
from .blocked import blocked_of

if TYPE_CHECKING:
    from .edge import Edge


def pending_of(edge: "Edge", vhost: str, is_ignored: Callable[[str], bool], due: bool) -> list[str]:
    """Everything ready, unacked, in flight or due; none: the virtual host is settled."""
    found: list[str] = []
    there = edge.broker.virtual_hosts.get(vhost)
    now_ns = edge.clock.monotonic_ns()
    for queue in there.queues.values() if there is not None else ():
        if is_ignored(queue.name):
            continue
        consumers = len(queue.consumers)
        if queue.ready_count:
            found.append(f"queue {queue.name!r}: {queue.ready_count} ready, {consumers} consumers")
        if queue.unacked:
            holders = sorted(
                {
                    f"{holder_of(message).session.client.name}"
                    for message in queue.unacked_messages()
                    if message.holder is not None
                }
            )
            found.append(f"queue {queue.name!r}: {queue.unacked} unacked, held by {printable(', '.join(holders))}")
        if due and queue.scheduled:
            next_ns = queue.scheduled.next_ns() or now_ns
            wait_s = max(0, next_ns - now_ns) / 1e9
            found.append(f"queue {queue.name!r}: {len(queue.scheduled)} scheduled, the next is due in {wait_s:g} s")
    found += map(str, blocked_of(edge, vhost))
    for endpoint in edge.endpoints_of(vhost):
        if endpoint.is_sending:
            found.append(f"connection {endpoint.name!r}: octets wait because it does not read")
    return found


def leaks_of(edge: "Edge", vhost: str) -> list[str]:
    """What a test left behind in its virtual host: connections, consumers, unacked messages, queues."""
    found: list[str] = []
    for endpoint in edge.endpoints_of(vhost):
        client = endpoint.client
        assert client is not None
        consumers = sum(len(session.consumers) for session in client.sessions)
        unacked = sum(len(session.unacked) for session in client.sessions)
        channels = len(client.sessions)
        found.append(
            f"connection {endpoint.name!r} is open ({channels} channels, {consumers} consumers, {unacked} unacked)"
        )
    there = edge.broker.virtual_hosts.get(vhost)
    for queue in there.queues.values() if there is not None else ():
        states = [
            f"{count} {what}"
            for count, what in (
                (queue.ready_count, "ready"),
                (queue.unacked, "unacked"),
                (len(queue.scheduled), "scheduled"),
                (len(queue.consumers), "consumers"),
            )
            if count
        ]
        found.append(f"queue {queue.name!r} was left behind ({', '.join(states) or 'empty'})")
    return found
