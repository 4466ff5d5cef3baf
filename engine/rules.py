"""What is special about a queue: limits, times, where its dead go. Resolved once, frozen.

A queue without anything special has no rules at all, and pays for none.
Source: behaviour page 3.1 to 3.5.
"""

from dataclasses import dataclass

from .field_table import Field, FieldTable

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
    )
    return NO_RULES if rules == NO_RULES else rules


def _integer(field: Field | None) -> int | None:
    return field.value if field is not None and isinstance(field.value, int) else None


def _text(field: Field | None) -> str | None:
    return field.text if field is not None and isinstance(field.value, bytes) else None
