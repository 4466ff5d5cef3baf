"""Commands about parameters: data of plug-ins that the broker only stores, and the cluster's name.

Source: management page 8.2; behaviour page 5.3.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from ..console.dispatcher import Http, Level
from ..engine import Broker
from ..settings.declared.cluster import cluster_name_of
from ..settings.policies.policy_keys import erlang, erlang_list
from .access import words_of
from .command import command, created
from .command_error import CommandError
from .kinds import JSON, NAME, HostName, Name, OnlyVhost, VhostName, Words
from .operator import Operator

#: Plug-ins whose parameters are accepted.
COMPONENTS = ("federation-upstream", "federation-upstream-set", "shovel")
#: Maximum parameters of all kinds together.
KEPT_MAX = 10_000
#: Name of the parameter with the description and tags of a virtual host; it has no component.
ABOUT = "about"
_CONFIGURED_NAME = ("broker", "cluster-name")
CLUSTER_NAME, CLUSTER_NAME_DEFAULT = "cluster_name", "rabbit@localhost"


def set_parameter(broker: Broker, identity: tuple[str, str, str], value: object) -> bool:
    """Set a parameter. Returns whether it is new. Raises: CommandError."""
    is_new = identity not in broker.parameters
    if is_new and len(broker.parameters) >= KEPT_MAX and parameter_count(broker) >= KEPT_MAX:
        raise CommandError(f"no more than {KEPT_MAX} parameters are kept")
    broker.parameters.set(identity, value)
    return is_new


def parameter_count(broker: Broker) -> int:
    """The number of parameters that operators have set. The broker's own have a component and no virtual host."""
    return sum(bool(vhost) or not component for (vhost, component, _), _ in broker.parameters)


def parameters_of_vhosts(broker: Broker) -> list[dict[str, Any]]:
    """The parameters of virtual hosts in RabbitMQ's JSON."""
    return [
        {"value": value, "vhost": vhost, "component": component, "name": name}
        for (vhost, component, name), value in broker.parameters
        if vhost and component
    ]


def global_parameters(broker: Broker) -> list[dict[str, Any]]:
    """The global parameters in RabbitMQ's JSON."""
    return [
        {"name": name, "value": value}
        for (vhost, component, name), value in broker.parameters
        if not (vhost or component)
    ]


def about_vhost(broker: Broker, vhost: str) -> dict[str, Any]:
    """The description and the tags of a virtual host."""
    found = broker.parameters.get((vhost, "", ABOUT))
    return found if isinstance(found, dict) else about_by_default(vhost)


def about_by_default(vhost: str) -> dict[str, Any]:
    """The description and the tags of a virtual host that nobody has described."""
    return {"description": "Default virtual host" if vhost == "/" else "", "tags": []}


Component = Annotated[str, NAME, "of the plug-in"]
ParameterName = Annotated[str, NAME, "of the parameter"]
Value = Annotated[Any, JSON, "any JSON"]


@command("parameters list", reads=True)
def list_parameters(
    operator: Operator, *, component: Name | None = None, vhost: OnlyVhost | None = None
) -> list[dict[str, Any]]:
    """List the parameters of plug-ins; they are only stored.

    component: only of this plug-in
    """
    return [
        entry
        for entry in parameters_of_vhosts(operator.broker)
        if component in (None, entry["component"]) and vhost in (None, entry["vhost"])
    ]


@command("parameters set")
def put_parameter(
    operator: Operator, component: Component, name: ParameterName, value: Value, *, vhost: VhostName = "/"
) -> dict[str, Any]:
    """Add a parameter, or replace the one of that name."""
    operator.vhost(vhost)
    faults = list(_faults(component, name, value))
    if faults:
        raise CommandError("Validation failed\n\n" + "".join(f"{fault}\n" for fault in faults))
    is_new = set_parameter(operator.broker, (vhost, component, name), value)
    return {"value": value, "vhost": vhost, "component": component, "name": name, "created": is_new}


@command("parameters clear")
def delete_parameter(
    operator: Operator, component: Component, name: ParameterName, *, vhost: VhostName = "/"
) -> dict[str, Any]:
    """Delete a parameter."""
    operator.vhost(vhost)
    _remove(operator, (vhost, component, name))
    return {"vhost": vhost, "component": component, "name": name}


@command("global-parameters list", reads=True)
def list_global(operator: Operator) -> list[dict[str, Any]]:
    """List the global parameters."""
    found = global_parameters(operator.broker)
    given = {entry["name"] for entry in found}
    own = {CLUSTER_NAME: _cluster_name(operator), "internal_cluster_id": f"leveret-{_configured_name(operator)}"}
    return [*({"name": name, "value": value} for name, value in own.items() if name not in given), *found]


@command("global-parameters set", http=Http("PUT", "global-parameters/NAME", Level.POLICYMAKER, created))
def set_global(operator: Operator, name: ParameterName, value: Value) -> dict[str, Any]:
    """Add a global parameter, or replace the one of that name."""
    if name == CLUSTER_NAME and (not isinstance(value, str) or not value):
        raise CommandError("cluster-name: expected name=NAME")
    is_new = set_parameter(operator.broker, ("", "", name), value)
    return {"name": name, "value": value, "created": is_new}


