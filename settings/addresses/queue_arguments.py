"""Queue arguments that override address-settings, in queue.declare and in configured queues: one table.

`settings_of_arguments` makes a layer out of them, which `SettingsRepository.resolve_queue` puts above the merged
entries. Arguments that are not in the table are ignored.
Source: address-settings page 6.6 and 6.7; rulings 11, 14.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..leases import AMPS, BY_ARGUMENT, LIVE_LEASED
from ..lifetime import LIVE
from ..rows.address_settings import BY_ATTRIBUTE, NOTHING_SET, Layer, layer_of
from ..values import (
    ADDRESS,
    BOOLEAN,
    COUNT_INT,
    DELAY,
    DELAY_OR_OFF,
    FACTOR,
    INT_MAX,
    LIMIT,
    LIMIT_NOT_ZERO,
    LONG_MAX,
    MULTIPLIER,
    TEXT,
    Kind,
    integer,
    parse_integer,
    shown,
)


class ArgumentFault(ValueError):
    """An argument has an impossible value, or two contradict each other."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


@dataclass(slots=True, frozen=True)
class QueueArgument:
    """The attribute that an argument overrides, and how it is read."""

    attribute: str
    kind: Kind


_DELIVERIES = Kind(integer(-1, INT_MAX, except_zero=True), parse_integer)
_DELIVERY_LIMIT = Kind(integer(-LONG_MAX - 1, LONG_MAX), parse_integer)
_CONSUMERS = Kind(integer(-1, INT_MAX, except_zero=True), parse_integer)

#: A queue takes only messages that this selector takes; beside it there is no address-setting.
SELECTOR = "x-selector"

QUEUE_ARGUMENTS: dict[str, QueueArgument] = {
    "x-ring-size": QueueArgument("default_ring_size", LIMIT_NOT_ZERO),
    "x-redelivery-delay": QueueArgument("redelivery_delay_ms", DELAY),
    "x-redelivery-delay-multiplier": QueueArgument("redelivery_delay_multiplier", MULTIPLIER),
    "x-redelivery-collision-avoidance-factor": QueueArgument("redelivery_collision_avoidance_factor", FACTOR),
    "x-max-redelivery-delay": QueueArgument("max_redelivery_delay_ms", DELAY),
    "x-max-delivery-attempts": QueueArgument("max_delivery_attempts", _DELIVERIES),
    "x-max-deliveries": QueueArgument("max_delivery_attempts", _DELIVERIES),  # AMPS' word for it
    "x-delivery-limit": QueueArgument("max_delivery_attempts", _DELIVERY_LIMIT),  # N: N + 1 deliveries
    "x-dead-letter-address": QueueArgument("dead_letter_address", ADDRESS),
    "x-expiry-address": QueueArgument("expiry_address", ADDRESS),
    "x-last-value": QueueArgument("default_last_value_queue", BOOLEAN),
    "x-last-value-key": QueueArgument("default_last_value_key", TEXT),
    "x-non-destructive": QueueArgument("default_non_destructive", BOOLEAN),
    "x-max-consumers": QueueArgument("default_max_consumers", _CONSUMERS),
    "x-purge-on-no-consumers": QueueArgument("default_purge_on_no_consumers", BOOLEAN),
    "x-consumers-before-dispatch": QueueArgument("default_consumers_before_dispatch", COUNT_INT),
    "x-delay-before-dispatch": QueueArgument("default_delay_before_dispatch_ms", DELAY_OR_OFF),
    "x-group-buckets": QueueArgument("default_group_buckets", LIMIT),
    "x-group-rebalance": QueueArgument("default_group_rebalance", BOOLEAN),
    "x-group-rebalance-pause-dispatch": QueueArgument("default_group_rebalance_pause_dispatch", BOOLEAN),
    "x-group-first-key": QueueArgument("default_group_first_key", TEXT),
    "x-single-active-consumer": QueueArgument("default_exclusive_queue", BOOLEAN),
}

#: Arguments that can change on an existing queue; others need a new queue (address-settings page 3.8, 4.3).
LIVE_ARGUMENTS = frozenset(
    key for key, argument in QUEUE_ARGUMENTS.items() if BY_ATTRIBUTE[argument.attribute].acts is LIVE
) | {"x-ring-size", SELECTOR}

#: Pairs of arguments that contradict each other.
CONFLICTS: tuple[tuple[str, str], ...] = (
    ("x-ring-size", "x-max-length"),
    ("x-dead-letter-address", "x-dead-letter-exchange"),
    ("x-max-delivery-attempts", "x-delivery-limit"),
    ("x-max-delivery-attempts", "x-max-deliveries"),
    ("x-max-deliveries", "x-delivery-limit"),
    ("x-redelivery-delay", "x-delayed-retry-type"),
    ("x-redelivery-delay", "x-delayed-retry-min"),
    ("x-redelivery-delay", "x-delayed-retry-max"),
)


