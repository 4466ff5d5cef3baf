"""Definitions in RabbitMQ's JSON: users, virtual hosts, permissions, limits, exchanges, queues, bindings, policies.

An import adds and replaces, never deletes, and is idempotent. The whole document is checked before anything is changed.
A wrong entry does not stop the others, unless the import is all or nothing. Parameters of plug-ins have no effect here;
they are stored and exported unchanged.
Source: behaviour page 5.3, 5.5.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from .. import __version__
from ..configured.configured import ConfiguredObjects, text_of
from ..configured.configured_users import DEFAULT_GUEST, new_hash
from ..console.views.access import permission_rows, topic_rows, user_view, vhost_limits
from ..engine import (
    PREDECLARED,
    Binding,
    Broker,
    EngineError,
    Exchange,
    ManualClock,
    Queue,
    ServiceExchange,
    Users,
    VirtualHost,
    json_of_table,
)
from ..settings import Configuration
from .access import topics_of, with_access
from .command import command
from .command_error import CommandError
from .definitions_reader import (
    EFFORT_A_STEP,
    LIMITS_COMPONENT,
    OBJECTS_A_STEP,
    OPERATOR_POLICY_COMPONENT,
    Declaration,
    DefinitionsFault,
    DefinitionsReader,
    Plan,
)
from .kinds import Document, IntoVhost, OnlyVhost
from .operator import Operator
from .parameters import about_by_default, about_vhost, global_parameters, parameters_of_vhosts
from .steps import VALUES_A_STEP, Steps, finished, mapped
from .topology import binding_value

T = TypeVar("T")

_PREDECLARED = {name for name, _, _ in PREDECLARED}


def export_steps(broker: Broker, only: str | None = None) -> Steps:
    """Export a broker, but for exclusive queues, predeclared exchanges and services, and bindings of exclusive queues
    and of the default exchange.

    `only`: one virtual host, in RabbitMQ's form: without users, permissions and the virtual host itself; its queues,
    exchanges and bindings do not name it. Objects that are declared during the export may be missing.
    Raises: CommandError: no such virtual host.
    """
    if only is not None and only not in broker.virtual_hosts:
        raise CommandError(f"no virtual host {only!r}")
    found = {"product_name": "Leveret", "product_version": __version__}
    parameters = [*_parameter_values(broker), *parameters_of_vhosts(broker)]
    policies = [policy.value() for policy in broker.context.policies if not policy.is_operator]
    if only is not None:
        objects = yield from _object_values([broker.virtual_hosts[only]])
        for rows in objects.values():
            yield from mapped(lambda row: row.pop("vhost"), rows)
        return {
            **found,
            "parameters": [one for one in parameters if one["vhost"] == only],
            "policies": [one for one in policies if one["vhost"] == only],
            **objects,
        }
    vhosts, users = list(broker.virtual_hosts.values()), list(broker.users)
    permissions = yield from mapped(lambda user: list(permission_rows(user, broker)), users)
    topics = yield from mapped(lambda user: list(topic_rows(user)), users)
    return {
        **found,
        "users": [user_view(user) for user in users],
        "vhosts": [_vhost_value(broker, vhost) for vhost in vhosts],
        "permissions": [row for rows in permissions for row in rows],
        "topic_permissions": [row for rows in topics for row in rows],
        "parameters": parameters,
        "global_parameters": global_parameters(broker),
        "policies": policies,
        **(yield from _object_values(vhosts)),
    }


def import_steps(broker: Broker, document: object, only: str | None = None, *, is_whole: bool = False) -> Steps:
    """Import a document.

    Returns: `imported`: counts of right entries, also of objects that exist with other arguments; `faults`: wrong
    entries, which were left out; `remarks`: right entries that were left out, because an object exists with other
    arguments or a binding's queue is missing.

    `only`: the virtual host of all objects; other entries are left out. `is_whole`: all or nothing.

    Each step is short; the caller ends the broker's turn after it. Raises: DefinitionsFault, before anything is
    changed: the value is not a document, or `is_whole` and an entry is wrong. CommandError: no such virtual host.
    """
    if only is not None:
        if only not in broker.virtual_hosts:
            raise CommandError(f"no virtual host {only!r}")
        document = in_vhost(document, only)
    plan = yield from DefinitionsReader(broker, document).plan()
    if is_whole and plan.faults:
        raise DefinitionsFault(plan.faults)
    objects = Counter(one.kind for one in plan.objects)
    counts = {
        "users": len(plan.users),
        "vhosts": len(plan.vhosts),
        "permissions": sum(map(len, plan.grants.values())),
        "policies": len(plan.policies),
        "exchanges": objects["exchange"],
        "queues": objects["queue"],
        "bindings": objects["binding"],
    }
    remarks = plan.remarks + (yield from _apply(broker, plan))
    return {"imported": counts, "faults": plan.faults, "remarks": remarks}


@command("definitions export", reads=True)
def export(operator: Operator, *, vhost: OnlyVhost | None = None) -> Steps:
    """Export everything that is declared and set, as RabbitMQ's JSON."""
    return export_steps(operator.broker, vhost)


