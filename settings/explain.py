"""Explanations of settings: each value of an address or queue, with the rule that gave it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from .addresses.entries import MATCH, Entry
from .addresses.queue_arguments import NO_OWN_SETTINGS, OwnSettings, plain_values, settings_of_arguments
from .addresses.repository import SettingsRepository, sources_of
from .declared.configuration import Configuration
from .declared.declarations import QueueDeclaration
from .policies.effective_policy import NO_LAYER, NO_POLICY, EffectivePolicy, PolicyLayer, policy_layer
from .policies.placement import PLACEMENT
from .policies.policies import NO_POLICIES, Policies
from .queue_types import CLASSIC, added_type
from .rows.address_settings import (
    BY_ATTRIBUTE,
    SETTINGS,
    ResolvedSettings,
    derived_defaults,
    merge,
    sets_redelivery,
    why_flow_controlled,
)
from .rows.broker_keys import KEYS
from .rows.queue_attributes import QUEUE_ARGUMENTS
from .values import shown, value_text

_USAGE = "[system-usage]"
_BY_USAGE = f"by {_USAGE}"
_NO_FLOW = (
    "none: neither [system-usage] nor an entry with memory-limit, producer-flow-control, cursor, "
    "send-fail-if-no-space or BLOCK"
)
_OF_USAGE = ("send_fail_if_no_space", "send_fail_if_no_space_after_ms")


@dataclass(slots=True, frozen=True)
class Explained:
    """One resolved setting. `rule`: FILE:LINE and the match or queue that gave it, or the reason for the default."""

    name: str
    value: object
    rule: str


@dataclass(slots=True, frozen=True)
class Explanation:
    """All settings of one queue, address or topic. `matches`: the entries that apply, most specific first.

    `flow`: whether publishes are blocked when there is no space, and the entries that decide it.
    """

    kind: str
    name: str
    vhost: str
    address: str
    declared_at: str
    matches: tuple[str, ...]
    rows: tuple[Explained, ...]
    policies: tuple[str, ...] = ()
    flow: str = ""

    @property
    def paging(self) -> str:
        """The messages that leave memory, for the journal or the temp store, and the limit that decides it."""
        values = {row.name: row.value for row in self.rows}
        policy, octets = values.get("address-full-policy", "PAGE"), _limit(values, "max-size-bytes")
        if values.get("cursor") == "vm":
            return "nothing: cursor is vm"
        refuses = policy == "BLOCK" and _limit(values, "max-size-bytes-reject-threshold") is not None
        if refuses or (policy != "PAGE" and octets is not None):
            return f"nothing: with {policy} the size of an address counts its messages in memory"
        limits: list[str] = []
        memory, waits = _limit(values, "memory-limit"), values.get("producer-flow-control", True)
        share = f"{values.get('cursor-memory-high-water-mark', 70)} % of "
        if memory:
            limits.append(f"{share}memory-limit {memory}" + (", or its low mark" if waits else ""))
        elif self.flow.startswith(_BY_USAGE) and (not waits or values.get("cursor") == "file"):
            limits.append(f"{share}[system-usage] memory" + (", or its low mark" if waits else ""))
        for key in ("max-size-bytes", "max-size-messages"):
            if policy == "PAGE" and (limit := _limit(values, key)) is not None:
                limits.append(f"{key} {limit}")
        own = "beyond " + "; beyond ".join(limits) + "; " if limits else ""
        return own + "beyond its part of [limits] memory"


def explain(configuration: Configuration, name: str, vhost: str | None = None) -> list[Explanation]:
    """Explain the declared queues called `name`; if there are none, the address of that name.

    `vhost`: the only virtual host to look in. Without it, queues are searched in all, and the address is explained in
    "/" and in each virtual host with its own entries or policies for it. If a destination policy applies to topics of
    that name alone, the topic is explained as well.
    """
    repository, policies = configuration.repository, Policies(configuration.policies)
    queues = [queue for queue in configuration.queues if queue.name == name and vhost in (None, queue.vhost)]
    if queues:
        found = [explain_queue(repository, policies, queue) for queue in queues]
        return found + explain_topic(repository, name, queues[0].vhost)
    vhosts = vhosts_to_explain(repository, policies, name, configuration.vhosts) if vhost is None else [vhost]
    found = [explain_address(repository, name, one, policies) for one in vhosts]
    found = [replace(one, rows=(*one.rows, *_capturing(configuration, name, one.vhost))) for one in found]
    return found + explain_topic(repository, name, vhosts[0])


def vhosts_to_explain(
    repository: SettingsRepository, policies: Policies, name: str, vhosts: Iterable[str]
) -> list[str]:
    """The default virtual host, and each other one with its own entries or policies for an address."""
    common = repository.matches(name, None)
    others = dict.fromkeys([*repository.vhosts, *vhosts])
    return ["/"] + [
        other
        for other in others
        if other != "/"
        and (repository.matches(name, other) != common or policies.of_queue(name, CLASSIC, other).policies)
    ]


def _capturing(configuration: Configuration, topic: str, vhost: str) -> Iterator[Explained]:
    """The queues that capture messages of a topic, and the declarations by which it is logged."""
    for queue in configuration.queues:
        own = added_type(queue.arguments) if queue.vhost == vhost else None
        rule = None if own is None else own.captures(queue, topic)
        if rule is not None:
            yield Explained("captured-by", queue.name, rule)
    for logged in configuration.logged_topics:
        if logged.vhost == vhost and logged.records()(topic):
            yield Explained("logged-by", logged.name, f"{logged.origin}: {logged.title}")


def explain_table(configuration: Configuration, table: str) -> list[Explained]:
    """Each value of a table of keys, such as [cluster], with the line that gave it."""
    rows: list[Explained] = []
    for key, one in KEYS[table].items():
        origin = configuration.origins.get((table, key))
        rule = f"default of profile {configuration.broker.profile}" if one.by_profile else "default"
        value = one.kind.rendered(configuration.value(table, key))
        rows.append(Explained(key, value, rule if origin is None else f"{origin}: [{table}]"))
    return rows


def explain_queue(repository: SettingsRepository, policies: Policies, queue: QueueDeclaration) -> Explanation:
    """A declared queue: its own arguments over its policy over the settings of its address."""
    own_rules = rules_of_declaration(queue)
    policy = policies.of_queue(queue.name, str(queue.arguments.get("x-queue-type", CLASSIC)), queue.vhost)
    layer = policy_layer(policy, plain_values(queue.arguments))
    own = settings_of_arguments(queue.arguments)
    rows = explain_rows(repository, queue.address, queue.vhost, own, own_rules, layer, queue.name)
    flags = {"durable": queue.durable, "enabled": queue.is_enabled, "routing-type": queue.routing_type}
    rows += [Explained(key, value, f"{queue.origin}: queue {shown(queue.name)}") for key, value in flags.items()]
    rows = with_rows_of_type(rows, queue.name, queue.arguments, own_rules, layer)
    rows += [*argument_rows(queue.arguments, own_rules, layer), *placement_rows(policy)]
    entries = repository.queue_entries(queue.address, queue.vhost, queue.name)
    one = explanation_of(repository, "queue", queue.name, queue.vhost, rows, entries, policy, address=queue.address)
    return replace(one, declared_at=str(queue.origin))


def explain_address(
    repository: SettingsRepository, address: str, vhost: str, policies: Policies = NO_POLICIES
) -> Explanation:
    """An address without a queue; the policies are those that a classic queue of its name would have."""
    policy = policies.of_queue(address, CLASSIC, vhost)
    layer = policy_layer(policy, {})
    rows = [*explain_rows(repository, address, vhost, layer=layer), *argument_rows({}, {}, layer)]
    rows += placement_rows(policy)
    entries = repository.queue_entries(address, vhost)
    return explanation_of(repository, "address", address, vhost, rows, entries, policy)


def explain_topic(repository: SettingsRepository, name: str, vhost: str = "/") -> list[Explanation]:
    """The explanation of a topic with another destination policy than the queue of its name; else nothing."""
    policy, destinations = repository.destinations.for_topic(name), repository.destinations
    if policy is None or policy is destinations.for_queue(name):
        return []
    entries = repository.topic_entries(name, vhost)
    resolved, sources = repository.resolve_topic(name, vhost), sources_of(entries)
    rows = [
        Explained(
            setting.key, getattr(resolved, setting.attribute), rule_of(sources[setting.attribute], setting.attribute)
        )
        for setting in SETTINGS
        if setting.attribute in sources
    ]
    return [explanation_of(repository, "topic", name, vhost, rows, entries, NO_POLICY)]


def explanation_of(
    repository: SettingsRepository,
    kind: str,
    name: str,
    vhost: str,
    rows: Iterable[Explained],
    entries: tuple[Entry, ...],
    policy: EffectivePolicy,
    *,
    address: str = "",
) -> Explanation:
    """The explanation of an object. Args: entries: those that apply, most specific first; address: if not the name."""
    address = address or name
    matches, titles = matches_of(repository, address, vhost), titles_of(policy, entries)
    return Explanation(kind, name, vhost, address, "", matches, tuple(rows), titles, _flow_of(repository, entries))


# -- rows --------------------------------------------------------------------------------------------------------------


def explain_rows(
    repository: SettingsRepository,
    address: str,
    vhost: str,
    own: OwnSettings = NO_OWN_SETTINGS,
    own_rules: Mapping[str, str] | None = None,
    layer: PolicyLayer = NO_LAYER,
    name: str | None = None,
) -> list[Explained]:
    """Each setting of a queue on `address` with its rule; `own_rules`: argument -> the position of its declaration.

    `name`: of the queue; None: that of its address.
    """
    resolved = repository.resolve_queue(address, vhost, own.settings, layer.settings, name)
    sources, derived = repository.sources(address, vhost, name), derived_defaults({})
    rows: list[Explained] = []
    for setting in SETTINGS:
        attribute = setting.attribute
        if _is_of_policy(attribute, own, layer, resolved):
            argument, policy = layer.source_of(attribute)
            rule = f"{policy.title} ({argument.removeprefix('x-')})"
        elif attribute in own.given_by:
            argument = own.given_by[attribute]
            rule = f"{(own_rules or {}).get(argument, 'queue argument')} ({argument})"
        elif attribute in sources:
            rule = rule_of(sources[attribute], attribute)
        elif attribute == "max_delivery_attempts":
            rule = _attempts_rule(repository, repository.queue_entries(address, vhost, name))
        elif attribute in _OF_USAGE and repository.usage is not None:
            rule = "default: [system-usage]"
        elif attribute == "id_cache_size" and repository.id_cache_size is not None:
            rule = "default: [broker] id-cache-size"
        else:
            rule = f"default: {setting.default_text}" if attribute in derived else "default"
        rows.append(Explained(setting.key, getattr(resolved, attribute), rule))
    return rows


def _is_of_policy(attribute: str, own: OwnSettings, layer: PolicyLayer, resolved: ResolvedSettings) -> bool:
    """Whether the policy decides a setting: the queue does not set it, or sets a higher limit of attempts."""
    if attribute not in layer.settings:
        return False
    given = layer.settings[attribute]
    return attribute not in own.given_by or (given == getattr(resolved, attribute) and given != own.settings[attribute])


def rule_of(one: Entry, attribute: str) -> str:
    """FILE:LINE and match of the entry that sets a field."""
    where = f" in vhost {shown(one.vhost)}" if one.vhost is not None else ""
    return f"{one.origin_of(attribute)}: {one.kind} {shown(one.match.text)}{where}"


def _attempts_rule(repository: SettingsRepository, entries: Iterable[Entry]) -> str:
    if repository.attempts is not None:
        return "default: [broker] default-max-delivery-attempts"
    if sets_redelivery(merge(one.settings for one in entries)):
        return "default where a match sets redelivery or dead letters"
    return "default: unlimited, no match sets redelivery or dead letters"


def with_rows_of_type(
    rows: list[Explained], name: str, declared: Mapping[str, object], own_rules: Mapping[str, str], layer: PolicyLayer
) -> list[Explained]:
    """The rows of a queue. A type with its own arguments has their rows, then those of the address that concern it."""
    own = added_type(declared)
    if own is None:
        return rows
    arguments = {**declared, **layer.arguments}
    settings, faults = own.read(name, arguments)
    for fault in faults:
        arguments.pop(fault.key, None)
    found: list[Explained] = []
    for argument, row in own.rows.items():
        rule = own.default_rules.get(row.attribute, "default")
        if argument in layer.arguments and argument in arguments:
            rule = layer.given_by[argument].title
        elif argument in arguments:
            rule = f"{own_rules.get(argument, 'queue argument')} ({argument})"
        found.append(Explained(argument.removeprefix("x-"), getattr(settings, row.attribute), rule))
    return [*found, *(one for one in rows if not one.name.startswith(own.unused_settings))]


def argument_rows(declared: Mapping[str, object], own_rules: Mapping[str, str], layer: PolicyLayer) -> list[Explained]:
    """The effective arguments that are not settings of ours: RabbitMQ's and unknown ones."""
    rows: list[Explained] = []
    own = added_type(declared)
    shown_already = QUEUE_ARGUMENTS.keys() | (() if own is None else own.rows.keys())
    for key in dict.fromkeys([*declared, *layer.arguments]):
        if key in shown_already:
            continue
        own_rule = own_rules.get(key, "queue argument") + (f": {PLACEMENT[key]}" if key in PLACEMENT else "")
        if key in layer.arguments:
            overruled = f", below {value_text(declared[key])} of {own_rule}" if key in declared else ""
            rows.append(Explained(key, layer.arguments[key], f"{layer.given_by[key].title}{overruled}"))
        else:
            rows.append(Explained(key, _shown(declared[key]), own_rule))
    return rows


