"""Policies and operator policies: rules that operators set for queues and exchanges by patterns on their names.

One policy and one operator policy apply to an object: of those that match, the one of the highest priority, and of
equal ones the first by name. Both are combined here with what the queue itself declares.
Source: behaviour page 3.12; address-settings page 6.7; rulings 10, 11, 19.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..addresses.queue_arguments import CONFLICTS, check_conflicts, plain_value, settings_of_arguments
from ..faults import ArgumentFault, Origin
from ..frozen import frozen
from ..queue_types import OWN_TYPES, QUEUE_TYPES
from ..rows.address_settings import NOTHING_SET, Layer, with_fewer_attempts
from ..rows.queue_attributes import QUEUE_ARGUMENTS
from ..values import LONG_MAX
from .policy_keys import EXCHANGE, POLICY_KEYS, as_accepted_now, erlang, fault_of_definition, fault_of_mirroring

if TYPE_CHECKING:
    from ...expressions.patterns.patterns import Pattern  # 3 ms that a broker without policies saves

#: apply-to -> the kinds of objects it includes.
APPLY_TO: dict[str, frozenset[str]] = {
    "all": frozenset({"classic", "quorum", "stream", *OWN_TYPES, EXCHANGE}),
    "queues": frozenset({"classic", "quorum", "stream", *OWN_TYPES}),
    "exchanges": frozenset({EXCHANGE}),
    "classic_queues": frozenset({"classic"}),
    "quorum_queues": frozenset({"quorum"}),
    "streams": frozenset({"stream"}),
    **{own.apply_to: frozenset({own.name}) for own in OWN_TYPES.values()},
}
NAME_OCTETS_MAX = 255
#: Different declarations for which a policy's layer is cached.
LAYERS_MAX = 100
#: The prefix of arguments, which policy keys do not have.
_X = re.compile(r"\bx-")


class PolicyFault(ValueError):
    """An invalid policy; the text is RabbitMQ's if it has one."""


@frozen
class Policy:
    """One policy, or (`is_operator`) operator policy. Made by `make_policy`. `origin`: the configuration's line."""

    name: str
    vhost: str
    pattern: str
    definition: Mapping[str, object]
    apply_to: str = "all"
    priority: int = 0
    is_operator: bool = False
    origin: Origin | None = field(default=None, compare=False)
    compiled: "Pattern | None" = field(default=None, compare=False, repr=False)  # of `pattern`; it takes a while

    @property
    def identity(self) -> tuple[str, bool, str]:
        """The unique key: virtual host, whether it is an operator policy, name."""
        return self.vhost, self.is_operator, self.name

    @property
    def title(self) -> str:
        """A name for people."""
        where = f"{self.origin}: " if self.origin is not None else ""
        return f"{where}{'operator policy' if self.is_operator else 'policy'} {self.name!r}"

    def value(self) -> dict[str, Any]:
        """The policy in RabbitMQ's JSON."""
        return {
            "vhost": self.vhost,
            "name": self.name,
            "pattern": self.pattern,
            "apply-to": self.apply_to,
            "definition": dict(self.definition),
            "priority": self.priority,
        }


def make_policy(
    name: str,
    vhost: str,
    pattern: object,
    definition: object,
    *,
    apply_to: object = "all",
    priority: object = 0,
    is_operator: bool = False,
    origin: Origin | None = None,
    is_stored: bool = False,
) -> Policy:
    """A checked policy. `is_stored`: an earlier release may have accepted it. Raises: PolicyFault."""
    if not name or len(name.encode()) > NAME_OCTETS_MAX:
        raise PolicyFault("the name must be text of 1 to 255 octets")
    if is_stored and isinstance(definition, dict | MappingProxyType):
        definition = as_accepted_now(definition)
    faults, compiled = _faults(pattern, definition, apply_to, priority, is_operator=is_operator, is_stored=is_stored)
    if faults:
        raise PolicyFault("\n".join(faults))
    assert isinstance(pattern, str) and isinstance(apply_to, str)
    assert isinstance(definition, dict | MappingProxyType) and isinstance(priority, int | float)
    plain = {key: _plain(key, value) for key, value in definition.items()}
    try:
        check_conflicts(_arguments(plain))
    except ArgumentFault as fault:
        raise PolicyFault(_X.sub("", str(fault))) from None
    return Policy(name, vhost, pattern, MappingProxyType(plain), apply_to, int(priority), is_operator, origin, compiled)


