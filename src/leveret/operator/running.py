"""Explanations of the settings of queues in a running broker.

Like `settings.explain`, but for existing queues: a queue's own arguments come first, from the configuration or from a
client, and a resized ring shows its present size. Source: address-settings page 3.8, 6.7; rulings 11, 24.
"""

from collections.abc import Iterator
from dataclasses import replace

from ..configured.configured import ConfiguredObjects, at_own_site
from ..configured.typed_arguments import fields_of
from ..engine import Broker, Queue, plain_arguments
from ..settings import Configuration, QueueDeclaration, settings_of_arguments
from ..settings.explain import (
    Explained,
    Explanation,
    argument_rows,
    explain_address,
    explain_rows,
    explain_topic,
    explanation_of,
    placement_rows,
    rules_of_declaration,
    titles_of,
    vhosts_to_explain,
    with_rows_of_type,
)
from ..settings.values import value_text


def explain_running(objects: ConfiguredObjects, name: str, vhost: str | None = None) -> list[Explanation]:
    """Explain the queues called `name`; else those of that name in a scope; else the address of that name.

    An address is explained in "/", and in every other virtual host with its own entries or policies for it; if "/" was
    deleted and there is no other such one, in the oldest. `vhost`: only in this one, which exists.
    """
    broker, configuration = objects.broker, objects.configuration
    vhosts = list(broker.virtual_hosts) if vhost is None else [vhost]
    hosts = [broker.virtual_hosts[one] for one in vhosts]
    queues = [host.queues[name] for host in hosts if name in host.queues] or [
        queue for host in hosts if host.context.scopes is not None for queue in host.context.scopes.queues_called(name)
    ]
    if queues:
        found = [_queue(broker, configuration, queue, objects.is_managed(queue)) for queue in queues]
        return found + explain_topic(broker.context.settings, name, found[0].vhost)
    repository, policies = broker.context.settings, broker.context.policies
    if vhost is None:
        vhosts = [one for one in vhosts_to_explain(repository, policies, name, vhosts) if one in vhosts] or vhosts[:1]
    found = [_with_exchange(explain_address(repository, name, one, policies), broker) for one in vhosts]
    found = [replace(one, rows=(*one.rows, *_log_rows(broker, name, one.vhost))) for one in found]
    return found + explain_topic(repository, name, found[0].vhost) if found else []


def _log_rows(broker: Broker, topic: str, vhost: str) -> Iterator[Explained]:
    """Rows for the queues that capture a topic, and for the logged topics that record it."""
    is_captured = False
    for queue in broker.virtual_hosts[vhost].queues.values():
        why = queue.kind.why_captured(queue, topic)
        if why is not None:
            is_captured = True
            yield Explained("captured-by", queue.name, why)
    listed = [one for one in broker.context.logged_topics if one.vhost == vhost]
    for logged in listed:
        if logged.records()(topic):
            yield Explained("logged-by", logged.name, f"{logged.origin}: {logged.title}, kept {logged.kept_ms} ms")
    if is_captured and not listed:
        yield Explained("logged-by", "the queues that capture it", "no logged topics are listed (W-TXLOG)")


def _rows_of_kind(broker: Broker, queue: Queue) -> Iterator[Explained]:
    """Rows of the queue's kind; of a capturing queue, also rows for the logged topics that record its topic."""
    if queue.kind.captures:
        topic = queue.context.router.captures.topic_of("", queue.name)
        for row in _log_rows(broker, topic, queue.vhost_name):
            if row.name == "logged-by":
                yield row
    for name, value, rule in queue.kind.describe(queue):
        yield Explained(name, value, rule)


def _with_exchange(address: Explanation, broker: Broker) -> Explanation:
    """The explanation with the alternate exchange, if the address is an exchange."""
    exchange = broker.virtual_hosts[address.vhost].exchanges.get(address.name)
    if exchange is None:
        return address
    own, policy = exchange.arguments.get("alternate-exchange"), exchange.policy
    rows: list[Explained] = []
    if own is not None:
        rows = [Explained("alternate-exchange", own.text, "exchange argument")]
    elif "alternate-exchange" in policy.definition:
        rows = [Explained("alternate-exchange", exchange.alternate, policy.policy_of("alternate-exchange").title)]
    titles = tuple(dict.fromkeys([*address.policies, *titles_of(policy)]))
    return replace(address, rows=(*address.rows, *rows), policies=titles)


def _queue(broker: Broker, configuration: Configuration, queue: Queue, is_managed: bool) -> Explanation:
    vhost, address = queue.vhost_name, queue.address
    arguments = plain_arguments(queue.arguments)
    declared = _declaration(broker, configuration, queue) if is_managed else None
    own_rules = _rules(queue, declared)
    own, layer = settings_of_arguments(arguments), queue.declaration.layer
    rows = explain_rows(broker.context.settings, address, vhost, own, own_rules, layer, queue.name)
    rows = [_with_present_size(queue, row) if row.name == "default-ring-size" else row for row in rows]
    elsewhere = " or by the files of another node" if queue.kind.view(queue) is not None else ""
    rule = f"{declared.origin}: queue {declared.name!r}" if declared is not None else f"declared by a client{elsewhere}"
    flags = {"durable": queue.durable, "exclusive": queue.exclusive, "auto-delete": queue.auto_delete}
    rows += [Explained(key, value, rule) for key, value in flags.items()]
    if not queue.enabled:
        rows.append(Explained("enabled", False, rule))
    rows = with_rows_of_type(rows, queue.name, arguments, own_rules, layer)
    rows += [*argument_rows(arguments, own_rules, layer), *placement_rows(queue.policy)]
    rows += _rows_of_kind(broker, queue)
    repository = broker.context.settings
    entries = repository.queue_entries(address, vhost, queue.name)
    one = explanation_of(repository, "queue", queue.name, vhost, rows, entries, queue.policy, address=address)
    return replace(one, declared_at=str(declared.origin) if declared is not None else "")


def _declaration(broker: Broker, configuration: Configuration, queue: Queue) -> QueueDeclaration | None:
    """The queue's declaration in the configuration; None also if it was removed there and the queue not deleted."""
    for declared in configuration.queues:
        own = at_own_site(broker, declared)
        if (own.vhost, own.name) == (queue.vhost_name, queue.name):
            return declared
    return None


def _rules(queue: Queue, declared: QueueDeclaration | None) -> dict[str, str]:
    """Argument -> the position in the configuration that sets it; other arguments are from the queue's declaration."""
    if declared is None:
        return {}
    configured = fields_of(declared.arguments)
    return {
        argument: rule
        for argument, rule in rules_of_declaration(declared).items()
        if argument in queue.arguments and queue.arguments[argument].comparable() == configured[argument].comparable()
    }


def _with_present_size(queue: Queue, row: Explained) -> Explained:
    """The row of the ring's size, with the present size of a ring that an operator has resized."""
    size = queue.rules.ring_size or -1
    if size == row.value:
        return row
    rule = f"as declared or resized; a queue declared now would have {value_text(row.value)} ({row.rule})"
    return replace(row, value=size, rule=rule)
