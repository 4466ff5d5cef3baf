"""The policies of one queue or exchange, and their effect together with what the queue itself declares.

Source: behaviour page 3.12; address-settings page 6.7; rulings 10, 11.
"""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from ..addresses.queue_arguments import CONFLICTS, settings_of_arguments
from ..frozen import frozen
from ..rows.address_settings import NOTHING_SET, Layer, with_fewer_attempts
from .policy import Policy
from .policy_keys import POLICY_KEYS

#: Maximum different declarations for which a policy's layer is cached.
LAYERS_MAX = 100


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
        return tuple(one for one in (self.policy, self.operator) if one is not None)

    def policy_of(self, key: str) -> Policy:
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

    def source_of(self, attribute: str) -> tuple[str, Policy]:
        """The argument that sets an attribute of `settings`, and its policy. Raises: KeyError."""
        value = self.settings[attribute]
        for argument, policy in self.given_by.items():
            own = settings_of_arguments({argument: self.arguments[argument]})
            if attribute in own.given_by and own.settings[attribute] == value:
                return argument, policy
        raise KeyError(attribute)


NO_LAYER = PolicyLayer()


def policy_layer(effective: EffectivePolicy, declared: Mapping[str, object]) -> PolicyLayer:
    """The effect of a policy on a queue that was declared with these arguments (plain values).

    The declaration has precedence, except for limits: there the smaller value applies. A value that contradicts another
    argument of the declaration (x-max-length and x-ring-size) applies only if it is an operator policy's.
    """
    if effective is NO_POLICY or not effective.definition:
        return NO_LAYER
    given: dict[str, object] = {}
    given_by: dict[str, Policy] = {}
    for key, value in effective.definition.items():
        row, source = POLICY_KEYS[key], effective.policy_of(key)
        argument = row.argument
        if not argument:
            continue
        if argument not in declared:
            if source.is_operator or not _contradicts(argument, declared):
                given[argument], given_by[argument] = value, source
        elif row.by_minimum:
            smaller = _smaller(key, value, declared[argument])
            if smaller is not None and smaller != declared[argument]:
                given[argument], given_by[argument] = smaller, source
    if "x-dead-letter-routing-key" in given and "x-dead-letter-exchange" not in given.keys() | declared.keys():
        del given["x-dead-letter-routing-key"], given_by["x-dead-letter-routing-key"]
    if not given:
        return NO_LAYER
    return PolicyLayer(MappingProxyType(given), _settings(given), MappingProxyType(given_by))


def _settings(given: Mapping[str, object]) -> Layer:
    """The settings of these arguments, read one by one: an operator policy's may contradict a policy's."""
    settings = NOTHING_SET
    for argument, value in given.items():
        settings = with_fewer_attempts(settings_of_arguments({argument: value}).settings, settings)
    return settings


def _smaller(key: str, value: object, declared: object) -> object | None:
    """The smaller of two limits; None if they cannot be compared. A negative delivery limit means no limit."""
    if isinstance(value, bool) or not isinstance(value, int) or not isinstance(declared, int):
        return None
    if key == "delivery-limit":
        return min((one for one in (value, declared) if one >= 0), default=declared)
    return min(value, declared)


def _contradicts(argument: str, declared: Mapping[str, object]) -> bool:
    """Whether the declaration has an argument that contradicts this one."""
    pairs = (*CONFLICTS, ("x-overflow", "x-ring-size"))
    return any({argument} < {*pair} <= {argument} | declared.keys() for pair in pairs)


def merged_definition(policy: Policy | None, operator: Policy | None) -> Mapping[str, object]:
    """The keys of both policies, one of which may be None. An operator policy wins, or caps a limit."""
    if policy is None or operator is None:
        only = policy or operator
        assert only is not None
        return only.definition
    merged: dict[str, Any] = dict(policy.definition)
    for key, value in operator.definition.items():
        is_capped = key in merged and POLICY_KEYS[key].by_minimum
        merged[key] = _smaller(key, value, merged[key]) if is_capped else value
    return MappingProxyType(merged)
