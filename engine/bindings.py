"""Adding and removing the bindings of a virtual host.

Source: behaviour page 2.2, 3.14.
"""

from itertools import islice

from .clients.authorization import require, require_topic
from .clients.client import Client
from .context import HostContext
from .errors import BindingsMaxReached, DefaultExchangeRefused, ResourceLocked
from .events import EventKind
from .exchanges.exchange import Binding, Destination, Exchange
from .messages.field_table import FieldTable
from .object_events import BindingEvent
from .publishing.publish import replay_retained
from .queues.queue import Queue
from .users.permissions import EXCHANGE, QUEUE, READ, WRITE


class Bindings:
    """The bindings of one virtual host. `count`: number of bindings of all its exchanges.

    Parameters of its methods: `kind`: of the destination, "queue" or "exchange". `client`: the caller, whose
    permissions apply; None: the broker.
    """

    def __init__(self, context: HostContext) -> None:
        self._context = context
        self.count = 0

    def add(
        self,
        kind: str,
        destination: str,
        source: str,
        routing_key: str,
        arguments: FieldTable,
        client: Client | None = None,
    ) -> None:
        """Bind a queue or an exchange to an exchange. If an equal binding exists, nothing changes.

        Raises: DefaultExchangeRefused, ExchangeNotFound (the source first), QueueNotFound, ResourceLocked,
            InvalidHeadersMatch, InvalidHeadersMatchType, PermissionRefused, TopicRefused, BindingsMaxReached,
            ConditionsMaxReached, TopicStatesMaxReached.
        """
        host = self._context
        self._check(client, kind, destination, source, routing_key)
        exchange = host.exchanges.named(source)
        target: Destination = (
            host.queues.named(destination, client) if kind == QUEUE else host.exchanges.named(destination)
        )
        exchange.check(routing_key, arguments)  # before the check of the queue's owner, as in RabbitMQ
        if kind == QUEUE:
            self.accessible(destination, client)
        binding = Binding(exchange, target, routing_key, arguments)
        if client is not None and binding.identity not in exchange.bindings:
            self._check_max(target)
            exchange.check_limits(routing_key, arguments, host.name, host.broker.options)
        is_first = target not in exchange.destinations
        if exchange.add(binding):
            self.count += 1
            host.router.bindings_changed(target)
            if host.broker.listeners:
                host.broker.emit(BindingEvent(EventKind.BOUND, host.name, target.name, binding))
            if is_first and host.retained and isinstance(target, Queue):
                replay_retained(host, target, exchange.name)

    def remove(
        self,
        kind: str,
        destination: str,
        source: str,
        routing_key: str,
        arguments: FieldTable,
        client: Client | None = None,
    ) -> None:
        """Remove a binding. A missing binding, destination or source is no error.

        Raises: DefaultExchangeRefused, ResourceLocked (of a binding that is there), PermissionRefused, TopicRefused.
        """
        host = self._context
        self._check(client, kind, destination, source, routing_key)
        exchange = host.exchanges.get(source)
        target = host.queues.seen(destination, client) if kind == QUEUE else host.exchanges.get(destination)
        if exchange is None or target is None:
            return
        binding = Binding(exchange, target, routing_key, arguments)
        if kind == QUEUE and binding.identity in exchange.bindings:
            self.accessible(destination, client)
        self._unbind(binding)

    def unbind(self, destination: Destination, count: int | None = None) -> None:
        """Remove up to `count` bindings (None: all) to a destination that is being deleted."""
        for binding in list(islice(destination.incoming, count)):
            self._unbind(binding)

    def forget_all_of(self, source: Exchange) -> None:
        """Remove the outgoing bindings of an exchange that is deleted."""
        self.count -= len(source.bindings)
        for binding in source.forget_bindings():
            self._context.router.bindings_changed(binding.destination)

    def accessible(self, name: str, client: Client | None) -> Queue:
        """The queue `name`, unless it is exclusive to another client. Raises: QueueNotFound, ResourceLocked."""
        queue = self._context.queues.named(name, client)
        if queue.owner is not None and client is not None and queue.owner is not client:
            raise ResourceLocked(name=name, vhost=self._context.name)
        return queue

    def _check(self, client: Client | None, kind: str, destination: str, source: str, routing_key: str) -> None:
        """Check the permissions, in RabbitMQ's order and before the existence of the objects."""
        require(client, WRITE, kind, destination)
        if not source or (kind == EXCHANGE and not destination):
            raise DefaultExchangeRefused
        require(client, READ, EXCHANGE, source)
        exchange = self._context.exchanges.get(source)
        if exchange is not None:
            require_topic(client, READ, exchange, routing_key)

    def _check_max(self, destination: Destination) -> None:
        """Raises: BindingsMaxReached."""
        broker = self._context.broker
        limit = broker.options.bindings_max
        if limit and sum(vhost.bindings.count for vhost in broker.virtual_hosts.values()) >= limit:
            kind = QUEUE if isinstance(destination, Queue) else EXCHANGE
            raise BindingsMaxReached(kind=kind, name=destination.name, limit=limit)

    def _unbind(self, binding: Binding) -> None:
        """Remove a binding. Auto-delete exchanges are deleted with their last outgoing binding, recursively."""
        host = self._context
        unused = [binding]
        while unused:
            source = (asked := unused.pop()).source
            found = source.discard(asked)
            if found is None:
                continue
            self.count -= 1
            host.router.bindings_changed(found.destination)
            if host.broker.listeners:
                host.broker.emit(BindingEvent(EventKind.UNBOUND, host.name, found.destination.name, found))
            if source.auto_delete and not source.bindings and host.exchanges.get(source.name) is source:
                unused += source.incoming
                host.exchanges.drop(source)
