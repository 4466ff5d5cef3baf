"""Commands that explain the settings and rules in force, and preview a draft of other settings. They change nothing.

Source: management page 15, 16; address-settings page 3.8.
"""

from collections.abc import Container, Iterator
from dataclasses import asdict, replace
from typing import Annotated, Any

from ..configured.configured import ConfiguredObjects, faults_of
from ..console.dispatcher import Http, Level
from ..engine import Broker, plain_arguments
from ..settings import Configuration, Entry, Policies, Policy, PolicyFault, read_policy, settings_of_arguments
from ..settings.explain import (
    Explanation,
    argument_rows,
    explain_address,
    explain_rows,
    matches_of,
    rule_of,
    titles_of,
    with_rows_of_type,
)
from ..settings.rows.address_settings import BY_KEY, SETTINGS
from ..settings.values import value_text
from .command import command
from .command_error import CommandError
from .kinds import JSON, NAME, Json, Name, OnlyVhost
from .live_difference import live_difference, loaded
from .operator import Operator
from .running import explain_running
from .steps import Steps

#: Maximum policies of one draft.
POLICIES_MAX = 1000

Included = Annotated[Any, JSON, "{NAME: TEXT} of the files that these include"]


@command("explain", http=Http("GET", "leveret/explain/V/NAME", Level.VHOST), reads=True)
def explain(
    operator: Operator, name: Annotated[str, NAME, "of the queue or address"], *, vhost: OnlyVhost | None = None
) -> list[dict[str, Any]]:
    """Show every setting of a queue or address, and which rule gave it."""
    operator.vhosts(vhost)
    return [asdict(one) for one in explain_running(operator.objects, name, vhost)]


@command("diff", reads=True)
def diff(operator: Operator, files: Json, *, included: Included = None) -> Steps:
    """Tell what other configuration files would change; `leveret diff --live` sends them.

    files: [[NAME, TEXT], ...]
    """
    objects, new = operator.objects, loaded(files, included)
    return (yield from live_difference(objects, new, objects.policies.policies_after(new)))


@command("draft", reads=True)
def draft(
    operator: Operator,
    name: Name | None = None,
    *,
    files: Json = None,
    included: Included = None,
    adds: bool = False,
    policies: Json = None,
    vhost: OnlyVhost | None = None,
) -> Steps:
    """Show the effect that a draft of settings and policies would have on the queues of the broker.

    name: a queue or address whose settings are explained, too
    files: [[NAME, TEXT], ...]: configuration files in TOML or XML
    adds: whether the files add to the settings in force (true) or replace them (false, default)
    policies: a list, as RabbitMQ's API shows them; operator: true for operator policies

    The answer is that of `diff`. With a name it also has `explained`, all settings that each queue of that name, or
    the address, would have with the draft, and `differs`, the settings that the draft changes, with both values.
    """
    objects = operator.objects
    operator.vhosts(vhost)
    new, after = _drafted(operator, files, included, adds, policies)
    answer: dict[str, Any] = yield from live_difference(objects, new, after)
    if name is None:
        return answer
    yield
    now = explain_running(objects, name, vhost)
    explained = [_as_drafted(objects, one, new, after) for one in now if one.kind != "topic"]
    return {
        **answer,
        "explained": [asdict(one) for one in explained],
        "differs": [row for one, other in zip(now, explained) for row in _differing(one, other)],
    }


def _drafted(
    operator: Operator, files: object, included: object, adds: bool, policies: object
) -> tuple[Configuration, Policies]:
    """The configuration and the policies that would be in force with the draft. Raises: CommandError."""
    now = operator.objects.configuration
    if files is None and policies is None:
        raise CommandError("draft: expected files or policies")
    new = now if files is None else loaded(files, included)
    if files is not None and adds:
        identities = {policy.identity for policy in new.policies}
        kept = tuple(policy for policy in now.policies if policy.identity not in identities)
        repository = now.repository.with_entries(new.repository.entries)
        new = replace(now, repository=repository, policies=(*kept, *new.policies))
        if faults := faults_of(new):
            raise CommandError("\n".join(faults))
    return new, operator.objects.policies.policies_after(new).with_these(
        _drafted_policies(operator, [] if policies is None else policies)
    )


def _drafted_policies(operator: Operator, given: object) -> list[Policy]:
    """The policies of the draft. Raises: CommandError."""
    if not isinstance(given, list) or len(given) > POLICIES_MAX or not all(isinstance(one, dict) for one in given):
        raise CommandError(f"draft: policies: expected a list of at most {POLICIES_MAX} objects")
    found = []
    for one in given:
        name, vhost = one.get("name", "draft"), one.get("vhost", "/")
        if not isinstance(name, str) or vhost not in operator.broker.virtual_hosts:
            raise CommandError("draft: policies: expected a name, and an existing virtual host")
        try:
            found.append(read_policy(name, vhost, one, is_operator=one.get("operator") is True))
        except PolicyFault as fault:
            raise CommandError(f"Validation failed\n\n{fault}") from None
    return found


