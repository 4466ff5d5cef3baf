"""The bindings of a virtual host: who may make them, and what goes with the last one.

Source: behaviour page 2.2, 3.14.
"""

from itertools import islice

from .declaring import DeclaringHost
from .errors import BindingsMaxReached, DefaultExchangeRefused, ResourceLocked
from .events import EventKind
from .exchanges.exchange import Binding, Destination, Exchange
from .messages.field_table import FieldTable
from .object_events import BindingEvent, ExchangeEvent
from .peers.client import Client
from .peers.permission_checks import require, require_topic
from .publishing.publish import replay_retained
from .publishing.router import Router
from .publishing.topology import Topology
from .queues.queue import Queue
from .users.permissions import EXCHANGE, QUEUE, READ, WRITE


class Bindings:
    """Of one virtual host. `count`: of all its exchanges. `client`: who does it, and may; None: the broker itself."""

    __slots__ = ("_router", "_topology", "_vhost", "count")

    def __init__(self, vhost: DeclaringHost, topology: Topology, router: Router) -> None:
        self._vhost = vhost
        self._topology = topology
        self._router = router
        self.count = 0

    def bind_queue(
        self, queue_name: str, source: str, routing_key: str, arguments: FieldTable, client: Client | None = None
    ) -> None:
        """Bind a queue; once more changes nothing.

        Raises: DefaultExchangeRefused, ExchangeNotFound, QueueNotFound, ResourceLocked, InvalidHeadersMatch(Type),
            PermissionRefused, TopicRefused, BindingsMaxReached, ConditionsMaxReached, TopicStatesMaxReached.
        """
        self._check(client, QUEUE, queue_name, source, routing_key)
        exchange, queue = self._topology.exchange(source), self._topology.queue(queue_name)
        exchange.check(routing_key, arguments)  # before the queue's owner is looked at, as RabbitMQ does
        self._bind(exchange, self.accessible(queue.name, client), routing_key, arguments, client)

    def unbind_queue(
        self, queue_name: str, source: str, routing_key: str, arguments: FieldTable, client: Client | None = None
    ) -> None:
        """What is missing (binding, queue, exchange) is fine.

        Raises: DefaultExchangeRefused, ResourceLocked (of a binding that is there), PermissionRefused, TopicRefused.
        """
        self._check(client, QUEUE, queue_name, source, routing_key)
        exchange, queue = self._topology.exchanges.get(source), self._topology.queues.get(queue_name)
        if exchange is None or queue is None:
            return
        binding = Binding(exchange, queue, routing_key, arguments)
        if binding.identity in exchange.bindings:
            self.accessible(queue_name, client)
            self._unbind(binding)

    def bind_exchange(
        self, destination: str, source: str, routing_key: str, arguments: FieldTable, client: Client | None = None
    ) -> None:
        """Bind an exchange to another.

        Raises: DefaultExchangeRefused, ExchangeNotFound (the source first), InvalidHeadersMatch(Type),
            PermissionRefused, TopicRefused, BindingsMaxReached, ConditionsMaxReached, TopicStatesMaxReached.
        """
        self._check(client, EXCHANGE, destination, source, routing_key)
        exchange = self._topology.exchange(source)
        self._bind(exchange, self._topology.exchange(destination), routing_key, arguments, client)

    def unbind_exchange(
        self, destination: str, source: str, routing_key: str, arguments: FieldTable, client: Client | None = None
    ) -> None:
        """What is missing is fine. Raises: DefaultExchangeRefused, PermissionRefused, TopicRefused."""
        self._check(client, EXCHANGE, destination, source, routing_key)
        exchange, target = self._topology.exchanges.get(source), self._topology.exchanges.get(destination)
        if exchange is not None and target is not None:
            self._unbind(Binding(exchange, target, routing_key, arguments))

    def unbind_all(self, destination: Destination) -> None:
        """The destination is gone: nothing leads there any more."""
        for binding in list(destination.incoming):
            self._unbind(binding)

    def unbind_some(self, destination: Destination, count: int) -> None:
        """The destination is going: so many fewer lead there."""
        for binding in list(islice(destination.incoming, count)):
            self._unbind(binding)

    def drop_exchange(self, exchange: Exchange) -> None:
        """Forget an exchange with its outgoing bindings; the incoming ones are the caller's."""
        self._topology.remove_exchange(exchange)
        self.count -= len(exchange.bindings)
        for binding in exchange.forget_bindings():
            self._router.bindings_changed(binding.destination)
        vhost = self._vhost
        if vhost.broker.listeners:
            vhost.broker.announce(ExchangeEvent(EventKind.UNDECLARED, vhost.name, exchange.name, exchange))

    def accessible(self, name: str, client: Client | None) -> Queue:
        """A queue that is not exclusive to another client. Raises: QueueNotFound, ResourceLocked."""
        queue = self._topology.queue(name)
        if queue.owner is not None and client is not None and queue.owner is not client:
            raise ResourceLocked(name=name, vhost=self._vhost.name)
        return queue

    def _check(self, client: Client | None, kind: str, destination: str, source: str, routing_key: str) -> None:
        """Who may (un)bind, in the order in which RabbitMQ asks: before it looks what is there."""
        require(client, WRITE, kind, destination)
        if not source or (kind == EXCHANGE and not destination):
            raise DefaultExchangeRefused
        require(client, READ, EXCHANGE, source)
        exchange = self._topology.exchanges.get(source)
        if exchange is not None:
            require_topic(client, READ, exchange, routing_key)

    def _bind(
        self,
        exchange: Exchange,
        destination: Destination,
        routing_key: str,
        arguments: FieldTable,
        client: Client | None,
    ) -> None:
        vhost = self._vhost
        exchange.check(routing_key, arguments)
        binding = Binding(exchange, destination, routing_key, arguments)
        if client is not None and binding.identity not in exchange.bindings:
            self._check_max(destination)
            exchange.check_limits(routing_key, arguments, vhost.name, vhost.broker.options)
        is_first = destination not in exchange.destinations
        if exchange.add(binding):
            self.count += 1
            self._router.bindings_changed(destination)
            if vhost.broker.listeners:
                vhost.broker.announce(BindingEvent(EventKind.BOUND, vhost.name, destination.name, binding))
            if is_first and vhost.remembered and isinstance(destination, Queue):
                replay_retained(vhost, destination, exchange.name)

    def _check_max(self, destination: Destination) -> None:
        """Raises: BindingsMaxReached."""
        broker = self._vhost.broker
        limit = broker.options.bindings_max
        if limit and broker.bindings_count() >= limit:
            kind = QUEUE if isinstance(destination, Queue) else EXCHANGE
            raise BindingsMaxReached(kind=kind, name=destination.name, limit=limit)

    def _unbind(self, binding: Binding) -> None:
        """Take a binding away; auto-delete exchanges go with their last outgoing one, and so on up the chain."""
        vhost = self._vhost
        unused = [binding]
        while unused:
            binding = unused.pop()
            source = binding.source
            if not source.discard(binding):
                continue
            self.count -= 1
            self._router.bindings_changed(binding.destination)
            if vhost.broker.listeners:
                vhost.broker.announce(BindingEvent(EventKind.UNBOUND, vhost.name, binding.destination.name, binding))
            if source.auto_delete and not source.bindings and vhost.exchanges.get(source.name) is source:
                unused += source.incoming
                self.drop_exchange(source)
