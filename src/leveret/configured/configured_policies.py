"""The policies that the configuration declares, applied to a broker at its start and after each reload.

A declared policy is set to its entry at each start and whenever the entry changes; changes by `leveret ctl` stay until
then. One that was cleared by ctl is set again by the next reload. A reload deletes a policy that is no longer declared;
one whose entry went while the broker was stopped stays. Source: behaviour page 3.12; ruling 11.
"""

from ..engine import Broker
from ..settings import Configuration, Policies, Policy
from ..settings.values import shown


class ConfiguredPolicies:
    """The policies of one broker that the configuration declares."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._declared: dict[tuple[str, bool, str], Policy] = {}

    def apply(self, configuration: Configuration) -> list[str]:
        """Apply the declared policies. Returns a line for each change."""
        changed, gone = self._changed_by(configuration)
        lines = [f"{one.title} {'changed' if one.identity in self._declared else 'set'}" for one in changed]
        lines += [f"{one.kind} {shown(one.name)} is no longer declared: cleared" for one in gone]
        policies = self.policies_after(configuration)
        self._declared = {policy.identity: policy for policy in configuration.policies}
        if changed or gone:
            self.broker.reloading.replace_policies(policies)
        return lines

    def policies_after(self, configuration: Configuration) -> Policies:
        """The policies that the broker would have with another configuration. Changes nothing."""
        changed, gone = self._changed_by(configuration)
        return self.broker.context.policies.without(one.identity for one in gone).with_these(changed)

    def _changed_by(self, configuration: Configuration) -> tuple[list[Policy], list[Policy]]:
        """The policies to set, and those to clear."""
        now = self.broker.context.policies
        wanted = {policy.identity: policy for policy in configuration.policies}
        changed = [
            policy
            for identity, policy in wanted.items()
            if self._declared.get(identity) != policy
            or now.find(policy.vhost, policy.name, is_operator=policy.is_operator) is None
        ]
        return changed, [policy for identity, policy in self._declared.items() if identity not in wanted]
