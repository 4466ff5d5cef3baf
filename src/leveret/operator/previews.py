"""Commands that preview the effect of another command: the console shows it before it asks for confirmation.

Beside the numbers each answer has `says`: sentences for people. Source: management page 15 ("every destructive action
says how many and what").
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

from ..console.dispatcher import Http, Level
from ..engine import Binding, Client, FieldTable, Queue, dead_letter_queues, reconfigure
from ..settings import Policies, SettingsRepository
from ..settings.printable import and_more
from .command import command
from .command_error import CommandError
from .connections import clients_called
from .definitions import export_steps, in_vhost
from .definitions_difference import difference
from .definitions_reader import DefinitionsFault, DefinitionsReader, Plan
from .kinds import (
    ANY_PATTERN,
    FLAG,
    JSON,
    NAME,
    TEXT,
    Document,
    ExchangeName,
    HostName,
    IntoVhost,
    Limit,
    QueueName,
    UserName,
    VhostName,
)
from .live_difference import live_difference
from .operator import Operator
from .policies import PolicyArguments, PolicyName, wanted_policy
from .steps import Steps

#: Maximum queues in an answer; maximum names in a sentence.
LISTED_MAX, NAMED_MAX = 100, 5
#: Queues that are examined between two turns.
STEP_QUEUES = 50


# -- rules ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class PreviewedPolicy:
    """The arguments of a policy; the deletion of a policy (`clear`) needs only the name."""

    name: PolicyName
    pattern: Annotated[Any, ANY_PATTERN, "of the names it would apply to"] = None
    definition: Annotated[Any, JSON, 'like {"max-length": 10}'] = None
    _: KW_ONLY
    apply_to: Annotated[str, TEXT, "all (the default), queues, exchanges, classic_queues, ..."] = "all"
    priority: Annotated[Any, JSON, "of those that match the highest wins (default 0)"] = 0
    clear: Annotated[bool, FLAG, "true: what its deletion would do"] = False


@command("preview policy", http=Http("POST", "leveret/preview/policies/V/NAME", Level.POLICYMAKER), reads=True)
def preview_policy(operator: Operator, given: PreviewedPolicy, *, vhost: VhostName = "/") -> Steps:
    """Tell what a policy would do to the messages that are there."""
    return _preview_policy(operator, given, vhost, is_operator=False)


@command(
    "preview operator-policy",
    http=Http("POST", "leveret/preview/operator-policies/V/NAME", Level.ADMINISTRATOR),
    reads=True,
)
def preview_operator_policy(operator: Operator, given: PreviewedPolicy, *, vhost: VhostName = "/") -> Steps:
    """Tell what an operator policy would do to the messages that are there."""
    return _preview_policy(operator, given, vhost, is_operator=True)


def _preview_policy(operator: Operator, given: PreviewedPolicy, vhost: str, *, is_operator: bool) -> Steps:
    operator.vhost(vhost)
    now = operator.broker.context.policies
    if given.clear:
        after = now.without([(vhost, is_operator, given.name)])
    else:
        wanted = PolicyArguments(
            given.name, given.pattern, given.definition, apply_to=given.apply_to, priority=given.priority
        )
        after = now.with_these([wanted_policy(wanted, vhost, is_operator=is_operator)])
    return (yield from consequences(operator, operator.broker.context.settings, after))


@command("preview reload", http=Http("POST", "leveret/preview/reload", Level.ADMINISTRATOR), reads=True)
def preview_reload(operator: Operator) -> Steps:
    """Read the configuration files, and tell what a reload would change."""
    if operator.load is None:
        raise CommandError("this broker was started without configuration files")
    new, faults = operator.load()
    if faults:
        raise CommandError("a reload would change nothing:\n" + "\n".join(map(str, faults)))
    yield
    objects, policies = operator.objects, operator.objects.policies.policies_after(new)
    answer: dict[str, Any] = yield from live_difference(objects, new, policies)
    deleted = objects.queues_deleted_by(new)
    arguments = objects.arguments_after(new)
    found = yield from consequences(operator, new.repository, policies, arguments, without=deleted)
    if deleted:
        names = _named(queue.name for queue in deleted)
        found["says"].insert(0, f"{_deleted(deleted)}: {names}")
    return {**answer, **found, "deleted": [_identity_of(queue) for queue in deleted[:LISTED_MAX]]}


def consequences(
    operator: Operator,
    settings: SettingsRepository,
    policies: Policies,
    arguments: Mapping[Queue, FieldTable] | None = None,
    without: Iterable[Queue] = (),
) -> Steps:
    """The effect of other settings, policies and arguments of queues on messages, in numbers and sentences.

    `without`: queues that would be deleted.
    """
    context, rows = operator.broker.context, []
    changed = policies.changed_since(context.policies) if settings is context.settings and not arguments else None
    left_out = set(without)
    for count, queue in enumerate(list(operator.broker.virtual_hosts.queues()), 1):
        if count % STEP_QUEUES == 0:
            yield
        if queue.deleted or queue in left_out:
            continue
        if changed is not None and not policies.may_concern(queue.name, queue.type, queue.policy, changed):
            continue
        found = yield from reconfigure.forecast(queue, settings, policies, (arguments or {}).get(queue))
        if found.dropped or found.later or found.full or found.unused_ms is not None:
            rows.append((queue, found))
    rows.sort(key=lambda one: -one[1].dropped)
    return {
        "dropped": sum(one.dropped for _, one in rows if one.dead_letter_target is None),
        "dead_lettered": sum(one.dropped for _, one in rows if one.dead_letter_target is not None),
        "concerned": [{**_identity_of(queue), **one._asdict()} for queue, one in rows[:LISTED_MAX]],
        "more": max(0, len(rows) - LISTED_MAX),
        "says": list(_sentences([one for _, one in rows])),
    }


def _sentences(found: list[reconfigure.Forecast]) -> Iterator[str]:
    lost = [one for one in found if one.dropped and one.dead_letter_target is None]
    moved = [one for one in found if one.dropped and one.dead_letter_target is not None]
    shrinking, full = [one for one in found if one.later], [one for one in found if one.full]
    unused = [one for one in found if one.unused_ms is not None]
    if lost:
        yield f"{_dropped_of(lost)} dropped from {_counted(len(lost), 'queue')}"
    if moved:
        targets = _named(dict.fromkeys(one.dead_letter_target or "the default exchange" for one in moved))
        yield f"{_dropped_of(moved)} dead-lettered from {_counted(len(moved), 'queue')} to {targets}"
    if shrinking:
        count = sum(one.later for one in shrinking)
        rings = _counted(len(shrinking), "queue")
        yield f"{_with_verb(count, 'message')} beyond the smaller ring of {rings}, and dropped as others arrive"
    for response in dict.fromkeys(one.full for one in full):
        count = sum(one.full == response for one in full)
        yield f"{_with_verb(count, 'queue')} full then: {RESPONSES.get(response, response)}"
    if unused:
        soonest = min(one.unused_ms or 0 for one in unused)
        ready = sum(one.ready for one in unused)
        yield (
            f"{_counted(len(unused), 'queue')} without consumers, with {_counted(ready, 'message')}, "
            f"will be deleted if unused, the first after {soonest / 1000:g} s"
        )


#: Response of a full queue or address to a new message -> the words for it.
RESPONSES = {
    "reject-publish": "new messages are refused",
    "reject-publish-dlx": "new messages are dead-lettered",
    "DROP": "new messages are dropped",
    "FAIL": "new messages are refused",
    "BLOCK": "publishers are blocked",
}


def _dropped_of(found: list[reconfigure.Forecast]) -> str:
    dropped, ready = sum(one.dropped for one in found), sum(one.ready for one in found)
    return f"{dropped:,} of {_counted(ready, 'message')} {'is' if dropped == 1 else 'are'}"


# -- limits ---------------------------------------------------------------------------------------------------------


@command("preview vhost-limits", http=Http("POST", "leveret/preview/vhost-limits/V", Level.ADMINISTRATOR), reads=True)
def preview_vhost_limits(
    operator: Operator, vhost: HostName, *, max_connections: Limit | None = None, max_queues: Limit | None = None
) -> dict[str, Any]:
    """Tell what limits of a virtual host would refuse.

    max_connections: -1: no limit
    max_queues: -1: no limit
    """
    host = operator.vhost(vhost)
    connections, queues = len(_clients_in(operator, vhost)), len(host.queues)
    says = [
        *_effect_of_limit("connection", connections, max_connections, "closed"),
        *_effect_of_limit("queue", queues, max_queues, "deleted"),
    ]
    return {"connections": connections, "queues": queues, "says": says}


def _effect_of_limit(what: str, now: int, limit: int | None, ended: str) -> Iterator[str]:
    if limit is not None and 0 <= limit <= now:
        yield f"{_with_verb(now, what)} there: none is {ended}, new ones are refused"


# -- deletions ------------------------------------------------------------------------------------------------------


@command("preview queue", http=Http("GET", "leveret/preview/queues/V/Q", Level.VHOST), reads=True)
def preview_queue(operator: Operator, queue: QueueName, *, vhost: VhostName = "/") -> Steps:
    """Tell what deleting a queue would delete and end, and under `purge` what purging it would delete."""
    found = operator.queue(vhost, queue)
    clients = list(dict.fromkeys(one.session.client for one in found.consumers))
    incoming = [one for one in found.incoming if one.source.name]
    sources = [one.source.name for one in incoming]
    gets_letters = False
    for batch in dead_letter_queues(found.context):
        gets_letters |= found in batch
        yield
    ready, unacked, scheduled = len(found.store), found.unacked, len(found.scheduled)
    says = [f"{_with_verb(ready + unacked + scheduled, 'message')} deleted ({_by_state(ready, unacked, scheduled)})"]
    if found.consumers:
        says.append(f"{_with_verb(len(found.consumers), 'consumer')} ended, of {_named(one.label for one in clients)}")
    if sources:
        says.append(f"{_with_verb(len(sources), 'binding')} deleted, from {_named(dict.fromkeys(sources))}")
    says += _last_bindings(incoming)
    if gets_letters:
        says.append("dead letters of other queues come here: they will be lost")
    purge = [f"{_with_verb(ready + scheduled, 'message')} deleted ({_by_state(ready, None, scheduled)})"]
    if unacked:
        purge.append(f"{_with_verb(unacked, 'unacknowledged message')} not touched")
    return {
        "ready": ready,
        "unacked": unacked,
        "scheduled": scheduled,
        "consumers": len(found.consumers),
        "bindings": len(sources),
        "gets_dead_letters": gets_letters,
        "says": says,
        "purge": purge,
    }


def _by_state(ready: int, unacked: int | None, scheduled: int) -> str:
    parts = {"ready": ready, "unacknowledged": unacked, "scheduled": scheduled}
    return ", ".join(f"{count:,} {what}" for what, count in parts.items() if count is not None)


@command("preview exchange", http=Http("GET", "leveret/preview/exchanges/V/X", Level.VHOST), reads=True)
def preview_exchange(operator: Operator, exchange: ExchangeName, *, vhost: VhostName = "/") -> dict[str, Any]:
    """Tell what deleting an exchange would delete."""
    host = operator.vhost(vhost)
    if exchange not in host.exchanges:
        raise CommandError(f"no exchange {exchange!r} in virtual host {vhost!r}")
    outgoing, incoming = host.exchanges[exchange].bindings.values(), host.exchanges[exchange].incoming
    says = []
    if outgoing:
        names = _named(dict.fromkeys(one.destination.name for one in outgoing))
        says.append(f"{_with_verb(len(outgoing), 'binding')} deleted, to {names}")
    if incoming:
        names = _named(dict.fromkeys(one.source.name for one in incoming))
        says.append(f"{_with_verb(len(incoming), 'binding')} deleted, from {names}")
    says += _last_bindings(incoming)
    return {"outgoing": len(outgoing), "incoming": len(incoming), "says": says or ["nothing is bound to it"]}


def _last_bindings(ended: Iterable[Binding]) -> Iterator[str]:
    """A sentence about the auto-delete exchanges that are deleted when these bindings end."""
    counts = Counter(binding.source for binding in ended)
    names = [one.name for one, count in counts.items() if one.auto_delete and len(one.bindings) == count]
    if names:
        yield f"{_with_verb(len(names), 'auto-delete exchange')} deleted with its last binding: {_named(names)}"


@command("preview vhost", http=Http("GET", "leveret/preview/vhosts/V", Level.ADMINISTRATOR), reads=True)
def preview_vhost(operator: Operator, vhost: HostName) -> dict[str, Any]:
    """Tell what deleting a virtual host would delete and end."""
    host, clients = operator.vhost(vhost), _clients_in(operator, vhost)
    queues = list(host.queues.values())
    policies = sum(policy.vhost == vhost for policy in operator.broker.context.policies)
    users = sum(user.permissions is not None and vhost in user.permissions for user in operator.broker.users)
    says = [
        _deleted(queues),
        f"{_with_verb(policies, 'policy')} deleted, and the permissions of {_counted(users, 'user')}",
        *effects_of_closing(clients),
    ]
    return {
        "queues": len(queues),
        "messages": _messages_in(queues),
        "connections": len(clients),
        "policies": policies,
        "says": says,
    }


@command("preview user", http=Http("GET", "leveret/preview/users/U", Level.ADMINISTRATOR), reads=True)
def preview_user(operator: Operator, user: UserName) -> dict[str, Any]:
    """Tell what the deletion of a user would end."""
    operator.user(user)
    clients = [client for client in operator.broker.connections if client.user.name == user]
    says = list(effects_of_closing(clients)) or ["no connection of this user is open"]
    return {"connections": len(clients), "says": says}


@command("preview connection", http=Http("GET", "leveret/preview/connections/CONNECTION", Level.ANY), reads=True)
def preview_connection(
    operator: Operator, connection: Annotated[str, NAME, "its name, or the one that its client gave it"]
) -> dict[str, Any]:
    """Tell what closing a connection would end, or all with the name that clients gave."""
    clients = clients_called(operator, connection)
    return {"connections": len(clients), "says": list(effects_of_closing(clients))}


def effects_of_closing(clients: list[Client]) -> Iterator[str]:
    """Sentences about the effect of closing connections."""
    if not clients:
        return
    yield f"{_with_verb(len(clients), 'connection')} closed: {_named(one.label for one in clients)}"
    sessions = [session for client in clients for session in client.sessions]
    consumers = [consumer for session in sessions for consumer in session.consumers.values()]
    exclusive = list(dict.fromkeys(queue for client in clients for queue in client.exclusive_queues))
    leaving = set(clients)
    unused = [
        queue
        for queue in dict.fromkeys(consumer.queue for consumer in consumers)
        if queue.auto_delete
        and queue not in exclusive
        and all(consumer.session.client in leaving for consumer in queue.consumers)
    ]
    deleted = exclusive + unused
    unacked = sum(len(one.unacked) for one in sessions) - sum(queue.unacked for queue in deleted)
    if consumers:
        yield f"{_with_verb(len(consumers), 'consumer')} ended"
    if unacked > 0:
        yield f"{_with_verb(unacked, 'unacknowledged message')} returned to the queues, and delivered again"
    if exclusive:
        yield _deleted(exclusive, "exclusive queue")
    if unused:
        yield f"{_deleted(unused, 'auto-delete queue')}: {_named(queue.name for queue in unused)}"


def _deleted(queues: Sequence[Queue], what: str = "queue") -> str:
    return f"{_with_verb(len(queues), what)} deleted, with {_counted(_messages_in(queues), 'message')}"


def _messages_in(queues: Iterable[Queue]) -> int:
    return sum(len(queue.store) + queue.unacked + len(queue.scheduled) for queue in queues)


def _clients_in(operator: Operator, vhost: str) -> list[Client]:
    return [client for client in operator.broker.connections if client.vhost.name == vhost]


# -- definitions ----------------------------------------------------------------------------------------------------


@command("preview definitions", reads=True)
def preview_definitions(operator: Operator, definitions: Document, *, vhost: IntoVhost | None = None) -> Steps:
    """Compare a file of RabbitMQ's JSON with what is there, object by object, and tell what its import would do.

    definitions: the file
    """
    if vhost is not None:
        operator.vhost(vhost)
        definitions = in_vhost(definitions, vhost)
    try:
        plan: Plan = yield from DefinitionsReader(operator.broker, definitions).plan()
    except DefinitionsFault as fault:
        raise CommandError(str(fault)) from None
    exported = yield from export_steps(operator.broker)
    objects = yield from difference(operator.broker, exported, definitions, plan)
    policies = operator.broker.context.policies.with_these(plan.policies)
    found = yield from consequences(operator, operator.broker.context.settings, policies)
    return {**objects, **found, "faults": plan.faults, "remarks": plan.remarks}


# -- words ----------------------------------------------------------------------------------------------------------


def _identity_of(queue: Queue) -> dict[str, str]:
    return {"vhost": queue.vhost_name, "queue": queue.name}


def _counted(count: int, one: str) -> str:
    more = one[:-1] + "ies" if one.endswith("y") else one + "s"
    return f"{count:,} {one if count == 1 else more}"


def _with_verb(count: int, one: str) -> str:
    return f"{_counted(count, one)} {'is' if count == 1 else 'are'}"


def _named(names: Iterable[str]) -> str:
    """Some names, and the number of the others."""
    found = list(names)
    return and_more(found[:NAMED_MAX], len(found))
