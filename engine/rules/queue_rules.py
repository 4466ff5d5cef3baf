"""The rules of a queue: its limits, times and dead-letter targets, resolved from arguments and settings.

Queues without rules share `NO_RULES`, by which the hot path skips them.
Source: behaviour page 3.1 to 3.5; address-settings page 3, 4, 6.6.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from ...settings import Layer, PolicyLayer, ResolvedSettings, settings_of_arguments
from ...settings.frozen import frozen
from ...settings.queue_types import ADDED_TYPES
from ...settings.rows.address_settings import NOTHING_SET
from ...settings.rows.queue_attributes import SELECTOR
from ..messages.dead_letter import EXPIRED, MAXLEN
from ..messages.field_table import Field, FieldTable, number_of, text_of
from ..messages.levels import OF_QUORUM, Levels, up_to
from .arguments import QUORUM, plain_arguments, queue_type_of
from .expiry_policy import NO_EXPIRY_POLICY, ExpiryPolicy, expiry_policy
from .limits import (
    NO_SIZE_RULES,
    FlowRules,
    PendingRules,
    SizeRules,
    flow_rules,
    from_one,
    from_zero,
    pending_rules,
    size_rules,
)
from .slow_rules import SlowRules, slow_rules

if TYPE_CHECKING:
    from ...expressions.language import Expression

DROP_HEAD, REJECT_PUBLISH_DLX = "drop-head", "reject-publish-dlx"
#: Which requeued messages RabbitMQ's delayed retry delays: (failed attempts, others).
RETRY_TYPES = {"disabled": (False, False), "failed": (True, False), "returned": (False, True), "all": (True, True)}
RING = "x-ring-size"
LAST_VALUE_KEY_DEFAULT = "_AMQ_LVQ_NAME"


@frozen
class AutoCreatedQueue:
    """A dead-letter or expiry queue that is created for an address: PREFIX + address + SUFFIX.

    Source: address-settings page 5.5.
    """

    prefix: str
    suffix: str

    def name_for(self, address: str) -> str:
        """The queue's name."""
        return f"{self.prefix}{address}{self.suffix}"


@frozen
class DelayedRetry:
    """RabbitMQ 4.3's x-delayed-retry-*: the delay grows by `min_ms` with each attempt, up to `max_ms`."""

    delays_failed: bool
    delays_returned: bool
    min_ms: int
    max_ms: int | None
    multiplier: float | None = None  # of LavinMQ: the factor by which the delay grows; None: it grows linearly


