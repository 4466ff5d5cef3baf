"""What there is, written down: queues, exchanges and bindings that are durable, and what operators set.

The part of the recorder that has to do with names. Source: rulings 21 and 22.
"""

from typing import Any

from ...engine import Broker, Event, EventKind, Exchange, Field, FieldTable, Queue, ServiceExchange, encode_table
from ..format.heap import IS_AUTO_DELETE, IS_DURABLE, IS_INTERNAL, Bound, Declared
from ..format.record import EXCHANGE, OPERATOR_POLICY, POLICY, QUEUE, USER, VHOST
from ..journal import Journal
from .access_records import limits_octets, policy_octets, user_octets

#: What a queue has beside its arguments, kept as arguments of names that no client can give (they hold a space).
AUTO_CREATED, ADDRESS, FIRST_OFFSET = "leveret auto-created", "leveret address", "leveret first-offset"


class ObjectRecorder:
    """Knows the journal's ids of queues and exchanges by their names."""

    def __init__(self, broker: Broker, journal: Journal) -> None:
        self._broker = broker
        self._journal = journal
        self._queue_ids: dict[tuple[str, str], int] = {}
        self._exchange_ids: dict[tuple[str, str], int] = {}
        self._has_recorded = False  # since somebody last took the barrier

    # -- names --------------------------------------------------------------------------------------------------------

    def id_of(self, queue: Queue) -> int:
        """The journal's id of a durable queue."""
        return self._queue_id(queue)

    def remember(self, queue_or_exchange: Queue | Exchange) -> None:
        """It was there before the recorder."""
        if isinstance(queue_or_exchange, Queue):
            self._queue_id(queue_or_exchange)
        else:
            self._exchange_id(self._vhost_of(queue_or_exchange), queue_or_exchange.name)

    def _vhost_id(self, name: str) -> int:
        return self._journal.objects.define(VHOST, 0, name)

    def _queue_id(self, queue: Queue) -> int:
        key = (queue.vhost_name, queue.name)
        found = self._queue_ids.get(key)
        if found is None:
            found = self._queue_ids[key] = self._journal.objects.define(QUEUE, self._vhost_id(key[0]), queue.name)
        return found

    def _exchange_id(self, vhost: str, name: str) -> int:
        key = (vhost, name)
        found = self._exchange_ids.get(key)
        if found is None:
            found = self._exchange_ids[key] = self._journal.objects.define(EXCHANGE, self._vhost_id(vhost), name)
        return found

    # -- topology -----------------------------------------------------------------------------------------------------

    def _declared(self, event: Event) -> None:
        assert event.detail is not None
        what = event.detail["what"]
        if what == "vhost":
            self.state_vhost(event.subject, restated=False)
        elif what == "user":
            self.state_user(event.detail["user"], restated=False)
        elif what == "policy":
            self.state_policy(event.detail["policy"], restated=False)
        else:
            self.state_object(event.detail[str(what)], restated=False)

    def state_object(self, subject: Any, *, restated: bool) -> None:
        """A durable queue or exchange is there."""
        if subject.durable:
            self._write_object(subject, restated)
            self._has_recorded |= not restated

    def _write_object(self, subject: Any, restated: bool) -> None:
        durable = IS_DURABLE if subject.durable else 0
        if isinstance(subject, Queue):
            arguments = dict(subject.arguments)
            if subject.is_auto_created:
                arguments[AUTO_CREATED] = Field("t", True)
            if subject.address != subject.name and "x-address" not in arguments:
                arguments[ADDRESS] = Field("S", subject.address.encode())
            if subject.first_offset:
                arguments[FIRST_OFFSET] = Field("l", subject.first_offset)
            properties = durable | (IS_AUTO_DELETE if subject.auto_delete else 0)
            declared = Declared(QUEUE, properties, "", encode_table(arguments))
            self._journal.objects.declared(self._queue_id(subject), declared, restated=restated)
        else:
            vhost = self._vhost_of(subject)
            properties = durable | (IS_AUTO_DELETE if subject.auto_delete else 0)
            properties |= IS_INTERNAL if subject.internal else 0
            declared = Declared(EXCHANGE, properties, subject.type, encode_table(subject.arguments))
            self._journal.objects.declared(self._exchange_id(vhost, subject.name), declared, restated=restated)

    def _vhost_of(self, exchange: Exchange) -> str:
        return next(
            name for name, vhost in self._broker.virtual_hosts.items() if vhost.exchanges.get(exchange.name) is exchange
        )

    def _undeclared(self, event: Event) -> None:
        assert event.detail is not None
        if event.detail["what"] == "vhost":
            is_going = bool(event.detail.get("is_going"))  # what is in it still has to go, by names that speak of it
            self._journal.objects.undeclared(self._vhost_id(event.subject), VHOST, forgets=not is_going)
            self._has_recorded = True
            if not is_going:
                for ids in (self._queue_ids, self._exchange_ids):  # it may be made again: with other ids
                    for key in [key for key in ids if key[0] == event.subject]:
                        del ids[key]
            return
        if event.detail["what"] == "user":
            self._forget(USER, 0, event.subject)
            return
        if event.detail["what"] == "policy":
            self._forget_policy(event.detail["policy"])
            return
        subject: Any = event.detail[str(event.detail["what"])]
        key = (event.vhost, event.subject)
        ids, what = (self._queue_ids, QUEUE) if isinstance(subject, Queue) else (self._exchange_ids, EXCHANGE)
        id_ = ids.pop(key, None)
        if id_ is None:
            return
        if subject.durable:
            self._journal.objects.undeclared(id_, what)
            self._has_recorded = True
        else:
            self._transient_gone(id_, what)

    def _transient_gone(self, id_: int, what: int) -> None:
        """Of what does not survive a restart nothing is written; messages may speak of a transient exchange."""
        self._journal.objects.retire(id_)

    def _bound(self, event: Event) -> None:
        assert event.detail is not None
        self.state_binding(event.vhost, event.detail["binding"], restated=False)

    def state_binding(self, vhost: str, binding: Any, *, restated: bool) -> None:
        source, target = binding.source, binding.destination
        if source.durable and target.durable:
            self._journal.objects.bound(
                self._exchange_id(vhost, source.name), self._bound_of(vhost, binding), restated=restated
            )
            self._has_recorded |= not restated

    def _unbound(self, event: Event) -> None:
        assert event.detail is not None
        binding: Any = event.detail["binding"]
        if binding.source.durable and binding.destination.durable and self._knows(event.vhost, binding):
            source_id = self._exchange_id(event.vhost, binding.source.name)
            self._journal.objects.unbound(source_id, self._bound_of(event.vhost, binding))
            self._has_recorded = True

    def _knows(self, vhost: str, binding: Any) -> bool:
        """Whether both ends have ids: with an exchange that was undeclared its bindings are gone already."""
        target = binding.destination
        ids = self._queue_ids if isinstance(target, Queue) else self._exchange_ids
        return (vhost, target.name) in ids and (vhost, binding.source.name) in self._exchange_ids

    def _bound_of(self, vhost: str, binding: Any) -> Bound:
        target = binding.destination
        if isinstance(target, Queue):
            what, target_id = QUEUE, self._queue_id(target)
        else:
            what, target_id = EXCHANGE, self._exchange_id(vhost, target.name)
        arguments: FieldTable = binding.arguments
        return Bound(what, target_id, binding.routing_key.encode(), encode_table(arguments) if arguments else b"")

    # -- what operators set -------------------------------------------------------------------------------------------

    def state_vhost(self, name: str, *, restated: bool = True) -> None:
        """A virtual host is there, with these limits."""
        vhost = self._broker.virtual_hosts.get(name)
        limits = limits_octets(vhost.limits) if vhost is not None else b""
        self._journal.objects.declared(self._vhost_id(name), Declared(VHOST, IS_DURABLE, "", limits), restated=restated)
        self._has_recorded |= not restated

    def state_user(self, user: Any, *, restated: bool) -> None:
        """A user is so; one of the configuration is kept there, not here."""
        if user.is_configured:
            self._forget(USER, 0, user.name)
            return
        id_ = self._journal.objects.define(USER, 0, user.name)
        self._journal.objects.declared(id_, Declared(USER, IS_DURABLE, "", user_octets(user)), restated=restated)
        self._has_recorded |= not restated

    def state_policy(self, policy: Any, *, restated: bool) -> None:
        """A policy is so; one of the configuration is kept there, not here."""
        if policy.origin is not None:
            self._forget_policy(policy)
            return
        what = OPERATOR_POLICY if policy.is_operator else POLICY
        id_ = self._journal.objects.define(what, self._vhost_id(policy.vhost), policy.name)
        self._journal.objects.declared(id_, Declared(what, IS_DURABLE, "", policy_octets(policy)), restated=restated)
        self._has_recorded |= not restated

    def _forget_policy(self, policy: Any) -> None:
        what = OPERATOR_POLICY if policy.is_operator else POLICY
        self._forget(what, self._vhost_id(policy.vhost), policy.name)

    def _forget(self, what: int, vhost_id: int, name: str) -> None:
        id_ = self._journal.names.id_of(what, vhost_id, name)
        if id_ is not None:
            self._journal.objects.undeclared(id_, what)
            self._has_recorded = True


def is_durable(event: Event) -> bool:
    """Whether a change of topology is one that survives restarts."""
    assert event.detail is not None
    what = event.detail["what"] if event.kind in (EventKind.DECLARED, EventKind.UNDECLARED) else "binding"
    if what == "binding":
        binding: Any = event.detail["binding"]
        return bool(binding.source.durable and binding.destination.durable)
    if what in ("queue", "exchange"):
        subject: Any = event.detail[str(what)]
        return bool(subject.durable)
    return True  # what operators set


def is_declared(exchange: Exchange) -> bool:
    """Whether somebody declared it: not one that every virtual host has."""
    is_given = not exchange.name or exchange.name.startswith("amq.") or isinstance(exchange, ServiceExchange)
    return exchange.durable and not is_given
