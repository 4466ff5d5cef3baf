"""The part of the recorder that writes objects: durable queues, exchanges and bindings; users, policies, parameters.

Source: rulings 21 and 22.
"""

import json
from typing import ClassVar

from ...engine import (
    Binding,
    BindingEvent,
    Broker,
    ClusterEvent,
    Event,
    EventKind,
    Exchange,
    ExchangeEvent,
    Field,
    FieldTable,
    NotesEvent,
    ParameterEvent,
    PolicyEvent,
    Queue,
    QueueEvent,
    ServiceExchange,
    User,
    UserDeclaredEvent,
    UserUndeclaredEvent,
    VirtualHostEvent,
    encode_table,
)
from ...settings import Policy
from ..appending.journal import Journal
from ..format.heap import IS_AUTO_DELETE, IS_DURABLE, IS_INTERNAL, Bound, Declared
from ..format.needs import LOGGED_TOPICS
from ..format.record import CODE_OF, EXCHANGE, OPERATOR_POLICY, PARAMETER, POLICY, QUEUE, USER, VHOST
from .access_records import limits_octets, parameter_name, parameter_octets, policy_octets, user_octets

#: Keys, with `NOTE_PREFIX`, that hold other attributes of a queue between its arguments.
AUTO_CREATED, ADDRESS, MAKES_NO_QUEUES = "leveret auto-created", "leveret address", "leveret makes-no-queues"
USED = "leveret used"
_LOG = frozenset({LOGGED_TOPICS})
_SET_BY_OPERATORS = (VirtualHostEvent, UserDeclaredEvent, UserUndeclaredEvent, PolicyEvent, ParameterEvent)


