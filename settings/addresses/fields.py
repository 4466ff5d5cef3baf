"""The table of address-setting fields: name in files, how it is read, whether it is supported, when it takes effect.

Source: address-settings page 3, 3.8, 6.2, 6.3; queues page E.1.
"""

import re
from dataclasses import dataclass
from typing import Any

from ..lifetime import ARRIVAL, AT_CREATION, LIVE, NOT_YET, WITHOUT_MEANING, Lifetime
from ..values import (
    INT_MAX,
    LONG_MAX,
    Kind,
    address_text,
    boolean,
    duration_ms,
    duration_or_off_ms,
    integer,
    number,
    parse_boolean,
    parse_integer,
    parse_number,
    period_ms,
    rate_or_off,
    size_between,
    text,
    word_any_case,
)
from .resolved import DEFAULTS


@dataclass(slots=True, frozen=True)
class Field:
    """One row: `name` in XML and TOML, `beans` in broker-properties.

    `reason`: why it is accepted without meaning here; empty: it has a meaning, in this version or in a later one.
    """

    name: str
    attribute: str
    kind: Kind
    is_supported: bool = True
    lifetime: Lifetime = LIVE
    beans: tuple[str, ...] = ()
    reason: str = ""

    @property
    def acts(self) -> Lifetime:
        """When a changed value takes effect."""
        if self.reason:
            return WITHOUT_MEANING
        return self.lifetime if self.is_supported else NOT_YET

    @property
    def default(self) -> Any:
        """The value when nothing is configured."""
        return getattr(DEFAULTS, self.attribute)


BOOLEAN = Kind(boolean, parse_boolean)
TEXT = Kind(text)
ADDRESS = Kind(address_text)
DELAY = Kind(duration_ms, parse_integer)
DELAY_OR_OFF = Kind(duration_or_off_ms, parse_integer)
PERIOD = Kind(period_ms, parse_integer)
LIMIT = Kind(integer(-1, LONG_MAX), parse_integer)  # -1: none
LIMIT_NOT_ZERO = Kind(integer(-1, LONG_MAX, except_zero=True), parse_integer)
COUNT = Kind(integer(0, LONG_MAX), parse_integer)
COUNT_INT = Kind(integer(0, INT_MAX), parse_integer)
ANY_INT = Kind(integer(-LONG_MAX - 1, LONG_MAX), parse_integer)
BYTES = Kind(size_between(0), parse_integer)
BYTES_OR_OFF = Kind(size_between(0, or_off=True), parse_integer)
BYTES_NOT_ZERO = Kind(size_between(1, or_off=True), parse_integer)
PAGE_SIZE = Kind(size_between(1, INT_MAX), parse_integer)
MULTIPLIER = Kind(number(0, float("inf"), above_low=True), parse_number)
RATE_OR_OFF = Kind(rate_or_off, parse_number)
FACTOR = Kind(number(0, 1), parse_number)
ATTEMPTS = Kind(integer(-1, INT_MAX), parse_integer)
ROUTING_TYPE = Kind(word_any_case("ANYCAST", "MULTICAST"))
DELETION = Kind(word_any_case("OFF", "FORCE"))


def _words(*words: str) -> Kind:
    return Kind(word_any_case(*words))


def _accepted(name: str, kind: Kind, *beans: str, attribute: str = "", lifetime: Lifetime = LIVE) -> Field:
    return Field(name, attribute or name.replace("-", "_"), kind, False, lifetime, beans)


def _without_meaning(name: str, kind: Kind, reason: str, *beans: str, attribute: str = "") -> Field:
    return Field(name, attribute or name.replace("-", "_"), kind, False, WITHOUT_MEANING, beans, reason)


def _live(name: str, kind: Kind, *beans: str, attribute: str = "") -> Field:
    return Field(name, attribute or name.replace("-", "_"), kind, True, LIVE, beans)


def _arrival(name: str, kind: Kind, *beans: str, attribute: str = "") -> Field:
    return Field(name, attribute or name.replace("-", "_"), kind, True, ARRIVAL, beans)


def _creation(name: str, kind: Kind, *beans: str, attribute: str = "") -> Field:
    return Field(name, attribute or name.replace("-", "_"), kind, True, AT_CREATION, beans)


#: Why nobody sets how far ahead messages are read back.
READ_AHEAD = "Read ahead is what the consumers' credit and the memory (`[limits] memory`) allow."

#: Why nobody sets how what is auto-created routes.
CLIENTS_ROUTE = "An AMQP client always names an exchange of a type, or a queue."

#: Why addresses have no life of their own.
NO_ADDRESSES = "An address is what its queues and exchanges make it; alone it is nothing that could be created."

