"""The oracle's books of what there is beside messages: users, policies, parameters, virtual hosts, exchanges,
bindings, queues.

After a restart there is what there was behind some turn, the last durable one or a later one: what an operator or a
client was told is done stays done, and who was deleted does not come back.
"""

from __future__ import annotations

from collections import deque
from typing import Any, cast

from leveret.engine import (
    BindingEvent,
    Broker,
    Event,
    ExchangeEvent,
    ParameterEvent,
    PolicyEvent,
    QueueEvent,
    UserDeclaredEvent,
    UserUndeclaredEvent,
    VirtualHostEvent,
)
from leveret.journal.recording.object_recorder import is_declared

from .explored import CONFIGURED
from .ledger import Broken

State = dict[tuple[object, ...], object]

_CHANGES = frozenset(
    {
        BindingEvent,
        ExchangeEvent,
        ParameterEvent,
        PolicyEvent,
        QueueEvent,
        UserDeclaredEvent,
        UserUndeclaredEvent,
        VirtualHostEvent,
    }
)


class Objects:
    """A listener of the broker, beside the ledger. `durable`: what there was behind the last durable turn."""

    takes_mixed = True

    def __init__(self) -> None:
        self.durable: State = {}
        self.states = 0
        self._waiting: deque[tuple[int, State]] = deque()  # LSN behind a turn, what there was then
        self._is_blurred = False  # what there was behind some turn is not known: it was not the end of its work
        self._has_changed = False
        self._is_behind = False
        self._broker: Broker | None = None

    def __call__(self, event: Event) -> None:
        if type(event) in _CHANGES:
            self._has_changed = True

    def turn_ended(self, lsn: int, durable_lsn: int, *, is_unfinished: bool = False) -> None:
        """What there is now is safe when all below `lsn` is. `is_unfinished`: the broker works on."""
        if is_unfinished:
            self._is_blurred = self._is_blurred or self._has_changed
            return
        assert self._broker is not None
        recorder = cast(Any, self._broker.context.storage.durability)
        if self._has_changed and not recorder.is_lost:
            self._has_changed = False
            self.states += 1
            self._waiting.append((lsn, facts_of(self._broker)))
        if recorder.is_behind:
            self._is_behind = True  # what happens now has no LSN
        elif self._is_behind:
            self._is_behind = False
            self.durable = facts_of(self._broker)
            self._waiting.clear()
        else:
            self._survives(durable_lsn)

    def _survives(self, lsn: int) -> None:
        while self._waiting and self._waiting[0][0] <= lsn:
            self.durable = self._waiting.popleft()[1]
        self._is_blurred = self._is_blurred and bool(self._waiting)

    def is_safe(self, committed_lsn: int, *key: object, is_there: bool = True) -> bool:
        """Whether something is there, or not, wherever a broker may start again. `key`: as in `facts_of`, its begin."""
        if self._is_behind or self._is_blurred or self._has_changed:
            return True  # as far as anybody knows
        state = self.durable
        for lsn, later in self._waiting:
            if lsn > committed_lsn:
                break
            state = later
        return is_there is any(one[: len(key)] == key for one in state)

    def compare_restart(self, broker: Broker, written_lsn: int | None) -> None:
        """What another broker found that started now. See `Ledger.attach`; nothing changes here. Raises: Broken."""
        assert self._broker is not None
        if self._is_behind or self._is_blurred:
            return
        allowed = [self.durable, *(state for _, state in self._waiting), facts_of(self._broker)]
        if written_lsn is not None:
            written = sum(lsn <= written_lsn for lsn, _ in self._waiting)
            allowed = allowed[written:]
        if (found := facts_of(broker)) not in allowed:
            raise Broken(f"a restart finds what never was: {min((difference(found, one) for one in allowed), key=len)}")

    def attach(self, broker: Broker, written_lsn: int | None) -> None:
        """Keep the books of this broker from now on. See `Ledger.attach`. Raises: Broken."""
        found = facts_of(broker)
        if self._broker is not None:
            if written_lsn is not None and not self._is_behind:
                self._survives(written_lsn)
            allowed = [self.durable, *(state for _, state in self._waiting)]
            if self._has_changed:
                allowed.append(facts_of(self._broker))  # by a turn whose end nobody saw
            if self._is_behind:
                _compare_each(found, [*allowed, facts_of(self._broker)])
            elif found not in allowed:
                differences = [difference(found, state) for state in allowed]
                raise Broken(f"a restart found what never was: {min(differences, key=len)}")
        self.durable = found
        self._waiting.clear()
        self._has_changed = self._is_behind = self._is_blurred = False
        self._broker = broker
        broker.context.listeners.append(self)


def _compare_each(found: State, allowed: list[State]) -> None:
    """The journal took nothing for a while: each thing is as it was at some time, not all of them at the same."""
    for key in {key: None for state in (found, *allowed) for key in state}:
        if not any(found.get(key) == state.get(key) for state in allowed):
            raise Broken(f"a restart found {key}: {found.get(key)}, which never was")


def facts_of(broker: Broker) -> State:
    """What has to survive."""
    found: State = {}
    for user in broker.users:
        if not user.is_configured:
            granted = user.permissions
            found["user", user.name] = (
                user.password.text(),
                user.tags,
                user.max_connections,
                user.max_channels,
                None if granted is None else {name: one.grant for name, one in granted.items()},
            )
    for policy in broker.context.policies:
        found["policy", *policy.identity] = (policy.pattern, policy.priority, tuple(policy.definition.items()))
    for (host, component, parameter), value in broker.parameters:
        if host or not component:  # else the broker has set it
            found["parameter", host, component, parameter] = str(value)
    for name, vhost in broker.virtual_hosts.items():
        found["vhost", name] = vhost.context.limits
        for exchange in vhost.exchanges.values():
            if is_declared(exchange) and not _is_configured(exchange):
                arguments = str(exchange.arguments)
                found["exchange", name, exchange.name] = (
                    exchange.type,
                    exchange.auto_delete,
                    exchange.internal,
                    arguments,
                )
            for binding in exchange.bindings.values():
                one: Any = binding
                if one.source.durable and one.destination.durable and not _is_configured(one.destination):
                    what = type(one.destination).__name__
                    ends = one.source.name, what, one.destination.name, one.routing_key
                    found["binding", name, *ends, str(one.arguments)] = True
        for queue in vhost.queues.values():
            if queue.durable and not _is_configured(queue):
                flags = queue.auto_delete, queue.is_auto_created, queue.may_make_queues
                found["queue", name, queue.name] = (queue.type, queue.address, flags, str(queue.arguments))
    return found


def _is_configured(one: Any) -> bool:
    """By files, which may be others when the next broker starts."""
    return bool(one.name.startswith(CONFIGURED))


def difference(found: State, expected: State) -> str:
    more = {key: value for key, value in found.items() if expected.get(key, "missing") != value}
    fewer = {key: value for key, value in expected.items() if found.get(key, "missing") != value}
    return f"found {more}, instead of {fewer}"
