"""What would become of one more message in a queue, if it came now. Nothing changes. Source: management page 16."""

from ..messages.message import Envelope, Message
from ..rules.queue_rules import DROP_HEAD, REJECT_PUBLISH_DLX
from ..rules.size_rules import FAIL
from .admission import time_to_live_ms
from .limits import refusal, would_overflow
from .queue import Queue

#: What becomes of it.
READY, DISABLED, DROPPED, REFUSED = "ready", "disabled", "dropped", "refused"
DEAD_LETTERED, EVICTS, DROPS_OLDEST = "dead-lettered", "evicts the oldest", "drops the oldest"


def outcome_of(queue: Queue, envelope: Envelope, blob: bytes) -> str:
    """In the order in which admission asks; consumers that wait would make room first."""
    if not queue.is_open:
        return DISABLED
    rules = queue.rules
    if queue.may_drop and (policy := refusal(queue)) is not None:
        return REFUSED if policy == FAIL else DROPPED
    is_free = bool(queue.rota.consumers) and not len(queue.store)
    if rules.has_limit and would_overflow(queue, Message(0, blob, envelope)):
        if rules.overflow == REJECT_PUBLISH_DLX:
            return DEAD_LETTERED
        if rules.overflow != DROP_HEAD:
            return REFUSED
        return READY if is_free else DROPS_OLDEST
    if rules.ring_size is not None and len(queue.store) >= rules.ring_size and not is_free:
        return EVICTS
    return READY


def time_to_live_there_ms(queue: Queue, envelope: Envelope) -> int | None:
    """How long it would live there; None: for ever."""
    return time_to_live_ms(queue.rules, envelope)