class ObjectRecorder:
    """Records objects. Keeps the journal's ids of queues and exchanges by their names.

    `queue_ids`: ids of queues, by virtual host and name. `restated`: the record repeats what is already true, for a
    checkpoint.
    """

    #: Whether changes of transient objects are recorded, too.
    takes_transient: ClassVar[bool] = False

    def __init__(self, broker: Broker, journal: Journal) -> None:
        self._broker = broker
        self._context = broker.context
        self._journal = journal
        self.queue_ids: dict[tuple[str, str], int] = {}
        self._exchange_ids: dict[tuple[str, str], int] = {}

    # -- names --------------------------------------------------------------------------------------------------------

    def remember(self, queue_or_exchange: Queue | Exchange) -> None:
        """Assign an id to an object that existed before the recorder."""
        if isinstance(queue_or_exchange, Queue):
            self.queue_id(queue_or_exchange)
        else:
            self.exchange_id(self._vhost_of(queue_or_exchange), queue_or_exchange.name)

    def vhost_id(self, name: str) -> int:
        return self._journal.objects.define(VHOST, 0, name)

    def queue_id(self, queue: Queue) -> int:
        key = (queue.vhost_name, queue.name)
        found = self.queue_ids.get(key)
        if found is None:
            if queue.name:
                found = self._journal.objects.define(QUEUE, self.vhost_id(key[0]), queue.name)
            else:  # the log of topics, which is not an object of the journal
                self._journal.turns.add_needs(_LOG)
                found = 0
            self.queue_ids[key] = found
        return found

    def exchange_id(self, vhost: str, name: str) -> int:
        key = (vhost, name)
        found = self._exchange_ids.get(key)
        if found is None:
            found = self._exchange_ids[key] = self._journal.objects.define(EXCHANGE, self.vhost_id(vhost), name)
        return found

    # -- topology -----------------------------------------------------------------------------------------------------

    def queue_changed(self, event: QueueEvent) -> None:
        if event.kind is EventKind.DECLARED:
            self.state_object(event.queue, restated=False)
        else:
            self._undeclared(event.queue, self.queue_ids.pop((event.vhost, event.subject), None), QUEUE)

    def notes_changed(self, event: NotesEvent) -> None:
        queue = self._broker.virtual_hosts.find_queue(event.vhost, event.subject)
        if queue is not None and queue.durable:  # None: its virtual host is being deleted, as is recorded
            self._write_object(queue, restated=True)
            self._context.turn.records += 1

    def exchange_changed(self, event: ExchangeEvent) -> None:
        if event.kind is EventKind.DECLARED:
            if event.vhost in self._broker.virtual_hosts:  # else it is being deleted, as is recorded
                self.state_object(event.exchange, restated=False)
        else:
            self._undeclared(event.exchange, self._exchange_ids.pop((event.vhost, event.subject), None), EXCHANGE)

    def _undeclared(self, subject: Queue | Exchange, id_: int | None, object_type: int) -> None:
        if id_ is None:
            return
        if subject.durable or self.takes_transient:
            self._journal.objects.undeclared(id_, object_type)
            self._context.turn.records += subject.durable
        else:  # messages may refer to a transient exchange
            self._journal.objects.retire(id_)

    def state_object(self, subject: Queue | Exchange, *, restated: bool) -> None:
        """Record that a queue or exchange exists, if it is durable. `takes_transient`: others too, but not restated."""
        if subject.durable or (self.takes_transient and not restated):
            self._write_object(subject, restated)
            self._context.turn.records += subject.durable and not restated

    def _write_object(self, subject: Queue | Exchange, restated: bool) -> None:
        durable = IS_DURABLE if subject.durable else 0
        if isinstance(subject, Queue):
            arguments = dict(subject.arguments)
            if subject.is_auto_created:
                arguments[AUTO_CREATED] = Field("t", True)
            if subject.was_used and subject.is_deletable:
                arguments[USED] = Field("t", True)
            if not subject.may_make_queues:
                arguments[MAKES_NO_QUEUES] = Field("t", True)
            if subject.address != subject.name and "x-address" not in arguments:
                arguments[ADDRESS] = Field("S", subject.address.encode())
            arguments.update(subject.kind.notes(subject, restated))
            properties = durable | (IS_AUTO_DELETE if subject.auto_delete else 0)
            declared = Declared(QUEUE, properties, "", encode_table(arguments))
            self._journal.objects.declared(self.queue_id(subject), declared, restated=restated)
        else:
            vhost = self._vhost_of(subject)
            properties = durable | (IS_AUTO_DELETE if subject.auto_delete else 0)
            properties |= IS_INTERNAL if subject.internal else 0
            declared = Declared(EXCHANGE, properties, subject.type, encode_table(subject.arguments))
            self._journal.objects.declared(self.exchange_id(vhost, subject.name), declared, restated=restated)

    def _vhost_of(self, exchange: Exchange) -> str:
        return next(
            name for name, vhost in self._broker.virtual_hosts.items() if vhost.exchanges.get(exchange.name) is exchange
        )

    def binding_changed(self, event: BindingEvent) -> None:
        vhost, binding = event.vhost, event.binding
        if event.kind is EventKind.BOUND:
            self.state_binding(vhost, binding, restated=False)
            return
        durable = is_durable(event)
        if (durable or self.takes_transient) and self._has_ids(vhost, binding):
            source_id = self.exchange_id(vhost, binding.source.name)
            self._journal.objects.unbound(source_id, self._bound_of(vhost, binding), durable=durable)
            self._context.turn.records += durable

    def state_binding(self, vhost: str, binding: Binding, *, restated: bool) -> None:
        """Record that a binding exists, if it is durable. `takes_transient`: others too, but not restated."""
        source = binding.source
        durable = source.durable and binding.destination.durable
        if durable or (self.takes_transient and not restated):
            source_id, bound = self.exchange_id(vhost, source.name), self._bound_of(vhost, binding)
            self._journal.objects.bound(source_id, bound, durable=durable, restated=restated)
            self._context.turn.records += durable and not restated

    def _has_ids(self, vhost: str, binding: Binding) -> bool:
        """Whether both ends have ids: the bindings of an undeclared exchange are gone already."""
        target = binding.destination
        ids = self.queue_ids if isinstance(target, Queue) else self._exchange_ids
        return (vhost, target.name) in ids and (vhost, binding.source.name) in self._exchange_ids

    def _bound_of(self, vhost: str, binding: Binding) -> Bound:
        target = binding.destination
        if isinstance(target, Queue):
            object_type, target_id = QUEUE, self.queue_id(target)
        else:
            object_type, target_id = EXCHANGE, self.exchange_id(vhost, target.name)
        arguments: FieldTable = binding.arguments
        return Bound(
            object_type, target_id, binding.routing_key.encode(), encode_table(arguments) if arguments else b""
        )

    # -- objects of operators -----------------------------------------------------------------------------------------

    def vhost_changed(self, event: VirtualHostEvent) -> None:
        """Record that a virtual host was made, that its deletion begins, or that it was deleted."""
        if event.kind is EventKind.DECLARED:
            self.state_vhost(event.subject, restated=False)
            return
        # While it is being deleted, its objects still have to be undeclared by names that refer to it.
        self._journal.objects.undeclared(self.vhost_id(event.subject), VHOST, forgets=not event.has_objects)
        self._context.turn.records += 1
        if not event.has_objects:
            for ids in (self.queue_ids, self._exchange_ids):  # if it is made again, its objects get other ids
                for key in [key for key in ids if key[0] == event.subject]:
                    del ids[key]

    def user_declared(self, event: UserDeclaredEvent) -> None:
        self.state_user(event.user, restated=False)

    def user_undeclared(self, event: UserUndeclaredEvent) -> None:
        self._forget(USER, 0, event.subject)

    def policy_changed(self, event: PolicyEvent) -> None:
        if event.kind is EventKind.DECLARED:
            self.state_policy(event.policy, restated=False)
        else:
            self._forget_policy(event.policy)

    def parameter_changed(self, event: ParameterEvent) -> None:
        if event.kind is EventKind.DECLARED:
            self.state_parameter((event.vhost, event.component, event.subject), event.value, restated=False)
        else:
            self._forget(PARAMETER, self._vhost_id_or_zero(event.vhost), parameter_name(event.component, event.subject))

    def cluster_changed(self, event: ClusterEvent) -> None:
        """Record that a node leads, follows or blocks publishers, or that the in-sync set changed."""
        text = json.dumps({"node": event.subject, "why": event.why})
        self._journal.objects.cluster_changed(CODE_OF[event.kind], event.term, text)

    def _vhost_id_or_zero(self, vhost: str) -> int:
        return self.vhost_id(vhost) if vhost else 0

    def state_vhost(self, name: str, *, restated: bool = True) -> None:
        """Record a virtual host and its limits."""
        vhost = self._broker.virtual_hosts.get(name)
        limits = limits_octets(vhost.context.limits) if vhost is not None else b""
        self._state(VHOST, 0, name, limits, restated=restated)

    def state_user(self, user: User, *, restated: bool) -> None:
        """Record a user; a user of the configuration is not recorded."""
        if user.is_configured:
            self._forget(USER, 0, user.name)
            return
        self._state(USER, 0, user.name, user_octets(user), restated=restated)

    def state_policy(self, policy: Policy, *, restated: bool) -> None:
        """Record a policy; a policy of the configuration is not recorded."""
        if policy.origin is not None:
            self._forget_policy(policy)
            return
        object_type = OPERATOR_POLICY if policy.is_operator else POLICY
        self._state(object_type, self.vhost_id(policy.vhost), policy.name, policy_octets(policy), restated=restated)

    def state_parameter(self, identity: tuple[str, str, str], value: object, *, restated: bool) -> None:
        """Record a parameter's value."""
        vhost, component, name = identity
        name = parameter_name(component, name)
        self._state(PARAMETER, self._vhost_id_or_zero(vhost), name, parameter_octets(value), restated=restated)

    def _state(self, object_type: int, vhost_id: int, name: str, octets: bytes, *, restated: bool) -> None:
        id_ = self._journal.objects.define(object_type, vhost_id, name)
        self._journal.objects.declared(id_, Declared(object_type, IS_DURABLE, "", octets), restated=restated)
        self._context.turn.records += not restated

    def _forget_policy(self, policy: Policy) -> None:
        object_type = OPERATOR_POLICY if policy.is_operator else POLICY
        self._forget(object_type, self.vhost_id(policy.vhost), policy.name)

    def _forget(self, object_type: int, vhost_id: int, name: str) -> None:
        id_ = self._journal.names.id_of(object_type, vhost_id, name)
        if id_ is not None:
            self._journal.objects.undeclared(id_, object_type)
            self._context.turn.records += 1


def is_durable(event: Event) -> bool:
    """Whether the event is a change of objects that survives restarts."""
    match event:
        case NotesEvent():
            return True
        case QueueEvent():
            return event.queue.durable
        case ExchangeEvent():
            return event.exchange.durable
        case BindingEvent():
            return event.binding.source.durable and event.binding.destination.durable
        case _:  # objects of operators
            return isinstance(event, _SET_BY_OPERATORS)


def is_declared(exchange: Exchange) -> bool:
    """Whether a client or an operator declared this durable exchange, so that it is not predefined."""
    is_predefined = not exchange.name or exchange.name.startswith("amq.") or isinstance(exchange, ServiceExchange)
    return exchange.durable and not is_predefined