@command("definitions import")
def import_file(
    operator: Operator, definitions: Document, *, vhost: IntoVhost | None = None, all_or_nothing: bool = False
) -> Steps:
    """Add and replace the contents of a file of RabbitMQ's JSON.

    definitions: the file
    all_or_nothing: change nothing if anything in it is wrong
    """
    try:
        return (yield from import_steps(operator.broker, definitions, vhost, is_whole=all_or_nothing))
    except DefinitionsFault as fault:
        raise CommandError(f"nothing was changed:\n{fault}") from None


def _declared(vhost: VirtualHost) -> list[Exchange]:
    """Exchanges that are neither predeclared nor services."""
    return [
        exchange
        for exchange in vhost.exchanges.values()
        if exchange.name not in _PREDECLARED and not isinstance(exchange, ServiceExchange)
    ]


def in_vhost(document: object, vhost: str) -> object:
    """The document's sections about objects of a virtual host, with this virtual host in every entry."""
    if not isinstance(document, dict):
        return document
    found: dict[str, Any] = {}
    for section in ("parameters", "policies", "queues", "exchanges", "bindings"):
        rows = document.get(section, [])
        if isinstance(rows, list):
            rows = [{**row, "vhost": vhost} if isinstance(row, dict) else row for row in rows]
        found[section] = rows
    return found


def faults_and_remarks(configuration: Configuration, document: object) -> tuple[list[str], list[str]]:
    """Faults and remarks of a document for a new broker with this configuration. Raises: DefinitionsFault."""
    broker = Broker(ManualClock(), Users([DEFAULT_GUEST]), settings=configuration.repository)
    ConfiguredObjects(broker, configuration).apply(configuration)
    reader = DefinitionsReader(broker, document)
    reader.trial.context.on_unknown_arguments = reader.remark_arguments
    plan: Plan = finished(reader.plan())
    return plan.faults, plan.remarks


def _apply(broker: Broker, plan: Plan) -> Steps:
    """Apply a plan, and remove its exchanges, queues and bindings from it. Returns remarks."""
    remarks: list[str] = []
    yield from _with_each(broker, plan.vhosts, broker.virtual_hosts.create)
    yield from _with_each(broker, plan.limits.keys() | plan.default_types.keys(), partial(_limit, broker, plan))
    yield from _with_each(broker, plan.parameters.items(), lambda one: broker.parameters.set(*one))
    yield from _apply_users(broker, plan)
    if plan.policies:
        broker.reloading.replace_policies(broker.context.policies.with_these(plan.policies))

    def declare(one: Declaration) -> None:
        vhost = broker.virtual_hosts.get(one.vhost)
        if vhost is None:
            return  # it was deleted meanwhile
        try:
            one.declare(vhost)
        except EngineError as error:  # it exists with other arguments: not changed, as in RabbitMQ
            remarks.append(f"{one.title} is not changed: {text_of(error)}")

    plan.objects.reverse()  # `_taken` frees each object after use: freeing all at once would be a long step
    yield from _with_each(broker, _taken(plan.objects), declare)
    return remarks


def _taken(objects: list[T]) -> Iterator[T]:
    """Remove and yield the objects, the last one first."""
    while objects:
        yield objects.pop()


def _with_each(broker: Broker, objects: Iterable[T], do: Callable[[T], object]) -> Steps:
    """Apply a function to each object. A step ends after `OBJECTS_A_STEP`, or after `EFFORT_A_STEP`."""
    context = broker.context
    until = context.turn.effort + EFFORT_A_STEP
    for number, one in enumerate(objects):
        if (number and number % OBJECTS_A_STEP == 0) or context.turn.effort >= until:
            yield
            until = context.turn.effort + EFFORT_A_STEP
        do(one)


