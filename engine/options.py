"""The options of a broker that apply to all addresses: the configuration's [broker] table. Frozen.

Source: address-settings page 1.3, 3.5, 5.6, 7.1; ruling 8.
"""

import sys
from dataclasses import field
from enum import Enum

from ..settings import NO_WHOLE_LIMITS, Flow, SystemUsage, WholeLimits
from ..settings.frozen import frozen


class MessageAddress(Enum):
    """The address of a message that was published to a named exchange."""

    EXCHANGE = "exchange"
    EXCHANGE_AND_KEY = "exchange-and-key"
    KEY = "key"


@frozen
class BrokerOptions:
    """The options of one broker.

    `nack_counts`, `reject_counts`: a nack or a reject with requeue is a failed attempt.
    `delay_on_connection_loss`: the redelivery delay also applies to deliveries of lost connections.
    `address_queue_scan_period_ms`: period of the scan for unused auto-created queues; None: no scan.

    `consumer_timeout_ms`: maximum time of a delivery without acknowledgement, after which its session is closed; None:
    unlimited. `delays_everywhere`: the header x-delay applies on every exchange, not only on those of type
    x-delayed-message. `has_shared_prefetch`: qos(global=true) limits all consumers of a channel together; otherwise it
    acts as global=false. `quorum_delivery_limit`: x-delivery-limit of quorum queues that declare none; None: unlimited.
    `quorum_priorities`: number of priority levels of quorum queues: 0, 2 (above 4 is high) or 32. `continues_deaths`:
    dead letters keep the x-death entries that clients published. `tells_last_death`: dead letters have the headers
    x-last-death-*. `has_transient_queues`: clients may declare queues that are neither durable nor exclusive.
    `headers_conditions_max`: maximum conditions in the bindings of one headers exchange (`HeadersPattern.conditions`),
    because a message may be compared with all of them. `topic_states_max`: maximum excess states in the patterns of one
    topic exchange (`TopicPatterns.excess_states`), because a look-up may visit all of them. `transaction_size_max`:
    maximum octets of uncommitted publishes. `unacked_per_session_max`: maximum unacknowledged deliveries of a session.
    `busy_queue_ready_max`: a queue with consumers and more ready messages is congested (`Turn.congested`).
    `system_usage`: the broker's limits; None: no limits. `whole_limits`: limits on all addresses together. `flow`: low
    marks of flow control (queues page E). `classic_tells_attempts`: deliveries of classic queues whose rules limit or
    delay attempts have x-delivery-count. `has_consumer_filters`: the broker applies x-filter and x-selector of
    consumers. `transfer_after_ms`: how long a message waits for a consumer at its owner before another node gets it.
    """

    nack_counts: bool = True
    reject_counts: bool = True
    delay_on_connection_loss: bool = False
    message_address: MessageAddress = MessageAddress.EXCHANGE
    legacy_hornetq_headers: bool = False
    address_queue_scan_period_ms: int | None = 30_000
    delays_everywhere: bool = True
    queues_max: int = 0  # queues in all virtual hosts, checked when clients declare; 0: unlimited
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
    transfer_after_ms: int = 50
    system_usage: SystemUsage | None = None
    whole_limits: WholeLimits = NO_WHOLE_LIMITS
    flow: Flow = Flow()

    def address_of(self, exchange: str, routing_key: str) -> str:
        """The address of a message with this exchange and routing key."""
        if not exchange or self.message_address is MessageAddress.KEY:
            return routing_key
        if self.message_address is MessageAddress.EXCHANGE_AND_KEY:
            return f"{exchange}.{routing_key}"
        return exchange


DEFAULT_OPTIONS = BrokerOptions()


@frozen
class VirtualHostLimits:
    """The limits of one virtual host; None: no limit. `is_configured`: they are set in the configuration.

    `default_queue_type`: the type of queues that are declared without one, unless they cannot be of this type.
    """

    max_connections: int | None = None
    max_queues: int | None = None
    default_queue_type: str | None = None
    is_configured: bool = field(default=False, compare=False)


NO_LIMITS = VirtualHostLimits()
