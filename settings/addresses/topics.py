"""The settings that a topic gives to the queues of its transient subscribers, and those of several topics together.

Source: queues page E.2.
"""

from collections.abc import Mapping

from ..rows.address_settings import SETTINGS, Layer, layer_of, merge

#: Settings that a subscriber's queue has from its topics; all others it has from its own address.
SUBSCRIBER_SETTINGS = frozenset(one.attribute for one in SETTINGS if one.is_of_topics)
#: Settings of which the smallest value applies, if a queue has several topics.
_LIMITS = tuple(one for one in SETTINGS if one.is_limit)


def has_subscriber_settings(settings: Layer) -> bool:
    """Whether a setting for subscribers' queues is set."""
    return not settings.keys().isdisjoint(SUBSCRIBER_SETTINGS)


def subscriber_settings(merged: Layer) -> Layer:
    """The settings of a topic for subscribers' queues."""
    return layer_of(**{name: value for name, value in merged.items() if name in SUBSCRIBER_SETTINGS})


def merge_topics(layers: Mapping[str, Layer]) -> Layer:
    """One layer for a queue with several topics (name -> layer): the smallest of each limit applies.

    Other settings are those of the topic that is first by name.
    """
    if len(layers) == 1:
        return next(iter(layers.values()))
    values = dict(merge(layers[name] for name in sorted(layers)))
    for setting in _LIMITS:
        lowest = 1 if setting.zero_is_none else 0  # smaller values are no limit
        given = [layer[setting.attribute] for layer in layers.values() if setting.attribute in layer]
        limits = [limit for limit in given if limit >= lowest]
        if limits:
            values[setting.attribute] = min(limits)
    return layer_of(**values)
