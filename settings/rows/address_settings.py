"""The address settings: one row each, the layers in which they are set, and their resolution.

Every use of a setting is generated from its row: keys of TOML and XML, names in broker-properties, `leveret explain`,
`leveret diff`, docs/configuration.md. A layer (an entry of the configuration, a policy, the arguments of a queue) maps
the attributes that it sets to values. Source: address-settings page 2.4, 3, 3.8, 6.2, 6.3; queues page E.1; ruling 9.
"""

import re
from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from ..frozen import frozen
from ..lifetime import ARRIVAL, AT_CREATION
from ..values import (
    ADDRESS,
    ANY_INT,
    ATTEMPTS,
    BOOLEAN,
    BYTES,
    BYTES_OR_OFF,
    COUNT,
    COUNT_INT,
    DELAY,
    DELAY_OR_OFF,
    DELETION,
    FACTOR,
    LIMIT,
    LIMIT_NOT_ZERO,
    LONG_MAX,
    MULTIPLIER,
    PAGE_SIZE,
    PERIOD,
    POSITIVE_BYTES_OR_OFF,
    RATE_OR_OFF,
    ROUTING_TYPE,
    TEXT,
    in_range,
    one_of_any_case,
)
from .flow_control import SystemUsage
from .row import Row, columns_of, meaningless, setting

#: No limit, or off.
UNLIMITED = -1
#: Artemis' built-in max-delivery-attempts, used if an entry sets any redelivery or dead-letter setting.
ARTEMIS_ATTEMPTS = 10

# Reasons why settings of Artemis have no effect here.
READ_AHEAD = "Read ahead is what the consumers' credit and the memory (`[limits] memory`) allow."
CLIENTS_ROUTE = "An AMQP client always names an exchange of a type, or a queue."
NO_ADDRESSES = "An address exists by its queues and exchanges; there is nothing that could be created alone."


@frozen
class Setting(Row):
    """The row of an address setting. `beans`: its names in broker-properties. `zero_is_none`: 0 means -1.

    `is_redelivery`: an entry that sets it has ARTEMIS_ATTEMPTS as its default limit of attempts (address-settings page
    3.1). `starts_flow_control`: it puts the addresses of its entry under flow control, as does the policy BLOCK (queues
    page E). `is_of_topics`: the queue of a transient subscriber has its value from its topics; `is_limit`: of several
    topics the smallest limit applies (queues page E.2).
    """

    beans: tuple[str, ...] = ()
    zero_is_none: bool = False
    is_redelivery: bool = False
    starts_flow_control: bool = False
    is_of_topics: bool = False
    is_limit: bool = False


redelivery = partial(setting, is_redelivery=True)
of_topics = partial(setting, is_of_topics=True)
flow_control = partial(of_topics, starts_flow_control=True)


