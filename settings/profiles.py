"""Compatibility profiles: the differences between versions of RabbitMQ, and the version that a broker follows.

docs/profiles.md has the same table, each cell of which is tested.
Source: behaviour page 9; rulings 8, 10, 14, 15.
"""

import re
from dataclasses import replace

from .faults import nearest
from .frozen import frozen

MIB = 1024**2


@frozen
class Profile:
    """The behaviour of one version; the defaults are Leveret's own. A key of the configuration overrides its profile.

    `version`: shown to clients. `nack_counts`: nack(requeue=true) is an attempt. `quorum_delivery_limit`: of quorum
    queues without their own. `quorum_priorities`: levels of quorum queues, 0, 2 or 32. `continues_deaths`: an x-death
    that a client publishes is continued. `tells_last_death`: dead letters have x-last-death-*. `has_transient_queues`:
    queues may be neither durable nor exclusive. `has_shared_prefetch`: qos(global=true) is shared by all consumers of
    the channel. `honours_flow`: channel.flow(active=false) stops deliveries. `classic_tells_attempts`: x-delivery-count
    on classic queues that limit or delay attempts. `delays_everywhere`: x-delay works on every exchange.
    `has_consumer_filters`: x-filter and x-selector of consumers have an effect.
    """

    version: str = "3.10.8"
    nack_counts: bool = True
    quorum_delivery_limit: int | None = None
    quorum_priorities: int = 0
    continues_deaths: bool = True
    tells_last_death: bool = False
    has_transient_queues: bool = True
    has_shared_prefetch: bool = True
    honours_flow: bool = True
    classic_tells_attempts: bool = True
    delays_everywhere: bool = True
    has_consumer_filters: bool = True
    message_size_max: int = 128 * MIB


_OF_3_10 = Profile(
    honours_flow=False, classic_tells_attempts=False, delays_everywhere=False, has_consumer_filters=False
)
_OF_3_13 = replace(_OF_3_10, version="3.13.7", tells_last_death=True)
_OF_4_0 = replace(
    _OF_3_13,
    version="4.0.9",
    quorum_delivery_limit=20,
    quorum_priorities=2,
    continues_deaths=False,
    message_size_max=16 * MIB,
)
_OF_4_3 = replace(
    _OF_4_0,
    version="4.3.0",
    nack_counts=False,
    quorum_priorities=32,
    has_transient_queues=False,
    has_shared_prefetch=False,
)
PROFILES: dict[str, Profile] = {
    "leveret": Profile(),
    "rabbitmq-3.10": _OF_3_10,
    "rabbitmq-3.13": _OF_3_13,
    "rabbitmq-4.0": _OF_4_0,
    "rabbitmq-4.3": _OF_4_3,
}

#: Names of brokers that users try as profiles; settings of these brokers need none.
OTHER_BROKERS = dict.fromkeys(
    ("artemis", "activemq", "hornetq", "amps"),
    "; settings of other brokers than RabbitMQ are read in each of them: leave profile out",
)

_VERSION = re.compile(r"(?:rabbitmq-)?(\d{1,3})\.(\d{1,3})(?:\.\d{1,3})?", re.ASCII)
#: Strings similar to a version, but without a minor version or beyond the known ones: `4`, `rabbitmq-5`.
_LIKE_VERSION = re.compile(r"(?:rabbitmq-)?v?(\d{1,3})(?:\.(\d{1,3}))?(?:\.\d{1,3})?", re.ASCII | re.IGNORECASE)
#: Version -> the profile that begins with it.
_BEGINS = {(int(match[1]), int(match[2])): name for name in PROFILES if (match := _VERSION.fullmatch(name)) is not None}


def profile_name(value: object) -> str:
    """The name of a profile. A version of RabbitMQ between two profiles follows the earlier one: 4.2 is rabbitmq-4.0.

    Nothing that profiles cover changed between them. Versions older than the first and newer than the last profile are
    refused, because their behaviour is unknown. Raises: ValueError, with the nearest name.
    """
    if isinstance(value, str):
        if value in PROFILES:
            return value
        if (match := _VERSION.fullmatch(value.lower().removeprefix("v"))) is not None:
            wanted = (int(match[1]), int(match[2]))
            if min(_BEGINS) <= wanted <= max(_BEGINS):
                return _BEGINS[max(version for version in _BEGINS if version <= wanted)]
    raise ValueError(f"one of {', '.join(PROFILES)}, or a version between them{_hint(value)}")


def _hint(value: object) -> str:
    """A suggestion: the profile of the nearest version, or the nearest name; empty if there is none."""
    if isinstance(value, float):  # a version without quotes: 4.1 is a number in TOML
        return f', did you mean "{value}"?'
    text = str(value)
    if (match := _LIKE_VERSION.fullmatch(text)) is None:
        return OTHER_BROKERS.get(text.lower()) or nearest(text, PROFILES)
    major = int(match[1])
    wanted = (major, int(match[2])) if match[2] else (major, 1000)
    before = max((version for version in _BEGINS if version <= wanted), default=min(_BEGINS))
    return f", did you mean {_BEGINS[before]!r}?"
