"""The settings of an address after all layers are merged: every field has a value, derived defaults are computed.

Source: address-settings page 2.4, 3 and 3.8; queues page E.1; ruling 9.
"""

from dataclasses import dataclass
from typing import Any

from ..flow_control import SystemUsage
from ..values import LONG_MAX
from .model import AddressSettings

#: Artemis' built-in max-delivery-attempts, used if an entry sets any redelivery or dead-letter field.
ARTEMIS_ATTEMPTS = 10
UNLIMITED = -1

#: The redelivery and dead-letter fields (address-settings page 3.1).
REDELIVERY_FIELDS = (
    "max_delivery_attempts",
    "redelivery_delay_ms",
    "redelivery_delay_multiplier",
    "redelivery_collision_avoidance_factor",
    "max_redelivery_delay_ms",
    "dead_letter_address",
    "auto_create_dead_letter_resources",
    "dead_letter_queue_prefix",
    "dead_letter_queue_suffix",
    "send_to_dla_on_no_route",
)

#: An entry that sets one of these, or the policy BLOCK, puts its addresses under flow control (queues page E).
FLOW_FIELDS = (
    "memory_limit",
    "producer_flow_control",
    "send_fail_if_no_space",
    "send_fail_if_no_space_after_ms",
    "cursor",
)

#: Fields whose 0 means the same as -1.
ZERO_IS_NONE = {"memory_limit", "abort_slow_consumer_after_ms", "abort_slow_consumer_count", "abort_slow_ack_after_ms"}


@dataclass(slots=True, frozen=True)
class ResolvedSettings:
    """The settings of one address or queue. -1: no limit, or off; "": no such address or key. Never None."""

    # redelivery and dead letters
    max_delivery_attempts: int = UNLIMITED
    redelivery_delay_ms: int = 0
    redelivery_delay_multiplier: float = 1.0
    redelivery_collision_avoidance_factor: float = 0.0
    max_redelivery_delay_ms: int = 0  # default: ten times the redelivery delay
    dead_letter_address: str = ""
    auto_create_dead_letter_resources: bool = False
    dead_letter_queue_prefix: str = "DLQ."
    dead_letter_queue_suffix: str = ""
    send_to_dla_on_no_route: bool = False
    # expiry
    no_expiry: bool = False
    expiry_delay_ms: int = -1
    min_expiry_delay_ms: int = -1
    max_expiry_delay_ms: int = -1
    expiry_address: str = ""
    auto_create_expiry_resources: bool = False
    expiry_queue_prefix: str = "EXP."
    expiry_queue_suffix: str = ""
    # size limits and paging
    max_size_bytes: int = -1
    max_size_messages: int = -1
    address_full_policy: str = "PAGE"
    max_size_bytes_reject_threshold: int = -1
    page_size_bytes: int = 10 * 1024**2
    page_limit_bytes: int = -1
    page_limit_messages: int = -1
    page_full_policy: str = ""
    disk_full_policy: str = "BLOCK"
    max_read_page_messages: int = -1
    max_read_page_bytes: int = 20 * 1024**2  # default: twice the page size
    prefetch_page_messages: int = -1  # default: max-read-page-messages
    prefetch_page_bytes: int = 20 * 1024**2  # default: max-read-page-bytes
    page_max_cache_size: int = 5
    # flow control
    memory_limit: int = -1
    producer_flow_control: bool = True
    send_fail_if_no_space: bool = False  # default: of [system-usage]
    send_fail_if_no_space_after_ms: int = 0  # default: of [system-usage]; 0: wait for ever
    cursor: str = "store"
    cursor_memory_high_water_mark: int = 70  # percent of the memory limit
    minimum_message_size: int = 1024
    blocked_producer_warning_interval_ms: int = 30_000  # 0: no warnings
    pending_message_limit: int = -1
    pending_message_limit_prefetch_rate: float = -1.0  # -1: `pending_message_limit` rules
    message_eviction: str = "oldest"
    message_eviction_property: str = ""
    abort_slow_consumer_after_ms: int = -1
    abort_slow_consumer_count: int = -1
    abort_slow_consumer_check_period_ms: int = 30_000
    abort_slow_consumer_connection: bool = False
    abort_slow_ack_after_ms: int = -1
    abort_slow_ack_ignores_idle: bool = True
    # queue defaults, copied at creation
    default_ring_size: int = -1
    default_last_value_queue: bool = False
    default_last_value_key: str = ""
    default_non_destructive: bool = False
    default_exclusive_queue: bool = False
    default_group_rebalance: bool = False
    default_group_rebalance_pause_dispatch: bool = False
    default_group_buckets: int = -1
    default_group_first_key: str = ""
    default_max_consumers: int = -1
    default_purge_on_no_consumers: bool = False
    default_consumers_before_dispatch: int = 0
    default_delay_before_dispatch_ms: int = -1
    default_queue_routing_type: str = "MULTICAST"
    default_address_routing_type: str = "MULTICAST"
    default_consumer_window_size: int = 1024**2
    initial_queue_buffer_size: int = 8192
    # automatic creation and deletion
    auto_create_queues: bool = False  # Artemis: true; AMQP clients expect 404 (address-settings page 3.5)
    auto_create_addresses: bool = True
    auto_delete_queues: bool = True
    auto_delete_created_queues: bool = False
    auto_delete_queues_delay_ms: int = 0
    auto_delete_queues_message_count: int = 0
    auto_delete_queues_skip_usage_check: bool = False
    auto_delete_addresses: bool = True
    auto_delete_addresses_delay_ms: int = 0
    auto_delete_addresses_skip_usage_check: bool = False
    config_delete_queues: str = "OFF"
    config_delete_addresses: str = "OFF"
    config_delete_diverts: str = "OFF"
    auto_create_jms_queues: bool = True
    auto_create_jms_topics: bool = True
    auto_delete_jms_queues: bool = True
    auto_delete_jms_topics: bool = True
    # consumers, cluster, management
    slow_consumer_threshold: int = -1
    slow_consumer_threshold_measurement_unit: str = "MESSAGES_PER_SECOND"
    slow_consumer_policy: str = "NOTIFY"
    slow_consumer_check_period_s: int = 5
    redistribution_delay_ms: int = -1
    message_counter_history_day_limit: int = 0
    management_browse_page_size: int = 200
    management_message_attribute_size_limit: int = 256
    retroactive_message_count: int = 0
    enable_metrics: bool = True
    enable_ingress_timestamp: bool = False
    id_cache_size: int = 20_000
    queue_prefetch: int = 1000
    # no setting itself: whether queues page E rules publishes to the address, see `why_flow_controlled`
    is_flow_controlled: bool = False


