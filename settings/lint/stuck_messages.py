"""Warnings about lost and stuck messages: poison messages, dead letters without a queue, circles of expiry addresses,
queues that never dispatch.
"""

from collections.abc import Iterator

from ..addresses.entries import Entry
from ..addresses.matching import example_address
from ..addresses.queue_arguments import settings_of_arguments
from ..addresses.repository import SettingsRepository
from ..declared.configuration import Configuration
from ..faults import Origin
from ..rows.address_settings import ResolvedSettings
from ..values import shown

#: Maximum length of a chain of expiry addresses that is followed.
CHAIN_MAX = 100
#: Attribute that names an address, its key, and the attribute by which each address gets its own queue there.
TARGETS = (
    ("dead_letter_address", "dead-letter-address", "auto_create_dead_letter_resources"),
    ("expiry_address", "expiry-address", "auto_create_expiry_resources"),
)


def stuck_messages(configuration: Configuration) -> Iterator[str]:
    """The warnings as lines, FILE:LINE: WHAT: why."""
    yield from _poison(configuration)
    yield from _unbound_targets(configuration)
    for one in configuration.repository.entries:
        yield from _expiry_circles(one, configuration.repository)
        yield from _dead_letter_circles(one, configuration.repository)
        yield from _endless_redelivery(one, configuration.repository)
        yield from _never_dispatching(one, configuration.repository)
    yield from _queues_never_dispatching(configuration)


def _poison(configuration: Configuration) -> Iterator[str]:
    """A limit of attempts that basic.nack does not count towards; one warning is enough. Source: ruling 8."""
    if configuration.broker.nack_counts:
        return
    limits: list[tuple[Origin, str]] = []
    for one in configuration.repository.entries:
        if one.settings.get("max_delivery_attempts", 0) > 0:
            limits.append((one.origin_of("max_delivery_attempts"), f"match {shown(one.match.text)}"))
    for queue in configuration.queues:
        if settings_of_arguments(queue.arguments).settings.get("max_delivery_attempts", 0) > 0:
            limits.append((queue.origin, f"queue {shown(queue.name)}"))
    is_explicit = ("broker", "nack-counts") in configuration.explicit
    why = "in [broker]" if is_explicit else f"profile {configuration.value('broker', 'profile')}"
    rejects = "basic.reject and " if configuration.broker.reject_counts else ""
    for origin, where in limits[:1]:
        yield (
            f"{origin}: {where}: a message that is nacked with requeue never leaves: nack-counts is false "
            f"({why}), so that only {rejects}lost connections count as attempts"
        )


def _unbound_targets(configuration: Configuration) -> Iterator[str]:
    """Dead-letter and expiry addresses to which the configuration binds no queue."""
    repository = configuration.repository
    bound: set[tuple[str | None, str]] = {
        (one.vhost, name) for one in configuration.queues for name in (one.name, one.address, one.exchange)
    }
    bound |= {(one.vhost, one.address) for one in configuration.diverts}
    bound |= {(None, name) for _, name in bound}
    declared = {(vhost, one.name) for one in configuration.exchanges for vhost in (None, one.vhost)}
    for one in repository.entries:
        for attribute, key, own_queues in TARGETS:
            address = one.settings.get(attribute, "")
            name = _target_name(address)
            if not address or (one.vhost, name) in bound:
                continue
            resolved = repository.resolve(example_address(one.match, repository.wildcards), one.vhost)
            if getattr(resolved, own_queues):
                continue
            is_declared = (one.vhost, name) in declared
            if not resolved.auto_create_missing_queues:
                outcome = "lost (auto-create-missing-queues is false)"
            elif name.startswith("amq."):
                outcome = "lost (no queue is made whose name begins with amq.)"
            elif is_declared:
                outcome = "kept in a new queue of that name"
            else:
                continue
            yield (
                f"{one.origin_of(attribute)}: {key}: nothing is bound to {shown(name)}"
                f"{', which is declared' if is_declared else ''}: "
                f"unless an application binds a queue, messages for it are {outcome}"
            )