# fmt: off
@frozen
class ResolvedSettings:
    """The settings of one address or queue. -1: no limit, or off; "": no such address or key. Never None."""

    # -- redelivery and dead letters
    max_delivery_attempts: int = redelivery(ATTEMPTS, UNLIMITED,
        default_text="unlimited; 10 where an entry sets redelivery or dead letters",
        help="Deliveries a message gets before it is dead-lettered; 0 or -1 is no limit.")
    redelivery_delay_ms: int = redelivery(DELAY, 0, help="Wait before a message that was returned is delivered again.")
    redelivery_delay_multiplier: float = redelivery(MULTIPLIER, 1.0, bean="redeliveryMultiplier",
        help="Factor by which the wait grows with each further attempt.")
    redelivery_collision_avoidance_factor: float = redelivery(FACTOR, 0.0,
        help="Random share, 0 to 1, by which each wait is lengthened or shortened.")
    max_redelivery_delay_ms: int = redelivery(DELAY, 0, default_text="10 x redelivery-delay",
        help="Longest wait, however many attempts failed.")
    dead_letter_address: str = redelivery(ADDRESS, "",
        help="Exchange or queue that gets messages whose attempts are used up; unset drops them.")
    auto_create_dead_letter_resources: bool = redelivery(BOOLEAN, False,
        help="Whether each address gets its own dead-letter queue when it needs one.")
    dead_letter_queue_prefix: str = redelivery(TEXT, "DLQ.", help="Prefix of the names of those dead-letter queues.")
    dead_letter_queue_suffix: str = redelivery(TEXT, "", help="Suffix of the names of those dead-letter queues.")
    send_to_dla_on_no_route: bool = redelivery(BOOLEAN, False, ARRIVAL, bean="sendToDLAOnNoRoute",
        help="Whether a message that reaches no queue goes to the dead-letter address.")
    # Artemis and HornetQ: false, also for entries of their files
    auto_create_missing_queues: bool = setting(BOOLEAN, True,
        help="Whether a durable queue is created for a dead-letter or expiry address to which nothing is bound.")
    # -- expiry
    no_expiry: bool = setting(BOOLEAN, False, ARRIVAL, help="Whether the expiration that publishers set is ignored.")
    expiry_delay_ms: int = setting(DELAY_OR_OFF, -1, ARRIVAL,
        help="Time to live of messages that come without an expiration; -1 is none.")
    min_expiry_delay_ms: int = setting(DELAY_OR_OFF, -1, ARRIVAL,
        help="Shortest time to live, if `expiry-delay` is -1; -1 is none.")
    max_expiry_delay_ms: int = setting(DELAY_OR_OFF, -1, ARRIVAL,
        help="Longest time to live, or that of messages without one, if `expiry-delay` is -1; -1 is none.")
    expiry_address: str = setting(ADDRESS, "", help="Exchange or queue that gets expired messages; unset drops them.")
    auto_create_expiry_resources: bool = setting(BOOLEAN, False,
        help="Whether each address gets its own expiry queue when it needs one.")
    expiry_queue_prefix: str = setting(TEXT, "EXP.", help="Prefix of the names of those expiry queues.")
    expiry_queue_suffix: str = setting(TEXT, "", help="Suffix of the names of those expiry queues.")
    # -- size limits and paging
    max_size_bytes: int = setting(BYTES_OR_OFF, -1, ARRIVAL,
        help="Octets of messages that an address may hold before it is full; -1 is no limit.")
    max_size_messages: int = setting(LIMIT, -1, ARRIVAL,
        help="Messages that an address may hold before it is full; -1 is no limit.")
    address_full_policy: str = setting(one_of_any_case("PAGE", "DROP", "FAIL", "BLOCK"),
        "PAGE", ARRIVAL, bean="addressFullMessagePolicy",
        help="What a full address does: `PAGE` to disk, `DROP` silently, `FAIL` with a nack, `BLOCK` its publishers.")
    max_size_bytes_reject_threshold: int = setting(BYTES_OR_OFF, -1, ARRIVAL,
        help="Octets above which an address with the policy `BLOCK` refuses messages; -1 is none.")
    page_size_bytes: int = meaningless(PAGE_SIZE, 10 * 1024**2,
        "What is paged out is in the journal, see `segment-size`.",
        help="Size of a page file.")
    page_limit_bytes: int = setting(POSITIVE_BYTES_OR_OFF, -1, ARRIVAL,
        help="Octets that an address pages, beyond its size, until `page-full-policy` applies; -1 is none.")
    page_limit_messages: int = setting(LIMIT_NOT_ZERO, -1, ARRIVAL,
        help="Messages that an address pages, beyond its size, until `page-full-policy` applies; -1 is none.")
    page_full_policy: str = setting(one_of_any_case("DROP", "FAIL"), "", ARRIVAL, bean="pageFullMessagePolicy",
        help="What an address does with messages beyond these limits: `DROP` or `FAIL`; unset accepts them.")
    # Artemis: BLOCK; if unset, it depends on the publisher
    disk_full_policy: str = setting(one_of_any_case("DROP", "FAIL", "BLOCK"), "", ARRIVAL, bean="diskFullMessagePolicy",
        help="What an address does when the disk is full: `DROP`, `FAIL` or `BLOCK`; unset: by the publisher.")
    max_read_page_messages: int = meaningless(LIMIT_NOT_ZERO, -1, READ_AHEAD,
        help="Messages read back from disk that may be in memory, for each queue.")
    max_read_page_bytes: int = meaningless(POSITIVE_BYTES_OR_OFF, 20 * 1024**2, READ_AHEAD,
        default_text="2 x page-size-bytes",
        help="Octets read back from disk that may be in memory, for each queue.")
    prefetch_page_messages: int = meaningless(LIMIT_NOT_ZERO, -1, READ_AHEAD, default_text="max-read-page-messages",
        help="Messages read back from disk in advance.")
    prefetch_page_bytes: int = meaningless(POSITIVE_BYTES_OR_OFF, 20 * 1024**2, READ_AHEAD,
        default_text="max-read-page-bytes",
        help="Octets read back from disk in advance.")
    page_max_cache_size: int = meaningless(ANY_INT, 5, "Obsolete in Artemis as well.", bean="pageCacheMaxSize",
        help="Number of page files in memory.")
    # -- flow control
    memory_limit: int = flow_control(BYTES_OR_OFF, -1, zero_is_none=True, is_limit=True,
        help="Memory for messages of one queue; beyond it, messages leave memory or publishers wait (see `cursor`); -1 "
        "is no limit.")
    producer_flow_control: bool = flow_control(BOOLEAN, True,
        help="Whether publishers wait for memory; if not, messages beyond it go to the temporary store.")
    send_fail_if_no_space: bool = flow_control(BOOLEAN, False, default_text="that of [system-usage]",
        help="Whether a publish for which there is no space is refused at once instead of held.")
    send_fail_if_no_space_after_ms: int = flow_control(DELAY, 0, default_text="that of [system-usage]",
        help="How long such a publish is held before it is refused; 0 is for ever.")
    cursor: str = flow_control(one_of_any_case("store", "vm", "file"), "store",
        help="Which messages beyond a memory limit go to the journal or the temporary store: none (`vm`), or all "
        "(`store`, `file`).")
    cursor_memory_high_water_mark: int = of_topics(in_range(1, 100), 70,
        help="Percentage of the memory limit above which `store` and `file` keep no further messages in memory.")
    minimum_message_size: int = of_topics(BYTES, 1024, ARRIVAL, help="Octets that a message counts at least.")
    blocked_producer_warning_interval_ms: int = of_topics(DELAY, 30_000,
        help="Time between two warnings in the log that publishers wait; 0 is none.")
    pending_message_limit: int = of_topics(LIMIT, -1, is_limit=True,
        help="Messages that a transient subscriber's queue keeps beyond the prefetch; -1 keeps all.")
    pending_message_limit_prefetch_rate: float = of_topics(RATE_OR_OFF, -1.0, default_text="unset", is_limit=True,
        help="The same as a multiple of the prefetch, where `pending-message-limit` is not set.")
    message_eviction: str = of_topics(one_of_any_case("oldest", "lowest-priority", "unique-property"), "oldest",
        help="Which message is dropped at that limit: the `oldest`, that of `lowest-priority`, or one whose "
        "`unique-property` came again.")
    message_eviction_property: str = of_topics(TEXT, "", help="Header whose values `unique-property` compares.")
    abort_slow_consumer_after_ms: int = of_topics(DELAY_OR_OFF, -1, zero_is_none=True, is_limit=True,
        help="How long messages may wait for a consumer that takes none, before it is cancelled; -1 or 0 is off.")
    abort_slow_consumer_count: int = of_topics(LIMIT, -1, zero_is_none=True, is_limit=True,
        help="At how many checks in a row a consumer may be slow before it is cancelled; -1 or 0 is off.")
    abort_slow_consumer_check_period_ms: int = of_topics(PERIOD, 30_000,
        help="Time between two checks for slow consumers of either kind.")
    abort_slow_consumer_connection: bool = of_topics(BOOLEAN, False,
        help="Whether the connection of a slow consumer is closed; otherwise only the consumer is cancelled.")
    abort_slow_ack_after_ms: int = of_topics(DELAY_OR_OFF, -1, zero_is_none=True, is_limit=True,
        help="How long a consumer may acknowledge nothing before it is cancelled; -1 or 0 is off.")
    abort_slow_ack_ignores_idle: bool = of_topics(BOOLEAN, True,
        help="Whether consumers that have nothing to acknowledge are spared.")
    # -- queue defaults, copied at creation
    default_ring_size: int = setting(LIMIT_NOT_ZERO, -1, AT_CREATION,
        help="Newest messages that a queue keeps, the oldest being dropped; -1 makes it no ring.")
    default_last_value_queue: bool = setting(BOOLEAN, False, AT_CREATION,
        help="Whether a queue keeps only the newest message for each `_AMQ_LVQ_NAME`.")
    default_last_value_key: str = setting(TEXT, "", AT_CREATION,
        help="Header; for each of its values a queue keeps only the newest message.")
    default_non_destructive: bool = setting(BOOLEAN, False, AT_CREATION,
        help="Whether acknowledged messages stay, so that every consumer gets all of them.")
    default_exclusive_queue: bool = setting(BOOLEAN, False, AT_CREATION,
        help="Whether one consumer at a time gets messages while the others stand by.")
    default_group_rebalance: bool = setting(BOOLEAN, False, AT_CREATION,
        help="Whether message groups are assigned again when a consumer joins.")
    default_group_rebalance_pause_dispatch: bool = setting(BOOLEAN, False, AT_CREATION,
        help="Whether groups are assigned again only when all deliveries are settled.")
    default_group_buckets: int = setting(LIMIT, -1, AT_CREATION,
        help="Number of buckets that group ids are hashed into; -1 tracks each id, 0 disables groups.")
    default_group_first_key: str = setting(TEXT, "", AT_CREATION,
        help="Header that marks the first message of a group for its consumer.")
    default_max_consumers: int = setting(LIMIT, -1, AT_CREATION, help="Consumers that a queue accepts; -1 is no limit.")
    default_purge_on_no_consumers: bool = setting(BOOLEAN, False, AT_CREATION,
        help="Whether a queue accepts and stores messages only while it has consumers.")
    default_consumers_before_dispatch: int = setting(COUNT_INT, 0, AT_CREATION,
        help="Number of consumers that a queue needs before it begins to deliver.")
    default_delay_before_dispatch_ms: int = setting(DELAY_OR_OFF, -1, AT_CREATION,
        help="Wait after which a queue delivers with fewer consumers; -1 waits without end.")
    default_queue_routing_type: str = meaningless(ROUTING_TYPE, "MULTICAST", CLIENTS_ROUTE,
        help="Routing type of auto-created queues where the client names none.")
    default_address_routing_type: str = meaningless(ROUTING_TYPE, "MULTICAST", CLIENTS_ROUTE,
        help="Routing type of auto-created addresses where the client names none.")
    default_consumer_window_size: int = meaningless(LIMIT, 1024**2, "Clients say what they prefetch (`basic.qos`).",
        help="Octets that Artemis' own clients prefetch.")
    initial_queue_buffer_size: int = meaningless(ANY_INT, 8192, "A queue grows as it needs to.",
        help="Size of the buffer that a queue begins with.")
    # -- automatic creation and deletion
    # Artemis: true; AMQP clients expect 404 (address-settings page 3.5)
    auto_create_queues: bool = setting(BOOLEAN, False,
        help="Whether publishing to or consuming from a queue that is missing creates it.")
    auto_create_addresses: bool = meaningless(BOOLEAN, True, NO_ADDRESSES,
        help="Whether addresses are created in the same way.")
    auto_delete_queues: bool = setting(BOOLEAN, True,
        help="Whether auto-created queues are deleted when they are unused.")
    auto_delete_created_queues: bool = setting(BOOLEAN, False,
        help="Whether queues that clients declared are deleted when they are unused.")
    auto_delete_queues_delay_ms: int = setting(DELAY, 0,
        help="How long an auto-created queue must be unused before it is deleted.")
    auto_delete_queues_message_count: int = setting(LIMIT, 0,
        help="Messages an auto-created queue may still hold when it is deleted; -1 is any.")
    auto_delete_queues_skip_usage_check: bool = setting(BOOLEAN, False,
        help="Whether auto-created queues that were never used are deleted as well.")
    auto_delete_addresses: bool = meaningless(BOOLEAN, True, NO_ADDRESSES,
        help="Whether auto-created addresses are deleted when they are unused.")
    auto_delete_addresses_delay_ms: int = meaningless(DELAY, 0, NO_ADDRESSES,
        help="How long an auto-created address must be unused before it is deleted.")
    auto_delete_addresses_skip_usage_check: bool = meaningless(BOOLEAN, False, NO_ADDRESSES,
        help="Whether never used auto-created addresses are deleted as well.")
    config_delete_queues: str = setting(DELETION, "OFF",
        help="Whether a queue removed from the configuration is deleted: `OFF` or `FORCE`.")
    config_delete_addresses: str = setting(DELETION, "OFF",
        help="Whether an address removed from the configuration is deleted: `OFF` or `FORCE`.")
    config_delete_diverts: str = setting(DELETION, "OFF",
        help="Whether a divert removed from the configuration is deleted: `OFF` or `FORCE`.")
    auto_create_jms_queues: bool = meaningless(BOOLEAN, True, "Obsolete in Artemis as well: set `auto-create-queues`.",
        help="Older name of `auto-create-queues`.")
    auto_create_jms_topics: bool = meaningless(BOOLEAN, True, NO_ADDRESSES,
        help="Older name of `auto-create-addresses`.")
    auto_delete_jms_queues: bool = meaningless(BOOLEAN, True, "Obsolete in Artemis as well: set `auto-delete-queues`.",
        help="Older name of `auto-delete-queues`.")
    auto_delete_jms_topics: bool = meaningless(BOOLEAN, True, NO_ADDRESSES,
        help="Older name of `auto-delete-addresses`.")
    # -- consumers, cluster, management
    slow_consumer_threshold: int = of_topics(LIMIT_NOT_ZERO, -1,
        help="Rate of acknowledgements below which a consumer is slow, if its queue gets more; -1 is off.")
    slow_consumer_threshold_measurement_unit: str = of_topics(
        one_of_any_case("MESSAGES_PER_SECOND", "MESSAGES_PER_MINUTE", "MESSAGES_PER_HOUR", "MESSAGES_PER_DAY"),
        "MESSAGES_PER_SECOND",
        help="Unit of that rate.")
    slow_consumer_policy: str = of_topics(one_of_any_case("KILL", "NOTIFY"), "NOTIFY",
        help="What happens to a slow consumer: `KILL` closes its connection, `NOTIFY` reports it.")
    slow_consumer_check_period_s: int = of_topics(in_range(1, LONG_MAX), 5,
        help="Seconds between two checks for slow consumers.")
    redistribution_delay_ms: int = meaningless(DELAY_OR_OFF, -1, "One node has all consumers of a queue.",
        help="Wait before a cluster moves messages to a node that has consumers.")
    message_counter_history_day_limit: int = meaningless(COUNT_INT, 0,
        "The journal is the history, see `[journal] retain`.",
        help="Days of counters that are kept.")
    management_browse_page_size: int = setting(LIMIT, 200,
        help="Messages that one browse by management shows; at most 500, also for -1.")
    management_message_attribute_size_limit: int = setting(LIMIT, 256,
        help="Characters of a property that a browse shows; -1 is all.")
    retroactive_message_count: int = setting(COUNT, 0, ARRIVAL,
        help="Newest messages of an address that a queue created later gets; 0 is off.")
    enable_metrics: bool = setting(BOOLEAN, True,
        help="Whether metrics list the queues of the address one by one; totals count all queues.")
    enable_ingress_timestamp: bool = setting(BOOLEAN, False, ARRIVAL,
        help="Whether messages get the header `_AMQ_INGRESS_TIMESTAMP` (ms) when they arrive.")
    id_cache_size: int = setting(COUNT_INT, 20_000, ARRIVAL, bean="IDCacheSize",
        help="Number of ids that duplicate detection remembers for an address; 0 is off.")
    queue_prefetch: int = meaningless(COUNT_INT, 1000, "Clients say what they prefetch (`basic.qos`).",
        help="Prefetch of ActiveMQ 5 clients.")
    #: No row: whether flow control (queues page E) applies to publishes to the address, see `why_flow_controlled`.
    is_flow_controlled: bool = False
