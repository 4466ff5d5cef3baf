"""What leaves a non-destructive queue at its head: expired, evicted from a ring, or too much.

Where nobody gets a dead letter of it, what only the journal has is not read for that. Source: queues page F.
"""

from typing import TYPE_CHECKING

from ..events import EventKind
from ..messages.deaths import EXPIRED, MAXLEN
from ..messages.message import Message
from ..stores.paged_places import Left
from ..stores.paged_run import IN_JOURNAL

if TYPE_CHECKING:
    from ..stores.kept_log import KeptLog
    from .queue import Queue

#: Messages that expire at once, and octets of those that leave a dead letter, before others have their turn.
EXPIRE_SLICE, EXPIRE_OCTETS = 4000, 4 * 1024 * 1024
#: While so many dead letters are on their way, no more of them are made: they are in memory.
BURIED_MAX = 500


def expire(queue: "Queue", log: "KeptLog") -> None:
    """Take expired messages off the head: a slice, the rest at the ends of turns (see `arm`)."""
    now_ns = queue.broker.clock.monotonic_ns()
    has_target = queue.dead_letter_target(EXPIRED) is not None
    if has_target and queue.broker.dead_count >= BURIED_MAX:
        return
    gone: list[Message | Left] = []
    octets = 0
    while 0 < log.head_expires_ns <= now_ns and len(gone) < EXPIRE_SLICE and octets < EXPIRE_OCTETS:
        if has_target:
            message = _with_content(queue, log)
            octets += len(message.blob)
            gone.append(message)
        else:
            gone.append(log.take_head())
    _lose(queue, gone, EXPIRED)


def drop(queue: "Queue", log: "KeptLog") -> None:
    """The oldest is one too many."""
    has_target = queue.dead_letter_target(MAXLEN) is not None
    _lose(queue, [_with_content(queue, log) if has_target else log.take_head()], MAXLEN)


def evict(queue: "Queue", log: "KeptLog", count: int) -> None:
    """The ring has no room for so many of the oldest."""
    gone = [log.take_head() for _ in range(min(count, len(log)))]
    queue.counters.replaced += len(gone)
    forget(queue, gone, EventKind.EVICTED)


def _with_content(queue: "Queue", log: "KeptLog") -> Message:
    """Take the oldest, as it was published."""
    message = log.read_head(log.places.first_id) if log.head_is_paged else None
    gone = log.take_head()
    if isinstance(gone, Message):
        return gone
    assert message is not None
    found = Message(gone.id, message.blob, message.envelope)
    found.expires_ns = gone.expires_ns
    if queue.octets is not None:
        queue.octets += len(found.blob) - gone.octets  # it is counted out as it is
    return found


def _lose(queue: "Queue", gone: list[Message | Left], reason: str) -> None:
    """See `Queue.lose`; what was left to the journal has no dead letter."""
    here = [one for one in gone if isinstance(one, Message)]
    if here:
        queue.lose(here, reason)
    left: list[Message | Left] = [one for one in gone if isinstance(one, Left)]
    if reason == EXPIRED:
        queue.counters.expired += len(left)
        forget(queue, left, EventKind.EXPIRED, reason=reason)
    else:
        queue.counters.dropped += len(left)
        forget(queue, left, EventKind.DROPPED, reason=reason)


def forget(queue: "Queue", gone: list[Message | Left], kind: EventKind, **detail: object) -> None:
    """Messages are out: their octets are, and the listeners hear it."""
    broker = queue.broker
    if queue.octets is not None:
        queue.octets -= sum(len(one.blob) if isinstance(one, Message) else one.octets for one in gone)
    if not broker.listeners:
        return
    here = [one for one in gone if isinstance(one, Message)]
    if here:
        broker.emit(kind, queue, here, **detail)
    ids = [one.id for one in gone if isinstance(one, Left)]
    if ids:
        broker.emit_run(kind, queue, ids, IN_JOURNAL, **detail)
