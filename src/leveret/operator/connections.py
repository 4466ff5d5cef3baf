"""Commands about connections, channels and consumers; closing a connection; alarm and firehose.

Source: ruling 24; behaviour page 1.6. Every list costs O(rows), but finding the oldest deliveries of consumers costs
O(unacknowledged deliveries of their channels).
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from ..console.dispatcher import Http, Level
from ..engine import MS, Client, ConnectionForced, Consumer, Holder, Session, holder_of
from ..settings.faults import nearest
from .command import command
from .command_error import CommandError
from .kinds import Name, OnlyUser, OnlyVhost, QueueName, VhostName
from .messages import shown_message
from .operator import Operator
from .parked import blocked_by, parked_of
from .steps import Steps

#: Maximum unacknowledged messages of a channel, and (exchange, key) pairs of a publisher, in an answer.
UNACKED_MAX, PAIRS_MAX = 100, 20
#: The reason that a client is told by default: the text of RabbitMQ's management plugin.
CLOSED_BY_HAND = "Closed via management plugin"
#: The default reason for blocked clients: the text of RabbitMQ's memory alarm.
ALARM_BY_HAND = "low on memory"


@command("connections", reads=True)
def connections(
    operator: Operator, *, vhost: OnlyVhost | None = None, user: OnlyUser | None = None
) -> list[dict[str, Any]]:
    """List the connections: clients, since when, and in which state."""
    waits: dict[Client, list[dict[str, Any]]] = {}
    for client, why in blocked_by(operator.broker):
        waits.setdefault(client, []).append(why)
    return [
        {
            "name": client.name,
            "connection_name": client.given_name,
            "user": client.user.name,
            "vhost": client.vhost.name,
            "peer": client.name.partition(" -> ")[0],
            "product": _client_text(client, "product"),
            "version": _client_text(client, "version"),
            "state": _state(operator, client),
            "channels": len(client.sessions),
            "since_ms": client.since_ms,
            "blocked_by": waits.get(client, []),
            "held": parked_of(client),
        }
        for client in _clients(operator, vhost, user)
    ]


@command("channels", reads=True)
def channels(operator: Operator, *, vhost: OnlyVhost | None = None) -> list[dict[str, Any]]:
    """List all channels: unacknowledged deliveries, prefetch, mode."""
    return [
        {
            "connection_name": client.given_name,
            "connection": client.name,
            "number": session.number,
            "user": client.user.name,
            "vhost": client.vhost.name,
            "confirm": session.confirms is not None,
            "transactional": session.transaction is not None,
            "flowing": session.flowing,
            "prefetch": session.prefetch,
            "prefetch_total": session.prefetch_total,
            "consumers": len(session.consumers),
            "unacked": len(session.unacked),
            **_oldest_since(operator, session, next(iter(session.unacked), None)),
        }
        for client in _clients(operator, vhost)
        for session in client.sessions
    ]


@command("consumers", reads=True)
def consumers(operator: Operator, *, vhost: OnlyVhost | None = None, queue: Name | None = None) -> list[dict[str, Any]]:
    """List all subscriptions: unacknowledged deliveries, and the age of the oldest.

    queue: only of this queue
    """
    rows = [
        row
        for client in _clients(operator, vhost)
        for session in client.sessions
        for row in _consumer_rows(operator, session, queue)
    ]
    if queue is not None and not rows:
        names = {name for host in operator.vhosts(vhost) for name in host.queues}
        if queue not in names:
            raise CommandError(f"no queue {queue!r}{nearest(queue, names)}")
    return rows


def _consumer_rows(operator: Operator, session: Session, queue: str | None) -> Iterator[dict[str, Any]]:
    client = session.client
    found = [one for one in session.consumers.values() if queue in (None, one.queue.name)]
    oldest = _oldest_of(session, found)
    for consumer in found:
        yield {
            "vhost": client.vhost.name,
            "queue": consumer.queue.name,
            "tag": consumer.tag,
            "connection_name": client.given_name,
            "connection": client.name,
            "channel": session.number,
            "ack": not consumer.no_ack,
            "exclusive": consumer.exclusive,
            "prefetch": consumer.prefetch,
            "priority": consumer.priority,
            "filter": "" if consumer.filter is None else consumer.filter.text,
            "unacked": consumer.unacked,
            **_oldest_since(operator, session, oldest.get(consumer)),
        }


@command("connection", http=Http("GET", "leveret/connections/NAME", Level.MONITORING), reads=True)
def connection(operator: Operator, name: Name) -> dict[str, Any]:
    """Show what a connection waits for, its consumers, and the first messages that it has not acknowledged.

    name: of the connection, or the one that its client gave it
    """
    client = clients_called(operator, name)[0]
    return {
        "name": client.name,
        "connection_name": client.given_name,
        "blocked_by": [why for one, why in blocked_by(operator.broker) if one is client],
        "held": parked_of(client),
        "consumers": [row for session in client.sessions for row in _consumer_rows(operator, session, None)],
        "unacked": sum(len(session.unacked) for session in client.sessions),
        "messages": [row for session in client.sessions for row in _unacked_rows(session)],
    }


def _unacked_rows(session: Session) -> Iterator[dict[str, Any]]:
    for tag, message in islice(session.unacked.items(), UNACKED_MAX):
        holder = holder_of(message)
        if holder.is_past:
            continue
        row = shown_message(message.id, message, 0)
        properties = row["properties"]
        yield {
            "vhost": holder.queue.vhost_name,
            "queue": holder.queue.name,
            "consumer": holder.tag if isinstance(holder, Consumer) else None,
            "channel": session.number,
            "delivery_tag": tag,
            "id": message.id,
            "message_id": properties.get("message_id"),
            "correlation_id": properties.get("correlation_id"),
            "routing_key": row["routing_key"],
            "payload_bytes": row["payload_bytes"],
        }


@command("publishers", http=Http("GET", "leveret/queues/V/Q/publishers", Level.MONITORING), reads=True)
def publishers(operator: Operator, queue: QueueName, *, vhost: VhostName = "/") -> Steps:
    """List the connections that publish to a queue, as far as their last publishes tell, the busiest first."""
    found = operator.queue(vhost, queue)
    rows: list[dict[str, Any]] = []
    for client in list(operator.broker.connections):
        if client.vhost is not operator.broker.virtual_hosts.get(vhost):
            continue
        pairs = {
            (route.exchange.name, route.routing_key): None
            for route in client.published_routes()
            if not route.is_stale and found in (route.queues or ())
        }
        if pairs:
            rows.append(
                {
                    "connection_name": client.given_name,
                    "connection": client.name,
                    "user": client.user.name,
                    "published": sum(session.published for session in client.sessions),
                    "by": [{"exchange": exchange, "routing_key": key} for exchange, key in islice(pairs, PAIRS_MAX)],
                    "blocked": client.is_blocked,
                }
            )
        yield
    rows.sort(key=lambda row: -row["published"])
    return rows


def _clients(operator: Operator, vhost: str | None, user: str | None = None) -> Iterator[Client]:
    """The connections of a virtual host, of a user, or all; oldest first."""
    operator.vhosts(vhost)
    for client in operator.broker.connections:
        if vhost in (None, client.vhost.name) and user in (None, client.user.name):
            yield client


def _state(operator: Operator, client: Client) -> str:
    """The state of a connection in RabbitMQ's words."""
    if client.is_blocked:
        return "blocked"
    return "running" if operator.broker.flow.raised is None else "blocking"