# fmt: on


def bean_name(key: str) -> str:
    """`redelivery-delay` -> `redeliveryDelay`."""
    return re.sub(r"-(.)", lambda match: match[1].upper(), key)


def _setting_of(columns: dict[str, Any]) -> Setting:
    """`bean`: a second name in broker-properties."""
    bean = columns.pop("bean", "")
    return Setting(beans=(bean_name(columns["key"]), *([bean] if bean else ())), **columns)


SETTINGS: tuple[Setting, ...] = tuple(map(_setting_of, columns_of(ResolvedSettings)))
BY_KEY: dict[str, Setting] = {one.key: one for one in SETTINGS}
BY_ATTRIBUTE: dict[str, Setting] = {one.attribute: one for one in SETTINGS}
BY_BEAN: dict[str, Setting] = {bean: one for one in SETTINGS for bean in one.beans}
DEFAULTS = ResolvedSettings()

#: Keys of older systems -> our keys.
OLD_NAMES = {"last-value-queue": "default-last-value-queue"}

_ZERO_IS_NONE = tuple(one.attribute for one in SETTINGS if one.zero_is_none)
_FLOW_CONTROL = tuple(one.attribute for one in SETTINGS if one.starts_flow_control)

# -- layers -----------------------------------------------------------------------------------------------------------

