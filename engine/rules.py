"""What is special about a queue: limits, times, where its dead go. Resolved once, frozen.

A queue without anything special has no rules at all, and pays for none.
Source: behaviour page 3.1 to 3.5; address-settings page 3, 4, 6.6.
"""

from dataclasses import dataclass

from .field_table import Field, FieldTable, number_of

DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX = "drop-head", "reject-publish", "reject-publish-dlx"


@dataclass(slots=True, frozen=True)
class QueueRules:
    """None: no such rule."""

    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = DROP_HEAD
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    max_priority: int | None = None
    ring_size: int | None = None
    redelivery_delay_ms: int = 0
    redelivery_delay_multiplier: float = 1.0
    redelivery_collision_avoidance_factor: float = 0.0
    max_redelivery_delay_ms: int | None = None  # None: ten times the delay
    max_delivery_attempts: int | None = None  # deliveries in all; None: unlimited
    dead_letter_address: str | None = None
    expiry_address: str | None = None

    @property
    def counts_deliveries(self) -> bool:
        """Whether clients are told how often a message was tried (x-delivery-count; rulings 14)."""
        return self.redelivery_delay_ms > 0 or self.max_delivery_attempts is not None

    @property
    def is_only_a_ring(self) -> bool:
        """Whether arrivals need nothing but the newest `ring_size` to be kept."""
        return (
            self.ring_size is not None
            and self.message_ttl_ms is None
            and not self.has_limit
            and self.max_priority is None
        )

    @property
    def has_limit(self) -> bool:
        """Whether the number or size of ready messages is bounded."""
        return self.max_length is not None or self.max_length_bytes is not None


#: A queue without rules behaves like this.
NO_RULES = QueueRules()


def rules_of(arguments: FieldTable) -> QueueRules:
    """The rules that queue.declare asked for; `NO_RULES` itself when there are none. The arguments are checked."""
    rules = QueueRules(
        message_ttl_ms=_integer(arguments.get("x-message-ttl")),
        expires_ms=_integer(arguments.get("x-expires")),
        max_length=_integer(arguments.get("x-max-length")),
        max_length_bytes=_integer(arguments.get("x-max-length-bytes")),
        overflow=_text(arguments.get("x-overflow")) or DROP_HEAD,
        dead_letter_exchange=_text(arguments.get("x-dead-letter-exchange")),
        dead_letter_routing_key=_text(arguments.get("x-dead-letter-routing-key")),
        max_priority=_integer(arguments.get("x-max-priority")),
        ring_size=_limit(arguments.get("x-ring-size")),
        redelivery_delay_ms=_integer(arguments.get("x-redelivery-delay")) or 0,
        redelivery_delay_multiplier=_number(arguments.get("x-redelivery-delay-multiplier"), 1.0),
        redelivery_collision_avoidance_factor=_number(arguments.get("x-redelivery-collision-avoidance-factor"), 0.0),
        max_redelivery_delay_ms=_integer(arguments.get("x-max-redelivery-delay")),
        max_delivery_attempts=_limit(arguments.get("x-max-delivery-attempts")),
        dead_letter_address=_text(arguments.get("x-dead-letter-address")) or None,
        expiry_address=_text(arguments.get("x-expiry-address")) or None,
    )
    return NO_RULES if rules == NO_RULES else rules


def _integer(field: Field | None) -> int | None:
    return field.value if field is not None and isinstance(field.value, int) else None


def _limit(field: Field | None) -> int | None:
    """A positive number; -1 means no limit."""
    value = _integer(field)
    return value if value is not None and value > 0 else None


def _number(field: Field | None, default: float) -> float:
    return default if field is None else number_of(field)


def _text(field: Field | None) -> str | None:
    return field.text if field is not None and isinstance(field.value, bytes) else None
