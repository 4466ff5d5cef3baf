"""The connected clients, and the effects of changed and deleted users on them."""

from collections.abc import Callable
from types import MappingProxyType

from .clients.client import Client
from .context import BrokerContext
from .errors import ConnectionsMaxReached, UserConnectionsMaxReached, UserDeleted, VirtualHostNotFound
from .events import EventKind
from .messages.field_table import FieldTable
from .object_events import ConnectionEvent, UserDeclaredEvent, UserUndeclaredEvent
from .users.access import User
from .virtual_host import VirtualHost


class Connections(dict[Client, None]):
    """The clients of one broker, oldest first."""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__()
        self._context = context

    def open(
        self,
        vhost: str,
        user: User,
        *,
        name: str,
        flush: Callable[[], object],
        properties: FieldTable | None = None,
        site: str | None = None,
    ) -> Client:
        """Open a client in a virtual host. `flush` is called when a turn left effects in its outbox.

        `properties`: those of the client, from the handshake. `site`: the site of its connection; None: the broker's.

        Raises: VirtualHostNotFound, VirtualHostRefused, ConnectionsMaxReached, UserConnectionsMaxReached.
        """
        context = self._context
        found = context.virtual_hosts.get(vhost)
        if found is None:
            raise VirtualHostNotFound(vhost=vhost)
        user = context.users.current(user, vhost)
        self._check_max(found, user)
        user.check_vhost(vhost)
        client = Client(found, user, name, flush, properties or {}, context.sites.own if site is None else site)
        self[client] = None
        context.activity.connections_opened += 1
        if context.listeners:
            context.emit(ConnectionEvent(EventKind.CONNECTION_OPENED, vhost, name, user.name))
        return client

    def _check_max(self, vhost: VirtualHost, user: User) -> None:
        """Check the limits of connections. O(clients) if there is a limit."""
        limit = vhost.context.limits.max_connections
        if limit is not None and sum(client.vhost is vhost for client in self) >= limit:
            raise ConnectionsMaxReached(vhost=vhost.name, user=user.name, limit=limit)
        limit = user.max_connections
        if limit is not None and sum(client.user.name == user.name for client in self) >= limit:
            raise UserConnectionsMaxReached(user=user.name, limit=limit)

    def forget(self, client: Client) -> None:
        """Remove a client that closes. Called by `Client.close`."""
        context = self._context
        if client in self:  # else it was forgotten before
            del self[client]
            activity, connection_info = context.activity, client.connection_info
            activity.connections_closed += 1
            activity.octets_in += connection_info.octets_in
            activity.octets_out += connection_info.octets_out
            activity.reads += connection_info.reads
            activity.writes += connection_info.writes
        context.awaiting.pop(client, None)
        context.touched.pop(client, None)
        if not self:
            context.acknowledgements.end_if_idle()
        if context.listeners:
            context.emit(ConnectionEvent(EventKind.CONNECTION_CLOSED, client.vhost.name, client.name))

    def sessions_of(self, user: str) -> int:
        """The number of open sessions of a user. O(clients)."""
        return sum(len(client.sessions) for client in self if client.user.name == user)

    def called(self, name: str) -> list[Client]:
        """The client that the broker gave this name, else those that gave it to themselves. O(clients)."""
        return [one for one in self if one.name == name] or [one for one in self if one.given_name == name]

    # -- users --------------------------------------------------------------------------------------------------------

    def replace_user(self, user: User) -> None:
        """Add or change a user. New permissions apply to later operations of its clients; subscriptions continue.

        O(clients).
        """
        context = self._context
        context.users.add(user)
        if context.listeners:
            context.emit(UserDeclaredEvent("", user.name, user))
        self._change_clients(user)

    def delete_user(self, name: str) -> None:
        """Delete a user. Its clients lose all permissions and are disconnected at the ends of turns. O(clients)."""
        context = self._context
        context.users.remove(name)
        if context.listeners:
            context.emit(UserUndeclaredEvent("", name))
        for client in self._change_clients(User(name, permissions=MappingProxyType({}))):
            context.disconnects.expel(client, UserDeleted(user=name))

    def _change_clients(self, user: User) -> list[Client]:
        """Give all clients of this name the new user, and make the routes of their virtual hosts stale. Returns: these
        clients.
        """
        clients = [client for client in self if client.user.name == user.name]
        for client in clients:
            client.user = user
        for vhost in dict.fromkeys(client.vhost for client in clients):
            vhost.router.routes_changed()
        return clients
