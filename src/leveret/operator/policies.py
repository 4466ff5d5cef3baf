"""Commands about policies and operator policies. Source: ruling 24; behaviour page 3.12."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ..engine import Broker
from ..settings import Policy, PolicyFault, make_policy
from .command_error import CommandError


class PolicyCommands:
    """`handlers` by the words of the command, for the control table. `broker` is called each time: it may be set
    later."""

    def __init__(self, broker: Callable[[], Broker]) -> None:
        self._broker = broker
        self.handlers: dict[str, Callable[[dict[str, Any]], Any]] = {
            f"{command} {action}": partial(do, is_operator=is_operator)
            for command, is_operator in (("policies", False), ("operator-policies", True))
            for action, do in (("list", self._list), ("set", self._set), ("clear", self._clear))
        }

    @property
    def broker(self) -> Broker:
        """The broker that the commands are for."""
        return self._broker()

    def _list(self, arguments: dict[str, Any], *, is_operator: bool) -> list[dict[str, Any]]:
        wanted = arguments.get("vhost")
        if wanted is not None:
            self._check_vhost(wanted)
        return [
            policy_value(policy)
            for policy in self.broker.policies
            if policy.is_operator == is_operator and wanted in (None, policy.vhost)
        ]

    def _set(self, arguments: dict[str, Any], *, is_operator: bool) -> dict[str, Any]:
        vhost = self._check_vhost(arguments.get("vhost", "/"))
        try:
            policy = make_policy(
                arguments["name"],
                vhost,
                arguments["pattern"],
                arguments["definition"],
                apply_to=arguments.get("apply-to", "all"),
                priority=arguments.get("priority", 0),
                is_operator=is_operator,
            )
        except PolicyFault as fault:
            raise CommandError(f"Validation failed\n\n{fault}") from None
        self.broker.replace_policies(self.broker.policies.with_these([policy]))
        return policy_value(policy)

    def _clear(self, arguments: dict[str, Any], *, is_operator: bool) -> dict[str, Any]:
        vhost = self._check_vhost(arguments.get("vhost", "/"))
        name = arguments["name"]
        policy = self.broker.policies.find(vhost, name, is_operator=is_operator)
        if policy is None:
            raise CommandError("Parameter does not exist")
        self.broker.replace_policies(self.broker.policies.without([policy.identity]))
        return {"vhost": vhost, "name": name}

    def _check_vhost(self, name: str) -> str:
        if name not in self.broker.virtual_hosts:
            raise CommandError(f"no virtual host {name!r}")
        return name


def policy_value(policy: Policy) -> dict[str, Any]:
    """A policy in RabbitMQ's JSON."""
    return {
        "vhost": policy.vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }
