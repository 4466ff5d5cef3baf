"""What is special about a queue: limits, times, where its dead go. Resolved once, frozen.

A queue without anything special has no rules at all, and pays for none.
Source: behaviour page 3.1 to 3.5; address-settings page 3, 4, 6.6.
"""

from dataclasses import dataclass, replace

from ..settings import AddressSettings, ResolvedSettings, settings_of_arguments
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


def own_settings(arguments: FieldTable) -> AddressSettings:
    """What a queue's arguments say of the settings of its address. Raises: ArgumentFault (contradictions)."""
    return settings_of_arguments({key: _plain(field) for key, field in arguments.items()}).settings


def rules_of(arguments: FieldTable, settings: ResolvedSettings) -> QueueRules:
    """The rules of a queue; `NO_RULES` itself when there are none.

    `arguments` are checked; `settings` are those of the queue: its arguments over those of its address.
    """
    rules = QueueRules(
        message_ttl_ms=_integer(arguments.get("x-message-ttl")),
        expires_ms=_integer(arguments.get("x-expires")),
        max_length=_integer(arguments.get("x-max-length")),
        max_length_bytes=_integer(arguments.get("x-max-length-bytes")),
        overflow=_text(arguments.get("x-overflow")) or DROP_HEAD,
        dead_letter_exchange=_text(arguments.get("x-dead-letter-exchange")),
        dead_letter_routing_key=_text(arguments.get("x-dead-letter-routing-key")),
        max_priority=_integer(arguments.get("x-max-priority")),
        ring_size=_limit(settings.default_ring_size),
    )
    rules = with_live(rules, settings)
    return NO_RULES if rules == NO_RULES else rules


def _integer(field: Field | None) -> int | None:
    return field.value if field is not None and isinstance(field.value, int) else None


def with_live(rules: QueueRules, settings: ResolvedSettings) -> QueueRules:
    """The rules with what settings rule also for queues that exist (address-settings page 3.8)."""
    has_delay = settings.redelivery_delay_ms > 0
    live = replace(
        rules,
        redelivery_delay_ms=settings.redelivery_delay_ms if has_delay else 0,
        redelivery_delay_multiplier=settings.redelivery_delay_multiplier if has_delay else 1.0,
        redelivery_collision_avoidance_factor=settings.redelivery_collision_avoidance_factor if has_delay else 0.0,
        max_redelivery_delay_ms=settings.max_redelivery_delay_ms if has_delay else None,
        max_delivery_attempts=_limit(settings.max_delivery_attempts),
        dead_letter_address=settings.dead_letter_address or None,
        expiry_address=settings.expiry_address or None,
    )
    return NO_RULES if live == NO_RULES else live


def _limit(value: int) -> int | None:
    """A positive number; everything else means no limit."""
    return value if value > 0 else None


def _plain(field: Field) -> object:
    """A field as settings read it."""
    return field.text if isinstance(field.value, bytes) else number_of(field) if field.tag in "fdD" else field.value


def _text(field: Field | None) -> str | None:
    return field.text if field is not None and isinstance(field.value, bytes) else None
