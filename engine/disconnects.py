"""Clients that an operator sends away, and virtual hosts that go: a slice at the end of each turn (ruling 5).

Answers of the turn are out by then, so that one who deletes himself hears that it was done.
"""

from collections import deque
from collections.abc import Iterable

from .clients.client import Client
from .context import BrokerContext
from .errors import EngineError, VirtualHostDeleted
from .virtual_host import VirtualHost

#: In one slice (about 5 ms).
CLIENTS_SLICE = 50
QUEUES_SLICE = 200


class Disconnects:
    """`pending` while there is something left to do. The queues of a virtual host go when all clients are gone."""

    __slots__ = ("_clients", "_context", "_vhosts", "pending")

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.pending = False
        self._clients: deque[tuple[Client, EngineError]] = deque()
        self._vhosts: deque[VirtualHost] = deque()

    def expel(self, client: Client, error: EngineError) -> None:
        """Send a client away; the error is what it hears."""
        self._clients.append((client, error))
        self.pending = self._context.background.pending = True

    def begin_delete(self, vhost: VirtualHost, clients: Iterable[Client]) -> None:
        """Take a virtual host down that nobody can find any more."""
        for client in clients:
            self.expel(client, VirtualHostDeleted(vhost=vhost.name))
        self._vhosts.append(vhost)
        self.pending = self._context.background.pending = True

    def finish(self, vhost: str) -> None:
        """What is left of a virtual host of that name goes now: another one of its name is to come."""
        while any(one.name == vhost for one in self._vhosts):
            self.work()

    def work(self) -> None:
        """One slice."""
        for _ in range(min(CLIENTS_SLICE, len(self._clients))):
            client, error = self._clients.popleft()
            if not client.closed:
                client.expel(error)
        if self._vhosts and not self._clients and self._vhosts[0].take_down(QUEUES_SLICE):
            self._vhosts.popleft()
        self.pending = bool(self._clients or self._vhosts)
