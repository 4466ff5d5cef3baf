"""Who is connected, and as whom: connecting, and what becomes of clients when users change or go."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Protocol

from .departures import Departures
from .errors import ConnectionsMaxReached, UserConnectionsMaxReached, UserDeleted, VirtualHostNotFound
from .events import Activity, EventKind
from .messages.event import Event, Listener
from .messages.field_table import FieldTable
from .object_events import ConnectionEvent, UserDeclaredEvent, UserUndeclaredEvent
from .peers.acknowledgement_timeout import AcknowledgementWatch
from .peers.client import Client
from .users.access import User, Users
from .virtual_host import VirtualHost


class ConnectedBroker(Protocol):
    """The broker that clients are connected to."""

    acknowledgements: AcknowledgementWatch
    activity: Activity
    awaiting: dict[Client, None]
    clients: dict[Client, None]
    departures: Departures
    listeners: list[Listener]
    touched: dict[Client, None]
    unsent_max: int
    users: Users
    virtual_hosts: dict[str, VirtualHost]

    def announce(self, event: Event) -> None:
        """Call each listener with what happened."""


class Connections:
    """The clients of one broker (`Broker.clients`)."""

    __slots__ = ("_broker",)

    def __init__(self, broker: ConnectedBroker) -> None:
        self._broker = broker

    def connect(
        self, vhost: str, user: User, *, name: str, flush: Callable[[], object], properties: FieldTable | None = None
    ) -> Client:
        """A client in a virtual host. `flush` is called when a turn left effects in its outbox.

        `properties`: what the client says of itself.

        Raises: VirtualHostNotFound, VirtualHostRefused, ConnectionsMaxReached, UserConnectionsMaxReached.
        """
        broker = self._broker
        found = broker.virtual_hosts.get(vhost)
        if found is None:
            raise VirtualHostNotFound(vhost=vhost)
        user = broker.users.current(user, vhost)
        self._check_max(found, user)
        user.check_vhost(vhost)
        client = Client(found, user, name, flush, broker.unsent_max, properties or {})
        broker.clients[client] = None
        broker.activity.connections_opened += 1
        if broker.listeners:
            broker.announce(ConnectionEvent(EventKind.CONNECTION_OPENED, vhost, name, user.name))
        return client

    def _check_max(self, vhost: VirtualHost, user: User) -> None:
        """O(clients), where there is a limit."""
        clients = self._broker.clients
        limit = vhost.limits.max_connections
        if limit is not None and sum(client.vhost is vhost for client in clients) >= limit:
            raise ConnectionsMaxReached(vhost=vhost.name, user=user.name, limit=limit)
        limit = user.max_connections
        if limit is not None and sum(client.user.name == user.name for client in clients) >= limit:
            raise UserConnectionsMaxReached(user=user.name, limit=limit)

    def forget(self, client: Client) -> None:
        """Part of `Client.close`."""
        broker = self._broker
        if broker.clients.pop(client, client) is None:  # the first time
            activity, link = broker.activity, client.link
            activity.connections_closed += 1
            activity.octets_in += link.octets_in
            activity.octets_out += link.octets_out
            activity.reads += link.reads
            activity.writes += link.writes
        broker.awaiting.pop(client, None)
        broker.touched.pop(client, None)
        if not broker.clients:
            broker.acknowledgements.end_if_idle()
        if broker.listeners:
            broker.announce(ConnectionEvent(EventKind.CONNECTION_CLOSED, client.vhost.name, client.name))

    def sessions_of(self, user: str) -> int:
        """Open sessions of a user. O(clients)."""
        return sum(len(client.sessions) for client in self._broker.clients if client.user.name == user)

    # -- users --------------------------------------------------------------------------------------------------------

    def replace_user(self, user: User) -> None:
        """Add a user, or change one: what its clients may do changes now, with the next thing that they ask for.

        Subscriptions that they have go on. O(clients).
        """
        broker = self._broker
        broker.users.add(user)
        if broker.listeners:
            broker.announce(UserDeclaredEvent("", user.name, user))
        self._change_clients(user)

    def delete_user(self, name: str) -> None:
        """Forget a user; its clients may do nothing any more and are sent away at the ends of turns. O(clients)."""
        broker = self._broker
        broker.users.remove(name)
        if broker.listeners:
            broker.announce(UserUndeclaredEvent("", name))
        for client in self._change_clients(User(name, permissions=MappingProxyType({}))):
            broker.departures.expel(client, UserDeleted(user=name))

    def _change_clients(self, user: User) -> list[Client]:
        """The clients of a user, who has other permissions now: their routes are to be looked up again."""
        clients = [client for client in self._broker.clients if client.user.name == user.name]
        for client in clients:
            client.user = user
        for vhost in dict.fromkeys(client.vhost for client in clients):
            vhost.routes_changed()
        return clients
