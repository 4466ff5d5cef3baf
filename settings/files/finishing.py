"""Makes a configuration of the collected contents of all files.

Matches are parsed here and not by the loaders, because the wildcard syntax may be in a later file.
"""

from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from ..addresses.destinations import (
    DEFAULT_ENTRY,
    NO_DESTINATIONS,
    QUEUE_ENTRY,
    TOPIC_ENTRY,
    DestinationPolicies,
    parse_destination,
)
from ..addresses.entries import Entry
from ..addresses.matching import Match, MatchFault, Wildcards, parse_artemis_match
from ..addresses.repository import SettingsRepository
from ..declared.cluster import cluster_problems, cluster_warnings
from ..declared.configuration import Configuration
from ..faults import Fault, Origin
from ..lint.lint import lint_of
from ..rows.address_settings import layer_of
from ..rows.flow_control import SystemUsage, system_usage_of
from ..values import shown
from .builder import OF_TOPICS, ConfigurationBuilder, RawEntry
from .file_hooks import FILE_HOOKS


def finish(builder: ConfigurationBuilder) -> tuple[Configuration, list[Fault]]:
    """The configuration and its faults, in order of file and line; with faults it must not be used.

    Faults that need a whole configuration, such as those of [cluster], are looked for only if there are no others.
    """
    for key, (value, origin) in builder.implied.items():
        if key not in builder.explicit:
            builder.explicit[key], builder.explicit_at[key] = value, origin
    given = {key: value for (table, key), value in builder.explicit.items() if table == "system-usage"}
    usage = system_usage_of(given) if builder.has_system_usage or given else None
    repository = _repository(builder, usage)
    for hooks in () if builder.faults else FILE_HOOKS:
        hooks.complete(builder)
    configuration = Configuration(
        MappingProxyType(builder.explicit),
        (),
        repository,
        tuple(builder.queues.values()),
        tuple(builder.exchanges.values()),
        tuple(builder.diverts.values()),
        tuple(builder.vhosts),
        MappingProxyType(builder.explicit_at),
        MappingProxyType(builder.limits),
        tuple(builder.users.values()),
        tuple(builder.policies.values()),
        usage,
        tuple(builder.logged_topics.values()),
        tuple(dict.fromkeys(builder.included)),
        builder.cluster_at is not None,
    )
    if builder.cluster_at is not None and not builder.faults:
        _check_cluster(builder, configuration, builder.cluster_at)
    if not builder.faults:
        builder.warnings += lint_of(configuration)
        for hooks in FILE_HOOKS:
            builder.warnings += hooks.lint(configuration, builder.logged_vhosts)
    in_order = sorted(builder.faults, key=attrgetter("file", "line", "key", "problem"))
    return replace(configuration, warnings=tuple(builder.warnings)), in_order


def _check_cluster(builder: ConfigurationBuilder, configuration: Configuration, cluster_at: Origin) -> None:
    def line_of(table: str, key: str) -> Origin:
        """The line of the key, of the first key of its table, or of [cluster]."""
        if (table, key) in builder.explicit_at:
            return builder.explicit_at[table, key]
        if table == "cluster":
            return cluster_at
        return next((origin for (other, _), origin in builder.explicit_at.items() if other == table), cluster_at)

    for table, key, problem in cluster_problems(configuration):
        builder.fault(line_of(table, key), key, problem)
    for table, key, problem in cluster_warnings(configuration):
        builder.warn(line_of(table, key), key, problem)