def faults_of_policy(
    pattern: object, definition: object, apply_to: object, priority: object, *, is_operator: bool
) -> list[str]:
    """All faults of a policy, in RabbitMQ's words and order."""
    return _faults(pattern, definition, apply_to, priority, is_operator=is_operator, is_stored=False)[0]


def _faults(
    pattern: object, definition: object, apply_to: object, priority: object, *, is_operator: bool, is_stored: bool
) -> tuple[list[str], "Pattern | None"]:
    """The faults, and the compiled pattern."""
    from ...expressions.patterns.pattern_syntax import PatternFault
    from ...expressions.patterns.patterns import Pattern

    faults, compiled = [], None
    if not isinstance(definition, dict | MappingProxyType):
        faults.append("the definition must be an object")
    else:
        fault_text = fault_of_definition(definition, is_operator=is_operator)
        if not is_stored:  # earlier releases took any value of keys of mirrored queues, which have no effect
            fault_text = fault_text or fault_of_mirroring(definition)
        if fault_text:
            faults.append(fault_text)
    if not isinstance(apply_to, str) or apply_to not in APPLY_TO:
        word = apply_to if isinstance(apply_to, str) else erlang(apply_to)
        faults.append(f"apply-to '{word}' unrecognised; should be 'queues', 'exchanges' or 'all'")
    if not isinstance(pattern, str):
        faults.append(f"pattern should be a binary but was {erlang(pattern)}")
    else:
        try:
            compiled = Pattern(pattern)
        except PatternFault as fault:
            faults.append(f"pattern should be regular expression but is invalid: {fault}")
    if isinstance(priority, bool) or not isinstance(priority, int | float):
        faults.append(f"priority should be a number, actually was {erlang(priority)}")
    elif priority != priority // 1 or not -LONG_MAX <= priority <= LONG_MAX:
        faults.append(f"priority should be a 64-bit integer, actually was {erlang(priority)}")
    return faults, compiled


