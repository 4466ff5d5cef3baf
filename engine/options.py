"""What a broker does in general, whatever the address: switches of the configuration's [broker] table. Frozen.

Source: address-settings page 1.3, 3.5, 5.6, 7.1; ruling 8.
"""

import sys
from dataclasses import dataclass, field
from enum import Enum

from ..settings import NO_WHOLE_LIMITS, Flow, SystemUsage, WholeLimits


class MessageAddress(Enum):
    """What a message's address is, when it was published to a named exchange."""

    EXCHANGE = "exchange"
    EXCHANGE_AND_KEY = "exchange-and-key"
    KEY = "key"


@dataclass(slots=True, frozen=True)
class BrokerOptions:
    """`address_queue_scan_period_ms`: how often unused auto-created queues are looked for; None: never.

    `consumer_timeout_ms`: how long a delivery may stay unsettled before its session ends; None: for ever.
    `delays_everywhere`: the header x-delay counts on every exchange, not only on those of type x-delayed-message.
    `has_shared_prefetch`: qos(global=true) limits all consumers of a channel together; else it is as global=false.
    `quorum_delivery_limit`: x-delivery-limit of quorum queues that have no limit of attempts; None: they have none.
    `quorum_priorities`: how many levels of priority quorum queues have: 0, 2 (above 4 is high) or 32.
    `continues_deaths`: an x-death header that a client publishes counts on; else the broker's own alone do.
    `tells_last_death`: dead letters have the headers x-last-death-*.
    `has_transient_queues`: clients may declare queues that are neither durable nor exclusive.
    `headers_conditions_max`: what the bindings of one headers exchange may ask for (`HeadersPattern.conditions`): each
    message that comes there is compared with all of it. `topic_states_max`: what the patterns of one topic exchange may
    have of states that any key may have to go through (`TopicPatterns.congested`).
    `transaction_size_max`: octets published and not committed.
    `unacked_per_session_max`: consumers that never settle get no more than that.
    `busy_queue_ready_max`: with more ready messages a queue that has consumers is congested (`Congestion`).
    `system_usage`: what the broker may use; None: no such limits. `whole_limits`: what all addresses together may hold.
    `flow`: how publishes are held (queues page E).
    `classic_tells_attempts`: x-delivery-count also on classic queues, where a rule limits or delays attempts.
    `has_consumer_filters`: x-filter and x-selector of consumers mean something.
    """

    nack_counts: bool = True
    reject_counts: bool = True
    delay_on_connection_loss: bool = False
    message_address: MessageAddress = MessageAddress.EXCHANGE
    legacy_hornetq_headers: bool = False
    address_queue_scan_period_ms: int | None = 30_000
    delays_everywhere: bool = True
    queues_max: int = 0  # in all virtual hosts, as far as clients declare them; 0: unlimited
    bindings_max: int = 0
    headers_conditions_max: int = 100_000
    topic_states_max: int = 200_000
    transaction_size_max: int = 128 * 1024 * 1024
    unacked_per_session_max: int = 1_000_000
    busy_queue_ready_max: int = sys.maxsize
    consumer_timeout_ms: int | None = 1_800_000
    has_shared_prefetch: bool = True
    quorum_delivery_limit: int | None = None
    quorum_priorities: int = 0
    continues_deaths: bool = True
    tells_last_death: bool = False
    has_transient_queues: bool = True
    classic_tells_attempts: bool = True
    has_consumer_filters: bool = True
    system_usage: SystemUsage | None = None
    whole_limits: WholeLimits = NO_WHOLE_LIMITS
    flow: Flow = Flow()

    def address_of(self, exchange: str, routing_key: str) -> str:
        """The address of a message published to `exchange` with `routing_key`: settings are looked up by it."""
        if not exchange or self.message_address is MessageAddress.KEY:
            return routing_key
        if self.message_address is MessageAddress.EXCHANGE_AND_KEY:
            return f"{exchange}.{routing_key}"
        return exchange


DEFAULT_OPTIONS = BrokerOptions()


@dataclass(slots=True, frozen=True)
class VirtualHostLimits:
    """What may be in one virtual host; None: as much as there is. `is_configured`: the configuration says so.

    `default_queue_type`: of queues whose declaration says none, if they can be of that type.
    """

    max_connections: int | None = None
    max_queues: int | None = None
    default_queue_type: str | None = None
    is_configured: bool = field(default=False, compare=False)


NO_LIMITS = VirtualHostLimits()
