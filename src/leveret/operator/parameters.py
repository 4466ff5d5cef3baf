"""Control commands about what the broker keeps for others and does nothing with: parameters of plug-ins, its own name.

The journal keeps them as well. Source: management page 8.2; behaviour page 5.3.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..engine import Broker
from .access import tags_of
from .acting import Handlers, vhost_of
from .command_error import CommandError

#: Plug-ins whose parameters are kept.
COMPONENTS = ("federation-upstream", "federation-upstream-set", "shovel")
#: Entries of all kinds together.
KEPT_MAX = 10_000
#: Of virtual hosts, the component without a name has this: its description and tags.
ABOUT = "about"
CLUSTER_NAME, CLUSTER_NAME_DEFAULT = "cluster_name", "rabbit@localhost"


def set_parameter(broker: Broker, identity: tuple[str, str, str], value: object) -> bool:
    """Whether it is new. Raises: CommandError."""
    is_new = identity not in broker.parameters
    if is_new and len(broker.parameters) >= KEPT_MAX:
        raise CommandError(f"no more than {KEPT_MAX} parameters are kept")
    broker.parameters.set(identity, value)
    return is_new


def parameters_of_vhosts(broker: Broker) -> list[dict[str, Any]]:
    """In RabbitMQ's JSON."""
    return [
        {"value": value, "vhost": vhost, "component": component, "name": name}
        for (vhost, component, name), value in broker.parameters
        if vhost and component
    ]


def global_parameters(broker: Broker) -> list[dict[str, Any]]:
    """In RabbitMQ's JSON."""
    return [{"name": name, "value": value} for (vhost, _, name), value in broker.parameters if not vhost]


def describe(broker: Broker, vhost: str, description: str, tags: list[str]) -> None:
    """Set what a virtual host is about. Raises: CommandError."""
    set_parameter(broker, (vhost, "", ABOUT), {"description": description, "tags": tags})


def about_vhost(broker: Broker, vhost: str) -> dict[str, Any]:
    """Its description and tags."""
    found = broker.parameters.get((vhost, "", ABOUT))
    if isinstance(found, dict):
        return found
    return {"description": "Default virtual host" if vhost == "/" else "", "tags": []}


