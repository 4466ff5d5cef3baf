"""Control commands about connections, channels and consumers; closing a connection; alarm and firehose.

Source: ruling 24; behaviour page 1.6. Every list is O(rows), except for the oldest deliveries of consumers:
O(unacknowledged deliveries of their channels).
"""

from collections.abc import Callable, Iterator
from typing import Any

from ..engine import Broker, Client, ConnectionForced, Consumer, Holder, Session
from ..settings.faults import nearest
from .command_error import CommandError
from .command_table import ALARM_BY_HAND, CLOSED_BY_HAND
from .held import blocked_by, held_of


class ConnectionCommands:
    """`handlers` by the words of the command, for the control table. `broker` is called each time: it may be set
    later."""

    def __init__(self, broker: Callable[[], Broker]) -> None:
        self._broker = broker
        self.handlers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "connections": self._list_connections,
            "channels": self._list_channels,
            "consumers": self._list_consumers,
            "close-connection": self._close,
            "block": self._block,
            "unblock": self._unblock,
            "trace-on": lambda arguments: self._trace(arguments, on=True),
            "trace-off": lambda arguments: self._trace(arguments, on=False),
        }

    @property
    def broker(self) -> Broker:
        """The broker that the commands are for."""
        return self._broker()

    def _clients(self, arguments: dict[str, Any]) -> Iterator[Client]:
        """Of one virtual host, of one user, or all; the oldest first."""
        vhost, user = arguments.get("vhost"), arguments.get("user")
        if vhost is not None and vhost not in self.broker.virtual_hosts:
            raise CommandError(f"no virtual host {vhost!r}")
        for client in self.broker.clients:
            if vhost in (None, client.vhost.name) and user in (None, client.user.name):
                yield client

    def _list_connections(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        waits: dict[Client, list[dict[str, Any]]] = {}
        for client, why in blocked_by(self.broker):
            waits.setdefault(client, []).append(why)
        return [
            {
                "name": client.name,
                "connection_name": _client_text(client, "connection_name"),
                "user": client.user.name,
                "vhost": client.vhost.name,
                "peer": client.name.partition(" -> ")[0],
                "product": _client_text(client, "product"),
                "version": _client_text(client, "version"),
                "state": self._state(client),
                "channels": len(client.sessions),
                "since_ms": client.since_ms,
                "blocked_by": waits.get(client, []),
                "held": held_of(client),
            }
            for client in self._clients(arguments)
        ]

    def _state(self, client: Client) -> str:
        """In RabbitMQ's words."""
        if client.is_blocked:
            return "blocked"
        return "running" if self.broker.alarm is None else "blocking"

    def _list_channels(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {
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
                **self._age(session, next(iter(session.unacked), None)),
            }
            for client in self._clients(arguments)
            for session in client.sessions
        ]

    def _list_consumers(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        queue = arguments.get("queue")
        rows: list[dict[str, Any]] = []
        for client in self._clients(arguments):
            for session in client.sessions:
                consumers = [one for one in session.consumers.values() if queue in (None, one.queue.name)]
                oldest = _oldest_of(session, consumers)
                rows += [
                    {
                        "vhost": client.vhost.name,
                        "queue": consumer.queue.name,
                        "tag": consumer.tag,
                        "connection": client.name,
                        "channel": session.number,
                        "ack": not consumer.no_ack,
                        "exclusive": consumer.exclusive,
                        "prefetch": consumer.prefetch,
                        "priority": consumer.priority,
                        "filter": "" if consumer.filter is None else consumer.filter.text,
                        "unacked": consumer.unacked,
                        **self._age(session, oldest.get(consumer)),
                    }
                    for consumer in consumers
                ]
        return rows

    def _age(self, session: Session, tag: int | None) -> dict[str, Any]:
        """The latest time when the oldest delivery can have been sent, in wall ms; it is noted about once a minute.

        None: nothing is unacknowledged, or it was delivered after the last note.
        """
        at_ns = None if tag is None else self.broker.acknowledgements.oldest_ns(session, tag)
        if at_ns is None:
            return {"oldest_unacked_since_ms": None}
        clock = self.broker.clock
        return {"oldest_unacked_since_ms": clock.wall_ms() - (clock.monotonic_ns() - at_ns) // 1_000_000}

    def _close(self, arguments: dict[str, Any]) -> dict[str, Any]:
        name, reason = arguments["name"], arguments.get("reason", CLOSED_BY_HAND)
        clients = list(self.broker.clients)
        found = [client for client in clients if client.name == name]
        found = found or [client for client in clients if _client_text(client, "connection_name") == name]
        if not found:
            known = dict.fromkeys(
                name for one in clients for name in (one.name, _client_text(one, "connection_name")) if name
            )
            raise CommandError(f"no connection {name!r}{nearest(name, known)}")
        for client in found:
            self.broker.departures.expel(client, ConnectionForced(reason=reason))
        return {"closed": [client.name for client in found], "reason": reason}

    def _block(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self.broker.raise_alarm(arguments.get("reason", ALARM_BY_HAND))
        return {"alarm": self.broker.alarm}

    def _unblock(self, arguments: dict[str, Any]) -> dict[str, Any]:
        blocked = len(self.broker.flow.alarm.ring)
        self.broker.end_alarm()
        return {"alarm": None, "were_blocked": blocked}

    def _trace(self, arguments: dict[str, Any], *, on: bool) -> dict[str, Any]:
        name = arguments.get("vhost", "/")
        vhost = self.broker.virtual_hosts.get(name)
        if vhost is None:
            raise CommandError(f"no virtual host {name!r}")
        self.broker.trace(vhost, on=on)
        return {"vhost": name, "tracing": on}


def _oldest_of(session: Session, consumers: list[Consumer]) -> dict[Holder, int]:
    """The delivery tag of the oldest delivery of each consumer that has unacknowledged ones."""
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
    """A text among the client properties."""
    field = client.properties.get(key)
    return field.text if field is not None and isinstance(field.value, bytes) else None