FIELDS: tuple[Field, ...] = (
    # 3.1 redelivery and dead letters
    _live("max-delivery-attempts", ATTEMPTS),
    _live("redelivery-delay", DELAY, attribute="redelivery_delay_ms"),
    _live("redelivery-delay-multiplier", MULTIPLIER, "redeliveryMultiplier"),
    _live("redelivery-collision-avoidance-factor", FACTOR),
    _live("max-redelivery-delay", DELAY, attribute="max_redelivery_delay_ms"),
    _live("dead-letter-address", ADDRESS),
    _live("auto-create-dead-letter-resources", BOOLEAN),
    _live("dead-letter-queue-prefix", TEXT),
    _live("dead-letter-queue-suffix", TEXT),
    _arrival("send-to-dla-on-no-route", BOOLEAN, "sendToDLAOnNoRoute"),
    # 3.2 expiry
    _arrival("no-expiry", BOOLEAN),
    _arrival("expiry-delay", DELAY_OR_OFF, attribute="expiry_delay_ms"),
    _arrival("min-expiry-delay", DELAY_OR_OFF, attribute="min_expiry_delay_ms"),
    _arrival("max-expiry-delay", DELAY_OR_OFF, attribute="max_expiry_delay_ms"),
    _live("expiry-address", ADDRESS),
    _live("auto-create-expiry-resources", BOOLEAN),
    _live("expiry-queue-prefix", TEXT),
    _live("expiry-queue-suffix", TEXT),
    # 3.3 size limits and paging
    _arrival("max-size-bytes", BYTES_OR_OFF),
    _arrival("max-size-messages", LIMIT),
    _arrival("address-full-policy", _words("PAGE", "DROP", "FAIL", "BLOCK"), "addressFullMessagePolicy"),
    _arrival("max-size-bytes-reject-threshold", BYTES_OR_OFF),
    _without_meaning("page-size-bytes", PAGE_SIZE, "What is paged out is in the journal, see `segment-size`."),
    _arrival("page-limit-bytes", BYTES_NOT_ZERO),
    _arrival("page-limit-messages", LIMIT_NOT_ZERO),
    _arrival("page-full-policy", _words("DROP", "FAIL"), "pageFullMessagePolicy"),
    _arrival("disk-full-policy", _words("DROP", "FAIL", "BLOCK"), "diskFullMessagePolicy"),
    _without_meaning("max-read-page-messages", LIMIT_NOT_ZERO, READ_AHEAD),
    _without_meaning("max-read-page-bytes", BYTES_NOT_ZERO, READ_AHEAD),
    _without_meaning("prefetch-page-messages", LIMIT_NOT_ZERO, READ_AHEAD),
    _without_meaning("prefetch-page-bytes", BYTES_NOT_ZERO, READ_AHEAD),
    _without_meaning("page-max-cache-size", ANY_INT, "Obsolete in Artemis as well.", "pageCacheMaxSize"),
    # flow control as in ActiveMQ 5 (queues page E.1)
    _live("memory-limit", BYTES_OR_OFF),
    _live("producer-flow-control", BOOLEAN),
    _live("send-fail-if-no-space", BOOLEAN),
    _live("send-fail-if-no-space-after", DELAY, attribute="send_fail_if_no_space_after_ms"),
    _live("cursor", _words("store", "vm", "file")),
    _live("cursor-memory-high-water-mark", Kind(integer(1, 100), parse_integer)),
    _arrival("minimum-message-size", BYTES),
    _live("blocked-producer-warning-interval", DELAY, attribute="blocked_producer_warning_interval_ms"),
    _live("pending-message-limit", LIMIT),
    _live("pending-message-limit-prefetch-rate", RATE_OR_OFF),
    _live("message-eviction", _words("oldest", "lowest-priority", "unique-property")),
    _live("message-eviction-property", TEXT),
    _live("abort-slow-consumer-after", DELAY_OR_OFF, attribute="abort_slow_consumer_after_ms"),
    _live("abort-slow-consumer-count", LIMIT),
    _live("abort-slow-consumer-check-period", PERIOD, attribute="abort_slow_consumer_check_period_ms"),
    _live("abort-slow-consumer-connection", BOOLEAN),
    _live("abort-slow-ack-after", DELAY_OR_OFF, attribute="abort_slow_ack_after_ms"),
    _live("abort-slow-ack-ignores-idle", BOOLEAN),
    # 3.4 queue defaults
    _creation("default-ring-size", LIMIT_NOT_ZERO),
    _creation("default-last-value-queue", BOOLEAN),
    _creation("default-last-value-key", TEXT),
    _creation("default-non-destructive", BOOLEAN),
    _creation("default-exclusive-queue", BOOLEAN),
    _creation("default-group-rebalance", BOOLEAN),
    _creation("default-group-rebalance-pause-dispatch", BOOLEAN),
    _creation("default-group-buckets", LIMIT),
    _creation("default-group-first-key", TEXT),
    _creation("default-max-consumers", LIMIT),
    _creation("default-purge-on-no-consumers", BOOLEAN),
    _creation("default-consumers-before-dispatch", COUNT_INT),
    _creation("default-delay-before-dispatch", DELAY_OR_OFF, attribute="default_delay_before_dispatch_ms"),
    _without_meaning("default-queue-routing-type", ROUTING_TYPE, CLIENTS_ROUTE),
    _without_meaning("default-address-routing-type", ROUTING_TYPE, CLIENTS_ROUTE),
    _without_meaning("default-consumer-window-size", LIMIT, "Clients say what they prefetch (`basic.qos`)."),
    _without_meaning("initial-queue-buffer-size", ANY_INT, "A queue grows as it needs to."),
    # 3.5 automatic creation and deletion
    _live("auto-create-queues", BOOLEAN),
    _without_meaning("auto-create-addresses", BOOLEAN, NO_ADDRESSES),
    _live("auto-delete-queues", BOOLEAN),
    _live("auto-delete-created-queues", BOOLEAN),
    _live("auto-delete-queues-delay", DELAY, attribute="auto_delete_queues_delay_ms"),
    _live("auto-delete-queues-message-count", LIMIT),
    _live("auto-delete-queues-skip-usage-check", BOOLEAN),
    _without_meaning("auto-delete-addresses", BOOLEAN, NO_ADDRESSES),
    _without_meaning("auto-delete-addresses-delay", DELAY, NO_ADDRESSES, attribute="auto_delete_addresses_delay_ms"),
    _without_meaning("auto-delete-addresses-skip-usage-check", BOOLEAN, NO_ADDRESSES),
    _live("config-delete-queues", DELETION),
    _live("config-delete-addresses", DELETION),
    _live("config-delete-diverts", DELETION),
    _without_meaning("auto-create-jms-queues", BOOLEAN, "Obsolete in Artemis as well: set `auto-create-queues`."),
    _without_meaning("auto-create-jms-topics", BOOLEAN, NO_ADDRESSES),
    _without_meaning("auto-delete-jms-queues", BOOLEAN, "Obsolete in Artemis as well: set `auto-delete-queues`."),
    _without_meaning("auto-delete-jms-topics", BOOLEAN, NO_ADDRESSES),
    # 3.6 consumers, cluster, management
    _live("slow-consumer-threshold", LIMIT_NOT_ZERO),
    _live(
        "slow-consumer-threshold-measurement-unit",
        _words("MESSAGES_PER_SECOND", "MESSAGES_PER_MINUTE", "MESSAGES_PER_HOUR", "MESSAGES_PER_DAY"),
    ),
    _live("slow-consumer-policy", _words("KILL", "NOTIFY")),
    _live(
        "slow-consumer-check-period",
        Kind(integer(1, LONG_MAX), parse_integer),
        attribute="slow_consumer_check_period_s",
    ),
    _without_meaning(
        "redistribution-delay",
        DELAY_OR_OFF,
        "One node has all consumers of a queue.",
        attribute="redistribution_delay_ms",
    ),
    _without_meaning(
        "message-counter-history-day-limit", COUNT_INT, "The journal is the history, see `[journal] retain`."
    ),
    _accepted("management-browse-page-size", LIMIT),
    _accepted("management-message-attribute-size-limit", LIMIT),
    _arrival("retroactive-message-count", COUNT),
    _accepted("enable-metrics", BOOLEAN),
    _arrival("enable-ingress-timestamp", BOOLEAN),
    _arrival("id-cache-size", COUNT_INT, "IDCacheSize"),
    _without_meaning("queue-prefetch", COUNT_INT, "Clients say what they prefetch (`basic.qos`)."),
)

BY_NAME: dict[str, Field] = {field.name: field for field in FIELDS}
BY_ATTRIBUTE: dict[str, Field] = {field.attribute: field for field in FIELDS}

#: Names in older systems -> ours.
OLD_NAMES = {"last-value-queue": "default-last-value-queue"}


def bean_name(name: str) -> str:
    """`redelivery-delay` -> `redeliveryDelay`."""
    return re.sub(r"-(.)", lambda match: match[1].upper(), name)


BY_BEAN: dict[str, Field] = {
    bean: field for field in FIELDS for bean in (bean_name(field.name), *field.beans)
}  # fmt: skip
