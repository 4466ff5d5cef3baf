"""Why an address or queue has its settings: each value with the rule that gave it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .addresses.entries import Entry
from .addresses.fields import FIELDS
from .addresses.queue_arguments import NO_OWN_SETTINGS, QUEUE_ARGUMENTS, OwnSettings, plain_value, settings_of_arguments
from .addresses.repository import SettingsRepository
from .addresses.resolved import ResolvedSettings, sets_redelivery
from .declared.configuration import Configuration
from .declared.declarations import QueueDeclaration
from .policies.policies import NO_LAYER, NO_POLICIES, EffectivePolicy, Policies, PolicyLayer, policy_layer
from .policies.policy_keys import CLASSIC
from .values import shown, value_text

_DERIVED = {
    "max_redelivery_delay_ms": "default: 10 x redelivery-delay",
    "max_read_page_bytes": "default: 2 x page-size-bytes",
    "prefetch_page_messages": "default: max-read-page-messages",
    "prefetch_page_bytes": "default: max-read-page-bytes",
}


@dataclass(slots=True, frozen=True)
class Row:
    """One resolved setting. `rule`: FILE:LINE and the match or queue that gave it, or why it is the default."""

    name: str
    value: object
    rule: str


@dataclass(slots=True, frozen=True)
class Explanation:
    """All settings of one queue or address. `matches`: the entries that apply, most specific first."""

    kind: str
    name: str
    vhost: str
    address: str
    declared_at: str
    matches: tuple[str, ...]
    rows: tuple[Row, ...]
    policies: tuple[str, ...] = ()


def explain(configuration: Configuration, name: str, vhost: str | None = None) -> list[Explanation]:
    """Every declared queue called `name`, else the address of that name, in one virtual host or in all that differ.

    An address is explained in "/", and in every other virtual host that has entries or policies of its own for it.
    """
    repository, policies = configuration.repository, Policies(configuration.policies)
    queues = [queue for queue in configuration.queues if queue.name == name and vhost in (None, queue.vhost)]
    if queues:
        return [explain_queue(repository, policies, queue) for queue in queues]
    places = vhosts_to_explain(repository, policies, name, configuration.vhosts) if vhost is None else [vhost]
    return [explain_address(repository, name, place, policies) for place in places]


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
    rows = explain_rows(repository, queue.address, queue.vhost, own, own_rules, layer)
    flags = {"durable": queue.durable, "enabled": queue.is_enabled, "routing-type": queue.routing_type}
    rows += [Row(key, value, f"{queue.origin}: queue {shown(queue.name)}") for key, value in flags.items()]
    rows += argument_rows(queue.arguments, own_rules, layer)
    matches = matches_of(repository, queue.address, queue.vhost)
    return Explanation(
        "queue", queue.name, queue.vhost, queue.address, str(queue.origin), matches, tuple(rows), titles_of(policy)
    )


def titles_of(policy: EffectivePolicy) -> tuple[str, ...]:
    """The policy and operator policy that apply, as text."""
    return tuple(one.title for one in policy.policies)


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
    matches = matches_of(repository, address, vhost)
    return Explanation("address", address, vhost, address, "", matches, tuple(rows), titles_of(policy))


def explain_rows(
    repository: SettingsRepository,
    address: str,
    vhost: str,
    own: OwnSettings = NO_OWN_SETTINGS,
    own_rules: Mapping[str, str] | None = None,
    layer: PolicyLayer = NO_LAYER,
) -> list[Row]:
    """Each setting of a queue on `address` with its rule; `own_rules`: argument -> where it is declared."""
    resolved = repository.resolve_queue(address, vhost, own.settings, layer.settings)
    sources = repository.sources(address, vhost)
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
            rule = _attempts_rule(repository, address, vhost)
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
    return f"{one.origin_of(attribute)}: match {shown(one.match.text)}{where}"


def _attempts_rule(repository: SettingsRepository, address: str, vhost: str) -> str:
    if repository.attempts is not None:
        return "default: [broker] default-max-delivery-attempts"
    if sets_redelivery(repository.merged(address, vhost)):
        return "default where a match rules redelivery or dead letters"
    return "default: unlimited, no match rules redelivery or dead letters"


def matches_of(repository: SettingsRepository, address: str, vhost: str) -> tuple[str, ...]:
    """The entries that apply, most specific first."""
    return tuple(one.match.text for one in repository.matches(address, vhost))