def _target_name(address: str) -> str:
    """The name of the queue or exchange in an address."""
    if address.startswith("exchange:"):
        return address.removeprefix("exchange:").partition("/")[0]
    return address.removeprefix("queue:")


def _expiry_circles(one: Entry, repository: SettingsRepository) -> Iterator[str]:
    """Circles of expiry addresses: a message is dropped when it would return to the first address."""
    if not one.settings.get("expiry_address"):
        return
    chain = [example_address(one.match, repository.wildcards)]
    while len(chain) < CHAIN_MAX:
        resolved = repository.resolve(chain[-1], one.vhost)
        following = resolved.expiry_address
        if not following or (len(chain) > 1 and resolved.expiry_delay_ms < 0):
            return
        if following in chain:
            way = " -> ".join(map(shown, [*chain[chain.index(following) :], following]))
            yield (
                f"{one.origin_of('expiry_address')}: expiry-address: expired messages go round in a circle, {way}, "
                "and are dropped at its end"
            )
            return
        chain.append(following)


def _dead_letter_circles(one: Entry, repository: SettingsRepository) -> Iterator[str]:
    """Circles of dead-letter addresses: a message that always fails stays in them.

    Only matches without wildcards are checked: `#` with a dead-letter address always matches that address as well.
    """
    first = example_address(one.match, repository.wildcards)
    if not one.settings.get("dead_letter_address") or first != one.match.text:
        return
    chain = [first]
    while len(chain) < CHAIN_MAX:
        resolved = repository.resolve(chain[-1], one.vhost)
        following = resolved.dead_letter_address
        if not following or resolved.max_delivery_attempts <= 0:
            return
        if following == first:
            way = " -> ".join(map(shown, [*chain, following]))
            yield f"{one.origin_of('dead_letter_address')}: dead-letter-address: " + (
                f"a message that always fails never leaves {shown(first)}, which is its own dead-letter address"
                if len(chain) == 1
                else f"messages that always fail go round in a circle, {way}, as long as clients take them"
            )
            return
        if following in chain:
            return
        chain.append(following)


def _endless_redelivery(one: Entry, repository: SettingsRepository) -> Iterator[str]:
    """A redelivery delay without a maximum of attempts."""
    attempts = one.settings.get("max_delivery_attempts")
    if attempts is None or attempts > 0:
        return  # unset: with redelivery settings in a match there is a default limit
    resolved = repository.resolve(example_address(one.match, repository.wildcards), one.vhost)
    if resolved.redelivery_delay_ms > 0:
        yield (
            f"{one.origin_of('max_delivery_attempts')}: max-delivery-attempts: a message that always fails comes back "
            f"for ever, after {resolved.redelivery_delay_ms} ms and more: no number of attempts ends it"
        )


def _never_dispatching(one: Entry, repository: SettingsRepository) -> Iterator[str]:
    """Queues that wait for more consumers than they accept."""
    if one.settings.get("default_consumers_before_dispatch"):
        resolved = repository.resolve(example_address(one.match, repository.wildcards), one.vhost)
        problem = _waits_for_ever(resolved)
        if problem:
            yield f"{one.origin_of('default_consumers_before_dispatch')}: default-consumers-before-dispatch: {problem}"


def _queues_never_dispatching(configuration: Configuration) -> Iterator[str]:
    for queue in configuration.queues:
        own = settings_of_arguments(queue.arguments)
        if own.settings.get("default_consumers_before_dispatch"):
            resolved = configuration.repository.resolve_queue(queue.address, queue.vhost, own.settings, name=queue.name)
            problem = _waits_for_ever(resolved)
            if problem:
                yield f"{queue.origin}: queue {shown(queue.name)}: {problem}"


def _waits_for_ever(resolved: ResolvedSettings) -> str:
    needed, accepted = resolved.default_consumers_before_dispatch, resolved.default_max_consumers
    if resolved.default_delay_before_dispatch_ms >= 0 or not 0 <= accepted < needed:
        return ""
    return f"never begins to deliver: waits without a time limit for {needed} consumers, and accepts only {accepted}"
