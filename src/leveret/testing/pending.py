"""Texts about the unfinished work of a virtual host, and about objects that a test left in it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..engine import Consumer, Message, holder_of
from ..settings.printable import printable
from .blocked import blocked_of
from .snapshots import message_of

if TYPE_CHECKING:
    from .runtime import WatchedRuntime


def pending_of(runtime: "WatchedRuntime", vhost: str, is_ignored: Callable[[str], bool], due: bool) -> list[str]:
    """Lines about messages that are ready, unacknowledged, in flight or due; []: the virtual host is settled."""
    found: list[str] = []
    host = runtime.broker.virtual_hosts.get(vhost)
    now_ns = runtime.clock.monotonic_ns()
    for queue in host.queues.values() if host is not None else ():
        if is_ignored(queue.name):
            continue
        consumers = len(queue.consumers)
        if queue.ready_count:
            found.append(f"queue {queue.name!r}: {queue.ready_count} ready, {consumers} consumers")
        if queue.unacked:
            held = [message for message in queue.unacked_messages() if message.holder is not None]
            holders = sorted({holder_of(message).session.client.name for message in held})
            found.append(f"queue {queue.name!r}: {queue.unacked} unacked, held by {printable(', '.join(holders))}")
        if due and queue.scheduled:
            next_ns = queue.scheduled.next_ns() or now_ns
            wait_s = max(0, next_ns - now_ns) / 1e9
            found.append(f"queue {queue.name!r}: {len(queue.scheduled)} scheduled, the next is due in {wait_s:g} s")
    found += map(str, blocked_of(runtime, vhost))
    for endpoint in runtime.endpoints_of(vhost):
        if endpoint.is_sending:
            found.append(f"connection {endpoint.name!r}: octets wait because it does not read")
    return found


#: Maximum unacknowledged messages that are listed.
UNACKED_MAX = 10


def leaks_of(runtime: "WatchedRuntime", vhost: str, *, queues: bool) -> list[str]:
    """A line for each connection, consumer and unacknowledged message that a test left in its virtual host.

    `queues`: also for each queue, with the number of its messages.
    """
    found: list[str] = []
    held: list[str] = []
    for endpoint in runtime.endpoints_of(vhost):
        client = endpoint.client
        assert client is not None
        consumers = [consumer for session in client.sessions for consumer in session.consumers.values()]
        unacked = [message for session in client.sessions for message in session.unacked.values()]
        name = repr(endpoint.name)
        counts = {"channel": client.sessions, "consumer": consumers, "unacked message": unacked}
        has = ", ".join(_count(len(them), what) for what, them in counts.items())
        found.append(f"connection {name} is open ({has})")
        found += [f"  consumer {one.tag!r} of queue {one.queue.name!r} on connection {name}" for one in consumers]
        held += [_unacked(message, name) for message in unacked]
    found += held[:UNACKED_MAX]
    if len(held) > UNACKED_MAX:
        found.append(f"... and {len(held) - UNACKED_MAX} more unacked messages")
    host = runtime.broker.virtual_hosts.get(vhost)
    for queue in host.queues.values() if host is not None and queues else ():
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


def _unacked(message: Message, connection: str) -> str:
    holder = holder_of(message)
    to = f"consumer {holder.tag!r}" if isinstance(holder, Consumer) else "a get"
    snapshot = message_of(message)
    again = f", delivered {snapshot.deliveries} times" if snapshot.deliveries > 1 else ""
    what = f"exchange {snapshot.exchange!r}, routing key {snapshot.routing_key!r}: {snapshot}"
    return f"unacked, delivered to {to} of connection {connection}{again}: {what}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
