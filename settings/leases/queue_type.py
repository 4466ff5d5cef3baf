"""The type of leased queues, registered for settings, policies and declarations. Source: queues page A.3."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..queue_types import QueueType, register_type
from ..values import shown
from .element_values import BadValue, duration
from .leased_settings import (
    AMPS,
    BY_ARGUMENT,
    LEASED_ATTRIBUTES,
    LIVE_LEASED,
    OF_CAPTURE,
    SCOPE,
    LeasedFault,
    read_leased,
    selects,
)

if TYPE_CHECKING:
    from ..declared.declarations import QueueDeclaration


def _plain(arguments: Mapping[str, object]) -> dict[str, object]:
    """Arguments with each value in AMQP's form, whatever the notation of the file; invalid ones do not change."""
    return {argument: _plain_value(argument, value) for argument, value in arguments.items()}


def _plain_value(argument: str, value: object) -> object:
    element = BY_ARGUMENT.get(argument)
    if element is None:
        return value
    try:
        return element.read(value)
    except BadValue:
        return value


def _expected_in_toml(argument: str, value: object) -> str:
    """Refuse durations as text without a unit: AMPS takes them for seconds, and a number would be milliseconds."""
    element = BY_ARGUMENT.get(argument)
    is_duration = element is not None and element.read is duration
    if is_duration and isinstance(value, str) and value.strip().replace(".", "", 1).isdigit():
        return 'a duration: milliseconds, or text with its unit like "5s", "15m", "1h"'
    return ""


def _captures(queue: "QueueDeclaration", topic: str) -> str | None:
    settings = read_leased(queue.name, queue.arguments)[0]
    if not selects(settings.underlying_topic)(topic):
        return None
    condition = "" if settings.filter is None else f", if {settings.filter}"
    return f"{queue.origin_of('x-underlying-topic')}: underlying-topic {shown(settings.underlying_topic)}{condition}"


register_type(
    QueueType(
        AMPS,
        BY_ARGUMENT,
        read_leased,
        shared_arguments=frozenset(
            ("x-expires", "x-queue-type", "x-consumer-timeout", "x-address", "x-dead-letter-exchange")
            + ("x-dead-letter-routing-key", "x-dead-letter-address", "x-expiry-address", SCOPE)
        ),
        consumer_arguments=frozenset(
            ("x-stream-offset", "x-bookmark", "x-rate", "x-rate-max-gap", "x-max-backlog", "x-top-n", "x-browse")
            + ("x-lease-auto-renew",)
        ),
        live_arguments=LIVE_LEASED,
        attributes=LEASED_ATTRIBUTES,
        replacements={"filter": "queue-filter"},
        apply_to="leased_queues",
        policy_keys=frozenset(
            ("dead-letter-exchange", "dead-letter-routing-key", "message-ttl", "expires", "consumer-timeout")
            + ("dead-letter-address", "expiry-address", "max-deliveries")
        ),
        policy_arguments=LIVE_LEASED - OF_CAPTURE,
        refusals=dict.fromkeys(
            ("x-replication", "x-initial-owner", "x-queue-domain"),
            "only a leased queue (x-queue-type = amps) can belong to some nodes, or have owners of its messages;"
            " other queues have one order of messages, and of consumers, for all nodes",
        ),
        plain_arguments=_plain,
        expected_in_toml=_expected_in_toml,
        duplicate_fault=lambda problem: str(LeasedFault("E-NAME", "name", problem)),
        default_rules={
            "underlying_topic": "default: the queue's name",
            "default_publish_target": "default: underlying-topic",
            "fairness": "default of the semantics",
        },
        # Such queues have their own arguments for delivery and expiry.
        unused_settings=("default-", "redelivery-", "max-redelivery-", "max-delivery-", "pending-", "message-eviction"),
        captures=_captures,
    )
)
