"""Compatibility profiles: what changed between versions of RabbitMQ, and which version a broker follows.

docs/profiles.md shows the same as a table, each cell of which is tested.
Source: behaviour page 9; rulings 8, 10, 14, 15.
"""

from dataclasses import dataclass

MIB = 1024**2


@dataclass(slots=True, frozen=True)
class Profile:
    """The defaults are our own profile's. A key of the configuration overrides its profile.

    `version`: shown to clients. `nack_counts`: nack(requeue=true) is an attempt. `quorum_delivery_limit`: of quorum
    queues that declare none. `continues_deaths`: counting continues in an x-death that a client publishes.
    `tells_last_death`: dead letters have x-last-death-*. `has_transient_queues`: queues may be neither durable nor
    exclusive. `has_shared_prefetch`: qos(global=true) is for all consumers of the channel together. `honours_flow`:
    channel.flow(active=false) stops deliveries. `classic_tells_attempts`: x-delivery-count on classic queues that limit
    or delay attempts. `delays_everywhere`: x-delay works on every exchange.
    """

    version: str = "3.10.8"
    nack_counts: bool = True
    quorum_delivery_limit: int | None = None
    continues_deaths: bool = True
    tells_last_death: bool = False
    has_transient_queues: bool = True
    has_shared_prefetch: bool = True
    honours_flow: bool = True
    classic_tells_attempts: bool = True
    delays_everywhere: bool = True
    message_size_max: int = 128 * MIB


PROFILES: dict[str, Profile] = {
    "leveret": Profile(),
    "rabbitmq-3.10": Profile(honours_flow=False, classic_tells_attempts=False, delays_everywhere=False),
    "rabbitmq-3.13": Profile(
        version="3.13.7",
        tells_last_death=True,
        honours_flow=False,
        classic_tells_attempts=False,
        delays_everywhere=False,
    ),
    "rabbitmq-4.0": Profile(
        version="4.0.9",
        quorum_delivery_limit=20,
        continues_deaths=False,
        tells_last_death=True,
        honours_flow=False,
        classic_tells_attempts=False,
        delays_everywhere=False,
        message_size_max=16 * MIB,
    ),
    "rabbitmq-4.3": Profile(
        version="4.3.0",
        nack_counts=False,
        quorum_delivery_limit=20,
        continues_deaths=False,
        tells_last_death=True,
        has_transient_queues=False,
        has_shared_prefetch=False,
        honours_flow=False,
        classic_tells_attempts=False,
        delays_everywhere=False,
        message_size_max=16 * MIB,
    ),
}