@frozen
class QueueRules:
    """The rules of one queue. None: no such rule."""

    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = DROP_HEAD
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    levels: Levels | None = None
    ring_size: int | None = None
    redelivery_delay_ms: int = 0
    redelivery_delay_multiplier: float = 1.0
    redelivery_collision_avoidance_factor: float = 0.0
    max_redelivery_delay_ms: int | None = None  # None: ten times the delay
    max_delivery_attempts: int | None = None  # total of deliveries; None: unlimited
    dead_letter_address: str | None = None
    dead_letter_resources: AutoCreatedQueue | None = None
    makes_missing_queues: bool = False  # where nothing is bound to the dead-letter or expiry address
    expiry_address: str | None = None
    expiry_resources: AutoCreatedQueue | None = None
    expiry: ExpiryPolicy = NO_EXPIRY_POLICY
    size: SizeRules = NO_SIZE_RULES
    flow: FlowRules | None = None
    pending: PendingRules | None = None  # for queues of transient subscribers
    slow: SlowRules = ()
    delayed_retry: DelayedRetry | None = None
    last_value_key: str | None = None  # name of a header
    non_destructive: bool = False
    single_active_consumer: bool = False
    active_consumer_yields: bool = False  # to one of higher priority, once its deliveries are settled
    max_consumers: int | None = None
    purge_on_no_consumers: bool = False
    consumers_before_dispatch: int = 0
    delay_before_dispatch_ms: int | None = None  # None: no limit to the wait for consumers
    group_buckets: int = -1  # -1: one bucket for each group; 0: no groups; else number of buckets
    group_rebalance: bool = False
    group_rebalance_pause_dispatch: bool = False
    group_first_key: str | None = None
    is_quorum: bool = False
    default_delivery_attempts: int | None = None  # for quorum queues without a limit in arguments or settings
    filter: "Expression | None" = None  # other messages are not routed to the queue
    extra: object = None  # rules of its kind alone (`Kind.make_rules`)

    @property
    def counts_deliveries(self) -> bool:
        """Whether deliveries have the number of failed attempts (x-delivery-count; ruling 14)."""
        return (
            self.is_quorum
            or self.redelivery_delay_ms > 0
            or self.max_delivery_attempts is not None
            or self.delayed_retry is not None
        )

    @property
    def concerns_messages(self) -> bool:
        """Whether a rule that is not a limit applies to new messages."""
        return (
            self.message_ttl_ms is not None
            or self.levels is not None
            or self.expiry is not NO_EXPIRY_POLICY
            or self.last_value_key is not None
            or self.non_destructive
        )

    @property
    def has_limit(self) -> bool:
        """Whether the number or size of ready messages is limited."""
        return self.max_length is not None or self.max_length_bytes is not None

    def dead_letter_target(self, reason: str) -> str | None:
        """The exchange or address for messages that die of `reason`; None: they are not dead-lettered.

        A dead-letter exchange has precedence over addresses.
        """
        if self.dead_letter_exchange is not None:
            return self.dead_letter_exchange
        if reason == EXPIRED:
            return self.expiry_address
        return None if reason == MAXLEN else self.dead_letter_address

    def resources_of(self, reason: str) -> AutoCreatedQueue | None:
        """The queue that is created for messages that die of `reason`; None: no queue is created."""
        return self.expiry_resources if reason == EXPIRED else self.dead_letter_resources


#: The rules of a queue without rules.
NO_RULES = QueueRules()


def own_settings(arguments: FieldTable) -> Layer:
    """The arguments of a queue that are address settings.

    Raises: ArgumentFault for a value out of range, or for two arguments that contradict each other.
    """
    if not arguments:
        return NOTHING_SET
    plain = plain_arguments(arguments)
    added = ADDED_TYPES.get(queue_type_of(arguments))
    if added is not None:  # these are not settings, though other types have some of them
        plain = {key: value for key, value in plain.items() if key not in added.rows}
    return settings_of_arguments(plain).settings


def effective_arguments(declared: FieldTable, layer: PolicyLayer) -> FieldTable:
    """The declared arguments, with those that the policy adds or replaces."""
    if not layer.arguments:
        return declared
    return {**declared, **{key: _field(value) for key, value in layer.arguments.items()}}


def _field(value: object) -> Field:
    if isinstance(value, str):
        return Field("S", value.encode())
    if isinstance(value, float):
        return Field("d", value)
    assert isinstance(value, int)
    return Field("t" if isinstance(value, bool) else "l", value)


def rules_of(
    arguments: FieldTable,
    settings: ResolvedSettings,
    quorum_delivery_limit: int | None = None,
    quorum_priorities: int = 0,
) -> QueueRules:
    """The rules of a new queue; the object `NO_RULES` if there are none.

    `arguments`: the effective ones, checked. `settings`: those of the address, overridden by the arguments.
    `quorum_delivery_limit`: for quorum queues without a limit; N means N + 1 deliveries. `quorum_priorities`: the
    number of levels of quorum queues (`BrokerOptions`); with levels a single active consumer yields to higher
    priorities.
    """
    if not arguments:
        return _rules_of_settings(settings)
    rules = _new_rules(arguments, settings, quorum_delivery_limit)
    if quorum_priorities and queue_type_of(arguments) == QUORUM:
        yields = rules.single_active_consumer
        return replace(rules, levels=OF_QUORUM[quorum_priorities], active_consumer_yields=yields)
    return rules


#: The rules of queues without arguments, by the id of their settings, which the value keeps alive. To compare settings
#: takes 3 us, because they have 50 fields; most queues share one settings object.
_KNOWN: dict[int, tuple[ResolvedSettings, QueueRules]] = {}
_KNOWN_MAX = 256


