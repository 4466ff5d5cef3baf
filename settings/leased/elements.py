"""The elements of a leased queue: name in AMPS, queue argument, attribute of `LeasedSettings`, reader. One table.

Source: queues page A.3; arguments that AMPS has no element for are named as such.
"""

from dataclasses import dataclass

from .readers import (
    Reader,
    duration,
    enabled,
    integer,
    one_of,
    reasons,
    recovery_point,
    template,
    text,
    topic,
)

#: Queue argument `x-queue-type` of a leased queue.
AMPS = "amps"
AT_LEAST_ONCE, AT_MOST_ONCE = "at-least-once", "at-most-once"
FAST, ROUND_ROBIN, PROPORTIONAL = "fast", "round-robin", "proportional"
STRICT, SUBLET = "strict", "sublet"
BY_QUEUE, LATEST, EARLIEST, BY_DEFAULT = "queue", "latest", "earliest", "default"
EXPIRATION_MODELS = (BY_QUEUE, LATEST, EARLIEST, BY_DEFAULT)
LOCAL, DISTRIBUTED, GROUP = "local", "distributed", "group"
IMMEDIATE, AT_LEASE_END = "immediate", "at-lease-end"
MESSAGE_TYPES = ("json", "binary", "xml", "fix", "nvfix", "bson", "msgpack")

#: Tag of a queue -> its `x-replication`.
TAGS = {"Queue": DISTRIBUTED, "QueueDefinition": DISTRIBUTED, "LocalQueue": LOCAL, "GroupLocalQueue": GROUP}
#: Elements that stand for another one.
SYNONYMS = {"Topic": "Name"}
#: Elements that name the queue itself; it is no argument.
NAME = "Name"


@dataclass(slots=True, frozen=True)
class Element:
    """`tag`: its name in AMPS; None: an argument of ours alone. `argument`: of queue.declare. `read`: also of text."""

    tag: str | None
    argument: str
    attribute: str
    read: Reader


ELEMENTS: tuple[Element, ...] = (
    Element(None, "x-replication", "replication", one_of(LOCAL, DISTRIBUTED, GROUP)),
    Element("MessageType", "x-message-type", "message_type", one_of(*MESSAGE_TYPES)),
    Element("UnderlyingTopic", "x-underlying-topic", "underlying_topic", topic("E-NAME")),
    Element("DefaultPublishTarget", "x-default-publish-target", "default_publish_target", topic("E-NAME")),
    Element("LeasePeriod", "x-lease-period", "lease_period_ms", duration),
    Element("Semantics", "x-semantics", "semantics", one_of(AT_LEAST_ONCE, AT_MOST_ONCE)),
    Element("MaxBacklog", "x-max-backlog-total", "max_backlog", integer(1)),
    Element("MaxPerSubscriptionBacklog", "x-max-backlog-per-consumer", "max_per_subscription_backlog", integer(1)),
    Element("Expiration", "x-message-ttl", "expiration_ms", duration),
    Element(
        "ExpirationModel", "x-expiration-model", "expiration_model", one_of(BY_QUEUE, LATEST, EARLIEST, BY_DEFAULT)
    ),
    Element(None, "x-expire-leased", "expire_leased", one_of(IMMEDIATE, AT_LEASE_END)),
    Element(None, "x-dead-letter-reasons", "dead_letter_reasons", reasons),
    Element(None, "x-dead-letter-data", "dead_letter_data", template),
    Element("Filter", "x-queue-filter", "filter", text("E-EXPR")),
    Element("RecoveryPoint", "x-recovery-point", "recovery_point", recovery_point),
    Element("FairnessModel", "x-fairness", "fairness", one_of(FAST, ROUND_ROBIN, PROPORTIONAL)),
    Element("Leasing", "x-leasing", "leasing", one_of(STRICT, SUBLET)),
    Element("MaxDeliveries", "x-max-deliveries", "max_deliveries", integer(0)),
    Element("MaxCancels", "x-cancel-limit", "max_cancels", integer(0)),
    Element("Priority", "x-priority-expr", "priority", text("E-EXPR")),
    Element("BarrierExpression", "x-barrier-expr", "barrier", text("E-EXPR")),
    Element("FileBackedMetadata", "x-file-backed", "is_file_backed", enabled),
    Element("TargetQueueDepth", "x-target-depth", "target_queue_depth", integer(1000)),
    Element("DeferredAckExpiration", "x-deferred-ack-ttl", "deferred_ack_ms", duration),
    Element("InitialOwner", "x-initial-owner", "initial_owner", topic("E-OWNER-REQUIRED")),
    Element("GroupLocalQueueDomain", "x-queue-domain", "domain", topic("E-OWNER-TAG")),
)

BY_ARGUMENT: dict[str, Element] = {element.argument: element for element in ELEMENTS}
BY_TAG: dict[str, Element] = {element.tag: element for element in ELEMENTS if element.tag is not None}
