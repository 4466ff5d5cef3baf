"""No virtual host and no user has more than operators allow it, as long as nothing was there before they said so."""

from __future__ import annotations

from leveret.engine import Broker, EventKind, QueueEvent
from leveret.engine.object_events import ConnectionEvent

from ..ledger import Broken
from .book import Book, Handlers


class Quotas(Book):
    """Asks the engine what there is and what is allowed, whenever something came."""

    def __init__(self) -> None:
        self._broker: Broker | None = None
        self._channels: dict[str, tuple[int, int]] = {}  # user -> limit and channels, when the last turn ended

    def handlers(self) -> Handlers:
        return {QueueEvent: self._queue, ConnectionEvent: self._connection}

    def attach(self, broker: Broker) -> None:
        self._broker = broker
        self._channels.clear()

    def _queue(self, event: QueueEvent) -> None:
        assert self._broker is not None
        if event.kind is not EventKind.DECLARED or event.queue.is_configured:
            return
        host = self._broker.virtual_hosts[event.vhost]
        _check(f"queues in {event.vhost}", len(host.queues), host.context.limits.max_queues)

    def _connection(self, event: ConnectionEvent) -> None:
        assert self._broker is not None
        if event.user is None:
            return
        host, clients = self._broker.virtual_hosts[event.vhost], list(self._broker.connections)
        here = sum(client.vhost is host for client in clients)
        _check(f"connections in {event.vhost}", here, host.context.limits.max_connections)
        of_user = [client for client in clients if client.user.name == event.user]
        if of_user:
            _check(f"connections of {event.user}", len(of_user), of_user[0].user.max_connections)

    def turn_ended(self) -> None:
        """A limit that comes closes no channel, but from then on none is opened above it."""
        assert self._broker is not None
        before, self._channels, clients = self._channels, {}, self._broker.connections
        for client in clients:
            name, limit = client.user.name, client.user.max_channels
            if limit is None or name in self._channels:
                continue
            count = sum(len(one.sessions) for one in clients if one.user.name == name)
            self._channels[name] = limit, count
            limit_before, count_before = before.get(name, (-1, 0))
            if limit == limit_before and count > count_before:
                _check(f"channels of {name}", count, limit)


def _check(what: str, count: int, highest: int | None) -> None:
    if highest is not None and 0 <= highest < count:
        raise Broken(f"one came, and there are {count} {what} now, at most {highest} are allowed")