@command("global-parameters clear", http=Http("DELETE", "global-parameters/NAME", Level.POLICYMAKER, 204))
def clear_global(operator: Operator, name: ParameterName) -> dict[str, Any]:
    """Delete a global parameter."""
    _remove(operator, ("", "", name))
    return {"name": name}


def _remove(operator: Operator, identity: tuple[str, str, str]) -> None:
    if not operator.broker.parameters.remove(identity):
        raise CommandError("Parameter does not exist")


@command("cluster-name", http=Http("PUT", "cluster-name", Level.ADMINISTRATOR, 204))
def cluster_name(operator: Operator, name: Name | None = None) -> dict[str, Any]:
    """Show or change the name of the cluster.

    name: the new name; without it: not changed
    """
    if name is not None:
        set_parameter(operator.broker, ("", "", CLUSTER_NAME), name)
    return {"name": _cluster_name(operator)}


def _cluster_name(operator: Operator) -> str:
    """The name that an operator has set, or that of the configuration."""
    found = operator.broker.parameters.get(("", "", CLUSTER_NAME))
    return found if isinstance(found, str) else _configured_name(operator)


def _configured_name(operator: Operator) -> str:
    configuration = None if operator.configured is None else operator.configured.configuration
    if configuration is None or not (configuration.is_clustered or configuration.explicit.get(_CONFIGURED_NAME)):
        return CLUSTER_NAME_DEFAULT
    return cluster_name_of(configuration)


@command("vhosts about", reads=True)
def about(operator: Operator, name: HostName) -> dict[str, Any]:
    """Show the description and tags of a virtual host."""
    operator.vhost(name)
    return about_vhost(operator.broker, name)


@command("vhosts describe")
def describe_vhost(operator: Operator, name: HostName, *, description: str = "", tags: Words = "") -> dict[str, Any]:
    """Set the description and the tags of a virtual host.

    description: without it: none
    tags: without it: none
    """
    operator.vhost(name)
    about = {"description": description, "tags": words_of(tags)}
    set_parameter(operator.broker, (name, "", ABOUT), about)
    return {"name": name, **about}


def _faults(component: str, name: str, value: object) -> Iterator[str]:
    """Faults that RabbitMQ's plug-ins would report."""
    if component not in COMPONENTS:
        yield f"component {component} not found"
    elif not isinstance(value, Mapping | list):
        yield f"value of {name} must be an object or a list"
    elif component == "federation-upstream":
        yield from _upstream_faults(name, value if isinstance(value, Mapping) else {})
    elif component == "shovel":
        yield from _shovel_faults(name, value if isinstance(value, Mapping) else {})


_UPSTREAM_KEYS = frozenset({
    "uri", "exchange", "queue", "consumer-tag", "prefetch-count", "reconnect-delay", "max-hops", "expires",
    "message-ttl", "trust-user-id", "ack-mode", "resource-cleanup-mode", "ha-policy", "bind-nowait", "channel-use-mode",
    "queue-type",
})  # fmt: skip


def _upstream_faults(name: str, value: Mapping[str, Any]) -> Iterator[str]:
    unknown = {key: value[key] for key in value.keys() - _UPSTREAM_KEYS}
    if unknown:
        yield f"Unrecognised terms {erlang_list(unknown)} in {name}"
    if "uri" not in value:
        yield f'Key "uri" not found in {name}'
    else:
        yield from _uri_faults("uri", value["uri"])


def _shovel_faults(name: str, value: Mapping[str, Any]) -> Iterator[str]:
    """Each end uses AMQP 0-9-1 with a queue or an exchange, or 1.0 with an address."""
    if value.get("src-protocol") == "amqp10":
        if "src-address" not in value:
            yield f'Key "src-address" not found in {name}'
    elif "src-exchange" not in value and "src-queue" not in value:
        yield "Must specify 'src-exchange' or 'src-queue'"
    elif "src-exchange" in value and "src-queue" in value:
        yield "Cannot specify 'src-exchange' and 'src-queue'"
    if value.get("dest-protocol") == "amqp10" and "dest-address" not in value:
        yield f'Key "dest-address" not found in {name}'
    for key in ("dest-uri", "src-uri"):
        if key in value:
            yield from _uri_faults(key, value[key])
        else:
            yield f'Key "{key}" not found in {name}'


def _uri_faults(key: str, value: object) -> Iterator[str]:
    """Faults of one URI, or of a list."""
    uris = [value] if isinstance(value, str) else value
    if not isinstance(uris, list):
        yield f"{key} should be list, actually was {erlang(uris)}"
        return
    for uri in uris:
        if not isinstance(uri, str) or not uri.startswith(("amqp://", "amqps://")):
            yield f'"{uri}" not a valid URI: {{{{unable_to_parse_uri,no_scheme}},"{uri}"}}'
