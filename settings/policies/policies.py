"""All policies and operator policies of a broker: rules for queues and exchanges by patterns on their names.

One policy and one operator policy apply to an object: of those that match, the one of the highest priority, and of
equal ones the first by name. Source: behaviour page 3.12; address-settings page 6.7; rulings 10, 11, 19.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..queue_types import QUEUE_TYPES
from .effective_policy import NO_POLICY, EffectivePolicy, merged_definition
from .policy import Policy
from .policy_keys import EXCHANGE

if TYPE_CHECKING:
    from ...expressions.patterns.patterns import Pattern


class Policies:
    """All policies of a broker. Immutable; a changed set is a new object.

    `spent`: cost of all look-ups of policies so far, in units of about 1 us.
    """

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
        return self._by_identity.get((vhost, is_operator, name))

    def with_these(self, policies: Iterable[Policy]) -> "Policies":
        """These policies added to all others; a policy of the same identity is replaced."""
        added = {policy.identity: policy for policy in policies}
        return Policies({**self._by_identity, **added}.values())

    def without(self, identities: Iterable[tuple[str, bool, str]]) -> "Policies":
        gone = set(identities)
        return Policies([one for one in self._by_identity.values() if one.identity not in gone])

    def changed_since(self, before: "Policies") -> list[Policy]:
        """Policies that are new, changed, or (in their old form) removed."""
        new = [one for one in self._by_identity.values() if before._by_identity.get(one.identity) != one]
        return new + [one for identity, one in before._by_identity.items() if identity not in self._by_identity]

    def may_concern(self, name: str, queue_type: str, before: EffectivePolicy, changed: Iterable[Policy]) -> bool:
        """Whether these changes may concern a queue whose policy was `before`. O(changed)."""
        queue_type = QUEUE_TYPES.get(queue_type, queue_type)
        for one in changed:
            if any(other.identity == one.identity for other in before.policies):
                return True
            now = self._by_identity.get(one.identity)
            if now is None or not now.may_apply_to(queue_type):
                continue
            is_found, cost = now.matcher.measured(name)
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

    def _effective(self, name: str, kind: str, vhost: str) -> EffectivePolicy:
        if not self._ordered:
            return NO_POLICY
        policy, operator = (self._winner(name, kind, vhost, is_operator) for is_operator in (False, True))
        if policy is None and operator is None:
            return NO_POLICY
        pair = (policy and policy.identity, operator and operator.identity)
        found = self._pairs.get(pair)
        if found is None:  # at most one for each pair of policies
            found = EffectivePolicy(policy, operator, merged_definition(policy, operator))
            self._pairs[pair] = found
        return found

    def _winner(self, name: str, kind: str, vhost: str, is_operator: bool) -> Policy | None:
        ordered = self._ordered.get((vhost, is_operator))
        if ordered is None:
            return None
        ranked = self._ranked.get((vhost, is_operator, kind))
        if ranked is None:
            self.spent += len(ordered)
            ranked = RankedPolicies([one for one in ordered if one.may_apply_to(kind)])
            self._ranked[vhost, is_operator, kind] = ranked
        found, cost = ranked.first(name)
        self.spent += cost
        return found


class RankedPolicies:
    """Policies in order of precedence. Those whose pattern begins with a literal prefix are looked up by it."""

    def __init__(self, policies: list[Policy]) -> None:
        self._policies = policies
        self._by_prefix: dict[int, dict[str, list[int]]] = {}  # length of the prefix -> prefix -> ranks
        self._others: list[tuple[int, Pattern]] = []
        self._patterns = [one.matcher for one in policies]
        for rank, pattern in enumerate(self._patterns):
            if start := pattern.start:
                self._by_prefix.setdefault(len(start), {}).setdefault(start, []).append(rank)
            else:
                self._others.append((rank, pattern))

    def first(self, name: str) -> tuple[Policy | None, int]:
        """The first that matches, and the cost of the search, in units of about 1 us."""
        best, cost = len(self._policies), 0
        for length, by_prefix in self._by_prefix.items():
            cost += 1
            for rank in by_prefix.get(name[:length], ()):
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


NO_POLICIES = Policies()
