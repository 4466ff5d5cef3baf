"""Why an address or queue has its settings: each value with the rule that gave it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .addresses.entries import MATCH, Entry
from .addresses.fields import BY_ATTRIBUTE, FIELDS
from .addresses.model import merge
from .addresses.queue_arguments import NO_OWN_SETTINGS, QUEUE_ARGUMENTS, OwnSettings, plain_value, settings_of_arguments
from .addresses.repository import SettingsRepository, sources_of
from .addresses.resolved import ResolvedSettings, sets_redelivery, why_flow_controlled
from .declared.configuration import Configuration
from .declared.declarations import QueueDeclaration
from .policies.policies import NO_LAYER, NO_POLICIES, NO_POLICY, EffectivePolicy, Policies, PolicyLayer, policy_layer
from .policies.policy_keys import CLASSIC
from .values import shown, value_text

_DERIVED = {
    "max_redelivery_delay_ms": "default: 10 x redelivery-delay",
    "max_read_page_bytes": "default: 2 x page-size-bytes",
    "prefetch_page_messages": "default: max-read-page-messages",
    "prefetch_page_bytes": "default: max-read-page-bytes",
}
_NO_FLOW = (
    "none: neither [system-usage] nor an entry with memory-limit, producer-flow-control, cursor, "
    "send-fail-if-no-space or BLOCK"
)
_OF_USAGE = ("send_fail_if_no_space", "send_fail_if_no_space_after_ms")


@dataclass(slots=True, frozen=True)
class Row:
    """One resolved setting. `rule`: FILE:LINE and the match or queue that gave it, or why it is the default."""

    name: str
    value: object
    rule: str


@dataclass(slots=True, frozen=True)
class Explanation:
    """All settings of one queue, address or topic. `matches`: the entries that apply, most specific first.

    `flow`: whether publishers are held when there is no space, and which entries say so.
    """

    kind: str
    name: str
    vhost: str
    address: str
    declared_at: str
    matches: tuple[str, ...]
    rows: tuple[Row, ...]
    policies: tuple[str, ...] = ()
    flow: str = ""


def explain(configuration: Configuration, name: str, vhost: str | None = None) -> list[Explanation]:
    """Every declared queue called `name`, else the address of that name, in one virtual host or in all that differ.

    An address is explained in "/", and in every other virtual host that has entries or policies of its own for it; if
    a destination policy applies to topics of that name alone, the topic as well.
    """
    repository, policies = configuration.repository, Policies(configuration.policies)
    queues = [queue for queue in configuration.queues if queue.name == name and vhost in (None, queue.vhost)]
    if queues:
        found = [explain_queue(repository, policies, queue) for queue in queues]
        return found + explain_topic(repository, name, queues[0].vhost)
    places = vhosts_to_explain(repository, policies, name, configuration.vhosts) if vhost is None else [vhost]
    found = [explain_address(repository, name, place, policies) for place in places]
    return found + explain_topic(repository, name, places[0])


def vhosts_to_explain(
    repository: SettingsRepository, policies: Policies, name: str, vhosts: Iterable[str]
) -> list[str]:
    """ "/", and each other virtual host that has entries or policies of its own for an address."""
    common = repository.matches(name, None)
    others = dict.fromkeys([*repository.vhosts, *vhosts])
    return ["/"] + [
        other
        for other in others
        if other != "/" and (repository.matches(name, other) != common or _of_new_queue(policies, name, other).policies)
    ]


def _of_new_queue(policies: Policies, name: str, vhost: str) -> EffectivePolicy:
    """The policy that a classic queue of that name would have."""
    return policies.of_queue(name, CLASSIC, vhost)


def explain_queue(repository: SettingsRepository, policies: Policies, queue: QueueDeclaration) -> Explanation:
    """A declared queue: its own arguments over its policy over the settings of its address."""
    own_rules = rules_of_declaration(queue)
    policy = policies.of_queue(queue.name, str(queue.arguments.get("x-queue-type", CLASSIC)), queue.vhost)
    plain = {key: plain_value(key, value) for key, value in queue.arguments.items()}
    layer = policy_layer(policy, plain)
    own = settings_of_arguments(queue.arguments)
    rows = explain_rows(repository, queue.address, queue.vhost, own, own_rules, layer, queue.name)
    flags = {"durable": queue.durable, "enabled": queue.is_enabled, "routing-type": queue.routing_type}
    rows += [Row(key, value, f"{queue.origin}: queue {shown(queue.name)}") for key, value in flags.items()]
    rows += argument_rows(queue.arguments, own_rules, layer)
    matches = matches_of(repository, queue.address, queue.vhost)
    entries = repository.queue_entries(queue.address, queue.vhost, queue.name)
    titles, flow = titles_of(policy, entries), flow_of(repository, entries)
    return Explanation(
        "queue", queue.name, queue.vhost, queue.address, str(queue.origin), matches, tuple(rows), titles, flow
    )


def titles_of(policy: EffectivePolicy, entries: Iterable[Entry] = ()) -> tuple[str, ...]:
    """The policy and operator policy that apply, and the destination policy among the entries, as text."""
    own = [f"{one.kind} {shown(one.match.text)}" for one in entries if one.kind != MATCH]
    return (*(one.title for one in policy.policies), *own)


def flow_of(repository: SettingsRepository, entries: Iterable[Entry]) -> str:
    """Whether flow control applies, and by what. Args: entries: those that apply, most specific first."""
    entries = tuple(entries)
    sources = sources_of(entries)
    why = ["[system-usage]"] if repository.usage is not None else []
    for attribute in why_flow_controlled(merge(one.settings for one in entries)):
        why.append(f"{BY_ATTRIBUTE[attribute].name} ({rule_of(sources[attribute], attribute)})")
    return "by " + ", ".join(why) if why else _NO_FLOW


def argument_rows(declared: Mapping[str, object], own_rules: Mapping[str, str], layer: PolicyLayer) -> list[Row]:
    """The effective arguments that are not settings of ours: RabbitMQ's and unknown ones."""
    rows: list[Row] = []
    for key in dict.fromkeys([*declared, *layer.arguments]):
        if key in QUEUE_ARGUMENTS:
            continue
        own_rule = own_rules.get(key, "queue argument")
        if key in layer.arguments:
            overruled = f", below {value_text(declared[key])} of {own_rule}" if key in declared else ""
            rows.append(Row(key, layer.arguments[key], f"{layer.given_by[key].title}{overruled}"))
        else:
            value = declared[key]
            rows.append(Row(key, value if isinstance(value, str | int | float) else repr(value), own_rule))
    return rows


