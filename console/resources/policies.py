"""Policies and operator policies. Source: management page 2, 8.1."""

import html
import json
from collections.abc import Mapping
from typing import Any

from ...settings import Policy, faults_of_policy
from ..api import Api
from ..bodies import json_object, require
from ..commands import Adapter
from ..dispatcher import Action, Level, Route
from ..http_messages import JSON_MEDIA, Answer, Refusal, Request, bad_request, existing
from ..listing import Columns, listed
from ..options import CommandRefused
from ..steps import Steps


class _Policies:
    """The handlers for policies or for operator policies. `command`: the first word of their commands."""

    def __init__(self, command: str, *, is_operator: bool) -> None:
        self._command = command
        self._is_operator = is_operator

    def list(self, api: Api, request: Request) -> Steps:
        vhosts = {vhost.name for vhost in api.vhosts_to_list(request)}
        found = [
            policy
            for policy in api.broker.context.policies
            if policy.is_operator == self._is_operator and policy.vhost in vhosts
        ]
        return listed(request, found, Policy.value, order=lambda policy: policy.priority)

    def _find(self, api: Api, request: Request) -> Policy:
        vhost = api.vhost(request).name
        policies = api.broker.context.policies
        return existing(policies.find(vhost, request.names["NAME"], is_operator=self._is_operator))

    def show(self, api: Api, request: Request) -> Any:
        return Columns(request).selected(self._find(api, request).value())

    def put(self, api: Api, request: Request) -> Steps:
        return self.put_value(api, request, json_object(request))

    def put_value(self, api: Api, request: Request, given: dict[str, Any]) -> Steps:
        """Set the policy in the path. `given`: its value, an object."""
        vhost, name = api.vhost_to_change(request).name, request.names["NAME"]
        pattern, definition = require(given, "pattern", "definition")
        if not isinstance(definition, dict):
            raise bad_request("definition: expected an object")
        is_there = api.broker.context.policies.find(vhost, name, is_operator=self._is_operator) is not None
        apply_to, priority = given.get("apply-to", "all"), given.get("priority", 0)
        if None in (pattern, apply_to, priority):  # a command would take null for not given
            faults = faults_of_policy(pattern, definition, apply_to, priority, is_operator=self._is_operator)
            raise self._refusal("Validation failed\n\n" + "\n".join(faults))
        try:
            yield from api.run(
                f"{self._command} set",
                name=name,
                vhost=vhost,
                pattern=pattern,
                definition=definition,
                apply_to=apply_to,
                # A command parses text as JSON, so a text has to be encoded.
                priority=json.dumps(priority) if isinstance(priority, str) else priority,
            )
        except CommandRefused as refused:
            raise self._refusal(refused.reason) from None
        return Answer(204 if is_there else 201)

    def _refusal(self, reason: str) -> Refusal:
        """A refusal for this reason. RabbitMQ escapes the reasons for policies, but not for operator policies."""
        reason = reason if reason.endswith("\n") else f"{reason}\n"
        return bad_request(reason if self._is_operator else html.escape(reason, quote=False))

    def check_exists(self, api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Check that the policy in the path exists. Raises: Refusal."""
        self._find(api, request)
        return given

    def delete(self, api: Api, request: Request) -> Steps:
        policy = self._find(api, request)
        yield from api.run(f"{self._command} clear", name=policy.name, vhost=policy.vhost)
        return Answer(204)


USER_POLICIES = _Policies("policies", is_operator=False)
OPERATOR_POLICIES = _Policies("operator-policies", is_operator=True)


ADAPTERS = {
    "policies clear": Adapter(USER_POLICIES.check_exists),
    "operator-policies clear": Adapter(OPERATOR_POLICIES.check_exists),
}
_POLICYMAKER, _ADMINISTRATOR = Level.POLICYMAKER, Level.ADMINISTRATOR
ROUTES = [
    Route("policies", {"GET": Action(Level.ANY, USER_POLICIES.list)}),
    Route("policies/V", {"GET": Action(Level.VHOST, USER_POLICIES.list)}),
    Route(
        "policies/V/NAME",
        {"GET": Action(_POLICYMAKER, USER_POLICIES.show), "PUT": Action(_POLICYMAKER, USER_POLICIES.put)},
    ),
    Route("operator-policies", {"GET": Action(Level.ANY, OPERATOR_POLICIES.list)}),
    Route("operator-policies/V", {"GET": Action(Level.VHOST, OPERATOR_POLICIES.list)}),
    Route(
        "operator-policies/V/NAME",
        {
            "GET": Action(_ADMINISTRATOR, OPERATOR_POLICIES.show),
            "PUT": Action(_ADMINISTRATOR, OPERATOR_POLICIES.put, JSON_MEDIA),
        },
    ),
]
