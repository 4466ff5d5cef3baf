"""What a new configuration would change: matches, declared queues, and when each change acts.

Source: address-settings page 3.8.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from .access_declarations import UserDeclaration
from .configuration import KEYS, Configuration
from .declarations import Divert, ExchangeDeclaration, QueueDeclaration
from .explain import value_text
from .fields import FIELDS, LIVE
from .queue_arguments import LIVE_ARGUMENTS, OwnSettings, settings_of_arguments
from .repository import Entry

_T = TypeVar("_T")

NEVER = "not on a queue that exists: delete it first"


@dataclass(slots=True, frozen=True)
class Change:
    """One change. `what`: "queue 'q'", "match 'a.#'" ...; `how`: what it was and will be, and when."""

    what: str
    how: str

    def __str__(self) -> str:
        return f"{self.what}: {self.how}"


def differences(old: Configuration, new: Configuration) -> list[Change]:
    """Everything that would change, matches first, then queues and the rest; empty when nothing would."""
    return [
        *_of_keys(old, new),
        *_of_wildcards(old, new),
        *_of_matches(old, new),
        *_of_queues(old, new),
        *_of_sets("exchange", _by(old.exchanges, _exchange), _by(new.exchanges, _exchange)),
        *_of_sets("divert", _by(old.diverts, _divert), _by(new.diverts, _divert)),
        *_of_sets("virtual host", dict.fromkeys(old.vhosts), dict.fromkeys(new.vhosts)),
        *_of_sets("user", _by(old.users, _user), _by(new.users, _user)),
        *_of_sets("policy", _policies(old, is_operator=False), _policies(new, is_operator=False)),
        *_of_sets("operator policy", _policies(old, is_operator=True), _policies(new, is_operator=True)),
    ]


def _of_keys(old: Configuration, new: Configuration) -> Iterator[Change]:
    for table, keys in KEYS.items():
        for key in keys:
            before, after = old.value(table, key), new.value(table, key)
            if before != after:
                yield Change(f"[{table}] {key}", f"{_text(before)} -> {_text(after)}")


def _of_wildcards(old: Configuration, new: Configuration) -> Iterator[Change]:
    if old.repository.wildcards != new.repository.wildcards:
        yield Change("[wildcard-addresses]", f"{old.repository.wildcards} -> {new.repository.wildcards}")


def _of_matches(old: Configuration, new: Configuration) -> Iterator[Change]:
    before, after = (
        {(one.vhost or "", one.match.text): one for one in configuration.repository.entries}
        for configuration in (old, new)
    )
    for key in sorted(before.keys() | after.keys()):
        what = f"match {key[1]!r}" + (f" in vhost {key[0]!r}" if key[0] else "")
        if key not in after:
            yield Change(what, f"removed ({_said(before[key])})")
        elif key not in before:
            yield Change(what, f"added ({_said(after[key])})")
        else:
            for field in FIELDS:
                one, other = (getattr(entry.settings, field.attribute) for entry in (before[key], after[key]))
                if one != other:
                    yield Change(what, f"{field.name}: {_text(one)} -> {_text(other)}")


def _of_queues(old: Configuration, new: Configuration) -> Iterator[Change]:
    before = {(queue.vhost, queue.name): queue for queue in old.queues}
    after = {(queue.vhost, queue.name): queue for queue in new.queues}
    for key in sorted(before.keys() | after.keys()):
        what = f"queue {key[1]!r}" + (f" in vhost {key[0]!r}" if key[0] != "/" else "")
        if key not in after:
            queue = before[key]
            deletion = new.repository.resolve(queue.address, queue.vhost).config_delete_queues
            fate = "deleted with its messages" if deletion == "FORCE" else "stays, with config-delete-queues OFF"
            yield Change(what, f"no longer declared: {fate}")
        elif key not in before:
            yield Change(what, f"declared at {after[key].origin}")
        else:
            for how in _of_queue(old, before[key], new, after[key]):
                yield Change(what, how)


def _of_queue(
    old: Configuration, before: QueueDeclaration, new: Configuration, after: QueueDeclaration
) -> Iterator[str]:
    flags: tuple[tuple[str, object, object, str], ...] = (
        ("address", before.address, after.address, NEVER),
        ("routing-type", before.routing_type, after.routing_type, LIVE.value),
        ("durable", before.durable, after.durable, NEVER),
        ("enabled", before.is_enabled, after.is_enabled, LIVE.value),
    )
    for name, one, other, when in flags:
        if one != other:
            yield f"{name}: {_text(one)} -> {_text(other)} ({when})"
    own_before, own_after = settings_of_arguments(before.arguments), settings_of_arguments(after.arguments)
    resolved_before = old.repository.resolve_queue(before.address, before.vhost, own_before.settings)
    resolved_after = new.repository.resolve_queue(after.address, after.vhost, own_after.settings)
    for field in FIELDS:
        one, other = (getattr(resolved, field.attribute) for resolved in (resolved_before, resolved_after))
        if one != other:
            given_by = {own.given_by.get(field.attribute) for own in (own_before, own_after)} - {None}
            when = field.lifetime.value
            if given_by:
                when = LIVE.value if given_by <= LIVE_ARGUMENTS else NEVER
            yield f"{field.name}: {_text(one)} -> {_text(other)} ({when})"
    for key in sorted(before.arguments.keys() | after.arguments.keys()):
        one, other = before.arguments.get(key), after.arguments.get(key)
        if key not in _settled(own_before, own_after) and key != "x-address" and one != other:
            yield f"{key}: {_text(one)} -> {_text(other)} ({NEVER})"


def _settled(*owns: OwnSettings) -> set[str]:
    """Arguments whose effect has been compared as settings."""
    return {argument for own in owns for argument in own.given_by.values()} - {"x-max-length", "x-dead-letter-exchange"}


def _of_sets(kind: str, before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[Change]:
    for name in sorted(before.keys() | after.keys()):
        what = f"{kind} {name}"
        if name not in after:
            yield Change(what, "no longer declared")
        elif name not in before:
            yield Change(what, "declared")
        elif before[name] != after[name]:
            yield Change(what, f"{before[name]} -> {after[name]}")


def _exchange(exchange: ExchangeDeclaration) -> tuple[str, object]:
    return f"{exchange.name!r}{_in(exchange.vhost)}", exchange.type


def _user(user: UserDeclaration) -> tuple[str, object]:
    return repr(user.name), str(user)


def _divert(divert: Divert) -> tuple[str, object]:
    targets = ", ".join(divert.forwarding_addresses)
    how = "exclusive " if divert.is_exclusive else ""
    return f"{divert.name!r}{_in(divert.vhost)}", f"{how}{divert.address} to {targets} ({divert.routing_type})"


def _policies(configuration: Configuration, *, is_operator: bool) -> dict[str, object]:
    return {
        f"{one.name!r}{_in(one.vhost)}": f"{one.pattern!r} on {one.apply_to}, priority {one.priority}: "
        + value_text(dict(one.definition))
        for one in configuration.policies
        if one.is_operator == is_operator
    }


def _in(vhost: str) -> str:
    return f" in vhost {vhost!r}" if vhost != "/" else ""


def _by(declared: tuple[_T, ...], key: Callable[[_T], tuple[str, object]]) -> dict[str, object]:
    return dict(key(one) for one in declared)


def _said(one: Entry) -> str:
    said = one.settings.said()
    return ", ".join(f"{field.name} {_text(said[field.attribute])}" for field in FIELDS if field.attribute in said)


def _text(value: Any) -> str:
    return "unset" if value is None else value_text(value)
