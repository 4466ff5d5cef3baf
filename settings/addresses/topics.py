"""What topics set for the queues of their transient subscribers, and what holds where a queue has several topics.

Source: queues page E.2.
"""

from collections.abc import Mapping

from .model import NOTHING_SET, AddressSettings
from .resolved import FLOW_FIELDS

#: Settings that a subscriber's queue has from its topics; all others it has by its own address.
SUBSCRIBER_FIELDS = (
    *FLOW_FIELDS,
    "cursor_memory_high_water_mark",
    "minimum_message_size",
    "blocked_producer_warning_interval_ms",
    "pending_message_limit",
    "pending_message_limit_prefetch_rate",
    "message_eviction",
    "message_eviction_property",
    "abort_slow_consumer_after_ms",
    "abort_slow_consumer_count",
    "abort_slow_consumer_check_period_ms",
    "abort_slow_consumer_connection",
    "abort_slow_ack_after_ms",
    "abort_slow_ack_ignores_idle",
    "slow_consumer_threshold",
    "slow_consumer_threshold_measurement_unit",
    "slow_consumer_policy",
    "slow_consumer_check_period_s",
)

#: Limits, of which the smallest holds. Their -1, and the 0 of some, is no limit.
_LIMITS = {
    "memory_limit": 1,
    "pending_message_limit": 0,
    "pending_message_limit_prefetch_rate": 0,
    "abort_slow_consumer_after_ms": 1,
    "abort_slow_consumer_count": 1,
    "abort_slow_ack_after_ms": 1,
}


def concerns_subscribers(settings: AddressSettings) -> bool:
    """Whether a field is set that subscribers' queues have from their topics."""
    return any(getattr(settings, name) is not None for name in SUBSCRIBER_FIELDS)


def of_subscribers(merged: AddressSettings) -> AddressSettings:
    """Those fields of a topic's settings."""
    explicit = merged.explicit()
    found = {name: explicit[name] for name in SUBSCRIBER_FIELDS if name in explicit}
    return AddressSettings(**found) if found else NOTHING_SET


def strictest(layers: Mapping[str, AddressSettings]) -> AddressSettings:
    """One layer for a queue with several topics (name -> what it sets): the smallest of each limit holds.

    Of what is no limit the topic that comes first by name has its way.
    """
    if len(layers) == 1:
        return next(iter(layers.values()))
    merged = NOTHING_SET
    for name in sorted(layers, reverse=True):
        merged = layers[name].over(merged)
    values = merged.explicit()
    for field, lowest in _LIMITS.items():
        given = [value for layer in layers.values() if (value := getattr(layer, field)) is not None]
        limits = [value for value in given if value >= lowest]
        if limits:
            values[field] = min(limits)
    return AddressSettings(**values)
