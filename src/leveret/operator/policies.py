"""Commands about policies and operator policies. Source: ruling 24; behaviour page 3.12."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

from ..console.dispatcher import Http, Level
from ..settings import Policy, PolicyFault, make_policy
from . import known_keys
from .command import command
from .command_error import CommandError
from .kinds import ANY_PATTERN, APPLY_TO, JSON, NAME, OnlyVhost, VhostName, object_with
from .operator import Operator

PolicyName = Annotated[str, NAME, "of the policy"]


@dataclass(slots=True, frozen=True)
class PolicyArguments:
    """The arguments that describe a policy."""

    name: PolicyName
    pattern: Annotated[Any, ANY_PATTERN, "of the names it applies to"]
    definition: Annotated[Any, object_with(known_keys.POLICY), 'like {"max-length": 10}']
    _: KW_ONLY
    apply_to: Annotated[Any, APPLY_TO, "all (the default), queues, exchanges, classic_queues, ..."] = "all"
    priority: Annotated[Any, JSON, "of those that match the highest wins (default 0)"] = 0


@dataclass(slots=True, frozen=True)
class OperatorPolicyArguments(PolicyArguments):
    """The arguments that describe an operator policy."""

    definition: Annotated[Any, object_with(known_keys.OPERATOR_POLICY), 'like {"max-length": 10}']


@command("policies list", reads=True)
def list_policies(operator: Operator, *, vhost: OnlyVhost | None = None) -> list[dict[str, Any]]:
    """List policies, the highest priority first."""
    return _listed(operator, vhost, is_operator=False)


@command("policies set")
def set_policy(operator: Operator, wanted: PolicyArguments, *, vhost: VhostName = "/") -> dict[str, Any]:
    """Add a policy, or replace the one of that name."""
    return _set(operator, wanted, vhost, is_operator=False)


@command("policies clear", http=Http("DELETE", "policies/V/NAME", Level.POLICYMAKER, 204))
def clear_policy(operator: Operator, name: PolicyName, *, vhost: VhostName = "/") -> dict[str, Any]:
    """Delete a policy."""
    return _clear(operator, name, vhost, is_operator=False)


@command("operator-policies list", reads=True)
def list_operator_policies(operator: Operator, *, vhost: OnlyVhost | None = None) -> list[dict[str, Any]]:
    """List operator policies, the highest priority first."""
    return _listed(operator, vhost, is_operator=True)


@command("operator-policies set")
def set_operator_policy(
    operator: Operator, wanted: OperatorPolicyArguments, *, vhost: VhostName = "/"
) -> dict[str, Any]:
    """Add an operator policy, or replace the one of that name."""
    return _set(operator, wanted, vhost, is_operator=True)


@command("operator-policies clear", http=Http("DELETE", "operator-policies/V/NAME", Level.ADMINISTRATOR, 204))
def clear_operator_policy(operator: Operator, name: PolicyName, *, vhost: VhostName = "/") -> dict[str, Any]:
    """Delete an operator policy."""
    return _clear(operator, name, vhost, is_operator=True)


def _listed(operator: Operator, vhost: str | None, *, is_operator: bool) -> list[dict[str, Any]]:
    operator.vhosts(vhost)
    return [
        policy.value()
        for policy in operator.broker.context.policies
        if policy.is_operator == is_operator and vhost in (None, policy.vhost)
    ]


def _set(operator: Operator, wanted: PolicyArguments, vhost: str, *, is_operator: bool) -> dict[str, Any]:
    operator.vhost(vhost)
    policy = wanted_policy(wanted, vhost, is_operator=is_operator)
    operator.broker.reloading.replace_policies(operator.broker.context.policies.with_these([policy]))
    return policy.value()


def wanted_policy(wanted: PolicyArguments, vhost: str, *, is_operator: bool) -> Policy:
    """The policy that the arguments describe. Raises: CommandError."""
    try:
        return make_policy(
            wanted.name,
            vhost,
            wanted.pattern,
            wanted.definition,
            apply_to=wanted.apply_to,
            priority=wanted.priority,
            is_operator=is_operator,
        )
    except PolicyFault as fault:
        raise CommandError(f"Validation failed\n\n{fault}") from None


def _clear(operator: Operator, name: str, vhost: str, *, is_operator: bool) -> dict[str, Any]:
    operator.vhost(vhost)
    policy = operator.broker.context.policies.find(vhost, name, is_operator=is_operator)
    if policy is None:
        raise CommandError("Parameter does not exist")
    operator.broker.reloading.replace_policies(operator.broker.context.policies.without([policy.identity]))
    return {"vhost": vhost, "name": name}
