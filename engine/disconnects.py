"""Disconnects clients and deletes virtual hosts, in slices at the ends of turns (ruling 5).

So a client that deletes its own user or virtual host receives the answer before it is disconnected.
"""

from collections import deque
from collections.abc import Iterable

from .clients.client import Client
from .context import BrokerContext
from .errors import EngineError, VirtualHostDeleted
from .virtual_host import VirtualHost

#: Clients disconnected, and queues deleted, in one slice (about 5 ms).
CLIENTS_SLICE = 50
QUEUES_SLICE = 200


class Disconnects:
    """Disconnects clients first, then deletes virtual hosts without clients. `pending`: work is left."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.pending = False
        self._clients: deque[tuple[Client, EngineError]] = deque()
        self._vhosts: deque[VirtualHost] = deque()

    def expel(self, client: Client, error: EngineError) -> None:
        """Disconnect a client at the end of this turn or a later one. `error`: the reason that it gets."""
        self._clients.append((client, error))
        self.pending = self._context.background.pending = True

    def begin_delete(self, vhost: VirtualHost, clients: Iterable[Client]) -> None:
        """Disconnect the clients of a virtual host that was removed from `VirtualHosts`, and delete its queues."""
        for client in clients:
            self.expel(client, VirtualHostDeleted(vhost=vhost.name))
        self._vhosts.append(vhost)
        self.pending = self._context.background.pending = True

    def finish(self, vhost: str) -> None:
        """Do all work up to the deletion of a virtual host at once, because a new one gets its name."""
        while any(one.name == vhost for one in self._vhosts):
            self.work()

    def work(self) -> None:
        """Do one slice."""
        for _ in range(min(CLIENTS_SLICE, len(self._clients))):
            client, error = self._clients.popleft()
            if not client.closed:
                client.expel(error)
        if self._vhosts and not self._clients and self._vhosts[0].take_down(QUEUES_SLICE):
            self._vhosts.popleft()
        self.pending = bool(self._clients or self._vhosts)
