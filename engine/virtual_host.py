"""A virtual host: exchanges, queues, bindings, and the way a message takes through them.

Routes are looked up once and kept by frontends; each says itself when it is stale (`Route.is_stale`).
Source: behaviour page 2.1 to 2.6.
"""

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from ..settings import NO_LAYER, NO_POLICY, ArgumentFault
from .errors import (
    AllQueuesMaxReached,
    BindingsMaxReached,
    DefaultExchangeRefused,
    ExchangeNotFound,
    InequivalentField,
    InternalExchangeRefused,
    InUse,
    InvalidArgument,
    InvalidDeadLetterExchange,
    NotEmpty,
    QueueNotFound,
    QueuesMaxReached,
    ReservedName,
    ResourceLocked,
    ServerNamedRefused,
    SystemExchangeRefused,
    TransientQueueRefused,
    UnknownExchangeType,
    UnsupportedProperty,
)
from .events import EventKind
from .exchanges import hash_exchange, random_exchange  # noqa: F401 - exchanges enter their types into EXCHANGE_TYPES
from .exchanges.delayed_exchange import DelayedExchange
from .exchanges.exchange import EXCHANGE_TYPES, PREDECLARED, Binding, Destination, Exchange, TopicExchange
from .exchanges.routed import Routed
from .messages.duplicates import IdCache
from .messages.field_table import FieldTable
from .messages.message import Envelope
from .options import NO_LIMITS
from .peers.client import Client
from .peers.effects import ConsumerCancelled
from .peers.permission_checks import may, require, require_for_arguments, require_topic
from .publishing.arrival import ArrivalRules, arrival_rules, concerns
from .publishing.publish import tell_what_was
from .publishing.routing import FOUND_A_STEP, Route, reach, reach_all
from .publishing.service import ServiceExchange
from .queues.non_destructive import NonDestructiveQueue
from .queues.queue import Queue
from .queues.queue_types import check_delete, check_purge
from .queues.reply_queue import REPLY_PREFIX, REPLY_TO, ReplyQueue, is_reply_address
from .queues.stream_queue import StreamQueue
from .rules.arguments import (
    CLASSIC,
    STREAM,
    Reason,
    check_queue_arguments,
    check_same_alternate,
    check_same_arguments,
    queue_type_of,
    with_default_type,
)
from .rules.diverts import Diverts
from .rules.queue_rules import NO_RULES, effective_arguments, own_settings, plain_arguments, rules_of
from .users.permissions import CONFIGURE, EXCHANGE, QUEUE, READ, WRITE

if TYPE_CHECKING:
    from .broker import Broker
    from .publishing.firehose import Firehose
    from .users.access import User


