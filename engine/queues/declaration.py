"""The declaration of a queue: its arguments, policy and settings, and the rules that follow from them.

`declared_queues.py` declares queues. `rules/arguments.py` checks arguments, and refuses a different redeclaration; the
frontend's `wire/replies.py` has the text.
Source: ruling 11 (precedence); behaviour page 3.12; address-settings page 3.8.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from ...settings import (
    EffectivePolicy,
    Layer,
    Policies,
    PolicyLayer,
    ResolvedSettings,
    SettingsRepository,
    merge_topics,
)
from ..context import HostContext
from ..messages.field_table import FieldTable
from ..rules.arguments import plain_arguments, queue_type_of
from ..rules.queue_rules import NO_RULES, RING, QueueRules, effective_arguments, own_settings
from .parts import Kind, RulesRequest

NO_TOPICS: Mapping[str, Layer] = MappingProxyType({})


class RulesChange(NamedTuple):
    """The rules of a queue before and after a change."""

    before: QueueRules
    now: QueueRules


class Declaration:
    """What determines the rules of one queue.

    `type`: x-queue-type. `policy`: the policy in force; `layer`: its settings and arguments for this queue.

    `effective`: the declared arguments with those of the policy. `own_settings`: the arguments that are settings.
    `topics`: the settings of topics that apply to the queue, by topic. `rules`: what follows from all of these.
    """

    __slots__ = ("_kind", "address", "arguments", "effective", "layer", "name", "own_settings", "policy", "rules",
                 "topics", "type")  # fmt: skip

    def __init__(
        self,
        name: str,
        address: str,
        arguments: FieldTable,
        kind: Kind,
        rules: QueueRules,
        policy: EffectivePolicy,
        layer: PolicyLayer,
    ) -> None:
        self._kind = kind
        self.name = name
        self.address = address
        self.arguments = arguments
        self.type = queue_type_of(arguments)
        self.own_settings = own_settings(arguments)
        self.policy = policy
        self.layer = layer
        self.effective = effective_arguments(arguments, layer)
        self.rules = rules
        self.topics: Mapping[str, Layer] = NO_TOPICS

    def resolved(self, vhost: str, settings: SettingsRepository) -> ResolvedSettings:
        """The settings of the queue. Arguments override topics, topics the policy, the policy those of its address.

        Of several limits of attempts in arguments, topics and policy the smallest applies.
        """
        own = {**merge_topics(self.topics), **self.own_settings} if self.topics else self.own_settings
        return settings.resolve_queue(self.address, vhost, own, self.layer.settings, self.name)

    def topic_found(self, context: HostContext, name: str, layer: Layer) -> RulesChange | None:
        """Add the settings of a topic whose messages are routed to the queue. None: equal settings applied already."""
        if layer in self.topics.values():
            return None
        self.topics = {**self.topics, name: layer}
        return self._resolve_again(context)

    def redeclared(self, arguments: FieldTable, own: Layer) -> None:
        """Replace the arguments after a reload of the configuration. The caller calls `policy_changed` next."""
        self.arguments = arguments
        self.own_settings = own

    def settings_changed(self, context: HostContext) -> RulesChange:
        """Apply the reloaded settings of the queue's address and topics."""
        if self.topics:
            self.topics = {name: context.broker.settings.topic_layer(name, context.name) for name in self.topics}
        return self._resolve_again(context)

    def _resolve_again(self, context: HostContext) -> RulesChange:
        resolved = self.resolved(context.name, context.broker.settings)
        return self._set(self._rules(context, resolved, self.rules))

    def _rules(self, context: HostContext, resolved: ResolvedSettings, before: QueueRules) -> QueueRules:
        options = context.broker.options
        return self._kind.make_rules(RulesRequest(self.name, self.arguments, self.layer, resolved, options, before))

    def _rules_after(self, before: PolicyLayer, context: HostContext, settings: SettingsRepository) -> QueueRules:
        """The rules after a change of the policy, whose layer was `before`.

        The ring size changes only if one of the two layers sets it: otherwise an operator may have set it.
        """
        resolved, rules = self.resolved(context.name, settings), self.rules
        if RING in self.layer.arguments or RING in before.arguments:
            size = resolved.default_ring_size
            rules = replace(rules, ring_size=size if size > 0 else None)
        return self._rules(context, resolved, rules)

    def copy_with(
        self, context: HostContext, settings: SettingsRepository, policies: Policies, arguments: FieldTable | None
    ) -> "Declaration":
        """A copy with other settings, policies and arguments (None: the same arguments)."""
        own = self.arguments if arguments is None else arguments
        policy = policies.of_queue(self.name, self.type, context.name)
        layer = policy.layer(plain_arguments(own))
        copy = Declaration(self.name, self.address, own, self._kind, self.rules, policy, layer)
        copy.topics = self.topics
        copy.rules = copy._rules_after(self.layer, context, settings)
        return copy

    def follow_policy(self, context: HostContext) -> tuple[PolicyLayer, PolicyLayer]:
        """Look up the policy in force. Returns the old and the new layer, which may be equal."""
        before = self.layer
        self.policy = context.broker.policies.of_queue(self.name, self.type, context.name)
        self.layer = self.policy.layer(plain_arguments(self.arguments))
        self.effective = effective_arguments(self.arguments, self.layer)
        return before, self.layer

    def policy_changed(self, context: HostContext, *, always: bool) -> RulesChange | None:
        """Apply the policy in force (`always`: the arguments changed, too). None: no rule changes."""
        before, layer = self.follow_policy(context)
        if layer == before and not always:
            return None
        return self._set(self._rules_after(before, context, context.broker.settings))

    def ring_resized(self, size: int | None) -> RulesChange:
        """Set the ring size, as an operator asks; None: no ring."""
        return self._set(replace(self.rules, ring_size=size))

    def _set(self, rules: QueueRules) -> RulesChange:
        change = RulesChange(self.rules, NO_RULES if rules == NO_RULES else rules)
        self.rules = change.now
        return change
