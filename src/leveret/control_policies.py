"""Commands about policies and operator policies. Source: rulings 24; behaviour page 3.12."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from .command_arguments import CommandError, named, no_arguments
from .control_access import by_action
from .engine import Broker
from .settings import Policy, PolicyFault, make_policy


class PolicyCommands:
    """The part of the control table that is about policies."""

    def __init__(self, broker: Callable[[], Broker]) -> None:
        self._broker = broker
        self.commands = {
            command: by_action(
                command,
                {
                    "list": partial(self._list, is_operator=is_operator),
                    "set": partial(self._set, is_operator=is_operator),
                    "clear": partial(self._clear, is_operator=is_operator),
                },
            )
            for command, is_operator in (("policies", False), ("operator-policies", True))
        }

    @property
    def broker(self) -> Broker:
        """The one that is ruled."""
        return self._broker()

    def _list(self, arguments: dict[str, Any], *, is_operator: bool) -> list[dict[str, Any]]:
        """Of one `vhost`, or all; the most important first."""
        wanted = arguments.pop("vhost", None)
        no_arguments("list", arguments)
        if wanted is not None:
            self._check_vhost(wanted)
        return [
            policy_value(policy)
            for policy in self.broker.policies
            if policy.is_operator == is_operator and wanted in (None, policy.vhost)
        ]

    def _set(self, arguments: dict[str, Any], *, is_operator: bool) -> dict[str, Any]:
        """`name`, `pattern`, `definition` (an object, or JSON), `apply-to`, `priority`, `vhost`."""
        command = "operator-policies set" if is_operator else "policies set"
        vhost = self._check_vhost(arguments.pop("vhost", "/"))
        name = named(command, arguments, "name")
        pattern = arguments.pop("pattern", None)
        definition = _read("definition", arguments.pop("definition", None))
        apply_to = arguments.pop("apply-to", "all")
        priority = _read("priority", arguments.pop("priority", 0))
        no_arguments(command, arguments)
        try:
            policy = make_policy(
                name,
                vhost,
                pattern,
                definition,
                apply_to=apply_to,
                priority=priority,
                is_operator=is_operator,
            )
        except PolicyFault as fault:
            raise CommandError(f"Validation failed\n\n{fault}") from None
        self.broker.replace_policies(self.broker.policies.with_these([policy]))
        return policy_value(policy)

    def _clear(self, arguments: dict[str, Any], *, is_operator: bool) -> dict[str, Any]:
        """`name`, `vhost`."""
        command = "operator-policies clear" if is_operator else "policies clear"
        vhost = self._check_vhost(arguments.pop("vhost", "/"))
        name = named(command, arguments, "name")
        no_arguments(command, arguments)
        policy = self.broker.policies.find(vhost, name, is_operator=is_operator)
        if policy is None:
            raise CommandError("Parameter does not exist")
        self.broker.replace_policies(self.broker.policies.without([policy.identity]))
        return {"vhost": vhost, "name": name}

    def _check_vhost(self, name: Any) -> str:
        if not isinstance(name, str) or name not in self.broker.virtual_hosts:
            raise CommandError(f"no virtual host {name!r}")
        return name


def policy_value(policy: Policy) -> dict[str, Any]:
    """A policy as RabbitMQ's JSON has it."""
    return {
        "vhost": policy.vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }


def _read(key: str, value: Any) -> Any:
    """JSON out of the command line's text; anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise CommandError(f"{key}: is not JSON") from None
