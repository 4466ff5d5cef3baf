"""Parameters of plug-ins, and global parameters. Limits and policies of virtual hosts are parameters, too.

Source: management page 8.2, 8.3.
"""

import html
import json
from collections.abc import Mapping
from typing import Any

from ...settings import Policy
from ...settings.policies.policy_keys import erlang
from ...settings.values import shown
from ..api import Api
from ..bodies import json_object, require
from ..commands import Adapter
from ..dispatcher import Action, Level, Route
from ..http_messages import Answer, Request, bad_request, existing, not_authorised
from ..listing import Columns, listed
from ..options import CommandRefused
from ..permissions import is_administrator, missing_tag
from ..steps import Steps
from ..views.access import vhost_limits
from .policies import OPERATOR_POLICIES
from .vhosts import LIMITS, change_limits, faults_of_limits

_LIMITS, _OPERATOR, _POLICY = "vhost-limits", "operator_policy", "policy"
#: The only name of a parameter of `_LIMITS`.
_LIMITS_NAME = "limits"


def _parameters(api: Api, request: Request) -> Steps:
    vhosts = {vhost.name for vhost in api.vhosts_to_list(request)}
    component = request.names.get("COMPONENT")
    rows = (
        _policies(api) if component == _POLICY else [*_limits_and_operator_policies(api), *api.ask("parameters list")]
    )
    found = [row for row in rows if row["vhost"] in vhosts and component in (None, row["component"])]
    return listed(request, found, lambda row: row, order=lambda row: (row["vhost"], row["name"]))


def _limits_and_operator_policies(api: Api) -> list[dict[str, Any]]:
    rows = [
        {"value": limits, "vhost": vhost.name, "component": _LIMITS, "name": _LIMITS_NAME}
        for vhost in api.broker.virtual_hosts.values()
        if (limits := vhost_limits(vhost))
    ]
    return rows + [_as_parameter(policy, _OPERATOR) for policy in api.broker.context.policies if policy.is_operator]


def _policies(api: Api) -> list[dict[str, Any]]:
    """Policies as parameters. A list has them only if the request names their component."""
    return [_as_parameter(policy, _POLICY) for policy in api.broker.context.policies if not policy.is_operator]


def _as_parameter(policy: Policy, component: str) -> dict[str, Any]:
    shown = policy.value()
    value = {key: shown[key] for key in ("pattern", "definition", "priority", "apply-to")}
    return {"vhost": policy.vhost, "component": component, "name": policy.name, "value": value}


def _parameter(api: Api, request: Request) -> dict[str, Any]:
    vhost, names = api.vhost(request).name, request.names
    wanted = {"vhost": vhost, "component": names["COMPONENT"], "name": names["NAME"]}
    rows = [*_limits_and_operator_policies(api), *_policies(api), *api.ask("parameters list")]
    return existing(next((row for row in rows if wanted.items() <= row.items()), None))


def _show_parameter(api: Api, request: Request) -> Any:
    return Columns(request).selected(_parameter(api, request))


def _set_parameter(api: Api, request: Request) -> Steps:
    vhost, names = api.vhost_to_change(request), request.names
    (value,) = require(json_object(request), "value")
    component = names["COMPONENT"]
    if component in (_LIMITS, _OPERATOR):
        _check_administrator(request)
        value = {} if value == [] else value
        faults = _faults(component, names["NAME"], value)
        if faults:
            raise bad_request(html.escape(faults, quote=False))
        if component == _OPERATOR:
            return (yield from OPERATOR_POLICIES.put_value(api, request, value))
        if names["NAME"] != _LIMITS_NAME:
            raise bad_request(f"name: expected {_LIMITS_NAME}, not {html.escape(shown(names['NAME']), quote=False)}")
        is_there = bool(vhost_limits(vhost))
        yield from change_limits(api, vhost.name, dict.fromkeys(LIMITS, -1) | value)
        return Answer(204 if is_there else 201)
    if component == _POLICY:
        raise bad_request("policies may not be set using this method")
    arguments = {"component": component, "name": names["NAME"], "vhost": vhost.name, "value": _encoded_text(value)}
    try:
        done = yield from api.run("parameters set", **arguments)
    except CommandRefused as refused:
        raise bad_request(html.escape(refused.reason, quote=False)) from None
    return Answer(201 if done["created"] else 204)


def _faults(component: str, name: str, value: object) -> str:
    """RabbitMQ's text for an invalid value of limits or of an operator policy; "": it is valid."""
    if isinstance(value, list):
        faults = [f"Unrecognised terms {erlang(value)} in {name}"]
    elif not isinstance(value, dict):
        faults = [f"{name} not a list {erlang(value)}"]
    elif component == _LIMITS:
        return faults_of_limits(name, value)
    else:
        keys = ("definition", "pattern", "priority")
        faults = [f'Key "{key}" not found in {name}' for key in keys if key not in value]
    return "Validation failed\n\n" + "".join(f"{fault}\n" for fault in faults) if faults else ""


def _clear_parameter(api: Api, request: Request) -> Steps:
    row = _parameter(api, request)
    component, vhost, name = row["component"], row["vhost"], row["name"]
    if component in (_LIMITS, _OPERATOR):
        _check_administrator(request)
        if component == _OPERATOR:
            return (yield from OPERATOR_POLICIES.delete(api, request))
        yield from change_limits(api, vhost, dict.fromkeys(LIMITS, -1))
    elif component == _POLICY:
        raise bad_request("policies may not be cleared using this method")
    else:
        yield from api.run("parameters clear", component=component, name=name, vhost=vhost)
    return Answer(204)


def _check_administrator(request: Request) -> None:
    """Check that the user may set limits and operator policies, as at their own paths. Raises: Refusal."""
    if not is_administrator(request.user):
        raise not_authorised("User not authorised to access object", missing_tag(request.user, "administrator"))


def _encoded_text(value: Any) -> Any:
    """A value for a command. Text and null are encoded as JSON: commands parse text, and treat null as not given."""
    return json.dumps(value) if value is None or isinstance(value, str) else value


def _global_parameters(api: Api, request: Request) -> Steps:
    return listed(request, api.ask("global-parameters list"), lambda row: row, order=lambda row: row["name"])


def _global_parameter(api: Api, request: Request) -> dict[str, Any]:
    rows: list[dict[str, Any]] = api.ask("global-parameters list")
    return existing(next((row for row in rows if row["name"] == request.names["NAME"]), None))


def _show_global(api: Api, request: Request) -> Any:
    return Columns(request).selected(_global_parameter(api, request))


def _check_value_given(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    require(given, "value")
    return given


def _check_global_exists(api: Api, request: Request, given: Mapping[str, Any]) -> Mapping[str, Any]:
    _global_parameter(api, request)
    return given


_POLICYMAKER = Level.POLICYMAKER
ADAPTERS = {
    "global-parameters set": Adapter(_check_value_given),
    "global-parameters clear": Adapter(_check_global_exists),
}
ROUTES = [
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
    Route("global-parameters/NAME", {"GET": Action(_POLICYMAKER, _show_global)}),
]
