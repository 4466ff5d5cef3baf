"""The parts of a configuration that all nodes of a cluster share, as texts that nodes compare.

Parts have the names of `leveret diff`, except those that begin with "vhost". Keys of which each node has its own
value are left out (`Key.is_of_node`), and leased queues of one node or group. Of [system-usage] only counts whether it
is there.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import MappingProxyType

from .addresses.matching import DEFAULT_WILDCARDS
from .declared.configuration import Configuration
from .rows.broker_keys import KEYS
from .values import in_vhost

#: Values of `x-replication` by which one node, or one group of nodes, has a queue.
OF_SOME_NODES = frozenset({"local", "group"})


def shared_parts(configuration: Configuration) -> dict[str, str]:
    """Name of each part -> its text, which may hold secrets. Defaults are left out: releases may differ in them."""
    return {what: text_of(value) for what, value in _parts(configuration)}


def _parts(configuration: Configuration) -> Iterator[tuple[str, object]]:
    for table, keys in KEYS.items():
        for key, row in keys.items():
            value = configuration.value(table, key)
            if not row.is_of_node and value != row.default and (table, key) in configuration.explicit:
                yield f"[{table}] {key}", sorted(value) if (table, key) == ("cluster", "nodes") else value
    if configuration.system_usage is not None:
        yield "[system-usage]", ""
    repository = configuration.repository
    if repository.wildcards != DEFAULT_WILDCARDS:
        yield "[wildcard-addresses]", repository.wildcards
    for entry in (*repository.entries, *repository.destinations.entries):
        yield f"{entry.kind} {entry.match.text!r}{in_vhost(entry.vhost or '/')}", entry.settings
    for queue in configuration.queues:
        if queue.arguments.get("x-replication") in OF_SOME_NODES:
            continue
        yield f"queue {queue.name!r}{in_vhost(queue.vhost)}", queue
    for exchange in configuration.exchanges:
        yield f"exchange {exchange.name!r}{in_vhost(exchange.vhost)}", exchange
    for divert in configuration.diverts:
        yield f"divert {divert.name!r}{in_vhost(divert.vhost)}", divert
    for topic in configuration.logged_topics:
        yield f"{topic.title}{in_vhost(topic.vhost)}", topic
    for vhost in dict.fromkeys((*configuration.vhosts, *configuration.limits)):
        yield f"vhost {vhost!r}", configuration.limits.get(vhost)
    for user in configuration.users:
        yield f"user {user.name!r}", user
    for policy in configuration.policies:
        yield f"{policy.kind} {policy.name!r}{in_vhost(policy.vhost)}", policy


def text_of(value: object) -> str:
    """A text that is the same for equal values in every process, but 1, 1.0 and True have different texts.

    Sets are sorted. Fields that are not compared (`compare=False`) are left out, such as positions in files.
    """
    if is_dataclass(value) and not isinstance(value, type):
        compared = (one.name for one in fields(value) if one.compare)
        return f"{type(value).__name__}({', '.join(_pairs((name, getattr(value, name)) for name in compared))})"
    if isinstance(value, (Mapping, MappingProxyType)):
        return f"{{{', '.join(sorted(_pairs(value.items())))}}}"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(text_of, value)))}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(text_of, value))}]"
    if isinstance(value, Enum):
        return value.name
    return repr(value)


def _pairs(pairs: Iterable[tuple[object, object]]) -> Iterator[str]:
    return (f"{name}: {text_of(value)}" for name, value in pairs)
