"""Policies, operator policies, parameters. Source: management page 2, 8.1, 8.2."""

import html
import json
from typing import Any

from ...settings import Policy
from ..api import Api
from ..bodies import json_object, require
from ..dispatcher import Action, Level, Route
from ..listing import Columns, listed
from ..login import may_see
from ..messages import JSON_MEDIA, Answer, Request, bad_request, not_found
from ..options import CommandRefused, Steps
from ..views.access import vhost_limits


def policy_view(policy: Policy) -> dict[str, Any]:
    """A policy, or operator policy."""
    return {
        "vhost": policy.vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }


class _Policies:
    """The verbs of policies, or of operator policies."""

    def __init__(self, command: str, *, is_operator: bool) -> None:
        self._command = command
        self._is_operator = is_operator

    def list(self, api: Api, request: Request) -> Steps:
        vhosts = {vhost.name for vhost in api.vhosts_to_list(request)}
        found = [
            policy
            for policy in api.broker.policies
            if policy.is_operator == self._is_operator and policy.vhost in vhosts
        ]
        return listed(request, found, policy_view, order=lambda policy: policy.priority)

    def _find(self, api: Api, request: Request) -> Policy:
        vhost = api.vhost(request).name
        found = api.broker.policies.find(vhost, request.names["NAME"], is_operator=self._is_operator)
        if found is None:
            raise not_found()
        return found

    def show(self, api: Api, request: Request) -> Any:
        return Columns(request).of(policy_view(self._find(api, request)))

    def put(self, api: Api, request: Request) -> Steps:
        vhost, name = api.vhost_to_change(request).name, request.names["NAME"]
        given = json_object(request)
        pattern, definition = require(given, "pattern", "definition")
        if not isinstance(definition, dict):
            raise bad_request("definition: expected an object")
        is_there = api.broker.policies.find(vhost, name, is_operator=self._is_operator) is not None
        priority = given.get("priority", 0)
        try:
            yield from api.run(
                f"{self._command} set",
                name=name,
                vhost=vhost,
                pattern=pattern,
                definition=definition,
                apply_to=given.get("apply-to"),
                # The command line's words are JSON there: what is text here must stay text.
                priority=f'"{priority}"' if isinstance(priority, str) else priority,
            )
        except CommandRefused as refused:
            reason = refused.reason if refused.reason.endswith("\n") else f"{refused.reason}\n"
            raise bad_request(reason if self._is_operator else html.escape(reason, quote=False)) from None
        return Answer(204 if is_there else 201)

    def delete(self, api: Api, request: Request) -> Steps:
        policy = self._find(api, request)
        yield from api.run(f"{self._command} clear", name=policy.name, vhost=policy.vhost)
        return Answer(204)


_OWN = _Policies("policies", is_operator=False)
_OPERATORS = _Policies("operator-policies", is_operator=True)


# -- parameters -----------------------------------------------------------------------------------------------------


def _parameters(api: Api, request: Request) -> Steps:
    vhosts = {vhost.name for vhost in api.vhosts_to_list(request)}
    component = request.names.get("COMPONENT")
    rows = [*_own_parameters(api), *api.ask("parameters list")]
    found = [
        row
        for row in rows
        if row["vhost"] in vhosts and may_see(request.user, row["vhost"]) and component in (None, row["component"])
    ]
    return listed(request, found, lambda row: row, order=lambda row: (row["vhost"], row["name"]))


def _own_parameters(api: Api) -> list[dict[str, Any]]:
    """Limits of virtual hosts, and operator policies."""
    rows = [
        {"value": limits, "vhost": vhost.name, "component": "vhost-limits", "name": "limits"}
        for vhost in api.broker.virtual_hosts.values()
        if (limits := vhost_limits(vhost))
    ]
    for policy in api.broker.policies:
        if policy.is_operator:
            value = policy_view(policy)
            place = {"vhost": value.pop("vhost"), "component": "operator_policy", "name": value.pop("name")}
            rows.append({"value": value, **place})
    return rows