DEFAULTS = ResolvedSettings()


def sets_redelivery(settings: AddressSettings) -> bool:
    """Whether a redelivery or dead-letter field is set."""
    return any(getattr(settings, attribute) is not None for attribute in REDELIVERY_FIELDS)


def default_attempts(entries: AddressSettings, broker_default: int | None) -> int:
    """The max-delivery-attempts of a queue for which none is configured.

    Args: entries: the merged entries that match, without the queue's own arguments.
          broker_default: `default-max-delivery-attempts`; None when it is not configured.
    """
    if broker_default is not None:
        return broker_default if broker_default > 0 else UNLIMITED
    return ARTEMIS_ATTEMPTS if sets_redelivery(entries) else UNLIMITED


def resolve(
    merged: AddressSettings,
    *,
    attempts: int = UNLIMITED,
    id_cache_size: int | None = None,
    usage: SystemUsage | None = None,
) -> ResolvedSettings:
    """Give every field a value.

    Args: merged: all layers in one, the queue's own included.
          attempts: the default, of `default_attempts`.
          id_cache_size: the broker's, for addresses that do not set it.
          usage: [system-usage]; None where it is not configured.
    """
    explicit = merged.explicit()
    values: dict[str, Any] = {"max_delivery_attempts": attempts, **explicit}
    if id_cache_size is not None:
        values.setdefault("id_cache_size", id_cache_size)
    if values["max_delivery_attempts"] <= 0:
        values["max_delivery_attempts"] = UNLIMITED
    for attribute, derived in derived_defaults(merged).items():
        values.setdefault(attribute, derived)
    if usage is not None:
        values.setdefault("send_fail_if_no_space", usage.send_fail_if_no_space)
        values.setdefault("send_fail_if_no_space_after_ms", usage.send_fail_if_no_space_after_ms)
    for attribute in ZERO_IS_NONE & explicit.keys():
        if explicit[attribute] == 0:
            values[attribute] = UNLIMITED
    if "pending_message_limit" in explicit:
        values.pop("pending_message_limit_prefetch_rate", None)
    return ResolvedSettings(**values, is_flow_controlled=usage is not None or bool(why_flow_controlled(merged)))


def why_flow_controlled(merged: AddressSettings) -> list[str]:
    """The attributes that put an address under flow control; a [system-usage] does it for every address."""
    why = [attribute for attribute in FLOW_FIELDS if getattr(merged, attribute) is not None]
    return [*why, "address_full_policy"] if merged.address_full_policy == "BLOCK" else why


def derived_defaults(merged: AddressSettings) -> dict[str, int]:
    """Defaults that follow from other fields; computed after merging, never before."""
    read_messages = _or(merged.max_read_page_messages, DEFAULTS.max_read_page_messages)
    read_bytes = _or(merged.max_read_page_bytes, 2 * _or(merged.page_size_bytes, DEFAULTS.page_size_bytes))
    return {
        "max_redelivery_delay_ms": min(10 * (merged.redelivery_delay_ms or 0), LONG_MAX),
        "max_read_page_bytes": read_bytes,
        "prefetch_page_messages": read_messages,
        "prefetch_page_bytes": read_bytes,
    }


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
