"""Control commands about what the broker keeps for others and does nothing with: parameters of plug-ins, its own name.

They are kept until a restart, in the memory of this process. Source: management page 8.2; behaviour page 5.3.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..engine import Broker
from .acting import Handlers, vhost_of
from .command_error import CommandError
from .control_access import tags_of

#: Plug-ins whose parameters are kept.
COMPONENTS = ("federation-upstream", "federation-upstream-set", "shovel")
#: Entries of all kinds together.
KEPT_MAX = 10_000


@dataclass(slots=True)
class Kept:
    """`sections`: parameters and global_parameters, each by what identifies an entry. `about`: virtual hosts."""

    sections: dict[str, dict[tuple[str, ...], dict[str, Any]]] = field(
        default_factory=lambda: {"parameters": {}, "global_parameters": {}}
    )
    about: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    cluster_name: str = "rabbit@localhost"

    def put(self, section: str, identity: tuple[str, ...], entry: dict[str, Any]) -> bool:
        """Whether it is new. Raises: CommandError."""
        known = self.sections[section]
        is_new = identity not in known
        if is_new and sum(map(len, self.sections.values())) >= KEPT_MAX:
            raise CommandError(f"no more than {KEPT_MAX} parameters are kept")
        known[identity] = entry
        return is_new

    def forget(self, vhost: str) -> None:
        """A virtual host is deleted, with what is kept of it."""
        self.about.pop(vhost, None)
        parameters = self.sections["parameters"]
        for identity in [identity for identity in parameters if identity[0] == vhost]:
            del parameters[identity]


class ParameterCommands:
    """`handlers` by the words of the command, for the control table. `broker` is called each time: it may be set
    later."""

    def __init__(self, broker: Callable[[], Broker], kept: Kept) -> None:
        self._broker = broker
        self._kept = kept
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
            for entry in self._kept.sections["parameters"].values()
            if component in (None, entry["component"]) and vhost in (None, entry["vhost"])
        ]

    def _set(self, arguments: dict[str, Any]) -> dict[str, Any]:
        vhost = vhost_of(self._broker(), arguments).name
        component, name, value = arguments["component"], arguments["name"], arguments["value"]
        faults = list(_faults(component, name, value))
        if faults:
            raise CommandError("Validation failed\n\n" + "".join(f"{fault}\n" for fault in faults))
        entry = {"value": value, "vhost": vhost, "component": component, "name": name}
        is_new = self._kept.put("parameters", (vhost, component, name), entry)
        return {**entry, "created": is_new}

    def _clear(self, arguments: dict[str, Any]) -> dict[str, Any]:
        vhost = vhost_of(self._broker(), arguments).name
        identity = (vhost, arguments["component"], arguments["name"])
        if self._kept.sections["parameters"].pop(identity, None) is None:
            raise CommandError("Parameter does not exist")
        return {"vhost": vhost, "component": identity[1], "name": identity[2]}

    def _global(self) -> Iterator[dict[str, Any]]:
        own = {"cluster_name": self._kept.cluster_name, "internal_cluster_id": self._kept.cluster_name}
        for name, value in own.items():
            if (name,) not in self._kept.sections["global_parameters"]:
                yield {"name": name, "value": value}
        yield from self._kept.sections["global_parameters"].values()

    def _set_global(self, arguments: dict[str, Any]) -> dict[str, Any]:
        name, value = arguments["name"], arguments["value"]
        if name == "cluster_name":
            self._cluster_name({"name": value})
        entry = {"name": name, "value": value}
        return {**entry, "created": self._kept.put("global_parameters", (name,), entry)}

    def _clear_global(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._kept.sections["global_parameters"].pop((arguments["name"],), None) is None:
            raise CommandError("Parameter does not exist")
        return {"name": arguments["name"]}

    def _cluster_name(self, arguments: dict[str, Any]) -> dict[str, Any]:
        name = arguments.get("name")
        if name is not None:
            if not isinstance(name, str):
                raise CommandError("cluster-name: expected name=NAME")
            self._kept.cluster_name = name
        return {"name": self._kept.cluster_name}

    def _describe(self, arguments: dict[str, Any]) -> dict[str, Any]:
        name = arguments["name"]
        if name not in self._broker().virtual_hosts:
            raise CommandError(f"no virtual host {name!r}")
        description, tags = arguments.get("description", ""), arguments.get("tags", "")
        words = tags.split(",") if isinstance(tags, str) else tags
        tags_of(words)
        self._kept.about[name] = (description, [word.strip() for word in words if word.strip()])
        return {"name": name, **self._about({"name": name})}

    def _about(self, arguments: dict[str, Any]) -> dict[str, Any]:
        default: tuple[str, list[str]] = ("Default virtual host" if arguments["name"] == "/" else "", [])
        description, tags = self._kept.about.get(arguments["name"], default)
        return {"description": description, "tags": tags}


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
    unknown = [f'{{&lt;&lt;"{key}"&gt;&gt;,{_term(one)}}}' for key, one in value.items() if key not in _UPSTREAM_KEYS]
    if unknown:
        yield f"Unrecognised terms [{','.join(unknown)}] in {name}"


def _shovel_faults(name: str, value: Mapping[str, Any]) -> Iterator[str]:
    if "src-exchange" not in value and "src-queue" not in value:
        yield "Must specify 'src-exchange' or 'src-queue'"
    for key in ("dest-uri", "src-uri"):
        if key not in value:
            yield f'Key "{key}" not found in {name}'
            continue
        uris = value[key] if isinstance(value[key], list) else [value[key]]
        for uri in uris:
            if not isinstance(uri, str) or not uri.startswith(("amqp://", "amqps://")):
                yield f'"{uri}" not a valid URI: {{{{unable_to_parse_uri,no_scheme}},"{uri}"}}'


def _term(value: object) -> str:
    return f'&lt;&lt;"{value}"&gt;&gt;' if isinstance(value, str) else str(value)