def placement_rows(policy: EffectivePolicy) -> list[Explained]:
    """The keys of policies that choose the node of a queue, each with its effect here."""
    return [
        Explained(key, _shown(value), f"{policy.policy_of(key).title}: {means}")
        for key, value in policy.definition.items()
        if (means := PLACEMENT.get(key)) is not None
    ]


def _shown(value: object) -> object:
    return value if isinstance(value, str | int | float) else repr(value)


def rules_of_declaration(queue: QueueDeclaration) -> dict[str, str]:
    """Argument -> where it is declared."""
    return {argument: f"{queue.origin_of(argument)}: queue {shown(queue.name)}" for argument in queue.arguments}


# -- matches, policies, flow control -----------------------------------------------------------------------------------


def matches_of(repository: SettingsRepository, address: str, vhost: str) -> tuple[str, ...]:
    """The entries that apply, most specific first."""
    return tuple(one.match.text for one in repository.matches(address, vhost))


def titles_of(policy: EffectivePolicy, entries: Iterable[Entry] = ()) -> tuple[str, ...]:
    """The policy and operator policy that apply, and the destination policy among the entries, as text."""
    own = [f"{one.kind} {shown(one.match.text)}" for one in entries if one.kind != MATCH]
    return (*(one.title for one in policy.policies), *own)


def _flow_of(repository: SettingsRepository, entries: Iterable[Entry]) -> str:
    """Whether flow control applies, and the reason. Args: entries: those that apply, most specific first."""
    entries = tuple(entries)
    sources = sources_of(entries)
    why = [_USAGE] if repository.usage is not None else []
    for attribute in why_flow_controlled(merge(one.settings for one in entries)):
        why.append(f"{BY_ATTRIBUTE[attribute].key} ({rule_of(sources[attribute], attribute)})")
    return "by " + ", ".join(why) if why else _NO_FLOW


def _limit(values: Mapping[str, object], key: str) -> int | None:
    value = values.get(key, -1)
    return value if isinstance(value, int) and value >= 0 else None