def _parameter(api: Api, request: Request) -> dict[str, Any]:
    vhost, names = api.vhost(request).name, request.names
    row: dict[str, Any]
    for row in [*_own_parameters(api), *api.ask("parameters list")]:
        if (row["vhost"], row["component"], row["name"]) == (vhost, names["COMPONENT"], names["NAME"]):
            return row
    raise not_found()


def _show_parameter(api: Api, request: Request) -> Any:
    return Columns(request).of(_parameter(api, request))


def _set_parameter(api: Api, request: Request) -> Steps:
    vhost, names = api.vhost_to_change(request).name, request.names
    (value,) = require(json_object(request), "value")
    done = yield from api.run(
        "parameters set", component=names["COMPONENT"], name=names["NAME"], vhost=vhost, value=_as_word(value)
    )
    return Answer(201 if done["created"] else 204)


def _clear_parameter(api: Api, request: Request) -> Steps:
    row = _parameter(api, request)
    yield from api.run("parameters clear", component=row["component"], name=row["name"], vhost=row["vhost"])
    return Answer(204)


def _as_word(value: Any) -> Any:
    """Text is JSON for a command: it is quoted once more. Null is no value there."""
    return json.dumps(value) if value is None or isinstance(value, str) else value


def _global_parameters(api: Api, request: Request) -> Steps:
    return listed(request, api.ask("global-parameters list"), lambda row: row, order=lambda row: row["name"])


def _global_parameter(api: Api, request: Request) -> dict[str, Any]:
    row: dict[str, Any]
    for row in api.ask("global-parameters list"):
        if row["name"] == request.names["NAME"]:
            return row
    raise not_found()


def _show_global(api: Api, request: Request) -> Any:
    return Columns(request).of(_global_parameter(api, request))


def _set_global(api: Api, request: Request) -> Steps:
    (value,) = require(json_object(request), "value")
    done = yield from api.run("global-parameters set", name=request.names["NAME"], value=_as_word(value))
    return Answer(201 if done["created"] else 204)


def _clear_global(api: Api, request: Request) -> Steps:
    _global_parameter(api, request)
    yield from api.run("global-parameters clear", name=request.names["NAME"])
    return Answer(204)


_POLICYMAKER, _ADMINISTRATOR = Level.POLICYMAKER, Level.ADMINISTRATOR
ROUTES = [
    Route("policies", {"GET": Action(Level.ANY, _OWN.list)}),
    Route("policies/V", {"GET": Action(Level.VHOST, _OWN.list)}),
    Route(
        "policies/V/NAME",
        {
            "GET": Action(_POLICYMAKER, _OWN.show),
            "PUT": Action(_POLICYMAKER, _OWN.put),
            "DELETE": Action(_POLICYMAKER, _OWN.delete),
        },
    ),
    Route("operator-policies", {"GET": Action(Level.ANY, _OPERATORS.list)}),
    Route("operator-policies/V", {"GET": Action(Level.VHOST, _OPERATORS.list)}),
    Route(
        "operator-policies/V/NAME",
        {
            "GET": Action(_ADMINISTRATOR, _OPERATORS.show),
            "PUT": Action(_ADMINISTRATOR, _OPERATORS.put, JSON_MEDIA),
            "DELETE": Action(_ADMINISTRATOR, _OPERATORS.delete),
        },
    ),
    Route("parameters", {"GET": Action(_POLICYMAKER, _parameters)}),
    Route("parameters/COMPONENT", {"GET": Action(_POLICYMAKER, _parameters)}),
    Route("parameters/COMPONENT/V", {"GET": Action(_POLICYMAKER, _parameters)}),
    Route(
        "parameters/COMPONENT/V/NAME",
        {
            "GET": Action(_POLICYMAKER, _show_parameter),
            "PUT": Action(_POLICYMAKER, _set_parameter),
            "DELETE": Action(_POLICYMAKER, _clear_parameter),
        },
    ),
    Route("global-parameters", {"GET": Action(_POLICYMAKER, _global_parameters)}),
    Route(
        "global-parameters/NAME",
        {
            "GET": Action(_POLICYMAKER, _show_global),
            "PUT": Action(_POLICYMAKER, _set_global),
            "DELETE": Action(_POLICYMAKER, _clear_global),
        },
    ),
]
