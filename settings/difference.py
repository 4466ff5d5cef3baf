"""The changes between two configurations, and when each takes effect in a broker that reloads.

Source: address-settings page 3.8.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from .addresses.entries import Entry
from .addresses.queue_arguments import (
    OwnSettings,
    apply_changes,
    check_arguments,
    live_arguments,
    settings_of_arguments,
)
from .declared.configuration import Configuration
from .declared.declarations import (
    NO_LIMITS_DECLARED,
    Divert,
    ExchangeDeclaration,
    LoggedTopic,
    QueueDeclaration,
    TopicPermissionDeclaration,
    UserDeclaration,
)
from .declared.tables import USER, VHOST_LIMITS
from .lifetime import ARRIVAL, AT_CONNECTION, LIVE, NEVER, RESTART, WITHOUT_MEANING, Lifetime
from .policies.policy import Policy
from .queue_types import CLASSIC, added_type
from .rows.address_settings import SETTINGS, ResolvedSettings
from .rows.broker_keys import KEYS
from .values import in_vhost, text_or_unset, value_text

T = TypeVar("T")

#: The user that exists if the configuration declares none.
GUEST = "guest"


@dataclass(slots=True, frozen=True)
class Change:
    """One change. `what`: "queue 'q'", "match 'a.#'" ...; `how`: old and new value.

    `acts`: when it takes effect; None if `how` contains that, or there is no effect.
    """

    what: str
    how: str
    acts: Lifetime | None = LIVE

    def __str__(self) -> str:
        return f"{self.what}: {self.how}" + ("" if self.acts is None else f" ({self.acts.value})")


def differences(old: Configuration, new: Configuration) -> list[Change]:
    """All changes: tables of keys, wildcards, matches, queues, then the rest. Empty if there are none."""
    return [
        *key_changes(old, new),
        *_usage_changes(old, new),
        *_wildcard_changes(old, new),
        *_match_changes(old, new),
        *_queue_changes(old, new),
        *_logged_topic_changes(old, new),
        *_exchange_changes(old, new),
        *_divert_changes(old, new),
        *_vhost_changes(old, new),
        *_user_changes(old, new),
        *_policy_changes(old, new, is_operator=False),
        *_policy_changes(old, new, is_operator=True),
    ]


def key_changes(old: Configuration, new: Configuration) -> Iterator[Change]:
    """Changes of keys. Between two nodes of a cluster, keys that belong to one node are not differences."""
    are_two_nodes = old.is_clustered and new.is_clustered and old.cluster.node != new.cluster.node
    for table, keys in KEYS.items():
        for key, row in keys.items():
            before, after = old.value(table, key), new.value(table, key)
            if before != after and not (are_two_nodes and row.is_of_node):
                yield Change(f"[{table}] {key}", f"{text_or_unset(before)} -> {text_or_unset(after)}", row.acts)


def _usage_changes(old: Configuration, new: Configuration) -> Iterator[Change]:
    before, after = (one.system_usage is not None for one in (old, new))
    if before != after:
        how = "removed: flow control only where an entry asks for it" if before else "added: flow control everywhere"
        yield Change("[system-usage]", how)


def _wildcard_changes(old: Configuration, new: Configuration) -> Iterator[Change]:
    if old.repository.wildcards != new.repository.wildcards:
        yield Change("[wildcard-addresses]", f"{old.repository.wildcards} -> {new.repository.wildcards}")


def _match_changes(old: Configuration, new: Configuration) -> Iterator[Change]:
    before, after = (
        {
            (one.vhost or "", one.kind, one.match.text): one
            for one in (*repository.entries, *repository.destinations.entries)
        }
        for repository in (old.repository, new.repository)
    )
    for key in sorted(before.keys() | after.keys()):
        what = f"{key[1]} {key[2]!r}" + (f" in vhost {key[0]!r}" if key[0] else "")
        if key not in after:
            yield Change(what, f"removed: {_entry_text(before[key])}", None)
        elif key not in before:
            yield Change(what, f"added: {_entry_text(after[key])}", None)
        else:
            for setting in SETTINGS:
                one, other = (entry.settings.get(setting.attribute) for entry in (before[key], after[key]))
                if one != other:
                    yield Change(what, _changed(setting.key, one, other), setting.acts)


def _queue_changes(old: Configuration, new: Configuration) -> Iterator[Change]:
    before = {(queue.vhost, queue.name): queue for queue in old.queues}
    after = {(queue.vhost, queue.name): queue for queue in new.queues}
    for key in sorted(before.keys() | after.keys()):
        what = f"queue {key[1]!r}{in_vhost(key[0])}"
        if key not in after:
            queue = before[key]
            setting = new.repository.resolve(queue.address, queue.vhost).config_delete_queues
            yield _removal(what, "deleted with its messages", "config-delete-queues", setting)
        elif key not in before:
            yield Change(what, f"declared at {after[key].origin}")
        else:
            for how, acts in _changes_of_queue(old, before[key], new, after[key]):
                yield Change(what, how, acts)


def _removal(what: str, deletion: str, setting: str, value: str, acts: Lifetime = LIVE) -> Change:
    """The removal of an object. `value`: of the setting of its address that decides whether it is deleted."""
    if value == "FORCE":
        return Change(what, f"no longer declared: {deletion}", acts)
    return Change(what, f"no longer declared: stays, with {setting} OFF", None)


def _changes_of_queue(
    old: Configuration, before: QueueDeclaration, new: Configuration, after: QueueDeclaration
) -> Iterator[tuple[str, Lifetime]]:
    flags: tuple[tuple[str, object, object, Lifetime], ...] = (
        ("address", before.address, after.address, NEVER),
        ("routing-type", before.routing_type, after.routing_type, LIVE),
        ("durable", before.durable, after.durable, NEVER),
        ("enabled", before.is_enabled, after.is_enabled, LIVE),
    )
    for name, one, other, acts in flags:
        if one != other:
            yield _changed(name, one, other), acts
    reloaded, restarted = _arguments_later(before, after)
    # What a reload changes, then what a restart does, then what needs a new queue.
    steps: tuple[tuple[Configuration, str, Mapping[str, object], Lifetime | None], ...] = (
        (new, before.address, reloaded, None),
        (new, before.address, restarted, RESTART),
        (new, after.address, after.arguments, NEVER),
    )
    last = _state_of(old, before, before.address, before.arguments)
    for configuration, address, arguments, when in steps:
        if when is None or (address, arguments) != (last.address, last.arguments):
            state = _state_of(configuration, before, address, arguments)
            yield from _changes_of_state(last, state, when)
            last = state


@dataclass(slots=True, frozen=True)
class _State:
    """What decides the behavior of a queue at one time. `own`: the settings in its arguments."""

    name: str
    address: str
    arguments: Mapping[str, object]
    own: OwnSettings
    resolved: ResolvedSettings


def _state_of(
    configuration: Configuration, queue: QueueDeclaration, address: str, arguments: Mapping[str, object]
) -> _State:
    own = settings_of_arguments(arguments)
    resolved = configuration.repository.resolve_queue(address, queue.vhost, own.settings, name=queue.name)
    return _State(queue.name, address, arguments, own, resolved)


def _arguments_later(
    before: QueueDeclaration, after: QueueDeclaration
) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """The arguments of an existing queue after a reload, and after a restart with the new configuration."""
    changed = [
        key
        for key in sorted(before.arguments.keys() | after.arguments.keys())
        if key != "x-address" and _argument(before.arguments, key) != _argument(after.arguments, key)
    ]
    if "x-queue-type" in changed:
        return before.arguments, before.arguments
    live, queue_type = live_arguments(after.arguments), added_type(after.arguments)
    reloaded = _with_changes(before, before.arguments, after, [key for key in changed if key in live])
    at_start = {key for key, row in queue_type.rows.items() if row.acts is RESTART} if queue_type else set()
    is_followed = before.durable and after.durable and before.address == after.address and live | at_start >= {*changed}
    restarted = _with_changes(before, reloaded, after, changed) if is_followed else reloaded
    return reloaded, restarted


def _with_changes(
    queue: QueueDeclaration, current: Mapping[str, object], after: QueueDeclaration, changed: Collection[str]
) -> Mapping[str, object]:
    def check(arguments: Mapping[str, object]) -> None:
        check_arguments(queue.name, arguments)

    return apply_changes(current, after.arguments, changed, check)[0]


def _argument(arguments: Mapping[str, object], key: str) -> object:
    """An argument; None: it is not given. `classic` is the default type."""
    value = arguments.get(key)
    return None if key == "x-queue-type" and value == CLASSIC else value


def _changes_of_state(last: _State, now: _State, acts: Lifetime | None) -> Iterator[tuple[str, Lifetime]]:
    """Changes between two states. `acts`: when they take effect; None: each by its row, in a reload."""
    is_same_type = added_type(last.arguments) is added_type(now.arguments)
    queue_type = added_type(now.arguments) if is_same_type else None
    unused = () if queue_type is None else queue_type.unused_settings
    given = last.own.given_by.keys() | now.own.given_by.keys()
    for setting in SETTINGS:
        one, other = (getattr(state.resolved, setting.attribute) for state in (last, now))
        if one != other and not setting.key.startswith(unused):
            by_row = LIVE if setting.attribute in given else setting.acts
            yield _changed(setting.key, one, other), acts or by_row
    compared = _compared_as_settings(last.own, now.own) | {"x-address"}
    if queue_type is not None:
        compared |= queue_type.rows.keys()
        one, other = (queue_type.read(state.name, state.arguments)[0] for state in (last, now))
        for argument, row in queue_type.rows.items():
            was, will = getattr(one, row.attribute), getattr(other, row.attribute)
            if was != will:
                acts_now = row.acts if acts is None or row.acts is WITHOUT_MEANING else acts
                yield _changed(argument.removeprefix("x-"), was, will), acts_now
    for key in sorted(last.arguments.keys() | now.arguments.keys()):
        one, other = (_argument(state.arguments, key) for state in (last, now))
        if key not in compared and one != other:
            yield _changed(key, one, other), acts or LIVE


def _logged_topic_changes(old: Configuration, new: Configuration) -> Iterator[Change]:
    def title(topic: LoggedTopic) -> str:
        return topic.title + in_vhost(topic.vhost)

    for what, before, after in _pairs(old.logged_topics, new.logged_topics, title):
        if before is None:
            yield Change(what, "declared")
        elif after is None:
            yield Change(what, "no longer declared: logged only for queues that select it")
        elif (one := _logged_topic_text(before)) != (other := _logged_topic_text(after)):
            yield Change(what, f"{one} -> {other}")


def _logged_topic_text(topic: LoggedTopic) -> str:
    return f"{topic.message_type or 'messages of any type'}, kept {topic.kept_ms} ms"


def _compared_as_settings(*owns: OwnSettings) -> set[str]:
    """Arguments whose changes show as changed settings.

    x-max-length and x-dead-letter-exchange are compared as arguments: they override settings, but no setting has their
    values (`settings_of_arguments`).
    """
    return {argument for own in owns for argument in own.given_by.values()} - {"x-max-length", "x-dead-letter-exchange"}


def _exchange_changes(old: Configuration, new: Configuration) -> Iterator[Change]:
    for name, before, after in _pairs(old.exchanges, new.exchanges, _full_name):
        what = f"exchange {name}"
        if before is None:
            yield Change(what, "declared")
        elif after is None:
            setting = new.repository.resolve(before.name, before.vhost).config_delete_addresses
            yield _removal(what, "deleted", "config-delete-addresses", setting)
        elif before.type != after.type:
            yield Change(what, _changed("type", before.type, after.type) + ": stays as it is, delete it first", None)


def _divert_changes(old: Configuration, new: Configuration) -> Iterator[Change]:
    for name, before, after in _pairs(old.diverts, new.diverts, _full_name):
        what = f"divert {name}"
        if before is None:
            yield Change(what, "declared", ARRIVAL)
        elif after is None:
            setting = new.repository.resolve(before.address, before.vhost).config_delete_diverts
            yield _removal(what, "deleted", "config-delete-diverts", setting, ARRIVAL)
        elif before != after:
            yield Change(what, f"{_divert_text(before)} -> {_divert_text(after)}", ARRIVAL)


def _divert_text(divert: Divert) -> str:
    targets = ", ".join(divert.forwarding_addresses)
    name = f", as {divert.routing_name!r}" if divert.routing_name else ""
    only = f", if {divert.filter}" if divert.filter else ""
    text = f"{divert.address} to {targets} ({divert.routing_type}{name}{only})"
    return f"exclusive {text}" if divert.is_exclusive else text


def _vhost_changes(old: Configuration, new: Configuration) -> Iterator[Change]:
    for name in sorted({*old.vhosts, *new.vhosts}):
        what = f"virtual host {name!r}"
        if name not in old.vhosts:
            yield Change(what, "declared")
        elif name not in new.vhosts:
            yield Change(what, "no longer declared: stays", None)
    for name in sorted(old.limits.keys() | new.limits.keys()):
        before, after = (one.limits.get(name, NO_LIMITS_DECLARED) for one in (old, new))
        what = f"virtual host {name!r}"
        for row in VHOST_LIMITS:
            one, other = getattr(before, row.attribute), getattr(after, row.attribute)
            if one != other:
                yield Change(what, _changed(row.key, one, other), row.acts)


def _user_changes(old: Configuration, new: Configuration) -> Iterator[Change]:
    for name, before, after in _pairs(old.users, new.users, lambda one: repr(one.name)):
        what = f"user {name}"
        if before is None:
            yield Change(what, "declared")
        elif after is None:
            yield Change(what, "no longer declared: deleted, its connections are closed")
        else:
            for how, acts in _changes_of_user(before, after):
                yield Change(what, how, acts)
    if new.users and not old.users and all(user.name != GUEST for user in new.users):
        yield Change(f"user {GUEST!r}", "the default one: deleted, as users are declared")
    elif old.users and not new.users:
        yield Change(f"user {GUEST!r}", "the default one: exists again, as no user is declared")


def _changes_of_user(before: UserDeclaration, after: UserDeclaration) -> Iterator[tuple[str, Lifetime]]:
    """Changes of a user. A password is never shown."""
    if str(before) != str(after):
        yield f"{before} -> {after}", LIVE
    one, other = (sorted(map(_topic_permission_text, user.topic_permissions)) for user in (before, after))
    if one != other:
        yield f"topic permissions {', '.join(one) or 'none'} -> {', '.join(other) or 'none'}", LIVE
    if _password_of(before) != _password_of(after):
        yield "another password", AT_CONNECTION
    for row in USER:
        if row.attribute in ("loopback_only", "max_connections", "max_channels"):
            old_value, new_value = getattr(before, row.attribute), getattr(after, row.attribute)
            if old_value != new_value:
                yield _changed(row.key, old_value, new_value), row.acts


def _password_of(user: UserDeclaration) -> tuple[str, str, str]:
    return user.password, user.password_hash, user.hashing_algorithm


def _topic_permission_text(one: TopicPermissionDeclaration) -> str:
    return f"{one.vhost} {one.exchange}: {one.write!r} {one.read!r}"


def _policy_changes(old: Configuration, new: Configuration, *, is_operator: bool) -> Iterator[Change]:
    kind = "operator policy" if is_operator else "policy"
    before_all, after_all = (
        [policy for policy in one.policies if policy.is_operator == is_operator] for one in (old, new)
    )
    for name, before, after in _pairs(before_all, after_all, _full_name):
        what = f"{kind} {name}"
        if before is None:
            yield Change(what, "declared")
        elif after is None:
            yield Change(what, "no longer declared: cleared")
        elif before != after:
            yield Change(what, f"{_policy_text(before)} -> {_policy_text(after)}")
        definitions = [{} if one is None else one.definition for one in (before, after)]
        ttls = [one.get("message-ttl") for one in definitions]
        if ttls[0] != ttls[1]:
            yield Change(what, _changed("message-ttl", *ttls), ARRIVAL)


def _policy_text(policy: Policy) -> str:
    definition = value_text(dict(policy.definition))
    return f"{policy.pattern!r} on {policy.apply_to}, priority {policy.priority}: {definition}"


def _pairs(
    before: Iterable[T], after: Iterable[T], key: Callable[[T], str]
) -> Iterator[tuple[str, T | None, T | None]]:
    """Objects of both configurations by name; None where one is missing. Sorted by name."""
    old, new = ({key(one): one for one in declared} for declared in (before, after))
    for name in sorted(old.keys() | new.keys()):
        yield name, old.get(name), new.get(name)


def _full_name(one: ExchangeDeclaration | Divert | Policy) -> str:
    return f"{one.name!r}{in_vhost(one.vhost)}"


def _entry_text(one: Entry) -> str:
    return ", ".join(
        f"{setting.key} {text_or_unset(one.settings[setting.attribute])} ({setting.acts.value})"
        for setting in SETTINGS
        if setting.attribute in one.settings
    )


def _changed(name: str, before: object, after: object) -> str:
    return f"{name}: {text_or_unset(before)} -> {text_or_unset(after)}"