def _oldest_since(operator: Operator, session: Session, tag: int | None) -> dict[str, Any]:
    """The time of a delivery, the oldest that a consumer or a channel has not acknowledged: wall time in ms, at the
    latest. Times are noted every ten seconds, and fewer notes are kept after ten minutes. None: there is no such
    delivery, or no note since.
    """
    at_ns = None if tag is None else operator.broker.context.acknowledgements.delivered_ns(session, tag)
    if at_ns is None:
        return {"oldest_unacked_since_ms": None}
    clock = operator.broker.context.clock
    return {"oldest_unacked_since_ms": clock.wall_ms() - (clock.monotonic_ns() - at_ns) // MS}


# -- closing, blocking and tracing connections ----------------------------------------------------------------------


@command("close-connection", http=Http("DELETE", "connections/NAME", Level.ANY, 204))
def close_connection(operator: Operator, name: Name, reason: str = CLOSED_BY_HAND) -> dict[str, Any]:
    """Close a connection: connection.close 320, CONNECTION_FORCED.

    name: as `connections` shows it, or the name that clients gave: then all with that name
    reason: sent to the client (default: Closed via management plugin)
    """
    found = clients_called(operator, name)
    for client in found:
        operator.broker.context.disconnects.expel(client, ConnectionForced(reason=reason))
    return {"closed": [client.name for client in found], "reason": reason}


def clients_called(operator: Operator, name: str) -> list[Client]:
    """The connection of this name, or those whose clients gave it. Raises: CommandError."""
    found = operator.broker.connections.called(name)
    if not found:
        raise _no_connection(operator, name)
    return found


def _no_connection(operator: Operator, name: str) -> CommandError:
    known = dict.fromkeys(own for one in operator.broker.connections for own in (one.name, one.given_name) if own)
    return CommandError(f"no connection {name!r}{nearest(name, known)}")


@command("block")
def block(operator: Operator, reason: Name = ALARM_BY_HAND) -> dict[str, Any]:
    """Raise an alarm: clients that publish are blocked, until `unblock` or a restart.

    reason: sent to them (default: low on memory)
    """
    operator.broker.flow.raise_alarm(reason)
    return {"alarm": operator.broker.flow.alarm_reason}


@command("unblock")
def unblock(operator: Operator) -> dict[str, Any]:
    """End the alarm."""
    blocked = len(operator.broker.flow.alarm.round_robin)
    operator.broker.flow.end_alarm()
    return {"alarm": None, "were_blocked": blocked}


@command("trace-on")
def trace_on(operator: Operator, vhost: Name = "/") -> dict[str, Any]:
    """Copy published and delivered messages to the exchange amq.rabbitmq.trace, until a restart.

    vhost: of this virtual host (default "/")
    """
    operator.broker.virtual_hosts.trace(operator.vhost(vhost), on=True)
    return {"vhost": vhost, "tracing": True}


@command("trace-off")
def trace_off(operator: Operator, vhost: Name = "/") -> dict[str, Any]:
    """Stop copying messages to amq.rabbitmq.trace.

    vhost: (default "/")
    """
    operator.broker.virtual_hosts.trace(operator.vhost(vhost), on=False)
    return {"vhost": vhost, "tracing": False}


def _oldest_of(session: Session, consumers: list[Consumer]) -> dict[Holder, int]:
    """Consumer -> the delivery tag of its oldest unacknowledged delivery."""
    wanted = {consumer for consumer in consumers if consumer.unacked}
    found: dict[Holder, int] = {}
    for tag, message in session.unacked.items() if wanted else ():
        holder = message.holder
        if holder in wanted and holder not in found:
            found[holder] = tag
            if len(found) == len(wanted):
                break
    return found


def _client_text(client: Client, key: str) -> str | None:
    field = client.properties.get(key)
    return field.text if field is not None and isinstance(field.value, bytes) else None