def _rules_of_settings(settings: ResolvedSettings) -> QueueRules:
    """The rules of a queue without arguments. Cached, because most queues have none."""
    known = _KNOWN.get(id(settings))
    if known is None:
        if len(_KNOWN) >= _KNOWN_MAX:
            _KNOWN.clear()
        known = _KNOWN[id(settings)] = (settings, _new_rules({}, settings, None))
    return known[1]


def _new_rules(arguments: FieldTable, settings: ResolvedSettings, quorum_delivery_limit: int | None) -> QueueRules:
    last_value_key = settings.default_last_value_key or None
    if last_value_key is None and settings.default_last_value_queue:
        last_value_key = LAST_VALUE_KEY_DEFAULT
    max_priority = _integer(arguments.get("x-max-priority"))
    rules = QueueRules(
        levels=up_to(max_priority) if max_priority else None,
        ring_size=from_one(settings.default_ring_size),
        last_value_key=last_value_key,
        non_destructive=settings.default_non_destructive,
        single_active_consumer=settings.default_exclusive_queue,
        max_consumers=from_zero(settings.default_max_consumers),
        purge_on_no_consumers=settings.default_purge_on_no_consumers,
        consumers_before_dispatch=settings.default_consumers_before_dispatch,
        delay_before_dispatch_ms=from_zero(settings.default_delay_before_dispatch_ms),
        group_buckets=settings.default_group_buckets,
        group_rebalance=settings.default_group_rebalance,
        group_rebalance_pause_dispatch=settings.default_group_rebalance_pause_dispatch,
        group_first_key=settings.default_group_first_key or None,
    )
    return changed_rules(rules, arguments, settings, quorum_delivery_limit)


def changed_rules(
    rules: QueueRules, arguments: FieldTable, settings: ResolvedSettings, quorum_delivery_limit: int | None
) -> QueueRules:
    """The rules of an existing queue after a change of its effective arguments or settings."""
    return with_live(_with_arguments(rules, arguments, quorum_delivery_limit), settings)


def _with_arguments(rules: QueueRules, arguments: FieldTable, quorum_delivery_limit: int | None) -> QueueRules:
    """The rules, updated with the arguments that policies may change in existing queues."""
    is_quorum = queue_type_of(arguments) == QUORUM
    overflow = text_of(arguments, "x-overflow") or DROP_HEAD
    if is_quorum and overflow == REJECT_PUBLISH_DLX:
        overflow = DROP_HEAD  # as in RabbitMQ
    default_attempts = None
    if is_quorum and quorum_delivery_limit is not None and "x-delivery-limit" not in arguments:
        default_attempts = quorum_delivery_limit + 1
    return replace(
        rules,
        message_ttl_ms=_integer(arguments.get("x-message-ttl")),
        expires_ms=_integer(arguments.get("x-expires")),
        max_length=_integer(arguments.get("x-max-length")),
        max_length_bytes=_integer(arguments.get("x-max-length-bytes")),
        overflow=overflow,
        is_quorum=is_quorum,
        default_delivery_attempts=default_attempts,
        dead_letter_exchange=text_of(arguments, "x-dead-letter-exchange"),
        dead_letter_routing_key=text_of(arguments, "x-dead-letter-routing-key"),
        delayed_retry=_delayed_retry(arguments),
        filter=_filter(arguments.get(SELECTOR)),
    )


def _integer(field: Field | None) -> int | None:
    return field.value if field is not None and isinstance(field.value, int) else None


