"""The attributes of configured queues, which are also arguments of queue.declare: one row each.

Most of them override an address setting for one queue. Source: address-settings page 3.8, 4.3, 6.6; rulings 11, 14.
"""

from ..frozen import frozen
from ..lifetime import LIVE, NEVER, Lifetime
from ..values import ANY_INT, INT_MAX, TEXT, Kind, integer, parse_integer
from .address_settings import BY_ATTRIBUTE, bean_name
from .row import Row

ONE_OR_MORE = Kind(integer(-1, INT_MAX, except_zero=True), parse_integer)

#: Only messages that match it enter the queue. There is no such address setting.
SELECTOR = "x-selector"


@frozen
class QueueAttribute(Row):
    """The row of an attribute of queues. `attribute`: the address setting that it overrides; empty: none.

    `acts`: when a change reaches existing queues. `argument`: of queue.declare. `bean`: its name in broker-properties.
    """

    argument: str = ""
    bean: str = ""


def attribute(
    key: str,
    overrides: str,
    kind: Kind | None = None,
    acts: Lifetime | None = None,
    *,
    help: str = "",
    argument: str = "",
    bean: str = "",
) -> QueueAttribute:
    """A row. Kind, lifetime and help default to those of the address setting."""
    if overrides:
        setting = BY_ATTRIBUTE[overrides]
        kind = kind or setting.kind
        acts = acts or (LIVE if setting.acts is LIVE else NEVER)
        help = help or setting.help
    assert kind is not None and acts is not None
    return QueueAttribute(
        overrides, key, kind, None, acts, help, argument=argument or f"x-{key}", bean=bean or bean_name(key)
    )


# fmt: off
ATTRIBUTES: tuple[QueueAttribute, ...] = (
    attribute("ring-size", "default_ring_size", acts=LIVE),
    attribute("redelivery-delay", "redelivery_delay_ms"),
    attribute("redelivery-delay-multiplier", "redelivery_delay_multiplier"),
    attribute("redelivery-collision-avoidance-factor", "redelivery_collision_avoidance_factor"),
    attribute("max-redelivery-delay", "max_redelivery_delay_ms"),
    attribute("max-delivery-attempts", "max_delivery_attempts", ONE_OR_MORE,
        help="Deliveries a message gets before it is dead-lettered; -1 is no limit."),
    attribute("max-deliveries", "max_delivery_attempts", ONE_OR_MORE,
        help="Another name of `max-delivery-attempts`, from AMPS."),
    attribute("delivery-limit", "max_delivery_attempts", ANY_INT,
        help="Redeliveries a message gets before it is dead-lettered, as in RabbitMQ."),
    attribute("dead-letter-address", "dead_letter_address",
        help="Exchange or queue that gets messages whose attempts are used up."),
    attribute("expiry-address", "expiry_address", help="Exchange or queue that gets expired messages."),
    attribute("last-value", "default_last_value_queue"),
    attribute("last-value-key", "default_last_value_key"),
    attribute("non-destructive", "default_non_destructive"),
    attribute("max-consumers", "default_max_consumers", ONE_OR_MORE),
    attribute("purge-on-no-consumers", "default_purge_on_no_consumers"),
    attribute("consumers-before-dispatch", "default_consumers_before_dispatch"),
    attribute("delay-before-dispatch", "default_delay_before_dispatch_ms"),
    attribute("group-buckets", "default_group_buckets"),
    attribute("group-rebalance", "default_group_rebalance"),
    attribute("group-rebalance-pause-dispatch", "default_group_rebalance_pause_dispatch"),
    attribute("group-first-key", "default_group_first_key"),
    attribute("single-active-consumer", "default_exclusive_queue"),
    attribute("exclusive", "default_exclusive_queue", argument="x-single-active-consumer",
        help="Artemis' name of `single-active-consumer`; not AMQP's exclusive."),
    attribute("filter", "", TEXT, LIVE, argument=SELECTOR, bean="filterString",
        help="Selector: only messages that match it enter the queue. Clients' argument is `x-selector`."),
)
# fmt: on

#: Key -> argument.
QUEUE_ATTRIBUTES: dict[str, str] = {one.key: one.argument for one in ATTRIBUTES}
#: Name in broker-properties -> argument.
QUEUE_BEANS: dict[str, str] = {one.bean: one.argument for one in ATTRIBUTES}
#: Argument -> its row, for arguments that override an address setting.
QUEUE_ARGUMENTS: dict[str, QueueAttribute] = {}
for _one in ATTRIBUTES:
    if _one.attribute:
        QUEUE_ARGUMENTS.setdefault(_one.argument, _one)
#: Arguments that can change on an existing queue; others need a new queue.
LIVE_ARGUMENTS = frozenset(one.argument for one in ATTRIBUTES if one.acts is LIVE)
