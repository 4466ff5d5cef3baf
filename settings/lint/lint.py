"""Warnings about a configuration as a whole: settings that lose messages, contradict each other, or have no effect."""

from collections.abc import Iterator

from ..addresses.entries import Entry
from ..addresses.matching import example_address
from ..addresses.queue_arguments import settings_of_arguments
from ..addresses.repository import SettingsRepository
from ..declared.configuration import Configuration
from ..declared.declarations import QueueDeclaration
from ..rows.address_settings import BY_ATTRIBUTE, ResolvedSettings, sets_redelivery
from ..values import shown
from .misspelt_names import misspelt_names
from .stuck_messages import stuck_messages

PAGES_IN_MEMORY = "address-full-policy is PAGE, but with the cursor vm messages beyond the limit stay in memory"
UNREACHABLE = "clients cannot declare, bind or delete it: line ends are removed from the names that they send"


def lint_of(configuration: Configuration) -> list[str]:
    """The warnings as lines, FILE:LINE: WHAT: why. An entry is checked with an example of an address that it covers."""
    repository = configuration.repository
    findings = [*_lint_of_heartbeat(configuration)]
    for one in repository.entries:
        findings += _lint_of_entry(one, repository)
    for one in (*repository.entries, *repository.destinations.entries):
        findings += _lint_of_flow(one, configuration)
    unpaged = next((one for one in repository.entries if _keeps_pages_in_memory(one, repository)), None)
    if unpaged is not None:  # one warning is enough
        findings.append(f"{unpaged.origin}: match {shown(unpaged.match.text)}: {PAGES_IN_MEMORY}")
    findings += [
        f"{one.origin}: {kind} {shown(one.name)}: {UNREACHABLE}"
        for kind, declared in (("queue", configuration.queues), ("exchange", configuration.exchanges))
        for one in declared
        if not {"\r", "\n"}.isdisjoint(one.name)
    ]
    for queue in configuration.queues:
        findings += _lint_of_queue(queue, repository)
    return [*findings, *stuck_messages(configuration), *misspelt_names(configuration)]


def _lint_of_heartbeat(configuration: Configuration) -> Iterator[str]:
    interval_ms = configuration.broker.heartbeat_ms
    if 0 < interval_ms < 1000:  # rabbitmq.conf has seconds
        place = f"{configuration.origins['broker', 'heartbeat']}: heartbeat: {interval_ms}"
        yield f'{place} is in milliseconds, so clients are offered 1 s, did you mean "{interval_ms}s"?'


def _lint_of_queue(queue: QueueDeclaration, repository: SettingsRepository) -> Iterator[str]:
    attempts = settings_of_arguments(queue.arguments).settings.get("max_delivery_attempts", -1)
    has_target = "dead_letter_address" in repository.merged(queue.address, queue.vhost)
    has_own_target = not {"x-dead-letter-address", "x-dead-letter-exchange"}.isdisjoint(queue.arguments)
    if attempts > 0 and not has_target and not has_own_target:
        yield f"{queue.origin}: queue {shown(queue.name)}: {_removed_after(attempts)}"


def _lint_of_entry(one: Entry, repository: SettingsRepository) -> Iterator[str]:
    address = example_address(one.match, repository.wildcards)
    resolved = repository.resolve(address, one.vhost)
    title = f"match {shown(one.match.text)}"
    attempts = resolved.max_delivery_attempts
    has_no_target = "dead_letter_address" not in repository.merged(address, one.vhost)
    if sets_redelivery(one.settings) and attempts > 0 and has_no_target:
        yield f"{one.origin}: {title}: {_removed_after(attempts)}"
    cap, delay = resolved.max_redelivery_delay_ms, resolved.redelivery_delay_ms
    sets_either = not one.settings.keys().isdisjoint(("max_redelivery_delay_ms", "redelivery_delay_ms"))
    if sets_either and cap < delay:
        origin = one.origin_of("max_redelivery_delay_ms")
        yield f"{origin}: {title}: max-redelivery-delay {cap} is below redelivery-delay {delay}: every wait is {cap}"
    yield from _limits_without_effect(one, resolved, title)


def _limits_without_effect(one: Entry, resolved: ResolvedSettings, title: str) -> Iterator[str]:
    """Limits that the policy of the address does not use, and policies without the limits that they need."""
    policy = resolved.address_full_policy
    has_page_limit = resolved.page_limit_bytes > 0 or resolved.page_limit_messages > 0
    for attribute, has_no_effect, why in (
        ("max_size_bytes_reject_threshold", policy != "BLOCK", f"with address-full-policy {policy}, not BLOCK"),
        ("page_limit_bytes", policy != "PAGE", f"with address-full-policy {policy}, not PAGE"),
        ("page_limit_messages", policy != "PAGE", f"with address-full-policy {policy}, not PAGE"),
        ("page_full_policy", not has_page_limit, "without page-limit-bytes and page-limit-messages"),
        ("page_limit_bytes", not resolved.page_full_policy, "without page-full-policy"),
        ("page_limit_messages", not resolved.page_full_policy, "without page-full-policy"),
    ):
        if has_no_effect and one.settings.get(attribute, -1) != -1:
            yield f"{one.origin_of(attribute)}: {title}: {BY_ATTRIBUTE[attribute].key} has no effect {why}"


def _lint_of_flow(one: Entry, configuration: Configuration) -> Iterator[str]:
    title = f"{one.kind} {shown(one.match.text)}"
    limit, usage = one.settings.get("memory_limit"), configuration.system_usage
    if limit is not None and usage is not None and 0 < usage.memory < limit and not usage.memory_percent:
        origin = one.origin_of("memory_limit")
        yield f"{origin}: {title}: memory-limit {limit} is above the {usage.memory} of [system-usage] for all together"
    is_unique = one.settings.get("message_eviction") == "unique-property"
    if is_unique and not one.settings.get("message_eviction_property"):
        origin = one.origin_of("message_eviction")
        yield f"{origin}: {title}: unique-property needs a message-eviction-property, or the oldest message is evicted"
    policy = one.settings.get("address_full_policy", "PAGE")
    if policy != "PAGE" and not _has_size_limit(configuration):
        origin = one.origin_of("address_full_policy")
        yield f"{origin}: {title}: address-full-policy {policy} has no effect: nothing sets max-size-bytes or -messages"


def _has_size_limit(configuration: Configuration) -> bool:
    """Whether there is a limit at which some address may be full."""
    whole = configuration.whole_limits
    if whole.octets_max is not None or whole.messages_max is not None or configuration.system_usage is not None:
        return True
    limits = ("max_size_bytes", "max_size_messages", "max_size_bytes_reject_threshold", "memory_limit")
    entries = (*configuration.repository.entries, *configuration.repository.destinations.entries)
    return any(one.settings.get(limit, -1) >= 0 for one in entries for limit in limits)


def _keeps_pages_in_memory(one: Entry, repository: SettingsRepository) -> bool:
    if all(one.settings.get(limit, -1) < 0 for limit in ("max_size_bytes", "max_size_messages")):
        return False
    resolved = repository.resolve(example_address(one.match, repository.wildcards), one.vhost)
    return resolved.address_full_policy == "PAGE" and resolved.cursor == "vm"


def _removed_after(attempts: int) -> str:
    return f"limit without dead-letter address: after {attempts} failed deliveries a message is removed"
