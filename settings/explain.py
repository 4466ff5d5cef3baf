"""Why an address or queue has the settings that it has: each value with the rule that gave it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from .configuration import Configuration
from .declarations import QueueDeclaration
from .fields import FIELDS
from .queue_arguments import NOTHING_OWN, QUEUE_ARGUMENTS, OwnSettings, settings_of_arguments
from .repository import Entry, SettingsRepository
from .resolved import rules_redelivery
from .values import shown

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

    @property
    def is_default(self) -> bool:
        """Whether nobody said it."""
        return self.rule.startswith("default")


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


def explain(configuration: Configuration, name: str, vhost: str | None = None) -> list[Explanation]:
    """Every declared queue called `name`, else the address of that name, in one virtual host or each that matters.

    An address is explained in "/", and in every other virtual host that has entries of its own for it.
    """
    repository = configuration.repository
    queues = [queue for queue in configuration.queues if queue.name == name and vhost in (None, queue.vhost)]
    if queues:
        return [explain_queue(repository, queue) for queue in queues]
    if vhost is not None:
        places = [vhost]
    else:
        common = repository.matches(name, None)
        places = ["/"] + [
            other for other in repository.vhosts if other != "/" and repository.matches(name, other) != common
        ]
    return [explain_address(repository, name, place) for place in places]


def explain_queue(repository: SettingsRepository, queue: QueueDeclaration) -> Explanation:
    """A declared queue: its own arguments over the settings of its address."""
    own_rules = rules_of_declaration(queue)
    rows = explain_rows(repository, queue.address, queue.vhost, settings_of_arguments(queue.arguments), own_rules)
    flags = {"durable": queue.durable, "enabled": queue.is_enabled, "routing-type": queue.routing_type}
    rows += [Row(key, value, f"{queue.origin}: queue {shown(queue.name)}") for key, value in flags.items()]
    rows += [Row(key, queue.arguments[key], own_rules[key]) for key in queue.arguments if key not in QUEUE_ARGUMENTS]
    matches = matches_of(repository, queue.address, queue.vhost)
    return Explanation("queue", queue.name, queue.vhost, queue.address, str(queue.origin), matches, tuple(rows))


def rules_of_declaration(queue: QueueDeclaration) -> dict[str, str]:
    """Argument -> where the declaration says it."""
    return {argument: f"{queue.origin_of(argument)}: queue {shown(queue.name)}" for argument in queue.arguments}


def explain_address(repository: SettingsRepository, address: str, vhost: str) -> Explanation:
    """An address, whether there is a queue on it or not."""
    rows = explain_rows(repository, address, vhost)
    return Explanation("address", address, vhost, address, "", matches_of(repository, address, vhost), tuple(rows))


def explain_rows(
    repository: SettingsRepository,
    address: str,
    vhost: str,
    own: OwnSettings = NOTHING_OWN,
    own_rules: Mapping[str, str] | None = None,
) -> list[Row]:
    """Each setting of a queue on `address` with its rule; `own_rules` says of each of its arguments where it stands."""
    resolved = repository.resolve_queue(address, vhost, own.settings)
    sources = repository.sources(address, vhost)
    rows: list[Row] = []
    for field in FIELDS:
        attribute = field.attribute
        if attribute in own.given_by:
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


def rule_of(one: Entry, attribute: str) -> str:
    """FILE:LINE and match of the entry that says a field."""
    where = f" in vhost {shown(one.vhost)}" if one.vhost is not None else ""
    return f"{one.origin_of(attribute)}: match {shown(one.match.text)}{where}"


def value_text(value: object) -> str:
    """A value as TOML would have it."""
    return json.dumps(value, ensure_ascii=False)


def _attempts_rule(repository: SettingsRepository, address: str, vhost: str) -> str:
    if repository.attempts is not None:
        return "default: [broker] default-max-delivery-attempts"
    if rules_redelivery(repository.merged(address, vhost)):
        return "default where a match rules redelivery or dead letters"
    return "default: unlimited, no match rules redelivery or dead letters"


def matches_of(repository: SettingsRepository, address: str, vhost: str) -> tuple[str, ...]:
    """The entries that apply, most specific first."""
    return tuple(one.match.text for one in repository.matches(address, vhost))