def with_live(rules: QueueRules, settings: ResolvedSettings) -> QueueRules:
    """The rules, updated with the settings that also apply to existing queues (address-settings page 3.8)."""
    has_delay = settings.redelivery_delay_ms > 0
    live = replace(
        rules,
        redelivery_delay_ms=settings.redelivery_delay_ms if has_delay else 0,
        redelivery_delay_multiplier=settings.redelivery_delay_multiplier if has_delay else 1.0,
        redelivery_collision_avoidance_factor=settings.redelivery_collision_avoidance_factor if has_delay else 0.0,
        max_redelivery_delay_ms=settings.max_redelivery_delay_ms if has_delay else None,
        max_delivery_attempts=from_one(settings.max_delivery_attempts) or rules.default_delivery_attempts,
        dead_letter_address=settings.dead_letter_address or None,
        dead_letter_resources=(
            AutoCreatedQueue(settings.dead_letter_queue_prefix, settings.dead_letter_queue_suffix)
            if settings.auto_create_dead_letter_resources and settings.dead_letter_address
            else None
        ),
        makes_missing_queues=settings.auto_create_missing_queues
        and bool(settings.dead_letter_address or settings.expiry_address),
        expiry_address=settings.expiry_address or None,
        expiry_resources=(
            AutoCreatedQueue(settings.expiry_queue_prefix, settings.expiry_queue_suffix)
            if settings.auto_create_expiry_resources and settings.expiry_address
            else None
        ),
        expiry=expiry_policy(settings),
        size=size_rules(settings),
        flow=flow_rules(settings),
        pending=pending_rules(settings),
        slow=slow_rules(settings),
    )
    return NO_RULES if live == NO_RULES else live


def _delayed_retry(arguments: FieldTable) -> DelayedRetry | None:
    """The rules by x-delayed-retry-type, -min, -max and LavinMQ's -multiplier; None: nothing is delayed."""
    kind = text_of(arguments, "x-delayed-retry-type")
    min_ms = _integer(arguments.get("x-delayed-retry-min"))
    failed, returned = RETRY_TYPES.get(kind or "disabled", (False, False))
    if not (failed or returned) or not min_ms:
        return None
    multiplier = arguments.get("x-delayed-retry-multiplier")
    return DelayedRetry(
        failed,
        returned,
        min_ms,
        _integer(arguments.get("x-delayed-retry-max")),
        None if multiplier is None else number_of(multiplier),
    )


def _filter(field: Field | None) -> "Expression | None":
    if field is None:
        return None
    from .consumer_filter import selector  # loads the filter language, which few queues need

    return selector(field.text)


INT64_MAX = 2**63 - 1


def redelivery_delay_ms(rules: QueueRules, attempts: int, chance: float, *, counted: bool = True) -> int | None:
    """The delay in ms before a message with `attempts` failed attempts is ready again; None: no delay.

    delay x multiplier^(attempts - 1), changed up or down by at most `redelivery_collision_avoidance_factor` of it
    (`chance`: uniform in [0, 1); 0.5: no change), at most the maximum. A result of 0 schedules the message, too.
    RabbitMQ's delayed retry has another formula, which depends on whether the requeue `counted` as a failed attempt.
    """
    if rules.delayed_retry is not None:
        return _delayed_retry_ms(rules.delayed_retry, attempts, counted)
    delay_ms = rules.redelivery_delay_ms
    if delay_ms <= 0:
        return None
    wait = _truncated(delay_ms * _power(rules.redelivery_delay_multiplier, max(attempts - 1, 0)))
    factor = rules.redelivery_collision_avoidance_factor
    if factor > 0:
        wait = _truncated(wait + wait * factor * (2 * chance - 1))
    cap_ms = rules.max_redelivery_delay_ms
    return min(wait, 10 * delay_ms if cap_ms is None else cap_ms)


def _delayed_retry_ms(retry: DelayedRetry, attempts: int, counted: bool) -> int | None:
    """min x attempts, at most max (address-settings page 6.6); with LavinMQ's multiplier min x multiplier^(n - 1)."""
    if not (retry.delays_failed if counted else retry.delays_returned):
        return None
    attempts = max(attempts, 1)
    grown = attempts if retry.multiplier is None else _power(retry.multiplier, attempts - 1)
    wait = _truncated(retry.min_ms * grown)
    return wait if retry.max_ms is None else min(wait, retry.max_ms)


def _power(base: float, exponent: int) -> float:
    try:
        return float(base**exponent)
    except OverflowError:
        return float("inf")


def _truncated(value: float) -> int:
    return INT64_MAX if value >= INT64_MAX else int(value)