def rules_of_declaration(queue: QueueDeclaration) -> dict[str, str]:
    """Argument -> where it is declared."""
    return {argument: f"{queue.origin_of(argument)}: queue {shown(queue.name)}" for argument in queue.arguments}


def explain_address(
    repository: SettingsRepository, address: str, vhost: str, policies: Policies = NO_POLICIES
) -> Explanation:
    """An address without a queue; the policies are those that a classic queue of its name would have."""
    policy = _of_new_queue(policies, address, vhost)
    layer = policy_layer(policy, {})
    rows = [*explain_rows(repository, address, vhost, layer=layer), *argument_rows({}, {}, layer)]
    matches, entries = matches_of(repository, address, vhost), repository.queue_entries(address, vhost)
    titles, flow = titles_of(policy, entries), flow_of(repository, entries)
    return Explanation("address", address, vhost, address, "", matches, tuple(rows), titles, flow)


def explain_topic(repository: SettingsRepository, name: str, vhost: str = "/") -> list[Explanation]:
    """A topic, to which another destination policy applies than to the queue of its name; else nothing."""
    policy, destinations = repository.destinations.for_topic(name), repository.destinations
    if policy is None or policy is destinations.for_queue(name):
        return []
    entries = repository.topic_entries(name, vhost)
    resolved, sources = repository.resolve_topic(name, vhost), sources_of(entries)
    rows = tuple(
        Row(field.name, getattr(resolved, field.attribute), rule_of(sources[field.attribute], field.attribute))
        for field in FIELDS
        if field.attribute in sources
    )
    matches = matches_of(repository, name, vhost)
    titles = titles_of(NO_POLICY, entries)
    return [Explanation("topic", name, vhost, name, "", matches, rows, titles, flow_of(repository, entries))]


def explain_rows(
    repository: SettingsRepository,
    address: str,
    vhost: str,
    own: OwnSettings = NO_OWN_SETTINGS,
    own_rules: Mapping[str, str] | None = None,
    layer: PolicyLayer = NO_LAYER,
    name: str | None = None,
) -> list[Row]:
    """Each setting of a queue on `address` with its rule; `own_rules`: argument -> where it is declared.

    `name`: of the queue; None: that of its address.
    """
    resolved = repository.resolve_queue(address, vhost, own.settings, layer.settings, name)
    sources = repository.sources(address, vhost, name)
    rows: list[Row] = []
    for field in FIELDS:
        attribute = field.attribute
        if _is_of_policy(attribute, own, layer, resolved):
            argument, policy = layer.giver_of(attribute)
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
            rule = _DERIVED.get(attribute, "default")
        rows.append(Row(field.name, getattr(resolved, attribute), rule))
    return rows


def _is_of_policy(attribute: str, own: OwnSettings, layer: PolicyLayer, resolved: ResolvedSettings) -> bool:
    """Whether a setting comes from the policy: the queue does not set it, or allows more attempts."""
    given = getattr(layer.settings, attribute)
    if given is None:
        return False
    return attribute not in own.given_by or (
        given == getattr(resolved, attribute) and given != getattr(own.settings, attribute)
    )


def rule_of(one: Entry, attribute: str) -> str:
    """FILE:LINE and match of the entry that sets a field."""
    where = f" in vhost {shown(one.vhost)}" if one.vhost is not None else ""
    return f"{one.origin_of(attribute)}: {one.kind} {shown(one.match.text)}{where}"


def _attempts_rule(repository: SettingsRepository, entries: Iterable[Entry]) -> str:
    if repository.attempts is not None:
        return "default: [broker] default-max-delivery-attempts"
    if sets_redelivery(merge(one.settings for one in entries)):
        return "default where a match rules redelivery or dead letters"
    return "default: unlimited, no match rules redelivery or dead letters"


def matches_of(repository: SettingsRepository, address: str, vhost: str) -> tuple[str, ...]:
    """The entries that apply, most specific first."""
    return tuple(one.match.text for one in repository.matches(address, vhost))