@dataclass(slots=True, frozen=True)
class OwnSettings:
    """The layer made of a queue's arguments. `given_by`: attribute -> the argument that sets it."""

    settings: Layer = field(default_factory=lambda: NOTHING_SET)
    given_by: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


NO_OWN_SETTINGS = OwnSettings()


def settings_of_arguments(arguments: Mapping[str, object]) -> OwnSettings:
    """The layer made of a queue's arguments. Values are plain Python: int, bool, float, str.

    Of a leased queue without those of its elements: two of these mean something else on other queues.
    Raises: ArgumentFault for a value out of range, or for two arguments that contradict each other.
    """
    if is_leased(arguments):
        arguments = {key: value for key, value in arguments.items() if key not in BY_ARGUMENT}
    check_conflicts(arguments)
    given: dict[str, Any] = {}
    given_by: dict[str, str] = {}
    for key in arguments:
        argument = QUEUE_ARGUMENTS.get(key)
        if argument is None:
            continue
        try:
            value = argument.kind.read(arguments[key])
        except ValueError as error:
            raise ArgumentFault(key, f"{shown(arguments[key])} is not right, expected {error}") from None
        if key == "x-delivery-limit":
            value = -1 if value < 0 else min(value + 1, INT_MAX)
        given[argument.attribute] = value
        given_by[argument.attribute] = key
    for key, overruled in (
        ("x-max-length", {"default_ring_size": -1}),  # a limit of the queue's own beats an inherited ring
        ("x-dead-letter-exchange", {"dead_letter_address": "", "expiry_address": ""}),  # it gets all dead letters
        ("x-dead-letter-address", {"auto_create_missing_queues": True}),  # whatever a file of Artemis says of its own
        ("x-expiry-address", {"auto_create_missing_queues": True}),
    ):
        if key in arguments:
            given |= overruled
            given_by |= dict.fromkeys(overruled, key)
    return OwnSettings(layer_of(**given), MappingProxyType(given_by)) if given else NO_OWN_SETTINGS


def is_leased(arguments: Mapping[str, object]) -> bool:
    """Whether a queue with these arguments is a leased one."""
    return arguments.get("x-queue-type") == AMPS


def live_arguments(arguments: Mapping[str, object]) -> frozenset[str]:
    """Those that can change on an existing queue that has these arguments."""
    return (LIVE_ARGUMENTS - BY_ARGUMENT.keys()) | LIVE_LEASED if is_leased(arguments) else LIVE_ARGUMENTS


def plain_values(arguments: Mapping[str, object]) -> dict[str, object]:
    """The values of a configured queue's arguments, those of a leased queue's elements as they are: a loader read them.

    Raises: ValueError with what is expected.
    """
    own = BY_ARGUMENT if is_leased(arguments) else {}
    return {key: value if key in own else plain_value(key, value) for key, value in arguments.items()}


def plain_value(key: str, value: object) -> object:
    """The value of an argument in a configuration: for a delay, "5s" is 5000.

    Arguments that are not in the table stay as they are, and so do integers where any number is allowed.
    Raises: ValueError with what is expected.
    """
    argument = QUEUE_ARGUMENTS.get(key)
    if argument is None:
        return value
    read = argument.kind.read(value)
    return value if read == value else read


def selector_text(value: object) -> str:
    """A JMS selector. Raises: ValueError: it is none; the text says why."""
    from ...expressions.language import JMS, ExpressionError, compiled  # few have one

    if not isinstance(value, str) or not value.strip():
        raise ValueError("a selector")
    try:
        compiled(value, JMS, {})
    except ExpressionError as error:
        raise ValueError(f"a selector: {error}") from None
    return value


def parse_argument(key: str, text: str) -> object:
    """The value of an argument that a file gives as text, for a reader to check."""
    argument = QUEUE_ARGUMENTS.get(key)
    return text.strip() if argument is None else argument.kind.parse(text)


def check_conflicts(arguments: Mapping[str, object]) -> None:
    """Raises: ArgumentFault when two arguments contradict each other."""
    for one, other in CONFLICTS:
        if one in arguments and other in arguments:
            raise ArgumentFault(one, f"contradicts {other}, expected one of the two")
    overflow = arguments.get("x-overflow")
    if "x-ring-size" in arguments and isinstance(overflow, str) and overflow.startswith("reject-publish"):
        raise ArgumentFault("x-ring-size", f"contradicts x-overflow {overflow}: a ring never refuses a message")