def _as_drafted(objects: ConfiguredObjects, now: Explanation, new: Configuration, policies: Policies) -> Explanation:
    """Explain a queue or address by the settings of the draft."""
    queue = objects.broker.virtual_hosts[now.vhost].queues.get(now.name) if now.kind == "queue" else None
    if queue is None:
        return explain_address(new.repository, now.name, now.vhost, policies)
    arguments = plain_arguments(queue.arguments)
    effective = policies.of_queue(queue.name, queue.type, queue.vhost_name)
    layer = effective.layer(arguments)
    own = settings_of_arguments(arguments)
    rows = explain_rows(new.repository, queue.address, queue.vhost_name, own, None, layer, queue.name)
    rows = with_rows_of_type(rows, queue.name, arguments, {}, layer) + argument_rows(arguments, {}, layer)
    entries = new.repository.queue_entries(queue.address, queue.vhost_name, queue.name)
    matches = matches_of(new.repository, queue.address, queue.vhost_name)
    return replace(now, rows=tuple(rows), matches=matches, policies=titles_of(effective, entries))


def _differing(now: Explanation, draft: Explanation) -> Iterator[dict[str, Any]]:
    """The settings that differ, each with its value `now` and by the `draft`; null: unset."""
    before = {row.name: row for row in now.rows}
    for row in draft.rows:
        old = before.get(row.name)
        if old is None or old.value != row.value:
            value = None if old is None else old.value
            yield {"vhost": now.vhost, "name": row.name, "now": value, "draft": row.value, "rule": row.rule}
    gone = before.keys() - {row.name for row in draft.rows}
    for row in now.rows:
        if row.name in gone and row.name.startswith("x-"):
            yield {"vhost": now.vhost, "name": row.name, "now": row.value, "draft": None, "rule": "no longer set"}


# -- rules ----------------------------------------------------------------------------------------------------------


@command("rules", http=Http("GET", "leveret/rules/V", Level.POLICYMAKER), reads=True)
def rules(operator: Operator, name: Name | None = None, *, vhost: OnlyVhost | None = None) -> list[dict[str, Any]]:
    """List address-settings and policies together, in the order in which they win.

    name: only the rules of this queue or address, and which settings each gives

    With a name each has `gives`, the settings that it gives there, and `loses`, those in which another one wins.
    """
    operator.vhosts(vhost)
    if name is None:
        policies = [policy for policy in operator.broker.context.policies if vhost in (None, policy.vhost)]
        policies.sort(key=lambda one: (not one.is_operator, -one.priority, one.vhost, one.name))
        entries = [
            one for one in operator.broker.context.settings.entries if vhost is None or one.vhost in (None, vhost)
        ]
        entries.sort(key=lambda one: (one.vhost is None, one.match.rank))
        return [*map(_policy_row, policies), *map(_entry_row, entries)]
    rows: list[dict[str, Any]] = []
    for one in explain_running(operator.objects, name, vhost):
        if one.kind != "topic":
            rows += _rules_of(operator.broker, one)
    return rows


def _rules_of(broker: Broker, one: Explanation) -> Iterator[dict[str, Any]]:
    """The rules for a queue or address: its own arguments, its policies, then matches from the most specific on."""
    queue = broker.virtual_hosts[one.vhost].queues.get(one.name) if one.kind == "queue" else None
    given = {row.name.removeprefix("x-"): row.rule for row in one.rows}
    subject = {"of": one.name, "of_vhost": one.vhost}
    in_force = broker.context.policies.of_queue(one.name, "classic", one.vhost) if queue is None else queue.policy
    policies = in_force.policies
    titles = tuple(policy.title for policy in policies)
    if queue is not None and queue.arguments:
        settings = plain_arguments(queue.arguments)
        names = [name.removeprefix("x-") for name in settings]
        own = _given_and_overridden(
            names, {name: rule for name, rule in given.items() if not rule.startswith(titles)}, given
        )
        yield {"kind": "arguments", "name": one.name, "settings": settings, **subject, **own}
    for policy in sorted(policies, key=lambda policy: not policy.is_operator):
        mine = {name: rule for name, rule in given.items() if rule.startswith(policy.title)}
        yield {**_policy_row(policy), **subject, **_given_and_overridden(list(policy.definition), mine, given)}
    for entry in broker.context.settings.queue_entries(one.address, one.vhost, one.name):
        row = _entry_row(entry)
        mine = {
            name: rule
            for name, rule in given.items()
            if (known := BY_KEY.get(name)) is not None and rule == rule_of(entry, known.attribute)
        }
        yield {**row, **subject, **_given_and_overridden(list(row["settings"]), mine, given)}


def _given_and_overridden(names: list[str], rules: dict[str, str], known: Container[str]) -> dict[str, list[str]]:
    """Divide the settings of one rule, `names`, into those that it gives and those in which another rule wins.

    `rules`: the settings of the queue or address that this rule gives, each with the text of its rule. `known`: all
    settings of the queue or address. A policy may have another name for a setting; the text of its rule then ends with
    that name in parentheses.
    """
    ends = {rule.rpartition("(")[2].removeprefix("x-").removesuffix(")") for rule in rules.values() if "(" in rule}
    gives = [name for name in names if (name in rules if name in known else name in ends)]
    return {"gives": gives, "loses": [name for name in names if name not in gives]}


def _policy_row(policy: Policy) -> dict[str, Any]:
    origin = "" if policy.origin is None else str(policy.origin)
    value = policy.value()
    settings = value.pop("definition")
    return {"kind": policy.kind, **value, "settings": settings, "origin": origin}


def _entry_row(entry: Entry) -> dict[str, Any]:
    settings = {
        setting.key: value_text(entry.settings[setting.attribute])
        for setting in SETTINGS
        if setting.attribute in entry.settings
    }
    where = {"vhost": entry.vhost, "name": entry.match.text, "pattern": entry.match.text}
    return {"kind": entry.kind, **where, "settings": settings, "origin": str(entry.origin)}