def _limit(broker: Broker, plan: Plan, name: str) -> None:
    """Set the limits that the plan has for this virtual host; others stay."""
    vhost = broker.virtual_hosts.get(name)
    if vhost is None:
        return  # it was deleted meanwhile
    now = vhost.context.limits
    limits = plan.limits.get(name, now)
    default = plan.default_types.get(name, now.default_queue_type)
    broker.virtual_hosts.limit(vhost, replace(limits, default_queue_type=default, is_configured=False))


def _apply_users(broker: Broker, plan: Plan) -> Steps:
    def apply(name: str) -> None:
        before = broker.users.find(name)
        user = plan.users.get(name) or before
        if user is None:
            return  # it was deleted meanwhile
        if name in plan.passwords:
            password = plan.passwords[name]
            is_same = before is not None and before.password.is_right(password)
            user = replace(user, password=before.password if before is not None and is_same else new_hash(password))
        if before is not None:
            user = replace(user, loopback_only=before.loopback_only)
        grants = before.grants(broker.virtual_hosts) if before is not None else {}
        topics = topics_of(before) if before is not None else {}
        grants |= plan.grants.get(name, {})
        for vhost, some in plan.topics.get(name, {}).items():
            topics.setdefault(vhost, {}).update(some)
        broker.context.turn.effort += len(grants) + sum(map(len, topics.values()))
        broker.connections.replace_user(with_access(user, grants, topics))

    yield from _with_each(broker, sorted({*plan.users, *plan.grants, *plan.topics}), apply)


def _vhost_value(broker: Broker, vhost: VirtualHost) -> dict[str, Any]:
    default, about = vhost.context.limits.default_queue_type, about_vhost(broker, vhost.name)
    # A broker that reads this does not know our default description.
    if default is None and about == about_by_default(vhost.name) and not any(about.values()):
        return {"name": vhost.name}
    metadata = {**about, "default_queue_type": default} if default is not None else about
    return {"name": vhost.name, "metadata": metadata}


def _parameter_values(broker: Broker) -> Iterator[dict[str, Any]]:
    """Limits of virtual hosts, and operator policies, as parameters."""
    for vhost in broker.virtual_hosts.values():
        if value := vhost_limits(vhost):
            yield {"vhost": vhost.name, "component": LIMITS_COMPONENT, "name": "limits", "value": value}
    for policy in broker.context.policies:
        if policy.is_operator:
            value = policy.value()
            identity = {"vhost": value.pop("vhost"), "component": OPERATOR_POLICY_COMPONENT, "name": value.pop("name")}
            yield {**identity, "value": value}


def _object_values(vhosts: list[VirtualHost]) -> Steps:
    """Queues, exchanges and bindings by the names of their sections."""
    queues: list[Queue] = []
    exchanges: list[tuple[Exchange, VirtualHost]] = []
    bindings: list[tuple[Callable[[Binding], dict[str, Any] | None], list[Binding]]] = []
    for number, vhost in enumerate(vhosts, 1):
        if number % VALUES_A_STEP == 0:
            yield
        queues += [queue for queue in vhost.queues.values() if not queue.exclusive]
        exchanges += [(exchange, vhost) for exchange in _declared(vhost)]
        for exchange in vhost.exchanges.values():
            if exchange.bindings:
                bindings.append((partial(_binding_value, vhost.name), list(exchange.bindings.values())))
    yield
    found: list[dict[str, Any]] = []
    for make, some in bindings:
        found += filter(None, (yield from mapped(make, some)))
    return {
        "queues": (yield from mapped(_queue_value, queues)),
        "exchanges": (yield from mapped(_exchange_value, exchanges)),
        "bindings": found,
    }


def _exchange_value(one: tuple[Exchange, VirtualHost]) -> dict[str, Any]:
    exchange, vhost = one
    return {
        "name": exchange.name,
        "vhost": vhost.name,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": json_of_table(exchange.arguments),
    }


def _queue_value(queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "vhost": queue.vhost_name,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": json_of_table(queue.arguments),
    }


def _binding_value(vhost: str, binding: Binding) -> dict[str, Any] | None:
    """A binding in RabbitMQ's JSON; None: its queue is exclusive, so it is not exported."""
    target = binding.destination
    is_exclusive = isinstance(target, Queue) and target.exclusive
    return None if is_exclusive else {"vhost": vhost, **binding_value(binding)}