@frozen
class EffectivePolicy:
    """The policies of one queue or exchange: at most one policy and one operator policy. `definition`: both merged."""

    policy: Policy | None = None
    operator: Policy | None = None
    definition: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    _layers: dict[Any, "PolicyLayer"] = field(default_factory=dict, init=False, repr=False, compare=False)

    def layer(self, declared: Mapping[str, object]) -> "PolicyLayer":
        """The result of `policy_layer`, cached: many queues have equal declarations."""
        if not self.definition:
            return NO_LAYER
        try:
            key = frozenset((name, type(value), value) for name, value in declared.items())
            found = self._layers.get(key)
        except TypeError:  # a table or an array in an unknown argument
            return policy_layer(self, declared)
        if found is None:
            if len(self._layers) >= LAYERS_MAX:
                self._layers.clear()
            found = self._layers[key] = policy_layer(self, declared)
        return found

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The policies that apply."""
        return tuple(one for one in (self.policy, self.operator) if one is not None)

    def giver(self, key: str) -> Policy:
        """The policy that gives the value of a key."""
        for one in (self.operator, self.policy):
            if one is not None and key in one.definition and one.definition[key] == self.definition[key]:
                return one
        raise KeyError(key)


NO_POLICY = EffectivePolicy()


@frozen
class PolicyLayer:
    """The effect of a policy on one queue.

    `arguments`: queue arguments that it sets or lowers, as plain values. `settings`: the layer between the queue's own
    and its address's. `given_by`: argument -> the policy that sets it.
    """

    arguments: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    settings: Layer = field(default_factory=lambda: NOTHING_SET)
    given_by: Mapping[str, Policy] = field(default_factory=lambda: MappingProxyType({}))

    def giver_of(self, attribute: str) -> tuple[str, Policy]:
        """The argument, and the policy, that set an attribute of `settings`. Raises: KeyError."""
        value = self.settings[attribute]
        for argument, policy in self.given_by.items():
            own = settings_of_arguments({argument: self.arguments[argument]})
            if attribute in own.given_by and own.settings[attribute] == value:
                return argument, policy
        raise KeyError(attribute)


NO_LAYER = PolicyLayer()


def policy_layer(effective: EffectivePolicy, declared: Mapping[str, object]) -> PolicyLayer:
    """The effect of a policy on a queue that was declared with these arguments (plain values).

    The declaration has precedence, except for limits: there the smaller value applies. An operator's cap also applies
    beside a Leveret argument for the same limit.
    """
    if effective is NO_POLICY or not effective.definition:
        return NO_LAYER
    given: dict[str, object] = {}
    given_by: dict[str, Policy] = {}
    for key, value in effective.definition.items():
        row = POLICY_KEYS[key]
        argument = row.argument
        if not argument:
            continue
        giver = effective.giver(key)
        if argument in declared:
            smaller = _smaller(key, value, declared[argument]) if row.by_minimum else None
            if smaller is None or smaller == declared[argument]:
                continue
            value = smaller
        elif not giver.is_operator and _contradicts(argument, declared):
            continue
        given[argument] = value
        given_by[argument] = giver
    if "x-dead-letter-routing-key" in given and not {"x-dead-letter-exchange"} & (given.keys() | declared.keys()):
        del given["x-dead-letter-routing-key"], given_by["x-dead-letter-routing-key"]
    if not given:
        return NO_LAYER
    return PolicyLayer(MappingProxyType(given), _settings(given), MappingProxyType(given_by))


def _settings(given: Mapping[str, object]) -> Layer:
    """Settings one by one, because an operator's cap may contradict a policy's argument for the same limit."""
    settings = NOTHING_SET
    for argument, value in given.items():
        settings = with_fewer_attempts(settings_of_arguments({argument: value}).settings, settings)
    return settings


def _smaller(key: str, value: object, declared: object) -> object | None:
    """The smaller of two limits; None if they cannot be compared. A negative delivery limit means none."""
    if isinstance(value, bool) or not isinstance(value, int) or not isinstance(declared, int):
        return None
    if key == "delivery-limit":
        return min((one for one in (value, declared) if one >= 0), default=declared)
    return min(value, declared)


def _contradicts(argument: str, declared: Mapping[str, object]) -> bool:
    """Whether the declaration sets the same limit by another argument."""
    pairs = (*CONFLICTS, ("x-overflow", "x-ring-size"))
    return any(
        (argument == one and other in declared) or (argument == other and one in declared) for one, other in pairs
    )


class Policies:
    """All policies of a broker. Immutable; a changed set is a new object.

    `spent`: cost of all look-ups of policies so far, in units of about 1 us.
    """

    __slots__ = ("_by_identity", "_ordered", "_pairs", "_ranked", "spent")

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self._by_identity = {policy.identity: policy for policy in policies}
        self._pairs: dict[tuple[object, object], EffectivePolicy] = {}
        self._ordered: dict[tuple[str, bool], list[Policy]] = {}
        self._ranked: dict[tuple[str, bool, str], RankedPolicies] = {}
        self.spent = 0
        for one in sorted(self._by_identity.values(), key=lambda policy: (-policy.priority, policy.name)):
            self._ordered.setdefault((one.vhost, one.is_operator), []).append(one)

    def __iter__(self) -> Iterator[Policy]:
        """The policies by virtual host; in each by descending priority."""
        return (one for key in sorted(self._ordered) for one in self._ordered[key])

    def __len__(self) -> int:
        return len(self._by_identity)

    def find(self, vhost: str, name: str, *, is_operator: bool = False) -> Policy | None:
        """The policy of that name, or None."""
        return self._by_identity.get((vhost, is_operator, name))

    def with_these(self, policies: Iterable[Policy]) -> "Policies":
        """These policies added to all others; a policy of the same identity is replaced."""
        added = {policy.identity: policy for policy in policies}
        return Policies({**self._by_identity, **added}.values())

    def without(self, identities: Iterable[tuple[str, bool, str]]) -> "Policies":
        """Without these policies."""
        gone = set(identities)
        return Policies([one for one in self._by_identity.values() if one.identity not in gone])

    def changed_since(self, before: "Policies") -> list[Policy]:
        """Policies that are new, changed, or (in their old form) removed."""
        new = [one for one in self._by_identity.values() if before._by_identity.get(one.identity) != one]
        return new + [one for identity, one in before._by_identity.items() if identity not in self._by_identity]

    def may_concern(self, name: str, queue_type: str, held: EffectivePolicy, changed: Iterable[Policy]) -> bool:
        """Whether these changes may concern a queue whose policy was `held`. O(changed)."""
        queue_type = QUEUE_TYPES.get(queue_type, queue_type)
        for one in changed:
            if any(other.identity == one.identity for other in held.policies):
                return True
            now = self._by_identity.get(one.identity)
            if now is None or not _applies(now, queue_type):
                continue
            is_found, cost = _compiled(now).measured(name)
            self.spent += cost
            if is_found:
                return True
        return False

    def of_queue(self, name: str, queue_type: str, vhost: str) -> EffectivePolicy:
        """The policy of a queue. O(policies of the virtual host)."""
        return self._effective(name, QUEUE_TYPES.get(queue_type, queue_type), vhost)

    def of_exchange(self, name: str, vhost: str) -> EffectivePolicy:
        """The policy of an exchange. O(policies of the virtual host)."""
        return self._effective(name, EXCHANGE, vhost)

    def _effective(self, name: str, what: str, vhost: str) -> EffectivePolicy:
        if not self._ordered:
            return NO_POLICY
        policy, operator = (self._winner(name, what, vhost, is_operator) for is_operator in (False, True))
        if policy is None and operator is None:
            return NO_POLICY
        pair = (policy and policy.identity, operator and operator.identity)
        found = self._pairs.get(pair)
        if found is None:  # at most one for each pair of policies
            found = EffectivePolicy(policy, operator, _merged(policy, operator))
            self._pairs[pair] = found
        return found

    def _winner(self, name: str, what: str, vhost: str, is_operator: bool) -> Policy | None:
        ordered = self._ordered.get((vhost, is_operator))
        if ordered is None:
            return None
        ranked = self._ranked.get((vhost, is_operator, what))
        if ranked is None:
            self.spent += len(ordered)
            ranked = RankedPolicies([one for one in ordered if _applies(one, what)])
            self._ranked[vhost, is_operator, what] = ranked
        found, cost = ranked.first(name)
        self.spent += cost
        return found


class RankedPolicies:
    """Policies in order of precedence. Those whose pattern begins with text are found by it, whatever their number."""

    __slots__ = ("_by_start", "_others", "_patterns", "_policies")

    def __init__(self, policies: list[Policy]) -> None:
        self._policies = policies
        self._by_start: dict[int, dict[str, list[int]]] = {}  # ranks by the text, by its length
        self._others: list[tuple[int, Pattern]] = []
        self._patterns = [_compiled(one) for one in policies]
        for rank, pattern in enumerate(self._patterns):
            if start := pattern.start:
                self._by_start.setdefault(len(start), {}).setdefault(start, []).append(rank)
            else:
                self._others.append((rank, pattern))

    def first(self, name: str) -> tuple[Policy | None, int]:
        """The first that matches, and the cost of the search, in units of about 1 us."""
        best, cost = len(self._policies), 0
        for length, by_start in self._by_start.items():
            cost += 1
            for rank in by_start.get(name[:length], ()):
                if rank >= best:
                    break
                is_found, spent = self._patterns[rank].measured(name)
                cost += spent
                if is_found:
                    best = rank
        for rank, pattern in self._others:
            if rank >= best:
                break
            is_found, spent = pattern.measured(name)
            cost += spent
            if is_found:
                best = rank
        return (self._policies[best] if best < len(self._policies) else None), cost


def _compiled(policy: Policy) -> "Pattern":
    if policy.compiled is not None:
        return policy.compiled
    from ...expressions.patterns.patterns import Pattern  # of a policy that was not made by make_policy

    return Pattern(policy.pattern)


NO_POLICIES = Policies()


def _applies(policy: Policy, what: str) -> bool:
    """Whether the whole policy can apply to such an object: the queue's type has all of its keys."""
    if what not in APPLY_TO[policy.apply_to]:
        return False
    return what == EXCHANGE or all(
        what in POLICY_KEYS[key].on or POLICY_KEYS[key].on == {EXCHANGE} for key in policy.definition
    )


def _merged(policy: Policy | None, operator: Policy | None) -> Mapping[str, object]:
    if policy is None or operator is None:
        only = policy or operator
        assert only is not None
        return only.definition
    merged: dict[str, Any] = dict(policy.definition)
    for key, value in operator.definition.items():
        if key not in merged:
            merged[key] = value
        elif POLICY_KEYS[key].by_minimum:
            merged[key] = _smaller(key, value, merged[key])
        else:
            merged[key] = value
    return MappingProxyType(merged)


def _arguments(definition: Mapping[str, object]) -> dict[str, object]:
    return {
        POLICY_KEYS[key].argument: value
        for key, value in definition.items()
        if key in POLICY_KEYS and POLICY_KEYS[key].argument
    }


def _plain(key: str, value: object) -> object:
    """The plain value of a key: "5s" of a redelivery delay is 5000."""
    argument, read = POLICY_KEYS[key].argument, POLICY_KEYS[key].read
    if read is not None:
        return read(value)
    return plain_value(argument, value) if argument in QUEUE_ARGUMENTS and argument != "x-delivery-limit" else value