#: The settings of one entry, policy or declaration: attribute -> value.
Layer = Mapping[str, Any]

NOTHING_SET: Layer = MappingProxyType({})


def layer_of(**values: Any) -> Layer:
    """A layer that sets these attributes. Raises: TypeError for an unknown attribute."""
    if unknown := values.keys() - BY_ATTRIBUTE.keys():
        raise TypeError(f"no address settings: {', '.join(sorted(unknown))}")
    return MappingProxyType(values) if values else NOTHING_SET


def merge(nearest_first: Iterable[Layer]) -> Layer:
    """All layers in one: each attribute from the nearest layer that sets it (address-settings page 2.4)."""
    merged: dict[str, Any] = {}
    for one in nearest_first:
        merged = {**one, **merged}
    return MappingProxyType(merged)


def with_fewer_attempts(near: Layer, wide: Layer) -> Layer:
    """`near` over `wide`; if both limit the attempts, the smaller limit applies."""
    limits = [one["max_delivery_attempts"] for one in (near, wide) if "max_delivery_attempts" in one]
    if len(limits) < 2:
        return merge((near, wide))
    return merge(({"max_delivery_attempts": min((one for one in limits if one > 0), default=UNLIMITED)}, near, wide))


# -- resolution -------------------------------------------------------------------------------------------------------


