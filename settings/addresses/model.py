"""Address-settings: one layer of settings for an address, and how layers are merged.

`AddressSettings` is one layer: None means "not set here". `ResolvedSettings` is what the engine works with: no None, -1
for "no limit" or "off", empty text for "no such address or key".
Source: address-settings page 2.4 and 3.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any


@dataclass(slots=True, frozen=True)
class AddressSettings:
    """The settings of one entry, or of several merged. Each field has a row in fields.py."""

    # redelivery and dead letters
    max_delivery_attempts: int | None = None
    redelivery_delay_ms: int | None = None
    redelivery_delay_multiplier: float | None = None
    redelivery_collision_avoidance_factor: float | None = None
    max_redelivery_delay_ms: int | None = None
    dead_letter_address: str | None = None
    auto_create_dead_letter_resources: bool | None = None
    dead_letter_queue_prefix: str | None = None
    dead_letter_queue_suffix: str | None = None
    send_to_dla_on_no_route: bool | None = None
    # expiry
    no_expiry: bool | None = None
    expiry_delay_ms: int | None = None
    min_expiry_delay_ms: int | None = None
    max_expiry_delay_ms: int | None = None
    expiry_address: str | None = None
    auto_create_expiry_resources: bool | None = None
    expiry_queue_prefix: str | None = None
    expiry_queue_suffix: str | None = None
    # size limits and paging
    max_size_bytes: int | None = None
    max_size_messages: int | None = None
    address_full_policy: str | None = None
    max_size_bytes_reject_threshold: int | None = None
    page_size_bytes: int | None = None
    page_limit_bytes: int | None = None
    page_limit_messages: int | None = None
    page_full_policy: str | None = None
    disk_full_policy: str | None = None
    max_read_page_messages: int | None = None
    max_read_page_bytes: int | None = None
    prefetch_page_messages: int | None = None
    prefetch_page_bytes: int | None = None
    page_max_cache_size: int | None = None
    # queue defaults, copied at creation
    default_ring_size: int | None = None
    default_last_value_queue: bool | None = None
    default_last_value_key: str | None = None
    default_non_destructive: bool | None = None
    default_exclusive_queue: bool | None = None
    default_group_rebalance: bool | None = None
    default_group_rebalance_pause_dispatch: bool | None = None
    default_group_buckets: int | None = None
    default_group_first_key: str | None = None
    default_max_consumers: int | None = None
    default_purge_on_no_consumers: bool | None = None
    default_consumers_before_dispatch: int | None = None
    default_delay_before_dispatch_ms: int | None = None
    default_queue_routing_type: str | None = None
    default_address_routing_type: str | None = None
    default_consumer_window_size: int | None = None
    initial_queue_buffer_size: int | None = None
    # automatic creation and deletion
    auto_create_queues: bool | None = None
    auto_create_addresses: bool | None = None
    auto_delete_queues: bool | None = None
    auto_delete_created_queues: bool | None = None
    auto_delete_queues_delay_ms: int | None = None
    auto_delete_queues_message_count: int | None = None
    auto_delete_queues_skip_usage_check: bool | None = None
    auto_delete_addresses: bool | None = None
    auto_delete_addresses_delay_ms: int | None = None
    auto_delete_addresses_skip_usage_check: bool | None = None
    config_delete_queues: str | None = None
    config_delete_addresses: str | None = None
    config_delete_diverts: str | None = None
    auto_create_jms_queues: bool | None = None
    auto_create_jms_topics: bool | None = None
    auto_delete_jms_queues: bool | None = None
    auto_delete_jms_topics: bool | None = None
    # consumers, cluster, management
    slow_consumer_threshold: int | None = None
    slow_consumer_threshold_measurement_unit: str | None = None
    slow_consumer_policy: str | None = None
    slow_consumer_check_period_s: int | None = None
    redistribution_delay_ms: int | None = None
    message_counter_history_day_limit: int | None = None
    management_browse_page_size: int | None = None
    management_message_attribute_size_limit: int | None = None
    retroactive_message_count: int | None = None
    enable_metrics: bool | None = None
    enable_ingress_timestamp: bool | None = None
    id_cache_size: int | None = None
    queue_prefetch: int | None = None

    def over(self, wider: "AddressSettings") -> "AddressSettings":
        """This layer merged with a wider one: each field from this one if it is set here, else from the wider one."""
        return AddressSettings(**{**wider.explicit(), **self.explicit()})

    def explicit(self) -> dict[str, Any]:
        """Attribute -> value of the fields that are set."""
        return {name: value for name in ATTRIBUTES if (value := getattr(self, name)) is not None}


#: Every field by its attribute, in the order of the page.
ATTRIBUTES: tuple[str, ...] = tuple(field.name for field in fields(AddressSettings))

#: The empty layer.
NOTHING_SET = AddressSettings()


def merge(most_specific_first: Iterable[AddressSettings]) -> AddressSettings:
    """All layers in one: a fold from the widest to the nearest (address-settings page 2.4)."""
    widest_first = reversed(list(most_specific_first))
    return reduce(lambda wide, near: near.over(wide), widest_first, NOTHING_SET)


def with_fewer_attempts(near: AddressSettings, wide: AddressSettings) -> AddressSettings:
    """`near` over `wide`; where both limit the attempts, the smaller limit wins."""
    merged = near.over(wide)
    limits = [one for one in (near.max_delivery_attempts, wide.max_delivery_attempts) if one is not None]
    if len(limits) < 2:
        return merged
    return AddressSettings(**{**merged.explicit(), "max_delivery_attempts": _least(limits)})


def _least(limits: list[int]) -> int:
    return min((one for one in limits if one > 0), default=-1)
