"""The settings in the arguments of queue.declare and of configured queues.

`settings_of_arguments` makes a layer out of them, which `SettingsRepository.resolve_queue` puts above the merged
entries. Other arguments than those of `QUEUE_ARGUMENTS` set nothing, except x-max-length and x-dead-letter-exchange.
Source: address-settings page 6.6 and 6.7; rulings 11, 14.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, TypeVar

from ..faults import ArgumentFault
from ..frozen import frozen
from ..queue_types import added_type
from ..rows.address_settings import NOTHING_SET, Layer, layer_of
from ..rows.queue_attributes import LIVE_ARGUMENTS, QUEUE_ARGUMENTS
from ..values import INT_MAX, shown

V = TypeVar("V")

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


@frozen
class OwnSettings:
    """The settings in a queue's arguments. `given_by`: attribute -> the argument that sets it."""

    settings: Layer = field(default_factory=lambda: NOTHING_SET)
    given_by: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


NO_OWN_SETTINGS = OwnSettings()


def settings_of_arguments(arguments: Mapping[str, object]) -> OwnSettings:
    """The settings in a queue's arguments, whose values are plain Python: int, bool, float, str.

    Arguments that the queue's type defines itself are left out, even if other queues have settings of these names.
    Raises: ArgumentFault for a value out of range, or for two arguments that contradict each other.
    """
    if (added := added_type(arguments)) is not None:
        arguments = {key: value for key, value in arguments.items() if key not in added.rows}
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
            raise ArgumentFault(key, f"{shown(arguments[key])} is invalid, expected {error}") from None
        if key == "x-delivery-limit":  # it counts redeliveries, max-delivery-attempts all deliveries
            value = -1 if value < 0 else min(value + 1, INT_MAX)
        given[argument.attribute] = value
        given_by[argument.attribute] = key
    for key, also_set in (
        ("x-max-length", {"default_ring_size": -1}),  # the queue's own limit overrides an inherited ring
        ("x-dead-letter-exchange", {"dead_letter_address": "", "expiry_address": ""}),  # it gets all dead letters
        ("x-dead-letter-address", {"auto_create_missing_queues": True}),  # even if a file of Artemis sets false
        ("x-expiry-address", {"auto_create_missing_queues": True}),
    ):
        if key in arguments:
            given |= also_set
            given_by |= dict.fromkeys(also_set, key)
    return OwnSettings(layer_of(**given), MappingProxyType(given_by)) if given else NO_OWN_SETTINGS


def live_arguments(arguments: Mapping[str, object]) -> frozenset[str]:
    """The arguments that can change on an existing queue with these arguments."""
    added = added_type(arguments)
    return LIVE_ARGUMENTS if added is None else (LIVE_ARGUMENTS - added.rows.keys()) | added.live_arguments


def check_arguments(name: str, arguments: Mapping[str, object]) -> None:
    """Check the arguments of a queue, which are plain Python. Raises: ArgumentFault, the first one."""
    settings_of_arguments(arguments)
    if (added := added_type(arguments)) is not None:
        for fault in added.read(name, arguments)[1]:
            raise fault


def apply_changes(
    current: Mapping[str, V],
    wanted: Mapping[str, V],
    changed: Collection[str],
    check: Callable[[Mapping[str, V]], None],
) -> tuple[dict[str, V], dict[str, ArgumentFault]]:
    """A queue's `current` arguments with those of `changed` as `wanted`, unless they contradict one that stays.

    `check`: raises ArgumentFault for arguments that contradict each other.
    Returns: the arguments; the reason for each of `changed` that stays as it was.
    """
    arguments = {key: value for key, value in current.items() if key not in changed}
    arguments |= {key: wanted[key] for key in changed if key in wanted}
    left, refused = list(changed), {}
    while left:
        try:
            check(arguments)
            break
        except ArgumentFault as fault:
            key = fault.key if fault.key in left else left[-1]
            left.remove(key)
            refused[key] = fault
            if key in current:
                arguments[key] = current[key]
            else:
                del arguments[key]
    return arguments, refused


def plain_values(arguments: Mapping[str, object]) -> dict[str, object]:
    """The values of a configured queue's arguments. Those of its type are as its loader read them.

    Raises: ValueError with the expected form.
    """
    added = added_type(arguments)
    added_rows = () if added is None else added.rows
    return {key: value if key in added_rows else plain_value(key, value) for key, value in arguments.items()}


def plain_value(key: str, value: object) -> object:
    """The value of an argument in a configuration. A delay of "5s" becomes 5000; a factor of 2 stays an integer.

    Arguments that are not in `QUEUE_ARGUMENTS` do not change. Raises: ValueError with the expected form.
    """
    argument = QUEUE_ARGUMENTS.get(key)
    if argument is None:
        return value
    read = argument.kind.read(value)
    return value if read == value else read


def check_selector(value: object) -> None:
    """Check a JMS selector. Raises: ValueError with the fault."""
    from ...expressions.language import JMS, ExpressionError, compiled  # 20 ms, for the few queues with a selector

    if not isinstance(value, str) or not value.strip():
        raise ValueError("a selector")
    try:
        compiled(value, JMS, {})
    except ExpressionError as error:
        raise ValueError(f"a selector: {error}") from None


def parse_argument(key: str, text: str) -> object:
    """The value of an argument of a text file. It is checked later."""
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
