"""Settings that topics give to the queues of their transient subscribers; combining several topics of a queue.

Source: queues page E.2.
"""

from collections.abc import Mapping

from ..rows.address_settings import FLOW, Layer, layer_of, merge

#: Settings that a subscriber's queue has from its topics; all others it has from its own address.
SUBSCRIBER_SETTINGS = (
    *FLOW,
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

#: Limits, of which the smallest applies. -1, and for some 0, means no limit.
_LIMITS = {
    "memory_limit": 1,
    "pending_message_limit": 0,
    "pending_message_limit_prefetch_rate": 0,
    "abort_slow_consumer_after_ms": 1,
    "abort_slow_consumer_count": 1,
    "abort_slow_ack_after_ms": 1,
}


def concerns_subscribers(settings: Layer) -> bool:
    """Whether a setting for subscribers' queues is set."""
    return not settings.keys().isdisjoint(SUBSCRIBER_SETTINGS)


def of_subscribers(merged: Layer) -> Layer:
    """The settings of a topic for subscribers' queues."""
    return layer_of(**{name: merged[name] for name in SUBSCRIBER_SETTINGS if name in merged})


def strictest(layers: Mapping[str, Layer]) -> Layer:
    """One layer for a queue with several topics (name -> layer): the smallest of each limit applies.

    Other settings are those of the topic that is first by name.
    """
    if len(layers) == 1:
        return next(iter(layers.values()))
    values = dict(merge(layers[name] for name in sorted(layers)))
    for attribute, lowest in _LIMITS.items():
        limits = [layer[attribute] for layer in layers.values() if layer.get(attribute, lowest - 1) >= lowest]
        if limits:
            values[attribute] = min(limits)
    return layer_of(**values)