class ParameterCommands:
    """`handlers` by the words of the command, for the control table. `broker` is called each time: it may be set
    later. `cluster_name`: as configured; "" if it is not."""

    def __init__(self, broker: Callable[[], Broker], cluster_name: Callable[[], str] = str) -> None:
        self._broker = broker
        self._configured_name = cluster_name
        self.handlers: Handlers = {
            "parameters list": self._list,
            "parameters set": self._set,
            "parameters clear": self._clear,
            "global-parameters list": lambda arguments: list(self._global()),
            "global-parameters set": self._set_global,
            "global-parameters clear": self._clear_global,
            "cluster-name": self._cluster_name,
            "vhosts describe": self._describe,
            "vhosts about": self._about,
        }

    def _list(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        component, vhost = arguments.get("component"), arguments.get("vhost")
        return [
            entry
            for entry in parameters_of_vhosts(self._broker())
            if component in (None, entry["component"]) and vhost in (None, entry["vhost"])
        ]

    def _set(self, arguments: dict[str, Any]) -> dict[str, Any]:
        vhost = vhost_of(self._broker(), arguments).name
        component, name, value = arguments["component"], arguments["name"], arguments["value"]
        faults = list(_faults(component, name, value))
        if faults:
            raise CommandError("Validation failed\n\n" + "".join(f"{fault}\n" for fault in faults))
        entry = {"value": value, "vhost": vhost, "component": component, "name": name}
        is_new = set_parameter(self._broker(), (vhost, component, name), value)
        return {**entry, "created": is_new}

    def _clear(self, arguments: dict[str, Any]) -> dict[str, Any]:
        vhost = vhost_of(self._broker(), arguments).name
        identity = (vhost, arguments["component"], arguments["name"])
        if not self._broker().parameters.remove(identity):
            raise CommandError("Parameter does not exist")
        return {"vhost": vhost, "component": identity[1], "name": identity[2]}

    def _global(self) -> Iterator[dict[str, Any]]:
        found = global_parameters(self._broker())
        given = {entry["name"] for entry in found}
        for name in (CLUSTER_NAME, "internal_cluster_id"):
            if name not in given:
                yield {"name": name, "value": self._cluster_name({})["name"]}
        yield from found

    def _set_global(self, arguments: dict[str, Any]) -> dict[str, Any]:
        name, value = arguments["name"], arguments["value"]
        if name == CLUSTER_NAME:
            _check_cluster_name(value)
        is_new = set_parameter(self._broker(), ("", "", name), value)
        return {"name": name, "value": value, "created": is_new}

    def _clear_global(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if not self._broker().parameters.remove(("", "", arguments["name"])):
            raise CommandError("Parameter does not exist")
        return {"name": arguments["name"]}

    def _cluster_name(self, arguments: dict[str, Any]) -> dict[str, Any]:
        name = arguments.get("name")
        if name is not None:
            set_parameter(self._broker(), ("", "", CLUSTER_NAME), name)
        found = self._broker().parameters.get(("", "", CLUSTER_NAME))
        return {"name": found if isinstance(found, str) else self._configured_name() or CLUSTER_NAME_DEFAULT}

    def _describe(self, arguments: dict[str, Any]) -> dict[str, Any]:
        name = arguments["name"]
        if name not in self._broker().virtual_hosts:
            raise CommandError(f"no virtual host {name!r}")
        description, tags = arguments.get("description", ""), arguments.get("tags", "")
        words = tags.split(",") if isinstance(tags, str) else tags
        tags_of(words)
        describe(self._broker(), name, description, [word.strip() for word in words if word.strip()])
        return {"name": name, **self._about({"name": name})}

    def _about(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return about_vhost(self._broker(), arguments["name"])


def _check_cluster_name(name: object) -> None:
    """Raises: CommandError."""
    if not isinstance(name, str) or not name:
        raise CommandError("cluster-name: expected name=NAME")


def _faults(component: str, name: str, value: object) -> Iterator[str]:
    """What RabbitMQ's plug-ins would say."""
    if component not in COMPONENTS:
        yield f"component {component} not found"
    elif not isinstance(value, Mapping | list):
        yield f"value of {name} must be an object or a list"
    elif component == "federation-upstream" and isinstance(value, Mapping):
        yield from _upstream_faults(name, value)
    elif component == "shovel" and isinstance(value, Mapping):
        yield from _shovel_faults(name, value)


_UPSTREAM_KEYS = frozenset(
    {
        "uri",
        "exchange",
        "queue",
        "consumer-tag",
        "prefetch-count",
        "reconnect-delay",
        "max-hops",
        "expires",
        "message-ttl",
        "trust-user-id",
        "ack-mode",
        "resource-cleanup-mode",
        "ha-policy",
        "bind-nowait",
        "channel-use-mode",
        "queue-type",
    }
)


def _upstream_faults(name: str, value: Mapping[str, Any]) -> Iterator[str]:
    if "uri" not in value:
        yield f'Key "uri" not found in {name}'
    else:
        yield from _uri_faults("uri", value["uri"])
    unknown = [f'{{&lt;&lt;"{key}"&gt;&gt;,{_term(one)}}}' for key, one in value.items() if key not in _UPSTREAM_KEYS]
    if unknown:
        yield f"Unrecognised terms [{','.join(unknown)}] in {name}"


def _shovel_faults(name: str, value: Mapping[str, Any]) -> Iterator[str]:
    """Each end speaks AMQP 0-9-1 to a queue or an exchange, or 1.0 to an address."""
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
    """Of one, or of a list."""
    uris = [value] if isinstance(value, str) else value
    if not isinstance(uris, list):
        yield f"{key} should be list, actually was {'null' if uris is None else _term(uris)}"
        return
    for uri in uris:
        if not isinstance(uri, str) or not uri.startswith(("amqp://", "amqps://")):
            yield f'"{uri}" not a valid URI: {{{{unable_to_parse_uri,no_scheme}},"{uri}"}}'


def _term(value: object) -> str:
    return f'&lt;&lt;"{value}"&gt;&gt;' if isinstance(value, str) else str(value)