def sets_redelivery(layer: Layer) -> bool:
    """Whether a redelivery or dead-letter setting is set."""
    return any(BY_ATTRIBUTE[attribute].is_redelivery for attribute in layer)


def default_attempts(entries: Layer, broker_default: int | None) -> int:
    """The max-delivery-attempts of a queue that has none configured.

    Args: entries: the merged entries that match, without the queue's own arguments.
          broker_default: `default-max-delivery-attempts`, 0 or below for no limit; None if it is not configured.
    """
    if broker_default is not None:
        return broker_default
    return ARTEMIS_ATTEMPTS if sets_redelivery(entries) else UNLIMITED


def resolve(
    merged: Layer, *, attempts: int = UNLIMITED, id_cache_size: int | None = None, usage: SystemUsage | None = None
) -> ResolvedSettings:
    """Give every setting a value.

    Args: merged: all layers in one, including the queue's own.
          attempts: the default, of `default_attempts`.
          id_cache_size: the broker's, for addresses that do not set it.
          usage: [system-usage]; None if it is not configured.
    """
    values: dict[str, Any] = {"max_delivery_attempts": attempts, **merged}
    if id_cache_size is not None:
        values.setdefault("id_cache_size", id_cache_size)
    if values["max_delivery_attempts"] <= 0:
        values["max_delivery_attempts"] = UNLIMITED
    for attribute, derived in derived_defaults(merged).items():
        values.setdefault(attribute, derived)
    if usage is not None:
        values.setdefault("send_fail_if_no_space", usage.send_fail_if_no_space)
        values.setdefault("send_fail_if_no_space_after_ms", usage.send_fail_if_no_space_after_ms)
    for attribute in _ZERO_IS_NONE:
        if values.get(attribute) == 0:
            values[attribute] = UNLIMITED
    if "pending_message_limit" in merged:
        values.pop("pending_message_limit_prefetch_rate", None)
    return ResolvedSettings(**values, is_flow_controlled=usage is not None or bool(why_flow_controlled(merged)))


def why_flow_controlled(merged: Layer) -> list[str]:
    """The attributes that put an address under flow control; a [system-usage] does it for every address."""
    why = [attribute for attribute in _FLOW_CONTROL if attribute in merged]
    return [*why, "address_full_policy"] if merged.get("address_full_policy") == "BLOCK" else why


def derived_defaults(merged: Layer) -> dict[str, int]:
    """Defaults that follow from other settings; computed after merging, never before."""
    read_messages = merged.get("max_read_page_messages", DEFAULTS.max_read_page_messages)
    read_bytes = merged.get("max_read_page_bytes", 2 * merged.get("page_size_bytes", DEFAULTS.page_size_bytes))
    return {
        "max_redelivery_delay_ms": min(10 * merged.get("redelivery_delay_ms", 0), LONG_MAX),
        "max_read_page_bytes": read_bytes,
        "prefetch_page_messages": read_messages,
        "prefetch_page_bytes": read_bytes,
    }
