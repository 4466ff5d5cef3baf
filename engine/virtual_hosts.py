"""The virtual hosts of a broker: creates, limits, traces and deletes them."""

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

from .context import BrokerContext
from .errors import VirtualHostNotFound
from .events import EventKind
from .object_events import VirtualHostEvent
from .options import VirtualHostLimits
from .parameters import Parameters
from .publishing.firehose import Firehose
from .queues.queue import Queue
from .virtual_host import VirtualHost


class VirtualHosts(dict[str, VirtualHost]):
    """The virtual hosts by name."""

    def __init__(self, context: BrokerContext, parameters: Parameters) -> None:
        super().__init__()
        self._context = context
        self._parameters = parameters
        self._firehose = Firehose(context)
        #: The number of creations, deletions and changes of limits since the start.
        self.changes = 0

    def create(self, name: str) -> VirtualHost:
        """Create a virtual host, or return the existing one."""
        context = self._context
        vhost = self.get(name)
        if vhost is None:
            context.disconnects.finish(name)
            vhost = self[name] = VirtualHost(context, name)
            self.changes += 1
            if context.listeners:
                context.emit(VirtualHostEvent(EventKind.DECLARED, name, name))
        return vhost

    def delete(self, name: str) -> None:
        """Delete a virtual host. Its clients are disconnected and its queues deleted at the ends of turns.

        Raises: VirtualHostNotFound.
        """
        context = self._context
        vhost = self.pop(name, None)
        if vhost is None:
            raise VirtualHostNotFound(vhost=name)
        self.changes += 1
        for user in context.users:
            if user.permissions is not None and (name in user.permissions or name in user.topics_before_permissions):
                rest = {other: granted for other, granted in user.permissions.items() if other != name}
                waiting = {other: topics for other, topics in user.topics_before_permissions.items() if other != name}
                context.connections.replace_user(
                    replace(
                        user, permissions=MappingProxyType(rest), topics_before_permissions=MappingProxyType(waiting)
                    )
                )
        gone = [policy.identity for policy in context.policies if policy.vhost == name]
        if gone:
            context.reloading.replace_policies(context.policies.without(gone))
        self._parameters.forget(name)
        vhost.context.is_being_deleted = True
        if vhost.context.firehose is not None:
            self.trace(vhost, on=False)
        # The journal records the whole deletion now, so that a restart restores none of the queues.
        if context.listeners:
            context.emit(VirtualHostEvent(EventKind.UNDECLARED, name, name, has_objects=True))
        context.disconnects.begin_delete(vhost, [client for client in context.connections if client.vhost is vhost])

    def limit(self, vhost: VirtualHost, limits: VirtualHostLimits) -> None:
        """Set the limits of a virtual host. Existing objects stay."""
        vhost.context.limits = limits
        self.changes += 1
        context = self._context
        if context.listeners:
            context.emit(VirtualHostEvent(EventKind.DECLARED, vhost.name, vhost.name))

    def trace(self, vhost: VirtualHost, *, on: bool) -> None:
        """Switch the firehose of a virtual host, which copies publishes and deliveries to amq.rabbitmq.trace.

        A restart switches it off, as in RabbitMQ.
        """
        self._firehose.switch(vhost.name, on=on)
        vhost.context.firehose = self._firehose if on else None
        vhost.router.routes_changed()

    def started(self, *, rebuilds: bool = False) -> None:
        """Call `Kind.started` when the broker has started, with all queues restored."""
        for queue in list(self.queues()):
            queue.kind.started(queue, rebuilds)

    def queues(self) -> Iterator[Queue]:
        return (queue for vhost in self.values() for queue in vhost.queues.values())

    def find_queue(self, vhost: str, name: str) -> Queue | None:
        """The queue of this full name; None: there is none, or its virtual host is being deleted."""
        found = self.get(vhost)
        return None if found is None else found.queues.get(name)

    def routes_changed(self) -> None:
        """Make all routes stale. O(exchanges + routes)."""
        for vhost in self.values():
            vhost.router.routes_changed()