def _repository(builder: ConfigurationBuilder, usage: SystemUsage | None) -> SettingsRepository:
    try:
        wildcards = Wildcards(**builder.wildcards)
    except MatchFault as error:
        builder.fault(builder.wildcards_origin, "wildcard-addresses", str(error))
        wildcards = Wildcards()
    has_artemis = any(map(_is_of_artemis, builder.entries.values()))
    entries: list[Entry] = []
    for match, raws in _by_match(builder, wildcards):
        one = raws[0] if len(raws) == 1 else _combined(builder, raws)
        values = _with_missing_queues(one) if has_artemis else one.values
        entries.append(Entry(match, layer_of(**values), one.vhost, one.origin, MappingProxyType(one.origins)))
    explicit = builder.explicit
    return SettingsRepository(
        entries,
        wildcards,
        default_max_delivery_attempts=explicit.get(("broker", "default-max-delivery-attempts")),
        uuid_namespace=explicit.get(("broker", "uuid-namespace"), ""),
        id_cache_size=explicit.get(("broker", "id-cache-size")),
        usage=usage,
        destinations=_destinations(builder),
    )


def _is_of_artemis(one: RawEntry) -> bool:
    return one.parse is parse_artemis_match


def _with_missing_queues(one: RawEntry) -> dict[str, Any]:
    """The values of an entry, with a default for `auto_create_missing_queues`; used if any entry is Artemis's.

    An entry with a dead-letter or expiry address gets it: false if the entry is Artemis's, else true, because the entry
    may override one of Artemis.
    """
    if not (one.values.get("dead_letter_address") or one.values.get("expiry_address")):
        return one.values
    return {"auto_create_missing_queues": not _is_of_artemis(one), **one.values}


def _destinations(builder: ConfigurationBuilder) -> DestinationPolicies:
    if not builder.destinations:
        return NO_DESTINATIONS
    kinds: dict[str, list[Entry]] = {QUEUE_ENTRY: [], TOPIC_ENTRY: [], DEFAULT_ENTRY: []}
    for (kind, _), raw in builder.destinations.items():
        values = raw.values | dict.fromkeys(builder.discarded, "")
        match, settings = parse_destination(raw.match), layer_of(**values)
        kinds[kind].append(Entry(match, settings, None, raw.origin, MappingProxyType(raw.origins), kind))
    return DestinationPolicies(kinds[QUEUE_ENTRY], kinds[TOPIC_ENTRY], next(iter(kinds[DEFAULT_ENTRY]), None))


def _by_match(builder: ConfigurationBuilder, wildcards: Wildcards) -> Iterable[tuple[Match, list[RawEntry]]]:
    """The entries by the addresses that they cover: texts of different systems may be one match here."""
    found: dict[tuple[object, ...], tuple[Match, list[RawEntry]]] = {}
    for raw in builder.entries.values():
        try:
            match = raw.parse(raw.match, wildcards)
        except MatchFault as error:
            builder.fault(raw.origin, "match", f"{shown(raw.match)}: {error}")
            continue
        found.setdefault((raw.vhost, *match.coverage), (match, []))[1].append(raw)
    return found.values()


def _combined(builder: ConfigurationBuilder, raws: list[RawEntry]) -> RawEntry:
    """One entry of several, setting by setting; settings for topics alone must not contradict the others."""
    ordered = sorted(raws, key=lambda raw: raw.rank)
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for raw in ordered:
        values |= raw.values
        origins |= raw.origins
    others = [raw for raw in ordered if raw.rank != OF_TOPICS]
    for raw in ordered:
        if raw.rank == OF_TOPICS and others:
            _check_topics(builder, raw, others)
    return replace(ordered[-1], values=values, origins=origins)


def _check_topics(builder: ConfigurationBuilder, topics: RawEntry, others: list[RawEntry]) -> None:
    """Compare an entry for HornetQ's topics with the others of its match, which are for queues."""
    what = f"{shown(topics.in_file)} is {shown(topics.match)} without its JMS prefix"
    other = next((one for one in others if _contradicts(one, topics)), None)
    if other is not None:
        where = f"which is already declared at {other.origin} with other settings"
        builder.fault(topics.origin, "match", f"{what}, {where}")
    elif any(key not in raw.values for raw in others for key in topics.values):
        builder.warn(topics.origin, "match", f"{what}: it applies to queues, too")


def _contradicts(one: RawEntry, other: RawEntry) -> bool:
    """Whether two entries set a setting to different values."""
    return any(one.values.get(key, value) != value for key, value in other.values.items())