class VirtualHost:
    """Made by `Broker.create_virtual_host`."""

    __slots__ = (
        "_sending_to",
        "_sharing",
        "bindings_count",
        "broker",
        "diverts",
        "exchanges",
        "firehose",
        "id_caches",
        "limits",
        "name",
        "queues",
        "remembered",
        "reply_queues",
    )

    def __init__(self, broker: "Broker", name: str) -> None:
        self.broker = broker
        self.name = name
        self.queues: dict[str, Queue] = {}
        self.reply_queues: dict[str, ReplyQueue] = {}
        self.exchanges: dict[str, Exchange] = {}
        self.limits = NO_LIMITS
        self.firehose: Firehose | None = None  # while it is traced
        self.bindings_count = 0
        self._sending_to: dict[str, dict[Exchange, None]] = {}  # exchanges by the name of their alternate exchange
        self.diverts = Diverts()
        self.id_caches: dict[str, IdCache] = {}  # by address
        self._sharing: dict[str, dict[Queue, None]] = {}  # queues whose address is not their name, by address
        self.remembered: dict[str, deque[tuple[Envelope, bytes]]] = {}  # for queues to come, by address
        for exchange_name, kind, internal in PREDECLARED:
            self.exchanges[exchange_name] = EXCHANGE_TYPES[kind](exchange_name, durable=True, internal=internal)
        for service_name, handler in broker.services.items():
            self.exchanges[service_name] = ServiceExchange(service_name, handler)
        self._set_exchange_policies()

    # -- look-ups ---------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        """Raises: QueueNotFound."""
        try:
            return self.queues[name]
        except KeyError:
            raise QueueNotFound(name=name, vhost=self.name) from None

    def exchange(self, name: str) -> Exchange:
        """Raises: ExchangeNotFound."""
        try:
            return self.exchanges[name]
        except KeyError:
            raise ExchangeNotFound(name=name, vhost=self.name) from None

    # -- exchanges --------------------------------------------------------------------------------------------------

    def declare_exchange(
        self,
        name: str,
        kind: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: FieldTable | None = None,
        passive: bool = False,
        client: Client | None = None,
    ) -> Exchange:
        """Create an exchange, or check that the one there is the same (`passive`: is there at all).

        `client` here and below: who does it, and may; None: the broker itself.
        Raises: UnknownExchangeType, DefaultExchangeRefused, ExchangeNotFound, InequivalentField,
            InequivalentArgument, ReservedName, InvalidDeadLetterExchange, PermissionRefused.
        """
        exchange_type = EXCHANGE_TYPES.get(kind)
        if exchange_type is None and not passive:
            raise UnknownExchangeType(type=kind)
        if not name:
            raise DefaultExchangeRefused
        if passive:
            return self.exchange(name)
        require(client, CONFIGURE, EXCHANGE, name)
        assert exchange_type is not None
        arguments = arguments or {}
        current = self.exchanges.get(name)
        if current is not None:
            self._check_same_exchange(current, kind, durable, auto_delete, internal, arguments)
            return current
        if name.startswith("amq."):
            raise ReservedName(kind="exchange", name=name)
        alternate = arguments.get("alternate-exchange")
        if alternate is not None and alternate.tag != "S":
            raise InvalidDeadLetterExchange(
                type=alternate.type_name, key="alternate-exchange", kind="exchange", name=name, vhost=self.name
            )
        if alternate is not None:
            require(client, READ, EXCHANGE, name)
            require(client, WRITE, EXCHANGE, alternate.text)
        exchange = exchange_type(name, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments)
        exchange.set_policy(self.broker.policies.of_exchange(name, self.name))
        self.exchanges[name] = exchange
        if exchange.alternate is not None:
            self._sending_to.setdefault(exchange.alternate, {})[exchange] = None
        for sending in self._sending_to.get(name, ()):
            sending.routes.forget_all()
        self._tell(EventKind.DECLARED, name, what="exchange", exchange=exchange)
        return exchange

    def _check_same_exchange(
        self,
        current: Exchange,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: FieldTable,
    ) -> None:
        fields = {"type": kind, "durable": durable, "auto_delete": auto_delete, "internal": internal}
        self._check_same_fields("exchange", current, fields)
        check_same_alternate(current.arguments, arguments, name=current.name, vhost=self.name)

    def delete_exchange(self, name: str, *, if_unused: bool = False, client: Client | None = None) -> None:
        """Delete an exchange and its bindings; a missing one is fine.

        Raises: DefaultExchangeRefused, SystemExchangeRefused, PermissionRefused, InUse (it is the source of a binding).
        """
        if not name:
            raise DefaultExchangeRefused
        if name.startswith("amq.") or isinstance(self.exchanges.get(name), ServiceExchange):
            raise SystemExchangeRefused(name=name, vhost=self.name)
        require(client, CONFIGURE, EXCHANGE, name)
        exchange = self.exchanges.get(name)
        if exchange is None:
            return
        if if_unused and exchange.bindings:
            raise InUse(kind="exchange", name=name, vhost=self.name)
        self._remove_exchange(exchange)

    def _remove_exchange(self, exchange: Exchange) -> None:
        self._drop_exchange(exchange)
        self._unbind_all(exchange)

    def _drop_exchange(self, exchange: Exchange) -> None:
        """Forget an exchange with its outgoing bindings; the incoming ones are the caller's."""
        del self.exchanges[exchange.name]
        if exchange.alternate is not None:
            sending = self._sending_to[exchange.alternate]
            del sending[exchange]
            if not sending:
                del self._sending_to[exchange.alternate]
        for binding in list(exchange.bindings.values()):
            exchange.discard(binding)
            self.bindings_count -= 1
            self._forget_shared_address(binding.destination)
        exchange.routes.forget_all()
        self._tell(EventKind.UNDECLARED, exchange.name, what="exchange", exchange=exchange)

    # -- bindings ---------------------------------------------------------------------------------------------------

    def bind_queue(
        self, queue_name: str, source: str, routing_key: str, arguments: FieldTable, client: Client | None = None
    ) -> None:
        """Bind a queue; once more changes nothing.

        Raises: DefaultExchangeRefused, ExchangeNotFound, QueueNotFound, ResourceLocked, InvalidHeadersMatch(Type),
            PermissionRefused, TopicRefused, BindingsMaxReached, ConditionsMaxReached, TopicStatesMaxReached.
        """
        self._check_binding(client, QUEUE, queue_name, source, routing_key)
        exchange, queue = self.exchange(source), self.queue(queue_name)
        exchange.check(routing_key, arguments)  # before the queue's owner is looked at, as RabbitMQ does
        self._bind(exchange, self._accessible(queue.name, client), routing_key, arguments, client)

    def unbind_queue(
        self, queue_name: str, source: str, routing_key: str, arguments: FieldTable, client: Client | None = None
    ) -> None:
        """What is missing (binding, queue, exchange) is fine.

        Raises: DefaultExchangeRefused, ResourceLocked (of a binding that is there), PermissionRefused, TopicRefused.
        """
        self._check_binding(client, QUEUE, queue_name, source, routing_key)
        exchange, queue = self.exchanges.get(source), self.queues.get(queue_name)
        if exchange is None or queue is None:
            return
        binding = Binding(exchange, queue, routing_key, arguments)
        if binding.identity in exchange.bindings:
            self._accessible(queue_name, client)
            self._unbind(binding)

    def bind_exchange(
        self, destination: str, source: str, routing_key: str, arguments: FieldTable, client: Client | None = None
    ) -> None:
        """Bind an exchange to another.

        Raises: DefaultExchangeRefused, ExchangeNotFound (the source first), InvalidHeadersMatch(Type),
            PermissionRefused, TopicRefused, BindingsMaxReached, ConditionsMaxReached, TopicStatesMaxReached.
        """
        self._check_binding(client, EXCHANGE, destination, source, routing_key)
        exchange = self.exchange(source)
        self._bind(exchange, self.exchange(destination), routing_key, arguments, client)

    def unbind_exchange(
        self, destination: str, source: str, routing_key: str, arguments: FieldTable, client: Client | None = None
    ) -> None:
        """What is missing is fine. Raises: DefaultExchangeRefused, PermissionRefused, TopicRefused."""
        self._check_binding(client, EXCHANGE, destination, source, routing_key)
        exchange, target = self.exchanges.get(source), self.exchanges.get(destination)
        if exchange is not None and target is not None:
            self._unbind(Binding(exchange, target, routing_key, arguments))

    def _check_binding(self, client: Client | None, kind: str, destination: str, source: str, routing_key: str) -> None:
        """Who may (un)bind, in the order in which RabbitMQ asks: before it looks what is there."""
        require(client, WRITE, kind, destination)
        if not source or (kind == EXCHANGE and not destination):
            raise DefaultExchangeRefused
        require(client, READ, EXCHANGE, source)
        exchange = self.exchanges.get(source)
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
        exchange.check(routing_key, arguments)
        binding = Binding(exchange, destination, routing_key, arguments)
        if client is not None and binding.identity not in exchange.bindings:
            self._check_bindings_max(destination)
            exchange.check_limits(routing_key, arguments, self.name, self.broker.options)
        is_first = destination not in exchange.destinations
        if exchange.add(binding):
            self.bindings_count += 1
            self._forget_shared_address(destination)
            self._tell(EventKind.BOUND, destination.name, binding=binding)
            if is_first and self.remembered and isinstance(destination, Queue):
                tell_what_was(self, destination, exchange.name)

    def _check_bindings_max(self, destination: Destination) -> None:
        """Raises: BindingsMaxReached."""
        limit = self.broker.options.bindings_max
        if limit and self.broker.bindings_count() >= limit:
            kind = QUEUE if isinstance(destination, Queue) else EXCHANGE
            raise BindingsMaxReached(kind=kind, name=destination.name, limit=limit)

    def _unbind(self, binding: Binding) -> None:
        """Take a binding away; auto-delete exchanges go with their last outgoing one, and so on up the chain."""
        unused = [binding]
        while unused:
            binding = unused.pop()
            source = binding.source
            if not source.discard(binding):
                continue
            self.bindings_count -= 1
            self._forget_shared_address(binding.destination)
            self._tell(EventKind.UNBOUND, binding.destination.name, binding=binding)
            if source.auto_delete and not source.bindings and self.exchanges.get(source.name) is source:
                unused += source.incoming
                self._drop_exchange(source)

    def _unbind_all(self, destination: Destination) -> None:
        for binding in list(destination.incoming):
            self._unbind(binding)

    # -- queues -----------------------------------------------------------------------------------------------------

    def declare_queue(
        self,
        name: str,
        *,
        client: Client | None,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: FieldTable | None = None,
        passive: bool = False,
        server_named: bool = False,
    ) -> Queue:
        """Create a queue, or check that the one there is the same (`passive`: is there and accessible).

        `client` None: the broker itself declares it; such a queue is not exclusive.
        `server_named`: the frontend made the name up, so its prefix is allowed.
        Raises: QueueNotFound, ReservedName, ResourceLocked, InequivalentField, InequivalentArgument,
            InvalidArgument, UnsupportedArgument, UnsupportedProperty, ServerNamedRefused, InvalidDeadLetterExchange,
            PermissionRefused, QueuesMaxReached, AllQueuesMaxReached, TransientQueueRefused.
        """
        if passive:
            found = self._accessible(name, client)
            found.touch()
            return found
        arguments = arguments or {}
        if client is not None:
            arguments = with_default_type(
                arguments,
                self.limits.default_queue_type,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
            )
        durable = durable and not exclusive  # an exclusive queue is gone before a restart could find it
        current = self.queues.get(name)
        if name.startswith("amq.") and not server_named and (current is None or client is not None):
            raise ReservedName(kind="queue", name=name)  # also when it is there: only passively
        require(client, CONFIGURE, QUEUE, name)
        if current is not None:
            self._check_same_queue(current, client, durable, exclusive, auto_delete, arguments)
            current.touch()
            return current
        if client is not None and not (durable or exclusive or self.broker.options.has_transient_queues):
            raise TransientQueueRefused
        queue_type = queue_type_of(arguments)
        if server_named and queue_type != CLASSIC:
            raise ServerNamedRefused(queue_type=queue_type)
        require_for_arguments(client, name, arguments)
        check_queue_arguments(arguments, name=name, vhost=self.name)
        try:
            own_settings(arguments)
        except ArgumentFault as fault:
            raise InvalidArgument(
                key=fault.key, name=name, vhost=self.name, reason=Reason("text", fault.problem)
            ) from None
        if queue_type != CLASSIC:
            for unwanted, word in (
                (auto_delete, "auto-delete"),
                (exclusive, "exclusive-owner"),
                (not durable, "non-durable"),
            ):
                if unwanted:
                    raise UnsupportedProperty(property=word, name=name, vhost=self.name)
        if client is not None:
            self._check_queues_max(name)
        queue = self._make_queue(name, durable, client if exclusive else None, auto_delete, arguments)
        if queue.owner is not None:
            queue.owner.exclusive_queues[queue] = None
        return queue

    def _check_queues_max(self, name: str) -> None:
        """Raises: QueuesMaxReached, AllQueuesMaxReached."""
        limit = self.limits.max_queues
        if limit is not None and len(self.queues) >= limit:
            raise QueuesMaxReached(name=name, vhost=self.name, limit=limit)
        limit = self.broker.options.queues_max
        if limit and sum(len(vhost.queues) for vhost in self.broker.virtual_hosts.values()) >= limit:
            raise AllQueuesMaxReached(name=name, limit=limit)

    def _make_queue(
        self,
        name: str,
        durable: bool,
        owner: Client | None,
        auto_delete: bool,
        arguments: FieldTable,
        address: str | None = None,
        is_auto_created: bool = False,
    ) -> Queue:
        if address is None:
            field = arguments.get("x-address")
            address = field.text if field is not None and field.value else name
        queue_type = queue_type_of(arguments)
        policy = self.broker.policies.of_queue(name, queue_type, self.name)
        layer = NO_LAYER if policy is NO_POLICY else policy.layer(plain_arguments(arguments))
        resolved = self.broker.settings.resolve_queue(address, self.name, own_settings(arguments), layer.settings)
        rules = rules_of(effective_arguments(arguments, layer), resolved, self.broker.options.quorum_delivery_limit)
        kind: type[Queue] = NonDestructiveQueue if rules.non_destructive else Queue
        if queue_type == STREAM:
            kind, rules = StreamQueue, NO_RULES
        queue = kind(
            self,
            name,
            durable=durable,
            owner=owner,
            auto_delete=auto_delete,
            arguments=arguments,
            rules=rules,
            address=address,
            policy=policy,
            layer=layer,
        )
        queue.is_auto_created = is_auto_created
        self.queues[name] = queue
        if queue.address != name:
            self._sharing.setdefault(queue.address, {})[queue] = None
        self._forget_named(queue)
        queue.touch()
        self._tell(EventKind.DECLARED, name, what="queue", queue=queue)
        tell_what_was(self, queue, queue.address)
        return queue

    def create_queue(
        self, name: str, *, arguments: FieldTable | None = None, address: str | None = None, is_auto_created: bool
    ) -> Queue:
        """A durable queue that the broker makes itself, or the one that is there. The arguments are not checked."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self._make_queue(name, True, None, False, arguments or {}, address, is_auto_created)
            if is_auto_created:
                self.broker.reaper.watch()
        return queue

    def restore_queue(
        self, name: str, *, auto_delete: bool, arguments: FieldTable, address: str | None, is_auto_created: bool
    ) -> Queue:
        """A durable queue that was there before a restart."""
        queue = self._make_queue(name, True, None, auto_delete, arguments, address, is_auto_created)
        if is_auto_created:
            self.broker.reaper.watch()
        return queue

    def queue_for_consumer(self, name: str, client: Client | None = None) -> Queue:
        """The queue to consume or get from, made now where its settings ask for that (address-settings page 3.5).

        Nobody gets a queue made in passing that he could not declare.
        Raises: QueueNotFound, PermissionRefused, QueuesMaxReached, AllQueuesMaxReached.
        """
        require(client, READ, QUEUE, name)
        if name not in self.queues and name and self._auto_creates(name) and may(client, CONFIGURE, QUEUE, name):
            if client is not None:
                self._check_queues_max(name)
            return self.create_queue(name, is_auto_created=True)
        return self.queue(name)

    def _auto_creates(self, name: str) -> bool:
        return self.broker.settings.resolve(name, self.name).auto_create_queues

    def _check_same_queue(
        self,
        current: Queue,
        client: Client | None,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: FieldTable,
    ) -> None:
        if exclusive != current.exclusive or (current.owner is not None and current.owner is not client):
            raise ResourceLocked(name=current.name, vhost=self.name)
        self._check_same_fields("queue", current, {"durable": durable, "auto_delete": auto_delete})
        check_same_arguments(current.arguments, arguments, name=current.name, vhost=self.name)

    def _check_same_fields(self, kind: str, current: Destination, fields: dict[str, object]) -> None:
        """The first field that differs refuses a redeclaration. Raises: InequivalentField."""
        for field, received in fields.items():
            is_now = getattr(current, field)
            if received != is_now:
                raise InequivalentField(
                    field=field,
                    kind=kind,
                    name=current.name,
                    vhost=self.name,
                    received=_word(received),
                    current=_word(is_now),
                )

    def _accessible(self, name: str, client: Client | None) -> Queue:
        queue = self.queue(name)
        if queue.owner is not None and client is not None and queue.owner is not client:
            raise ResourceLocked(name=name, vhost=self.name)
        return queue

    def purge_queue(self, name: str, client: Client) -> int:
        """Drop the ready messages; returns how many.

        Raises: PermissionRefused, QueueNotFound, ResourceLocked, StreamOperationNotSupported.
        """
        require(client, READ, QUEUE, name)
        queue = self._accessible(name, client)
        check_purge(queue)
        self.broker.dispatch_now(queue)
        return queue.purge()

    def delete_queue(self, name: str, client: Client, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue; returns how many ready messages went with it. A missing queue is fine.

        Raises: PermissionRefused, ResourceLocked, NotEmpty, InUse, ConditionalDeleteNotSupported.
        """
        require(client, CONFIGURE, QUEUE, name)
        if name not in self.queues:
            return 0
        queue = self._accessible(name, client)
        check_delete(queue, if_unused=if_unused, if_empty=if_empty)
        self.broker.dispatch_now(queue)
        if if_empty and (queue.ready_count or queue.scheduled):
            raise NotEmpty(name=name, vhost=self.name)
        if if_unused and queue.consumers:
            raise InUse(kind="queue", name=name, vhost=self.name)
        return self.remove_queue(queue)

    def remove_queue(self, queue: Queue) -> int:
        """Take a queue away, for whatever reason; its consumers are told. Returns how many messages were ready."""
        queue.deleted = True
        del self.queues[queue.name]
        if queue.address != queue.name:
            sharing = self._sharing[queue.address]
            del sharing[queue]
            if not sharing:
                del self._sharing[queue.address]
        self._forget_named(queue)
        if queue.owner is not None:
            queue.owner.exclusive_queues.pop(queue, None)
        consumers = sorted(queue.consumers, key=lambda one: one.tag)  # RabbitMQ's order
        for consumer in consumers:
            consumer.session.consumer_cancelled(consumer)
        queue.remove_consumers(consumers)
        for consumer in consumers:
            consumer.client.put(ConsumerCancelled(consumer), 0)
        self._unbind_all(queue)
        paged = queue.drop_paged(EventKind.DELETED)
        ready = queue.take_ready()
        ready.extend(queue.scheduled.take_all())
        queue.forget_deadlines()
        self.broker.memory.forget(queue)
        count = len(ready) + paged
        queue.counters.deleted += count + (0 if queue.keeps else queue.unacked)
        if self.broker.listeners:
            gone = [*ready, *(() if queue.keeps else self.broker.unacked_of(queue))]
            gone.sort(key=lambda message: message.id)
            self.broker.emit(EventKind.DELETED, queue, gone)
        for session in queue.sessions:
            session.forget_queue(queue)
        queue.sessions.clear()
        self.broker.counters.add(queue.counters)
        self.broker.free(ready)
        self._tell(EventKind.UNDECLARED, queue.name, what="queue", queue=queue)
        return count

    def take_down(self, count: int) -> bool:
        """Delete up to `count` queues of a virtual host that goes; True when nothing is left, exchanges neither."""
        for queue in list(islice(self.queues.values(), count)):
            self.remove_queue(queue)
        if self.queues:
            return False
        predeclared = {name for name, _, _ in PREDECLARED}
        for exchange in list(self.exchanges.values()):
            is_own = exchange.name not in predeclared and not isinstance(exchange, ServiceExchange)
            if is_own and self.exchanges.get(exchange.name) is exchange:  # it may have gone with one before
                self._remove_exchange(exchange)
        self.broker.emit_object(EventKind.UNDECLARED, self.name, self.name, {"what": "vhost"})
        return True

    # -- messages ---------------------------------------------------------------------------------------------------

    def route(self, exchange_name: str, routing_key: str, user: "User") -> Route:
        """The way for messages published by a user, who may. Services take requests from administrators only.

        Permissions count as topology: what is answered here holds until the route is stale.
        Raises: PermissionRefused, ExchangeNotFound, InternalExchangeRefused, TopicRefused.
        """
        exchange = self.exchanges.get(exchange_name)
        if not (isinstance(exchange, ServiceExchange) and user.is_administrator):
            user.require(WRITE, EXCHANGE, exchange_name, self.name)
            exchange = self.exchange(exchange_name)
            if exchange.internal:
                raise InternalExchangeRefused(name=exchange_name, vhost=self.name)
            if exchange.type == TopicExchange.type:
                user.require_topic(WRITE, exchange_name, routing_key, self.name)
        # Asked only where it matters: names that were never seen before cost a search each.
        may_create = (
            bool(exchange_name) or routing_key in self.queues or user.may(CONFIGURE, QUEUE, routing_key, self.name)
        )
        return self.route_of(exchange, routing_key, may_create=may_create)

    def route_of(self, exchange: Exchange, routing_key: str, *, may_create: bool = True) -> Route:
        """The way for messages that the broker itself publishes. All that have one from here share it."""
        if (
            not exchange.name
            and may_create
            and self.queue_named(routing_key) is None
            and self._auto_creates(routing_key)
        ):
            self.create_queue(routing_key, is_auto_created=True)
        found = exchange.routes.find(routing_key)
        return found if isinstance(found, Route) else self._look_up(exchange, routing_key)

    def _look_up(self, exchange: Exchange, routing_key: str) -> Route:
        queues: list[Queue] | None = None
        way: Iterable[Exchange] = (exchange,)
        if not is_reply_address(exchange, routing_key) and not self._takes_turns(exchange, routing_key):
            message = Routed((routing_key,))
            queues, way = reach_all(exchange, message, self)
            self.broker.spread += message.cost
            if queues is not None:
                queues = self._taking(queues, exchange, (routing_key,))
        rules = self.arrival_rules(exchange.name, routing_key)
        route = Route(exchange, routing_key, queues, rules if concerns(rules) else None)
        exchange.routes.register(route, [other.routes for other in way if other is not exchange])
        return route

    def _takes_turns(self, exchange: Exchange, routing_key: str) -> bool:
        """Whether queues share the address, so that it depends on whose turn it is."""
        return not exchange.name and len(self._sharing.get(routing_key, ())) > 1

    def queue_named(self, name: str) -> Queue | None:
        """Where the default exchange sends a routing key."""
        return self.queues.get(name) or self.reply_queues.get(name)

    def add_reply_queue(self, address: str, owner: Client) -> ReplyQueue:
        """Where direct replies to `address` go from now on, until the queue loses its consumer."""
        queue = self.reply_queues[address] = ReplyQueue(self, address, owner)
        return queue

    def has_reply_queue(self, name: str) -> bool:
        """Whether somebody waits for direct replies there. The name that stands for one's own is always right.

        Raises: QueueNotFound for an address where nobody does.
        """
        if name in self.reply_queues or name == REPLY_TO:
            return True
        if name.startswith(REPLY_PREFIX):
            raise QueueNotFound(name=name, vhost=self.name)
        return False

    def reach(self, exchange: Exchange, message: Routed) -> list[Queue]:
        """The queues that take a message: those that are reached, and are open to new messages.

        What that cost goes from the message to `Broker.spread`.
        """
        reached = reach(exchange, message, self)
        self.broker.spread += message.cost
        message.cost = 0
        return self._taking(reached, exchange, message.keys)

    def _taking(self, queues: list[Queue], exchange: Exchange, keys: tuple[str, ...]) -> list[Queue]:
        """Of those that are reached; of the default exchange also those that share an address."""
        if not exchange.name and self._sharing:
            for key in keys:
                if key in self._sharing:
                    queues += self._reach_by_address(key, has_own=key in self.queues)
        return [queue for queue in queues if queue.is_open]

    def _reach_by_address(self, address: str, *, has_own: bool) -> list[Queue]:
        """Queues of an address beside the one named like it: all multicast ones and, in turns, one anycast one.

        Multicast are those bound to the exchange of that name. Source: address-settings page 1.3.
        """
        sharing = self._sharing[address]
        self.broker.spread += len(sharing) // FOUND_A_STEP
        named_alike = self.exchanges.get(address)
        bound = {} if named_alike is None else named_alike.destinations
        multicast = [queue for queue in sharing if queue in bound]
        anycast = None if has_own else next((queue for queue in sharing if queue not in bound and queue.is_open), None)
        if anycast is None:
            return multicast
        del sharing[anycast]
        sharing[anycast] = None  # the last now
        return [*multicast, anycast]

    def queues_at(self, address: str) -> list[Queue]:
        """All queues whose address this is."""
        own = self.queues.get(address)
        found = [own] if own is not None and own.address == address else []
        return found + list(self._sharing.get(address, ()))

    def arrival_rules(self, exchange_name: str, routing_key: str) -> ArrivalRules:
        """What the address of a message does with it."""
        broker = self.broker
        address = broker.options.address_of(exchange_name, routing_key)
        return arrival_rules(address, broker.settings.resolve(address, self.name), self.diverts.of(address))

    def is_delaying(self, exchange_name: str) -> bool:
        """Whether an exchange of that name delays messages."""
        return isinstance(self.exchanges.get(exchange_name), DelayedExchange)

    def resolve_address(self, address: str, queue_name: str) -> tuple[str, str]:
        """Exchange and routing key that a dead-letter or expiry address stands for (address-settings page 1.3).

        `exchange:NAME/KEY`, `exchange:NAME`, `queue:NAME`; else an exchange of that name, else the queue of that name.
        """
        if address.startswith("exchange:"):
            name, slash, key = address.removeprefix("exchange:").partition("/")
            return name, key if slash else queue_name
        if address.startswith("queue:"):
            return "", address.removeprefix("queue:")
        return (address, queue_name) if address in self.exchanges else ("", address)

    def policies_changed(self) -> None:
        """Other policies hold here from now on; the broker sees to the queues. O(exchanges, times policies; routes)."""
        self._set_exchange_policies()
        self.routes_changed()

    def _set_exchange_policies(self) -> None:
        policies = self.broker.policies
        for exchange in self.exchanges.values():
            if exchange.name and not isinstance(exchange, ServiceExchange):
                exchange.set_policy(policies.of_exchange(exchange.name, self.name))
        self._sending_to = {}
        for exchange in self.exchanges.values():
            if exchange.alternate is not None:
                self._sending_to.setdefault(exchange.alternate, {})[exchange] = None

    def routes_changed(self) -> None:
        """All routes are to be looked up anew. O(exchanges, and routes)."""
        for exchange in self.exchanges.values():
            exchange.routes.forget_all()

    def forget_routes_to(self, queue: Queue) -> None:
        """A queue that took no messages does now, or the other way round. O(its bindings)."""
        self._forget_named(queue)
        for binding in queue.incoming:
            binding.source.forget_routes(binding)

    def _forget_named(self, queue: Queue) -> None:
        """The default exchange does or does not lead to a queue any more."""
        self.exchanges[""].routes.forget(queue.name)
        self._forget_shared_address(queue)

    def _forget_shared_address(self, destination: Destination) -> None:
        """The default exchange asks how queues are bound that share an address (`_reach_by_address`)."""
        if isinstance(destination, Queue) and destination.address != destination.name:
            self.exchanges[""].routes.forget(destination.address)

    def _tell(self, kind: EventKind, subject: str, **detail: object) -> None:
        self.broker.emit_object(kind, self.name, subject, detail)


def _word(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value
